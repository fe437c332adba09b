"""Operators: packed once, run on a caller's arrays; the processor stands for the GPU, and GPU tests are marked."""

import functools
import json
import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import open_fake
from own_files import K, M, matrix
from scipy import sparse

import nnzbench
from nnzbench.advise import api
from nnzbench.advise.operators import arrays, operator
from nnzbench.advise.operators.operator import Operator
from nnzbench.core.plan import Launch
from nnzbench.devices.carried import Carried
from nnzbench.kernels import registry

N = 7


@pytest.fixture(scope="module")
def made(cache_dir):
    return nnzbench.operator(matrix(), N, device="cpu", kernel="sputnik")


def dense(rows=K, columns=N, dtype=np.float32):
    return np.random.default_rng(1).standard_normal((rows, columns)).astype(dtype)


def test_an_operator_multiplies_by_its_matrix(made):
    b = dense()
    assert np.allclose(made(b), matrix() @ b, atol=1e-5)
    out = np.full((M, N), np.nan, np.float32)
    assert made(b, out=out) is out
    assert np.array_equal(out, made(b))
    assert made.facts.kernel == "sputnik"
    assert made.facts.relative_error < 1e-5
    assert 0 < made.facts.weights_bytes < 4 * M * K * 4
    assert made.facts.hot_us is None  # nothing is timed on the processor
    assert repr(made).startswith(f"<nnzbench.Operator ({M}, {K}) by ({K}, {N}) in f32: sputnik on cpu, ")
    with pytest.raises(nnzbench.OperatorError, match="no streams"):
        made(b, stream=7)


@pytest.mark.parametrize(
    ("b", "words"),
    [
        (dense(K + 1), r"b must have the shape \(20, 7\), not \(21, 7\)"),
        (dense(dtype=np.float64), "b must hold float32, not float64"),
        (dense(N, K).T, "contiguous copy"),
        ([[1.0]], "a list is no NumPy array"),
    ],
)
def test_an_array_that_does_not_fit_is_one_sentence(made, b, words):
    with pytest.raises(nnzbench.OperatorError, match=words):
        made(b)


def test_saved_and_loaded_it_is_bit_for_bit_the_same(made, tmp_path):
    made.save(tmp_path / "op")
    assert sorted(path.name for path in (tmp_path / "op").iterdir()) == ["matrix.npz", "operator.json"]
    again = nnzbench.load(tmp_path / "op")
    assert np.array_equal(again(dense()), made(dense()))
    assert again.facts == made.facts


@pytest.mark.parametrize("kernel", ["row_stream", "ring", "sparsert"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_other_kernels_and_types_take_other_data(cache_dir, kernel, dtype):
    kind = np.float16 if dtype == "f16" else np.float32
    tall = np.tile(matrix(), (6, 4))
    try:
        one = nnzbench.operator(tall, 16, device="cpu", kernel=kernel, dtype=dtype)
    except nnzbench.OperatorError as error:
        assert "too few tiles" in str(error) or "ring has no f16 form" in str(error)  # noqa: PT017
        return
    b = dense(tall.shape[1], 16, kind)
    truth = tall.astype(kind).astype(np.float64) @ b.astype(np.float64)
    assert np.allclose(one(b), truth, atol=2e-2 if dtype == "f16" else 1e-4)


@pytest.mark.parametrize(
    "damage",
    ["gone", "format", "json", "k", "dtype", "hot_us", "extra", "matrix", "offsets", "indices", "deep", "list"],
)
def test_a_damaged_folder_is_one_sentence(made, tmp_path, damage):
    made.save(tmp_path)
    path = tmp_path / "operator.json"
    text = json.loads(path.read_text())
    changes = {"format": "x", "k": -1, "dtype": "f64", "hot_us": [], "extra": "#include <x>"}
    arrays_ = dict(np.load(tmp_path / "matrix.npz"))
    if damage == "gone":
        path.unlink()
    elif damage == "matrix":
        (tmp_path / "matrix.npz").write_bytes(b"PK")
    elif damage in arrays_:
        arrays_[damage][1] = 2**30
        np.savez(tmp_path / "matrix.npz", **arrays_)
    else:
        wrong = {"json": "{", "deep": "[" * 100_000, "list": "[]"}
        path.write_text(wrong.get(damage) or json.dumps({**text, damage: changes[damage]}))
    with pytest.raises(nnzbench.OperatorError, match="operator"):
        nnzbench.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernel": "nosuch"}, "there is no kernel 'nosuch' here"),
        ({"kernel": "cublas"}, "there is no kernel 'cublas' here that packs"),
        ({"kernel": "balanced"}, "does not take this operator's weights: not balanced"),
        ({"variant": "-include /etc/passwd"}, "has no variant '-include /etc/passwd'"),
        ({"arch": "sm_75"}, "made for sm_75, and this device is sm_80"),
        ({"n": 2**31 - 1}, "needs .* bytes of memory"),
        ({"digest": "0" * 64}, "not what was checked when this operator was saved"),
    ],
)
def test_what_this_project_does_not_make_of_the_weights_is_refused(made, tmp_path, changes, words):
    made.save(tmp_path)
    path = tmp_path / "operator.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(nnzbench.OperatorError, match=words):
        nnzbench.load(tmp_path)
    if "digest" in changes:
        assert np.array_equal(nnzbench.load(tmp_path, trust=True)(dense()), made(dense()))


