"""A model's layers in one file: what `nnzbench best --save` writes, and what is refused when it is read."""

import json
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from commands import invoke
from on_cpu import fresh_cache  # noqa: F401
from own_files import has_safetensors

import nnzbench
from nnzbench.advise import api, layer, packing
from nnzbench.advise.answer import Answer, Entry, Width
from nnzbench.advise.layer import Question
from nnzbench.advise.operators import archive
from nnzbench.advise.operators.archive import Archive, Facts, Packing, Saved
from nnzbench.advise.operators.make import alike, draft, remake
from nnzbench.core import paths
from nnzbench.core.progress import RunProgress
from nnzbench.data.matrices import files
from nnzbench.kernels import registry

pytestmark = pytest.mark.skipif(not has_safetensors(), reason="safetensors is not installed")


def weights(m, k, zeros=0.8, seed=0, kind=np.float16):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, k)) * (rng.random((m, k)) >= zeros)).astype(kind)


@pytest.fixture
def fresh_choices(tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))


@pytest.fixture
def model(tmp_path):
    from safetensors.numpy import save_file

    tensors = {
        "up.weight": weights(96, 64), "down.weight": weights(64, 96, seed=1), "head.weight": weights(32, 64, 0.0),
        "up.bias": np.zeros(96, np.float16), "conv.weight": weights(8, 9).reshape(8, 1, 3, 3),
    }  # fmt: skip
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors", tensors


def best(path, *words):
    return invoke("best", path, "--brief", *words)


def test_a_checkpoint_is_packed_into_one_file_that_gives_its_operators(model, tmp_path):
    path, tensors = model
    words = ["--save", str(tmp_path / "packed"), "--device", "cpu", "--n", "1,8", "--out", str(tmp_path / "out")]
    kernels = ["--kernel", "tensor_spmm", "--kernel", "delta_spmv"]
    done = best(path, *words, *kernels)
    assert done.exit_code == 0, done.output
    assert "2 layers packed" in done.output
    assert "1 stay dense" in done.output
    assert [one.name for one in (tmp_path / "packed").iterdir()] == [archive.FILE]
    found = archive.load(tmp_path / "packed")
    assert (found.gpu, set(found.layers)) == ("cpu", {"up.weight", "down.weight", "head.weight"})
    assert found.layers["head.weight"].dense
    assert found.saved("head.weight") == {}
    assert archive.memory_bytes(found.layers.values()) > 0
    for name in ("up.weight", "down.weight"):
        saved = found.saved(name)
        assert set(saved) == {1, 8}
        assert np.array_equal(saved[8].matrix.to_dense(), tensors[name])
        operator = remake(saved[8], api.open_device("cpu"), registry.kernels())
        x = np.ones((3, tensors[name].shape[1]), np.float16)
        assert np.allclose(operator(x), x.astype(float) @ tensors[name].astype(float).T, atol=1e-2)
    # readers of compressed-tensors find the weights, this one too
    again = {one.name: one.csr for one in files.read(str(tmp_path / "packed" / archive.FILE), ["*"])}
    assert np.array_equal(again["up.weight"].to_dense(), tensors["up.weight"])


def test_bf16_and_what_rounds_to_zero(tmp_path):
    dense = weights(40, 64, kind=np.float32)
    dense[dense != 0] *= np.where(np.arange(np.count_nonzero(dense)) % 5, 1, 1e-12)
    matrix = archive.canonical(api.as_layer(dense).matrix, "f16")
    assert np.array_equal(matrix.to_dense(), dense.astype(np.float16))
    assert (matrix.values != 0).all()
    rounded = archive.canonical(api.as_layer(dense).matrix, "bf16")
    made = Archive("cpu", "sm_80", "", {"w": packing_of(rounded, "bf16")}, {"w": rounded})
    (saved,) = archive.load(made.save(tmp_path / "w.safetensors")).saved("w").values()
    assert np.array_equal(saved.matrix.to_dense(), rounded.to_dense())


def facts(matrix, dtype="f16", n=8, hot_us=None):
    sizes = (matrix.m, matrix.k, n)
    return Facts("tensor_spmm", "v", "spmm", *sizes, dtype, "sm_80", "b", "c", 0.0, 1, hot_us, "tokens", "0")


