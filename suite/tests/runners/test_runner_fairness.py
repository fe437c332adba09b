"""The comparison with public Python calls: fake kernels, a PyTorch made of NumPy, and SciPy as cupyx."""

import contextlib
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from fakes import FakeDevice, FakeKernel

from nnzbench.bench.session import Session
from nnzbench.core import paths
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices import DeviceLost
from nnzbench.site.build import find

RUNNER = "fairness"
DENSE = Problem("fairness", "p", "spmm", 8, 12, 4, 0.5, "uniform:0", "f16")
CONV = ConvShape(2, 3, 4, 5, 6, 1, 1)
SMALL = (
    DENSE,
    replace(DENSE, dtype="f32"),
    Problem("fairness", "v", "spmv", 8, 12, 1, 0.75, "uniform:0"),
    Problem("fairness", "s", "sddmm", 8, 5, 6, 0.5, "uniform:0"),
    Problem("fairness", "c", "conv2d", 6, 3, 40, 0.9, "uniform:0", conv=CONV),
    Problem("fairness", "2:4", "spmm", 8, 16, 4, 0.5, "nm:2:4:0", "f16"),
)


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
    both = frozenset({"f32", "f16"})
    session = Session(device, {name: FakeKernel(name, variants, dtypes=both) for name, variants in kernels.items()})
    session._warm = True
    return session


@pytest.fixture
def compared(runner, monkeypatch):
    """Compares one call, `torch.mm`, that takes `us`, is `off` the truth or fails, on a dense problem in fp16."""

    def rows(device, us, off=0.0, fault=None, **kernels):
        def calls(library, problem, operands):
            def make():
                if fault is not None:
                    raise fault
                device.timer.enqueued_us += us
                return reference(problem, operands).value + off

            yield "torch.mm", make

        monkeypatch.setitem(runner.KERNELS, "dense", tuple(kernels))
        library = runner.Library(None, calls, device, contextlib.nullcontext, np.asarray)
        return list(runner.compare(DENSE, session_of(device, **kernels), [library]))

    return rows


def test_a_call_is_compared_with_the_fastest_correct_row_of_its_arithmetic(compared):
    cublas = {"f16_default": (10.0, ""), "tf32_row": (2.0, "")}
    cublaslt = {"f16_a": (8.0, ""), "f16_b": (1.0, "wrong"), "f16_c": (1.0, "stale")}
    (row,) = compared(Device(), 12.0, cublas=cublas, cublaslt=cublaslt)
    assert (row.problem, row.math, row.call) == ("p", "f16", "torch.mm")
    assert (row.kernel, row.variant, row.theirs_us, row.ours_us, row.ratio) == ("cublaslt", "f16_a", 12.0, 8.0, 1.5)
    assert row.graph is True
    assert row.reason == ""
    assert "FASTER" not in str(row)
    (row,) = compared(Device(), 4.0, cublas=cublas)
    assert row.ratio == 0.4
    assert "FASTER THAN OURS" in str(row)


def test_ours_is_measured_again_after_theirs_and_the_faster_time_counts(compared, monkeypatch):
    times = iter([10.0, 7.5])
    prepare = FakeKernel._prepare
    monkeypatch.setattr(
        FakeKernel, "_prepare", lambda self, p, o, d, v, us, fault: prepare(self, p, o, d, v, next(times), fault)
    )
    (row,) = compared(Device(), 9.0, cublas={"f16_v": (10.0, "")})
    assert (row.ours_us, row.ratio) == (7.5, 1.2)


@pytest.mark.parametrize("refusal", [NotImplementedError("no cuSPARSE during capture"), RuntimeError("capture")])
def test_a_call_that_refuses_capture_is_timed_as_a_loop(compared, refusal):
    (row,) = compared(Device(refusal), 30.0, cublas={"f16_v": (10.0, "")})
    assert (row.graph, row.theirs_us, row.ratio, row.reason) == (False, 30.0, 3.0, "")
    assert "(no graph)" in str(row)