@pytest.mark.parametrize("forged", [{"plan": {"source": "../../../../etc/passwd"}}, {"format": "nnzbench-operator/1"}])
def test_an_operator_that_brings_programs_is_refused(made, tmp_path, forged):
    made.save(tmp_path)
    path = tmp_path / "operator.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **forged}))
    with pytest.raises(nnzbench.OperatorError, match=r"holds what no operator has: plan|format is not"):
        nnzbench.load(tmp_path, trust=True)


@pytest.mark.parametrize("given", ["scipy", "file", "array", "spec"])
def test_a_matrix_comes_in_every_usual_form(cache_dir, tmp_path, given):
    np.save(tmp_path / "w.npy", matrix())
    forms = {
        "scipy": sparse.coo_array(matrix()), "file": tmp_path / "w.npy", "array": matrix(), "spec": "12x20@0.7",
    }  # fmt: skip
    one = nnzbench.operator(forms[given], N, device="cpu", kernel="sputnik")
    assert one(dense()).shape == (M, N)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_any_kernel_will_do_where_none_is_named(cache_dir, dtype):
    one = nnzbench.operator(matrix(), 16, device="cpu", dtype=dtype)
    b = dense(columns=16, dtype=np.float16 if dtype == "f16" else np.float32)
    assert np.allclose(one(b), matrix() @ b.astype(np.float32), atol=2e-2)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("a str is no matrix|cannot be read", lambda: nnzbench.operator("nosuch.npy", 8, device="cpu")),
        ("a dict is no matrix", lambda: nnzbench.operator({}, 8, device="cpu")),
        ("whole number from 1", lambda: nnzbench.operator(matrix(), 0, device="cpu")),
        ("unknown kernel .* 'nosuch'", lambda: nnzbench.operator(matrix(), 8, device="cpu", kernel="nosuch")),
        ("that packs weights 'cublas'", lambda: nnzbench.operator(matrix(), 8, device="cpu", kernel="cublas")),
        ("number of seconds above 0, not '1m'", lambda: nnzbench.operator(matrix(), 8, device="cpu", budget="1m")),
        ("number of seconds above 0, not None", lambda: nnzbench.best(matrix(), 8, device="cpu", budget=None)),
        ("not balanced", lambda: nnzbench.operator(matrix(), 8, device="cpu", kernel="balanced")),
        ("whole numbers from 1", lambda: nnzbench.best(matrix(), 0, device="cpu")),
        ("whole numbers from 1, not '32'", lambda: nnzbench.best(matrix(), "32", device="cpu")),
        ("whole numbers from 1, not True", lambda: nnzbench.best(matrix(), True, device="cpu")),
        ("spmv goes with n = 1 alone", lambda: nnzbench.best(matrix(), 8, op="spmv", device="cpu")),
        ("unknown op 'sddm': choose from spmm, sddmm, ", lambda: nnzbench.best(matrix(), 8, op="sddm", device="cpu")),
        ("unknown dtype 'f64'", lambda: nnzbench.best(matrix(), 8, dtype="f64", device="cpu")),
        ("unknown dtype 'f64'", lambda: nnzbench.operator(matrix(), 8, dtype="f64", device="cpu")),
        ("unknown pattern 'dense'", lambda: nnzbench.best("8x8@0.5", 8, pattern="dense", device="cpu")),
        ("did you mean sputnik", lambda: nnzbench.best(matrix(), 8, kernels="sputnk", device="cpu")),
        ("seconds above 0, not -1", lambda: nnzbench.best(matrix(), 8, budget=-1, device="cpu")),
        ("seconds above 0, not '60s'", lambda: nnzbench.best(matrix(), 8, budget="60s", device="cpu")),
        ("height, width", lambda: nnzbench.best(matrix(), 8, op="conv2d", image="8x8", device="cpu")),
        ("pad and stride are of", lambda: nnzbench.best(matrix(), 8, pad=1, device="cpu")),
        ("runs on no device", lambda: nnzbench.best(matrix(), 8, gpu="nvidia-h200", device="cpu")),
        ("writes nothing to out", lambda: nnzbench.best(matrix(), 8, gpu="nvidia-h200", out="here")),
        ("NaN", lambda: nnzbench.operator(np.full((4, 4), np.nan), 8, device="cpu")),
    ],
)
def test_what_can_not_be_made_says_why(cache_dir, words, call):
    with pytest.raises((nnzbench.OperatorError, nnzbench.MatrixError), match=words):
        call()


def test_best_answers_from_python(cache_dir):
    checked = nnzbench.best(matrix(), np.int64(8), device="cpu", kernels="sputnik")
    assert checked.widths[0].entries[0].error < 1e-5
    (one,) = nnzbench.best(matrix(), op="spmv", device="cpu", kernels=["sparsert", "balanced"]).widths
    assert one.n == 1


