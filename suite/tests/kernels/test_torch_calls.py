"""Functions over tensors as kernels, over a PyTorch that is NumPy: types, packing, copies of weights, refusals."""

import sys

import numpy as np
import pytest
from fake_gpu import open_fake
from fake_torch import FakeTorch
from on_cpu import matrix
from vendor_candidates import every, product

from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.reference import reference
from nnzbench.devices.gpu import LaunchError
from nnzbench.kernels import registry
from nnzbench.kernels.torch_calls import TorchCSR, torch_kernel


@pytest.fixture
def prepared(monkeypatch):
    """A function: what a kernel with such a `pack` is on the pretended GPU, with its problem and operands."""
    monkeypatch.setattr(registry, "_registry", registry.kernels())
    monkeypatch.setattr(registry, "_about", dict(registry._about))
    device = open_fake()
    torch = FakeTorch(device.backend)
    monkeypatch.setitem(sys.modules, "torch", torch)

    def of(pack, dtype="f32", math="", n=5):
        def mine(a, b, out):
            torch.matmul(a["dense"] if isinstance(a, dict) else a, b, out=out)

        torch_kernel(ops="spmm spmv", dtypes="f32 f16 bf16", pack=pack, math=math)(mine)
        problem, operands = product(matrix(7, 9, 0.5, empty=(2,)), n, dtype)
        ((variant, candidate),) = every("mine", problem, operands, device).items()
        assert variant == f"{math or dtype}_call"
        return candidate, problem, operands

    return of


def dense(a):
    assert isinstance(a, TorchCSR)
    full = np.zeros(a.shape, a.values.array.dtype)
    full[np.repeat(np.arange(a.shape[0]), np.diff(a.offsets.array)), a.indices.array] = a.values.array
    return a.values.torch.from_numpy(full)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("pack", [dense, lambda a: {"dense": dense(a), "rows": (a.shape[0], None)}])
def test_it_is_right_in_each_type_and_over_a_copy_of_its_weights(prepared, pack, dtype):
    candidate, problem, operands = prepared(pack, dtype)
    one = candidate.prepare()
    one.poison()
    assert np.isnan(one.read().astype(np.float32)).all()
    over, (weights,) = one.copied(list(one.arrays)), one.arrays.values()
    assert weights.shape == (7 * 9 * (2 if dtype == "f16" else 4),)
    (weights.value["dense"] if isinstance(weights.value, dict) else weights.value).fill_(0.0)
    for run, right in ((one.run, False), (over, True)):
        one.poison()
        run()
        assert passes(relative_error(one.read(), reference(problem, operands)), candidate.math) == right
    one.close()


def test_what_is_no_tensor_is_not_packed_and_a_failing_function_is_told(prepared):
    with pytest.raises(LaunchError, match="`pack` returns a set"):
        prepared(lambda a: {1, 2})[0].prepare()
    registry.forget("mine")
    with pytest.raises(LaunchError, match="ZeroDivisionError"):
        prepared(lambda a: 1 / 0)[0].prepare()


def test_another_arithmetic_sets_the_tolerance(prepared):
    assert prepared(dense, math="tf32")[0].math == "tf32"
    assert registry.about("mine").maths == {"tf32"}


@pytest.mark.parametrize("wrong", [{"ops": "sddmm"}, {"dtypes": "f16 i8"}, {"math": "f64"}])
def test_what_a_function_can_not_be_is_refused(wrong):
    ((_, name),) = wrong.items()
    with pytest.raises(ValueError, match=rf"torch_kernel takes .*, not {name.split()[-1]}"):
        torch_kernel(**{"ops": "spmm", "dtypes": "f32", **wrong})