def test_a_device_that_is_lost_ends_the_comparison(runner, compared):
    with pytest.raises(DeviceLost):
        compared(Device(), 9.0, cublas={"f16_v": (10.0, "lost")})
    with pytest.raises(DeviceLost):
        runner.capturable(Device(DeviceLost("gone")), lambda: None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"off": 1.0}, "outside the f16 tolerance"),
        ({"fault": NotImplementedError("not\nhere")}, "NotImplementedError: not here"),
        ({"cublas": {"f16_v": (10.0, "unsupported")}}, "the suite has no row; cublas: no such device"),
    ],
)
def test_what_is_wrong_or_fails_is_a_row_with_a_reason_and_no_time(compared, changes, reason):
    (row,) = compared(Device(), 1.0, **{"cublas": {"f16_v": (10.0, "")}, **changes})
    assert (row.theirs_us, row.ratio) == (None, None)
    assert reason in row.reason
    assert row.reason in str(row)


def test_every_problem_has_operands_of_its_sizes_and_kernels_that_compute_it(runner):
    known = runner.kernels()
    assert {runner.kind_of(one) for one in runner.problems()} == set(runner.KERNELS)
    for one in runner.problems():
        for name in runner.KERNELS[runner.kind_of(one)]:
            assert one.op in known[name].ops
            assert one.dtype in known[name].dtypes
        if one.conv is not None:
            assert (one.m, one.k) == (one.conv.filters, one.conv.channels * one.conv.r * one.conv.s)


class Tensor:
    """What the runner uses of a PyTorch tensor, over NumPy."""

    layout = "strided"

    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype

    def to(self, where):
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
        self.rows, self.columns = np.repeat(np.arange(size[0]), np.diff(offsets.array)), indices.array
        super().__init__(np.zeros(size, values.array.dtype))
        self.array[self.rows, self.columns] = values.array

    def values(self):
        return Tensor(self.array[self.rows, self.columns])

    def sampled(self, a, b, beta):
        found = Sparse.__new__(Sparse)
        found.rows, found.columns = self.rows, self.columns
        Tensor.__init__(found, (a.array @ b.array) * (1 - beta))
        return found


def fake_torch(seen):
    """Notes in `seen` whether TF32 was allowed in each product."""
    matmul, cudnn = SimpleNamespace(allow_tf32=None), SimpleNamespace(allow_tf32=None, version=lambda: 91900)

    def mm(a, b, out=None):
        seen.append((matmul.allow_tf32, cudnn.allow_tf32))
        return a @ b

    def conv2d(x, w, stride, padding):
        mm(Tensor(np.eye(1)), Tensor(np.eye(1)))
        return Tensor(np.einsum("oc,nchw->nohw", w.array[:, :, 0, 0], x.array))

    cuda = {"ExternalStream": lambda handle: handle, "stream": lambda stream: contextlib.nullcontext()}
    return SimpleNamespace(
        __version__="2.0",
        backends=SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=matmul)),
        cuda=SimpleNamespace(synchronize=lambda: None, is_available=lambda: True, **cuda),
        empty=lambda *size, device, dtype: None,
        from_numpy=Tensor,
        mm=mm,
        nn=SimpleNamespace(functional=SimpleNamespace(conv2d=conv2d)),
        channels_last="last",
        no_grad=contextlib.nullcontext,
        sparse=SimpleNamespace(
            sampled_addmm=lambda mask, a, b, beta: mask.sampled(a, b, beta),
            SparseSemiStructuredTensor=SimpleNamespace(),
            to_sparse_semi_structured=lambda dense: dense,
        ),
        sparse_csr="csr",
        sparse_csr_tensor=Sparse,
    )