def test_importing_the_package_loads_nothing():
    code = (
        "import sys, nnzbench; print(sorted(n for n in sys.modules if n.split('.')[0] in ('numpy', 'pandas', 'cupy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert all(hasattr(nnzbench, name) for name in nnzbench.__all__)
    with pytest.raises(AttributeError):
        _ = nnzbench.nosuch


def test_views_tell_what_does_not_fit():
    good = arrays.View(256, (4, 8), "f32", True, 0, 0, lambda shape: None, None)
    arrays.require(good, "b", (4, 8), "f32", 0)
    for change, words in (
        ({"shape": (8, 4)}, "must have the shape"),
        ({"dtype": "f16"}, "must hold f32"),
        ({"contiguous": False}, "contiguous copy"),
        ({"device": 1}, "is on GPU 1, the operator on GPU 0"),
        ({"pointer": 4}, "multiple of 16 bytes"),
    ):
        bad = arrays.View(**{**vars(good), **change})
        with pytest.raises(nnzbench.OperatorError, match=words):
            arrays.require(bad, "b", (4, 8), "f32", 0)
    with pytest.raises(nnzbench.OperatorError, match="not in a GPU's memory"):
        arrays.view(np.ones((2, 2)), "b")


def test_launches_get_the_callers_pointers_and_stream():
    told = []
    device = open_fake({"f": lambda fake, grid, block, args, shared: told.append((shared, *map(int, args)))})
    weights = np.ones(4, np.float32)
    launches = [
        (0, Launch("f", (2, 1, 1), (32, 1, 1), ("b", "c", 5), 60_000)),
        (0, Launch("f", (2, 1, 1), (32, 1, 1), ("w", "c", 6), 100)),
        (0, Launch("f", (0, 1, 1), (32, 1, 1), ("b", "c", 5))),
    ]
    one = Carried(device, (b"x",), launches, {"w": weights}, ("b", "c"))
    one.run({"b": 512, "c": 1024}, 99)
    one.run({"b": 768, "c": 1280}, 98)
    first, second, third, _ = told
    assert (first, third) == ((60_000, 512, 1024, 5), (60_000, 768, 1280, 5))
    assert (second[0], *second[2:]) == (100, 1024, 6)
    assert second[1] not in (512, 1024)
    steps = [step for step in device.backend.log if step[0] in ("function", "launch")]
    assert [limit for *_, limit in steps[:2]] == [60_000] * 2
    assert [stream for *_, stream in steps[2:]] == [99, 99, 98, 98]
    other = Carried(device, (b"x",), launches, {"w": weights}, ("b", "c"), [(1, 2)])
    other.run({"b": 512, "c": 1024}, 99, 7)
    assert told[4][3:] == (5,)
    assert told[5][1:] == (second[1], 1024, 7)  # its weights are the same copy, and it is told the rows
    one.close()
    other.close()


def test_only_the_right_gpu_runs_an_operator(made):
    found = made.packed
    with pytest.raises(nnzbench.OperatorError, match="holds no program for a GPU"):
        Operator(found, open_fake())
    other = replace(found, cubins=(b"x",), saved=replace(found.saved, facts=replace(made.facts, arch="sm_75")))
    with pytest.raises(nnzbench.OperatorError, match="compiled for sm_75, this GPU is sm_90"):
        Operator(other, open_fake())
    with pytest.raises(nnzbench.OperatorError, match="it needs such a GPU"):
        Operator(replace(other, plan=None), made.device)


def test_a_closed_operator_says_so(made, monkeypatch):
    monkeypatch.setattr(operator, "Carried", lambda *_: types.SimpleNamespace(close=lambda: None))
    saved = replace(made.packed.saved, facts=replace(made.facts, arch="sm_90"))
    one = Operator(replace(made.packed, saved=saved, cubins=(b"x",), plan=None), open_fake())
    one.close()
    with pytest.raises(nnzbench.OperatorError, match="is closed"):
        one(dense())


def test_a_plan_that_leaves_its_result_in_another_layout_is_no_operator(cache_dir, monkeypatch):
    """Its rows would come out in the kernel's order, though the check, which puts them in place, passes."""

    class Backwards:
        name, paper, ops, dtypes = "backwards", "none", frozenset({"spmm"}), frozenset({"f32"})

        def plans(self, problem, operands, arch):
            for plan in registry.kernels()["sputnik"].plans(problem, operands, arch):
                yield replace(plan, unpermute=lambda stored: stored)

    known = {**registry.kernels(), "backwards": Backwards()}
    monkeypatch.setattr(registry, "kernels", lambda: known)
    monkeypatch.setattr(
        api, "_session", functools.cache(lambda name: api.open_session(api.open_device(name), known, print))
    )
    with pytest.raises(nnzbench.OperatorError, match="leaves the result in a layout of its own"):
        nnzbench.operator(matrix(), N, device="cpu", kernel="backwards")