def packing_of(matrix, dtype="f16"):
    return archive.Packing(matrix.m, matrix.k, dtype, matrix.pattern_hash(), {8: facts(matrix, dtype)})


@pytest.mark.parametrize("damage", ["gone", "other", "format", "sizes", "choice", "pattern"])
def test_what_is_no_archive_is_one_sentence(tmp_path, damage):
    from safetensors.numpy import save_file

    matrix = api.as_layer(weights(40, 64)).matrix
    target = Archive("cpu", "sm_80", "", {"w": packing_of(matrix)}, {"w": matrix}).save(tmp_path)
    text = json.loads(archive.checkpoints.Safetensors(target).metadata["nnzbench"])
    layer = text["layers"]["w"]
    changes = {
        "format": lambda: text.update(format="x"),
        "sizes": lambda: layer.update(m=-1),
        "choice": lambda: layer["widths"]["8"].update(k=65),
        "pattern": lambda: layer.update(pattern="0"),
    }
    if damage == "gone":
        target.unlink()
    elif damage == "other":
        save_file({"w": np.zeros((2, 2))}, target)
    else:
        changes[damage]()
        save_file({"w.weight": np.zeros((2, 2))}, target, {"nnzbench": json.dumps(text)})
    with pytest.raises(nnzbench.OperatorError, match=r"cannot be read|not a file that|damaged|not in the file"):
        archive.load(tmp_path).saved("w")


def answer(*widths):
    return Answer("w", "spmm", "f16", 40, 64, 512, "gpu", True, tuple(widths))


def width(n, sparse_us, dense_us, kernel="tensor_spmm"):
    return Width(n, (Entry(kernel, "f16", hot_us=sparse_us), Entry("cublas", "f16", hot_us=dense_us)))


def test_choices_are_the_answers_and_narrow_ones_must_gain():
    layer = api.as_layer(weights(40, 64))
    asked = []

    def made(problem, operands, names):
        asked.append((problem.n, names))
        return Saved(facts(operands.sparse, n=problem.n), operands.sparse)

    widths = [width(1, 1.0, 9.0), width(8, 4.9, 9.0), width(16, 5.0, 9.0), width(64, 9.5, 9.0)]
    found, matrix = packing.pack(layer, answer(*widths), made)
    assert np.array_equal(matrix.to_dense(), weights(40, 64))
    assert [(n, one and one.n) for n, one in found.widths.items()] == [(1, 1), (16, 16), (64, None)]
    assert asked == [(16, ["tensor_spmm"]), (8, ["tensor_spmm"]), (1, ["tensor_spmm"])]
    # its operator is slower for tokens than dense
    slow, _ = packing.pack(layer, answer(width(8, 4.0, 9.0)), lambda p, o, names: Saved(facts(matrix, hot_us=9.5), o))
    assert slow.dense

    # in a model its weights come from memory: the cold times decide, and turning may cost what they save
    both = Width(8, (Entry("tensor_spmm", "f16", hot_us=9.5, cold_us=12), Entry("cublas", "f16", hot_us=9, cold_us=14)))
    for us, dense in ((11.4, False), (11.6, True)):
        found, _ = packing.pack(layer, answer(both), lambda p, o, names, us=us: Saved(facts(matrix, hot_us=us), o))
        assert found.dense == dense

    def refuses(problem, operands, names):
        raise nnzbench.OperatorError("no")

    assert packing.pack(layer, answer(width(8, 4.0, 9.0)), refuses)[0].dense


