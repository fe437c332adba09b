"""The comparison with public Python calls: fake kernels and calls, a PyTorch made of NumPy, the recorded page."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from fakes import FakeDevice, FakeKernel

from nnzbench import paths
from nnzbench.devices import DeviceLost
from nnzbench.kernel import Unsupported
from nnzbench.operands import make_operands, reference
from nnzbench.report.build import find
from nnzbench.sweep import Session

RUNNERS = Path(__file__).resolve().parents[2] / "runners"
MODULES = ("fairness", "fairness_calls", "fairness_page")


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(RUNNERS))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def fairness():
    return importlib.import_module("fairness")


@pytest.fixture
def calls():
    return importlib.import_module("fairness_calls")


class Device(FakeDevice):
    """Also what public calls need; `refusal` is what capturing raises."""

    def __init__(self, refusal=None):
        super().__init__()
        self.backend = SimpleNamespace(stream=77)
        self.facts = SimpleNamespace(name="Fake GPU")
        self.refusal = refusal

    def synchronise(self):
        pass

    def capturable(self, run):
        if self.refusal is not None:
            raise self.refusal
        return True


def session_of(device, **kernels):
    session = Session(device, {name: FakeKernel(name, variants) for name, variants in kernels.items()})
    session._warm = True
    return session


def public(fairness, calls, device, us, name="torch.mm", off=0.0, fault=None):
    """A maker of one call that takes `us` and is `off` the truth."""

    def make_calls(libraries, problem, operands):
        def make():
            if fault is not None:
                raise fault
            device.timer.enqueued_us += us
            return reference(problem, operands).value + off

        return [calls.Call(name, lambda math: calls.prepared(device, make, contextlib.nullcontext, np.asarray))]

    return make_calls


def case(fairness, make_calls, kernels=("cublas", "cublaslt"), maths=("f32",)):
    return fairness.Case(fairness.problem("p", "spmm", (8, 12, 4), 0.5), kernels, maths, make_calls)


def test_a_call_is_compared_with_the_fastest_correct_row_of_its_arithmetic(fairness, calls):
    device = Device()
    session = session_of(
        device,
        cublas={"default": (10.0, ""), "tf32_row": (2.0, "")},
        cublaslt={"algo1": (8.0, ""), "algo2": (1.0, "wrong"), "algo3": (1.0, "stale")},
    )
    (row,) = fairness.compare(case(fairness, public(fairness, calls, device, 12.0)), session, None)
    assert (row.problem, row.math, row.call) == ("p", "f32", "torch.mm")
    assert (row.kernel, row.variant, row.theirs_us, row.ours_us, row.ratio) == ("cublaslt", "algo1", 12.0, 8.0, 1.5)
    assert row.graph is True
    assert row.reason == ""
    assert session.kernels["cublaslt"].open_count == 0


def test_ours_is_measured_again_after_theirs_and_the_faster_time_counts(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"v": (10.0, "")})
    kernel = session.kernels["cublas"]
    prepare = kernel._prepare
    times = iter([10.0, 7.5])
    kernel._prepare = lambda p, o, d, v, us, fault: prepare(p, o, d, v, next(times), fault)
    (row,) = fairness.compare(case(fairness, public(fairness, calls, device, 9.0), ("cublas",)), session, None)
    assert (row.ours_us, row.ratio) == (7.5, 1.2)


def test_each_arithmetic_class_has_its_own_rival(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"default": (10.0, ""), "tf32_row": (2.0, "")})
    chosen = case(fairness, public(fairness, calls, device, 4.0), ("cublas",), ("f32", "tf32"))
    rows = list(fairness.compare(chosen, session, None))
    assert [(row.math, row.variant, row.ratio) for row in rows] == [("f32", "default", 0.4), ("tf32", "tf32_row", 2.0)]
    assert "FASTER THAN OURS" in fairness.told(rows[0])
    assert "FASTER" not in fairness.told(rows[1])


@pytest.mark.parametrize("refusal", [NotImplementedError("no cuSPARSE during capture"), RuntimeError("capture")])
def test_a_call_that_refuses_capture_is_timed_as_a_loop(fairness, calls, refusal):
    device = Device(refusal)
    session = session_of(device, cusparse={"v": (10.0, "")})
    chosen = case(fairness, public(fairness, calls, device, 30.0, "cupyx csr @ dense"), ("cusparse",))
    device.timer.calls.clear()
    (row,) = fairness.compare(chosen, session, None)
    assert (row.graph, row.theirs_us, row.ratio, row.reason) == (False, 30.0, 3.0, "")
    assert "(no graph)" in fairness.told(row)


def test_a_lost_device_is_no_refusal(calls):
    with pytest.raises(DeviceLost):
        calls.capturable(Device(DeviceLost("gone")), lambda: None)


def test_a_device_that_is_lost_ends_the_comparison(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"v": (10.0, "lost")})
    with pytest.raises(DeviceLost):
        list(fairness.compare(case(fairness, public(fairness, calls, device, 9.0), ("cublas",)), session, None))


def test_wrong_and_failing_calls_are_rows_with_a_reason_and_no_time(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"v": (10.0, "")})
    wrong = case(fairness, public(fairness, calls, device, 1.0, off=1.0), ("cublas",))
    failing = case(fairness, public(fairness, calls, device, 1.0, fault=NotImplementedError("not\nhere")), ("cublas",))
    for chosen, reason in ((wrong, "outside the f32 tolerance"), (failing, "NotImplementedError: not here")):
        (row,) = fairness.compare(chosen, session, None)
        assert (row.theirs_us, row.ratio) == (None, None)
        assert reason in row.reason
        assert row.reason in fairness.told(row)


def test_without_a_row_of_ours_the_reason_is_told(fairness, calls):
    device = Device()
    session = session_of(device, cudnn={"v": (10.0, "unsupported")})
    (row,) = fairness.compare(case(fairness, public(fairness, calls, device, 1.0), ("cudnn",)), session, None)
    assert (row.ratio, row.reason) == (None, "the suite has no row; cudnn: no such device")


def test_operands_that_a_library_cannot_make_are_a_row_too(fairness):
    def make_calls(libraries, problem, operands):
        raise AttributeError("no to_sparse_semi_structured")

    (row,) = fairness.compare(case(fairness, make_calls), session_of(Device()), None)
    assert row.reason == "AttributeError: no to_sparse_semi_structured"


def test_every_case_has_operands_of_its_sizes_and_kernels_that_compute_it(fairness):
    known = fairness.kernels()
    for one in fairness.cases():
        for name in one.kernels:
            assert one.problem.op in known[name].ops
            assert one.problem.dtype in known[name].dtypes
        c = one.problem.conv
        if c is not None:
            assert (one.problem.m, one.problem.k) == (c.filters, c.channels * c.r * c.s)
    small = [
        *fairness.dense(8, 12, 4),
        fairness.sparse(8, 12, 1, 0.5),
        fairness.sampled(8, 6, 5, 0.5),
        *fairness.convolution(fairness.ConvShape(2, 3, 1, 8, 4, 1, 3)),
        fairness.structured(8, 16, 4),
    ]
    for one in small:
        operands = make_operands(one.problem)
        assert reference(one.problem, operands).value.size
    assert (np.diff(make_operands(small[-1].problem).sparse.offsets) == 8).all()


class Tensor:
    """What the runner uses of a PyTorch tensor, over NumPy."""

    layout = "strided"

    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype

    def to(self, where):
        assert where == "cuda"
        return self

    def t(self):
        return Tensor(self.array.T)

    def contiguous(self, memory_format=None):
        return Tensor(np.ascontiguousarray(self.array))

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.array

    def __matmul__(self, other):
        return Tensor(self.array @ other.array)


class Sparse(Tensor):
    layout = "csr"

    def __init__(self, offsets, indices, values, size):
        self.parts = offsets.array, indices.array
        dense = np.zeros(size, values.array.dtype)
        self.rows = np.repeat(np.arange(size[0]), np.diff(offsets.array))
        dense[self.rows, indices.array] = values.array
        super().__init__(dense)

    def values(self):
        return Tensor(self.array[self.rows, self.parts[1]])

    def sampled(self, a, b, beta):
        assert beta == 0.0
        values = (a.array @ b.array)[self.rows, self.parts[1]]
        return Sparse(Tensor(self.parts[0]), Tensor(self.parts[1]), Tensor(values), self.array.shape)


def fake_torch():
    """Notes in `seen` whether TF32 was allowed in each product."""
    matmul, cudnn = SimpleNamespace(allow_tf32=None), SimpleNamespace(allow_tf32=None, version=lambda: 91900)
    seen = []

    def mm(a, b, out=None):
        seen.append((matmul.allow_tf32, cudnn.allow_tf32))
        return a @ b

    def conv2d(x, w, stride, padding):
        assert (stride, padding, w.array.shape[2:]) == (1, (0, 0), (1, 1))
        mm(Tensor(np.eye(1)), Tensor(np.eye(1)))
        return Tensor(np.einsum("oc,nchw->nohw", w.array[:, :, 0, 0], x.array))

    return SimpleNamespace(
        __version__="2.0",
        backends=SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=matmul)),
        cuda=SimpleNamespace(
            ExternalStream=lambda handle: handle,
            stream=lambda stream: contextlib.nullcontext(),
            synchronize=lambda: None,
            is_available=lambda: True,
        ),
        empty=lambda *size, device, dtype: None,
        from_numpy=Tensor,
        mm=mm,
        nn=SimpleNamespace(functional=SimpleNamespace(conv2d=conv2d)),
        channels_last="last",
        no_grad=contextlib.nullcontext,
        seen=seen,
        sparse=SimpleNamespace(
            sampled_addmm=lambda mask, a, b, beta: mask.sampled(a, b, beta),
            SparseSemiStructuredTensor=SimpleNamespace(),
            to_sparse_semi_structured=lambda dense: dense,
        ),
        sparse_csr="csr",
        sparse_csr_tensor=Sparse,
    )


def test_calls_of_pytorch_compute_the_problem_in_the_arithmetic_asked_for(fairness, calls):
    torch, device = fake_torch(), Device()
    libraries = calls.Libraries(calls.PyTorch(torch, device))
    made = [
        *fairness.dense(8, 12, 4),
        fairness.sparse(8, 12, 1, 0.5),
        fairness.sampled(8, 6, 5, 0.5),
        *fairness.convolution(fairness.ConvShape(2, 3, 4, 5, 6, 1, 1)),
        fairness.structured(8, 16, 4),
    ]
    for one in made:
        session = session_of(device, **{name: {f"{math}_v": (5.0, "") for math in one.maths} for name in one.kernels})
        for kernel in session.kernels.values():
            kernel.ops, kernel.dtypes = frozenset({one.problem.op}), frozenset({one.problem.dtype})
        torch.seen.clear()
        rows = list(fairness.compare(one, session, libraries))
        assert len(rows) == len(one.maths) * len(one.calls(libraries, one.problem, make_operands(one.problem)))
        assert [row.reason for row in rows] == [""] * len(rows)
        if torch.seen:  # TF32 comes last, and is allowed nowhere before
            allowed = [math == "tf32" for math in one.maths]
            assert list(dict.fromkeys(torch.seen)) == [(each, each) for each in allowed]
        assert torch.backends.cudnn.benchmark is True


@pytest.mark.parametrize("columns", [1, 4])
def test_calls_of_cupyx_compute_the_product(fairness, calls, columns):
    cupy = SimpleNamespace(
        asarray=np.asarray,
        asfortranarray=np.asfortranarray,
        asnumpy=np.asarray,
        cuda=SimpleNamespace(ExternalStream=lambda handle: contextlib.nullcontext()),
    )
    device = Device(NotImplementedError("calling cuSPARSE API during stream capture is currently unsupported"))
    one = fairness.sparse(8, 12, columns, 0.5)
    session = session_of(device, cusparse={"v": (10.0, "")})
    session.kernels["cusparse"].ops = frozenset({one.problem.op})
    libraries = calls.Libraries(None, calls.Cupyx(cupy, scipy.sparse, device))
    (row,) = fairness.compare(one, session, libraries)
    assert (row.call, row.graph, row.reason) == ("cupyx csr @ dense", False, "")
    half = fairness.sparse(8, 12, columns, 0.5, "f16")
    assert half.calls(libraries, half.problem, make_operands(half.problem)) == []


def test_a_missing_library_is_named_and_skipped(fairness, calls, monkeypatch, capsys):
    for name in ("torch", "cupyx.scipy.sparse"):
        monkeypatch.setitem(sys.modules, name, None)
    libraries, versions = calls.find_libraries(Device())
    assert libraries == calls.Libraries()
    assert versions == {}
    err = capsys.readouterr().err
    assert "torch is missing" in err
    assert "cupyx.scipy.sparse is missing" in err
    for one in (*fairness.dense(8, 12, 4), fairness.sparse(8, 12, 4, 0.5), fairness.structured(8, 16, 4)):
        assert list(fairness.compare(one, session_of(Device()), libraries)) == []


def test_files_are_written_after_each_case_and_hold_every_row(fairness, calls, monkeypatch, tmp_path):
    device = Device()
    first = case(fairness, public(fairness, calls, device, 12.0), ("cublas",), ("f32", "tf32"))

    def breaks(libraries, problem, operands):
        raise KeyboardInterrupt

    second = fairness.Case(fairness.problem("q", "spmm", (4, 4, 4), 0.5), ("cublas",), ("f32",), breaks)
    monkeypatch.setattr(fairness, "cases", lambda: [first, second])
    monkeypatch.setattr(fairness, "kernels", lambda: {"cublas": FakeKernel("cublas", {"v": (10.0, "")})})
    monkeypatch.setattr(fairness.Session, "warm_up", lambda self, run: None)
    with pytest.raises(KeyboardInterrupt):
        fairness.run(device, None, {"gpu": "Fake GPU", "torch_cudnn": "91900"}, tmp_path / "out")
    frame = pd.read_csv(tmp_path / "out" / "fairness.csv")
    assert list(frame.columns) == importlib.import_module("fairness_page").COLUMNS
    assert list(frame["ratio"].fillna(0)) == [1.2, 0]
    assert frame["reason"][1] == "the suite has no row"
    page = (tmp_path / "out" / "README.md").read_text()
    assert "# Public Python calls against the vendor rows on Fake GPU" in page
    assert "**1.200** (torch.mm, p, f32); none is below 0.95" in page
    assert "* torch.mm on p (tf32): the suite has no row" in page
    assert "* q (f32): no row" in page
    assert "| torch cudnn | 91900 |" in page


def test_the_exit_status_tells_findings(fairness, calls, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["fairness.py", str(tmp_path)])
    device = Device()
    monkeypatch.setattr(fairness, "open_device", lambda name: device)
    monkeypatch.setattr(fairness, "find_libraries", lambda device: (calls.Libraries(object()), {"torch": "2.0"}))
    monkeypatch.setattr(fairness, "versions_of", lambda device: {"gpu": "Fake GPU"})
    for ratio, status in ((0.96, 0), (0.94, 1), (None, 0)):
        monkeypatch.setattr(fairness, "run", lambda *a, ratio=ratio: [fairness.Row("p", "f32", "c", ratio=ratio)])
        assert fairness.main() == status
    assert device.closed
    assert "lowest ratio 0.940; 1 of 1 below 0.95" in capsys.readouterr().out


def test_without_gpu_or_libraries_it_says_so_in_one_sentence(fairness, calls, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["fairness.py", str(tmp_path)])

    def none(name):
        raise Unsupported("CuPy finds no CUDA GPU")

    monkeypatch.setattr(fairness, "open_device", none)
    assert fairness.main() == 2
    assert capsys.readouterr().err == "no GPU: CuPy finds no CUDA GPU\n"
    monkeypatch.setattr(fairness, "open_device", lambda name: Device())
    monkeypatch.setattr(fairness, "find_libraries", lambda device: (calls.Libraries(), {}))
    assert fairness.main() == 2
    assert capsys.readouterr().err == "nothing to compare: install PyTorch or CuPy\n"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sys, "argv", ["fairness.py", "--quick"])
    assert fairness.main() == 2
    assert capsys.readouterr().err.startswith("usage: ")


RECORDED = sorted(path.parent for path in paths.reports().glob("*/fairness/fairness.csv"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.parent.name)
def test_a_recorded_page_says_what_its_rows_say(fairness, folder):
    page = importlib.import_module("fairness_page")
    frame = pd.read_csv(folder / "fairness.csv")
    versions = json.loads((folder / "versions.json").read_text())
    planned = [(one.problem.name, math) for one in fairness.cases() for math in one.maths]
    assert (folder / "README.md").read_text() == page.page(frame, versions, planned)
    timed = frame[frame["ratio"].notna()]
    assert (abs(timed["theirs_us"] / timed["ours_us"] - timed["ratio"]) < 1e-3 * timed["ratio"]).all()
    assert set(zip(frame["problem"], frame["math"], strict=True)) <= set(planned)
    assert frame.loc[frame["ratio"].isna(), "reason"].notna().all()


def test_a_fairness_folder_is_no_result_set():
    assert RECORDED
    assert "fairness" not in find(paths.reports())
