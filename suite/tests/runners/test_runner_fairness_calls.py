"""The public Python calls themselves: a PyTorch made of NumPy and SciPy as cupyx compute what is asked of them."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from fake_fairness import Device, calls_module, fairness_module, on_path, session_of  # noqa: F401

from nnzbench.devices import DeviceLost
from nnzbench.problems.operands import make_operands


def test_a_lost_device_is_no_refusal(calls):
    with pytest.raises(DeviceLost):
        calls.capturable(Device(DeviceLost("gone")), lambda: None)


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