def test_an_interrupted_packing_goes_on_with_what_was_chosen(fresh_choices):
    layer, question = api.as_layer(weights(40, 64)), Question((8,))
    first = packing.Packer("gpu", "sm_90", "1", lambda p, o, names: Saved(facts(o.sparse), o.sparse), keeps=True)
    assert not first.recall(layer, question)
    first.add(layer, question, answer(width(8, 4.0, 9.0)))
    again = packing.Packer("gpu", "sm_90", "1", first.made, keeps=True)
    assert again.recall(layer, question)
    assert (again.layers, again.recalled) == (first.layers, 1)
    assert not again.recall(layer, Question((8, 16)))
    assert not replace(again, driver="2").recall(layer, question)
    assert not replace(again, keeps=False).recall(layer, question)
    short = Width(16, (Entry("cublas", "f16", hot_us=9.0), Entry("tensor_spmm", "f16", reason="the time was over")))
    again.add(layer, Question((16,)), answer(short))  # dense for now, and asked again the next time
    assert not again.recall(layer, Question((16,)))
    assert (first.hurried, again.hurried) == (0, 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--op", "sddmm"], "not for sddmm"),
        (["--match", "head*"], "nothing is to be packed"),
        (["--match", "up*", "--device", "cpu", "--kernel", "sparsert", "--n", "8"], "no kernel"),
    ],
)
def test_what_can_not_be_saved_is_said_first(model, tmp_path, words, told):
    done = best(model[0], "--save", str(tmp_path / "packed"), "--out", str(tmp_path / "out"), *words)
    assert done.exit_code == 2
    assert told in done.output
    assert not (tmp_path / "packed").exists()


def test_a_package_that_saving_needs_is_missed_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    done = best("64x64@0.9", "--save", str(tmp_path / "packed"), "--gpu", "nosuch")
    assert done.exit_code == 2
    assert "writing it needs safetensors: pip install" in " ".join(done.output.split())


@pytest.mark.parametrize("name", ["model.safetensors", "notes.txt", "folder"])
def test_saving_replaces_nothing_but_an_archive(model, tmp_path, name):
    path, _ = model
    (tmp_path / "notes.txt").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / archive.FILE).write_bytes(path.read_bytes())
    before = {one: one.read_bytes() for one in tmp_path.rglob("*.*")}
    done = best(path, "--save", str(tmp_path / name), "--device", "cpu", "--n", "8")
    assert done.exit_code == 2
    assert "nothing that nnzbench best --save wrote: not replaced" in " ".join(done.output.split())
    assert {one: one.read_bytes() for one in tmp_path.rglob("*.*")} == before


def test_estimates_choose_where_the_gpu_is_not_here(tmp_path):
    from safetensors.numpy import save_file

    save_file({"w.weight": weights(2048, 2048, 0.9)}, tmp_path / "w.safetensors")
    shutil.copytree(paths.reports() / "nvidia-h200" / "llm_layers", tmp_path / "reports" / "nvidia-h200" / "llm_layers")
    there = ["--gpu", "h200", "--reports", str(tmp_path / "reports")]  # one set is read in a moment
    done = best(tmp_path / "w.safetensors", "--save", str(tmp_path), *there, "--n", "1")
    assert done.exit_code == 0, done.output
    found = archive.load(tmp_path)
    assert found.arch == "sm_90"
    (saved,) = found.saved("w.weight").values()
    assert saved.facts.arch == "sm_90"
    assert saved.facts.relative_error is None


def test_a_layer_of_a_kind_takes_the_choice_of_its_first_and_is_checked(fresh_choices):
    device, known = api.open_device("cpu"), registry.kernels()
    first, other = (layer.from_matrix(files.from_array("w", weights(96, 64, seed=seed)), "f16") for seed in (1, 2))
    problem = first.problem("spmm", 16, "f16")
    chosen = replace(draft(problem, first.operands(problem), ["tensor_spmm"], device.arch, known).facts, hot_us=3.5)
    absent = replace(chosen, variant="none")
    lost, saved = alike([(absent, other.matrix), (chosen, other.matrix)], device, known)
    assert lost is None
    assert (saved.facts.variant, saved.facts.hot_us) == (chosen.variant, 3.5)
    assert 0 < saved.facts.relative_error < 1e-2
    assert saved.facts.digest != chosen.digest
    assert np.array_equal(saved.matrix.to_dense(), weights(96, 64, seed=2))

    packer = packing.Packer("cpu", device.arch, "", None, keeps=True)
    packer.layers["first"] = Packing(96, 64, "f16", "", {1: None, 16: chosen})
    session = SimpleNamespace(device=device, kernels=known)
    packer.add_alike({"first": [other]}, Question((1, 16)), session, RunProgress())
    assert packer.layers[other.title] == Packing(96, 64, "f16", saved.matrix.pattern_hash(), {1: None, 16: saved.facts})
    assert packer.recall(other, Question((1, 16)))
