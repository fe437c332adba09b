"""`nnzbench best` on a device: what is tried, recorded, ranked and said. The device is a fake, or the processor."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from commands import invoke
from fake_records import record
from fakes import FakeDevice, FakeKernel, Silent
from own_files import has_safetensors, matrix, write_all

import nnzbench
from nnzbench import devices
from nnzbench.advise import layer as layers
from nnzbench.advise import measured
from nnzbench.advise.answer import checked, sentence
from nnzbench.advise.draw import stem_of
from nnzbench.advise.layer import Question
from nnzbench.advise.measured import answer, next_width
from nnzbench.bench.search import Found
from nnzbench.bench.session import Session
from nnzbench.data.matrices import files
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import read_records


class Timed(FakeKernel):
    """A kernel whose time follows from the number of columns."""

    def __init__(self, name, time, **other):
        super().__init__(name, **other)
        self._time = time

    def candidates(self, problem, operands, device):
        self.variants = {variant: (self._time(problem.n), "") for variant in ("v1", "v2")}
        yield from super().candidates(problem, operands, device)


def world():
    """cuBLAS takes 10 us up to 64 columns and grows then; a sparse kernel grows from the start."""
    weights = {"weights": np.zeros(2000, np.int8)}
    return {
        "cublas": Timed("cublas", lambda n: 10.0 * max(1.0, n / 1024), **weights),
        "sputnik": Timed("sputnik", lambda n: 1.0 + 0.05 * n, **weights),
        "ring": Timed("ring", lambda n: 3.0 + 0.05 * n, **weights),
    }


def ask(folder, kernels, device=None, layer=None, **question):
    device = device or FakeDevice()
    clock = device.timer.clock if device.timer else (lambda: 0.0)
    session = Session(device, kernels, environment={"driver": "1"}, clock=clock, _warm=True)
    question = Question(**{"ns": (32,), "kernels": tuple(kernels), **question})
    with Results(folder, True, False, {}, lambda note: None) as results:
        return answer(layer or layers.load(["64x96@0.9"])[0], question, session, results, Silent())


def test_the_fastest_is_named_against_dense_with_a_crossover(tmp_path):
    found = ask(tmp_path, world(), ns=(32, 64), budget_s=1e6)
    verdict = found.verdict(found.widths[0])
    assert (verdict.chosen.kernel, verdict.chosen.us, verdict.other.kernel) == ("sputnik", pytest.approx(2.6), "cublas")
    assert found.crossover is not None
    assert found.crossover.sparse_wins
    assert 170 < found.crossover.n < 190  # 1 + 0.05 n = 10 at 180
    assert [one.kernel for one in found.widths[0].entries] == ["sputnik", "ring", "cublas"]
    assert found.widths[0].tried == 6
    assert not found.widths[0].unfinished


def test_every_candidate_is_a_row_with_one_selected_and_asking_again_replaces_none(tmp_path):
    first = ask(tmp_path, world(), crossover=False)
    rows = read_records(tmp_path / "records.csv")
    assert {row.problem for row in rows} == set(first.problems)
    assert len(rows) == 3 * 2 * 3  # kernels, variants, policies
    assert {row.kernel for row in rows if row.selected and row.policy == "stream"} == {"cublas", "ring", "sputnik"}
    assert {row.experiment for row in rows} == {"mine"}
    assert all(row.median_us for row in rows if row.policy == "stream")
    assert all(row.median_us or row.reason.startswith("not timed: over 1.25 times as slow") for row in rows)
    again = ask(tmp_path, world(), crossover=False)
    assert again.problems[0] != first.problems[0]
    assert ".r2_" in again.problems[0]
    assert len(read_records(tmp_path / "records.csv")) == 36


def test_the_budget_ends_the_search_and_every_side_was_timed(tmp_path):
    whole = FakeDevice()
    ask(tmp_path / "whole", world(), whole, budget_s=1e6, crossover=False)
    found = ask(tmp_path, world(), budget_s=0.8 * whole.timer.clock.now, crossover=False)
    assert 2 < found.widths[0].tried < 6
    assert found.widths[0].unfinished
    rows = read_records(tmp_path / "records.csv")
    assert {row.kernel for row in rows if row.variant} == {"cublas", "ring", "sputnik"}


class Slow:
    """A search that takes seconds of its own, whatever it is given; the one of `late` columns has programs left."""

    late = 0
    given: ClassVar[list[tuple[int, str, int]]] = []
    open: ClassVar[set[int]] = set()

    def __init__(self, subject, operands, names, attempts, progress, seen, expected):
        self.n, self.clock = subject.problem.n, attempts.session.device.timer.clock
        self.found = Found({}, ())
        self.compiling = self.n == self.late

    def __enter__(self):
        self.open.add(self.n)

    def __exit__(self, *why):
        self.open.discard(self.n)

    def go(self, seconds):
        self.given.append((self.n, "go", round(seconds)))
        self.clock.now += {1: 2.0, 32: 30.0, 256: 4.0}[self.n]

    def settle(self, seconds):
        assert self.n in self.open
        self.given.append((self.n, "settle", round(seconds)))

    def record_unreached(self):
        pass


@pytest.mark.parametrize(("late", "settled"), [(0, []), (32, [(32, "settle", 12)])])
def test_what_a_width_does_not_need_is_the_others(tmp_path, monkeypatch, late, settled):
    monkeypatch.setattr("nnzbench.advise.measured.Search", Slow)
    monkeypatch.setattr(Slow, "late", late)
    monkeypatch.setattr(Slow, "given", given := [])
    ask(tmp_path, world(), ns=(1, 32, 256), budget_s=60.0)
    # 60 / 4, 58 / 3, 28 / 2; what compiled during the others' time has half of the 24 that are left
    assert given == [(1, "go", 15), (32, "go", 19), (256, "go", 14), *settled]
    assert not Slow.open


def test_a_kernel_that_would_compile_longer_than_is_left_lets_the_others_be_tried(tmp_path):
    layer = layers.load(["512x512@0.5"])[0]  # 16 s for a program that holds the weights
    kernels = {"sparsert": Timed("sparsert", lambda n: 2.0, weights=np.zeros(2000, np.int8)), **world()}
    short = ask(tmp_path / "short", kernels, layer=layer, budget_s=15, crossover=False)
    assert short.widths[0].tried == 6
    assert short.widths[0].unfinished == ("sparsert",)
    assert {one.kernel: one.reason for one in short.widths[0].entries}["sparsert"].startswith("the time was over")
    whole = ask(tmp_path / "whole", kernels, layer=layer, budget_s=1e6, crossover=False)
    assert whole.widths[0].tried == 8
    assert whole.widths[0].entries[0].kernel == "sparsert"
    rows = [row.kernel for row in read_records(tmp_path / "whole" / "records.csv")]
    assert rows.index("sparsert") > rows.index("ring")


def test_on_the_processor_kernels_are_checked_and_not_timed(tmp_path):
    found = ask(tmp_path, world(), FakeDevice(timed=False))
    assert (found.verdict(found.widths[0]).chosen, checked(found.widths[0])) == (None, "3 kernels")
    assert found.widths[0].tried == 3  # one candidate of each
    assert all(row.policy == "check" for row in read_records(tmp_path / "records.csv"))


def test_a_wrong_kernel_is_named(tmp_path):
    kernels = {"sputnik": FakeKernel("sputnik", {"v": (1.0, "wrong")}), **{"cublas": world()["cublas"]}}
    found = ask(tmp_path, kernels, FakeDevice(timed=False))
    assert "WRONG: sputnik" in sentence(found, found.widths[0])
    assert [entry.kernel for entry in found.wrong()] == ["sputnik"]


def test_the_next_width_halves_the_gap():
    assert next_width([(32, 2, 1)]) == 64
    assert next_width([(32, 1, 2)]) == 16
    assert next_width([(1, 1, 2)]) is None
    assert next_width([(4096, 2, 1)]) is None
    assert next_width([(64, 2, 1), (256, 1, 2)]) == 128
    assert next_width([(128, 2, 1), (136, 1, 2)]) is None


@pytest.mark.parametrize(
    ("spec", "pattern", "nnz"),
    [
        ("32x64@0.75", "uniform", 512),
        ("32x64@75%", "magnitude", 512),
        ("32x64@0.5", "2:4", 1024),
        ("8x256@.75", "balanced", 512),
    ],
)
def test_a_size_stands_for_a_file(spec, pattern, nnz):
    (found,) = layers.load([spec], pattern=pattern)
    assert found.matrix.nnz == nnz


@pytest.mark.parametrize(
    ("spec", "pattern", "words"),
    [
        ("0x5@0.9", "uniform", "no size of a layer"),
        ("99999x99999@0.9", "uniform", "no size"),
        ("8x8@0.9", "2:4", "@0.5"),
    ],
)
def test_impossible_sizes_are_refused(spec, pattern, words):
    with pytest.raises(MatrixError, match=words):
        layers.load([spec], pattern=pattern)


def test_convolutions_take_their_shape_from_the_weights(tmp_path):
    np.save(tmp_path / "conv.npy", np.ones((4, 3, 2, 2), np.float32))
    (found,) = layers.load([str(tmp_path / "conv.npy")])
    problem = found.problem("conv2d", 2, "f32", layers.Image(8, 8, 1, 1))
    assert (problem.m, problem.k, problem.n) == (4, 12, 2 * 9 * 9)
    assert "4 filters by 3 x 2 x 2" in found.note
    assert "im2col" in found.note
    with pytest.raises(MatrixError, match="add --image"):
        found.problem("conv2d", 1, "f32")
    with pytest.raises(MatrixError, match="needs weights of 3 axes"):
        found.problem("conv1d", 1, "f32", layers.Image(1, 8))


@pytest.mark.parametrize("name", ["f16", "fp16", "half", "float16", "torch.float16", np.float16().dtype])
def test_a_type_is_known_by_what_people_and_libraries_call_it(name):
    assert layers.dtype_of(name) == "f16"


@pytest.mark.skipif(not has_safetensors(), reason="safetensors is not installed")
def test_a_whole_checkpoint_stands_for_its_layers_by_the_files_own_names(tmp_path):
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    layer, sparse = rng.standard_normal((8, 16)).astype(np.float16), matrix().astype(np.float16)
    bitmask = {f"model.up.weight{part}": one for part, one in files.pack_bitmask(files.from_array("w", sparse)).items()}
    there = {
        "model.embed_tokens.weight": layer,
        "model.q.weight": layer,
        "conv.weight": np.ones((4, 3, 2, 2)),
        **bitmask,
    }
    save_file(there, tmp_path / "model.safetensors")
    apart: list[str] = []
    found = layers.load([str(tmp_path / "model.safetensors")], apart=apart)
    assert {one.title: one.dtype for one in found} == {"model.q.weight": "f16", "model.up.weight": "f32"}
    assert sorted(apart) == ["conv.weight", "model.embed_tokens.weight"]
    assert ["sparse-bitmask" in one.note for one in found] == [one.title == "model.up.weight" for one in found]
    (conv,) = layers.load([str(tmp_path / "model.safetensors")], op="conv2d", apart=apart)
    assert conv.title == "conv.weight"
    with pytest.raises(MatrixError, match=r"none of its 4 matrices is a layer of conv1d"):
        layers.load([str(tmp_path / "model.safetensors")], op="conv1d", apart=apart)


def test_what_does_not_fit_a_computer_is_refused_before_it_is_made(tmp_path):
    (found,) = layers.load(["64x4096@0.9"])
    with pytest.raises(MatrixError, match="needs over 8 GB"):
        found.problem("spmm", 1 << 20, "f32")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "value"), [("f16", 65520.0), ("bf16", 3.4e38)])
def test_values_that_a_type_can_not_hold_are_refused_before_anything_runs(here, dtype, value):
    np.save(here / "large.npy", np.array([[value, 0], [0, 1]], np.float32))
    for how in (["--device", "cpu"], ["--gpu", "nvidia-h200"]):
        result = best(here / "large.npy", "--dtype", dtype, "--n", "3", *how)
        assert result.exit_code == 2
        assert f"large: values up to {value:.3g} do not fit {dtype}: use dtype " in result.output
        assert result.output.strip().endswith("f32.")
    with pytest.raises(MatrixError, match=f"do not fit {dtype}"):
        nnzbench.operator(here / "large.npy", 3, dtype=dtype, device="cpu")
    np.save(here / "fits.npy", np.array([[65519.0, 0], [0, 1]], np.float32))  # nearer to 65504 than to infinity
    (fits,) = layers.load([str(here / "fits.npy")])
    assert np.isfinite(fits.operands(fits.problem("spmm", 3, "f16")).sparse.values).all()


def best(*words):
    return invoke("best", *words)


@pytest.fixture
def here(monkeypatch, tmp_path):
    monkeypatch.setattr("nnzbench.cli.best.paths.results", lambda: tmp_path / "results")
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gone.npy"], "gone.npy: cannot be read"),
        (["8x8@0.5", "--n", "0"], "not a list of whole numbers"),
        (["8x8@0.5", "--n", "1,x"], "not a list of whole numbers"),
        (["8x8@0.5", "--n", "9" * 30], "not a list of whole numbers"),
        (["8x8@0.5", "--budget", "soon"], "is not a time"),
        (["8x8@0.5", "--op", "conv2d", "--image", "x"], "is not HEIGHTxWIDTH"),
        (["8x8@0.5", "--gpu", "nosuch"], "nothing is recorded on 'nosuch'"),
        (["8x8@0.5", "--gpu", "nvidia-h200", "--device", "cpu"], "runs on no device"),
        (["8x8@0.5", "--gpu", "nvidia-h200", "--budget", "60s"], "--budget and --no-crossover are of measuring"),
        (["8x8@0.5", "--gpu", "nvidia-h200", "--no-crossover"], "--budget and --no-crossover are of measuring"),
        (["8x8@0.5", "--device", "cpu", "--plot", "here.png"], "--device cpu measures none"),
        (["8x8@0.5", "--op", "spmv", "--n", "2"], "spmv goes with n = 1 alone"),
        (["8x8@0.5", "--gpu", "l40s"], "datasets/gpus.csv: did you mean nvidia-l4?"),
        (["8x8@0.5", "--dtype", "f64"], "unknown dtype 'f64': choose from f32, f16, bf16 (or fp32,"),
        (["8x8@0.5", "--kernel", "nosuch"], "unknown kernel 'nosuch'"),
        (["8x8@0.5", "--reports", "x"], "says nothing alone"),
        (["8x8"], "8x8: a size has its share of zeros, from 0 to below 1, after @: 4096x11008@0.9"),
        (["8x8@90"], "8x8@90: a size has its share of zeros"),
        (["8x8@0.5", "--image", "8x8"], "input: spmm has none"),
        (["8x8@0.5", "--stride", "2"], "input: spmm has none"),
        (["8x8@0.5", "--match", "a*"], "no file is named"),
        (["gone.npy", "--pattern", "2:4"], "a file has its own"),
        (["8x8@0.6", "--pattern", "2:4"], "2 of 4 are not zero in a 2:4 pattern: ask for @0.5"),
        (["64x8@0.5", "--pattern", "64:2:8"], "2 of 8 are not zero in a 64:2:8 pattern: ask for @0.75"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(here, words, reason):
    result = best(*words)
    assert result.exit_code == 2
    assert reason in result.output
    assert "Traceback" not in result.output


def test_every_format_is_checked_on_the_processor(here, cache_dir, monkeypatch):
    """One process asks about all files: `file:` rows in the folder `mine`, checked by a real kernel."""
    monkeypatch.setenv("NNZBENCH_CACHE", str(cache_dir))
    files = write_all(here, has_safetensors())
    result = best(*files.values(), "--n", 8, "--device", "cpu", "--kernel", "sputnik", "--json")
    assert result.exit_code == 0, result.output
    answers = json.loads(result.stdout)["answers"]
    assert len(answers) == len(files)
    assert {one["nnz"] for one in answers} == {int(np.count_nonzero(matrix()))}
    assert all(one["widths"][0]["entries"][0]["relative_error"] < 1e-5 for one in answers)
    rows = read_records(here / "results" / "cpu" / "mine" / "records.csv")
    assert {row.status for row in rows} == {"ok"}
    assert all(row.source.startswith("file:") for row in rows)


def test_the_terminal_says_it_in_a_table(here, monkeypatch):
    monkeypatch.setattr(devices, "open_gpu", FakeDevice)
    monkeypatch.setattr("nnzbench.bench.session.open_session", lambda device, known, note: Session(device, world()))
    monkeypatch.setattr("nnzbench.advise.measured.baselines", lambda op: tuple(world()))
    result = best("64x96@0.9", "48x96@0.9", "--n", "32", "--budget", "2s", "--plot", here / "x.png")
    assert result.exit_code == 0, result.output
    assert "2 of 2 layers" in result.stdout.splitlines()[0]
    assert result.stdout.count("sputnik fp32 is ") == 2
    assert (here / "x.svg").stat().st_size > 1000
    assert {path.name for path in here.glob("*.*g")} == {"x.png", "x.svg"}


@pytest.mark.parametrize(("name", "stem"), [("layer.q_proj", "layer.q_proj"), ("v1.5.pdf", "v1.5"), ("x.PNG", "x")])
def test_a_layer_s_name_keeps_its_dot(name, stem):
    assert stem_of(Path(name)) == Path(stem)


def test_a_kernel_s_cost_is_of_its_fastest_hot_variant_with_all_that_is_paid_once():
    times = {("a", "hot"): (1.0, 2.0, 30.0), ("b", "hot"): (3.0, 5.0, 70.0), ("a", "cold"): (9.0, 2.0, 30.0)}
    times[("b", "cold")] = (4.0, 5.0, 70.0)
    rows = [
        record(kernel="ring", variant=variant, policy=policy, median_us=us, prepare_ms=prepare, compile_ms=compiling)
        for (variant, policy), (us, prepare, compiling) in times.items()
    ]
    operands = SimpleNamespace(sparse=SimpleNamespace(m=64, k=256, nnz=1638))
    sizes = SimpleNamespace(known={("ring", "a"): 100, ("ring", "b"): 200})
    (one,) = measured._entries(rows, None, operands, sizes)
    assert (one.variant, one.hot_us, one.cold_us) == ("a", 1.0, 4.0)
    assert (one.memory_bytes, one.packing_ms) == (100, 32.0)
    sizes.known = {("cublas", "a"): 100}
    (dense,) = measured._entries([replace(row, kernel="cublas") for row in rows], None, operands, sizes)
    assert dense.packing_ms is None


@pytest.mark.parametrize(
    ("packs", "s_per_nonzero", "each"),
    [(False, 1.0, 30.0), (True, 1.0, 7.5), (True, 0.0, 30.0), (True, 1e-3, (60 - 1e-3 * 2 * (5 * 614 + 5 * 307)) / 2)],
)
def test_kinds_share_the_time_that_packing_the_rest_leaves(tmp_path, monkeypatch, packs, s_per_nonzero, each):
    """Six layers of 64x96 and six of 32x96, 90 % zeros: 614 and 307 nonzeros each."""
    many = layers.load([f"{m}x96@0.9" for m in (64, 32) for _ in range(6)])
    given = []

    def answered(layer, question, *_):
        given.append(question.budget_s)
        return SimpleNamespace(label=layer.title)

    monkeypatch.setattr(measured, "answer", answered)
    monkeypatch.setattr(measured, "_like", lambda layer, *_: layer)
    monkeypatch.setattr(measured, "PACKING_S_PER_NONZERO", s_per_nonzero)
    session = Session(FakeDevice(), world(), clock=lambda: 0.0, _warm=True)
    question = Question((1, 16), packs=packs, budget_s=60.0)
    assert len([*measured.answers(many, question, session, None, Silent())]) == 12
    assert given == pytest.approx([each, 2 * each], rel=0.02)  # no time passes