@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_calls_compute_the_problem_in_the_arithmetic_asked_for(runner, monkeypatch, problem):
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", scipy.sparse)
    seen, device, maths = [], Device(), runner.maths_of(problem)
    cupy = SimpleNamespace(
        asarray=np.asarray, asfortranarray=np.asfortranarray, asnumpy=np.asarray,
        cuda=SimpleNamespace(ExternalStream=lambda handle: contextlib.nullcontext()),
    )  # fmt: skip
    libraries = [runner.pytorch(fake_torch(seen), device), runner.cupyx(cupy, device)]
    names = runner.KERNELS[runner.kind_of(problem)]
    session = session_of(device, **{name: {f"{math}_v": (5.0, "") for math in maths} for name in names})
    for kernel in session.kernels.values():
        kernel.ops = frozenset({problem.op})
    rows = list(runner.compare(problem, session, libraries))
    assert [row.reason for row in rows] == [""] * len(rows)
    calls = {"dense": 2, "sparse": 3, "sampled": 1, "conv": 2, "2:4": 2}[runner.kind_of(problem)]
    assert [row.math for row in rows] == [math for math in maths for _ in range(calls)]
    if seen:  # TF32 comes last, and is allowed nowhere before
        assert list(dict.fromkeys(seen)) == [(math == "tf32",) * 2 for math in maths]


def test_a_call_that_a_librarys_version_lacks_is_a_row(runner):
    torch = fake_torch([])
    del torch.sparse.to_sparse_semi_structured
    libraries = [runner.pytorch(torch, Device())]
    (row,) = runner.compare(SMALL[-1], session_of(Device()), libraries)
    assert "AttributeError" in row.reason


def test_files_are_written_after_each_problem_and_findings_are_the_exit_status(runner, monkeypatch, tmp_path, capsys):
    device = Device()
    monkeypatch.setattr(runner, "open_device", lambda name: device)
    monkeypatch.setattr(runner, "find_libraries", lambda device: ([object()], {"torch": "2.0"}))
    monkeypatch.setattr(runner, "problems", lambda: [DENSE, SMALL[2]])
    monkeypatch.setattr(
        runner, "snapshot", lambda device: {"software": {"cublas": "13"}, "recorded_at": "2026-11-23T10"}
    )
    for ratio, status in ((0.96, 0), (0.94, 1), (None, 0)):
        row = runner.Row("p", "f16", "torch.mm", ratio and 1.0, ratio=ratio, ours_us=ratio, reason="too old")
        monkeypatch.setattr(runner, "compare", lambda problem, *rest, row=row: [replace(row, problem=problem.name)])
        assert runner.main([str(tmp_path)]) == status
        frame = pd.read_csv(tmp_path / "fairness.csv")
        assert list(frame["problem"]) == ["p", "v"]
        if ratio:
            assert "| torch.mm | 2 | " + f"{ratio:.3f} | {ratio:.3f} |" in (tmp_path / "README.md").read_text()
    assert frame["reason"].tolist() == ["too old"] * 2
    assert json.loads((tmp_path / "versions.json").read_text())["gpu"] == "Fake GPU"
    assert device.closed
    assert "lowest ratio 0.940; 2 of 2 below 0.95" in capsys.readouterr().out


def test_without_gpu_or_libraries_it_says_so_in_one_sentence(runner, monkeypatch, tmp_path, capsys):
    def none(name):
        raise Unsupported("CuPy finds no CUDA GPU")

    monkeypatch.setattr(runner, "open_device", none)
    assert runner.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == "no GPU: CuPy finds no CUDA GPU\n"
    monkeypatch.setattr(runner, "open_device", lambda name: Device())
    for name in ("torch", "cupyx.scipy.sparse"):
        monkeypatch.setitem(sys.modules, name, None)
    assert runner.main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "torch is missing" in said
    assert said.endswith("nothing to compare: install PyTorch or CuPy\n")
    assert list(tmp_path.iterdir()) == []


def test_recorded_rows_agree_with_themselves_and_are_no_result_set(runner):
    planned = {(one.name, math) for one in runner.problems() for math in runner.maths_of(one)}
    files = list(paths.reports().glob("*/fairness/fairness.csv"))
    assert files
    for file in files:
        frame = pd.read_csv(file)
        timed = frame[frame["ratio"].notna()]
        assert (abs(timed["theirs_us"] / timed["ours_us"] - timed["ratio"]) < 1e-3 * timed["ratio"]).all()
        assert set(zip(frame["problem"], frame["math"], strict=True)) <= planned
        assert frame.loc[frame["ratio"].isna(), "reason"].notna().all()
    assert "fairness" not in find(paths.reports())
