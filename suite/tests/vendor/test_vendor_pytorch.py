"""PyTorch's calls without PyTorch: which layouts take which pattern, what weights in INT4 stand for, and what is said
where it is missing."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from fake_torch import FakeTorch
from vendor_candidates import every, product

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.matrices.generate import blocks, uniform
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.vendor.pytorch import GROUP, quantised, restored


@pytest.mark.parametrize("shape", [(1, 128), (5, 256), (16, 640)])
def test_a_weight_is_within_half_a_step_of_what_its_code_stands_for(shape):
    dense = np.random.default_rng(shape[1]).standard_normal(shape).astype(np.float32)
    dense[0] = 0.5  # a group of one value
    codes, scale, zero = quantised(dense)
    assert codes.max() <= 15
    assert scale.shape == zero.shape == (shape[1] // GROUP, shape[0])
    half_a_step = np.repeat(scale.T, GROUP, axis=1) / 2
    assert (np.abs(restored(codes, scale, zero) - dense) <= half_a_step + 1e-5).all()
    groups = codes.reshape(shape[0], -1, GROUP)[1:]
    assert (groups.min(axis=2) == 0).all()
    assert (groups.max(axis=2) == 15).all()


def test_codes_are_written_out_for_one_group():
    dense = np.resize(np.arange(16, dtype=np.float32), (1, GROUP))
    codes, scale, zero = quantised(dense)
    assert codes[0, :16].tolist() == list(range(16))
    assert (scale.item(), zero.item()) == (1.0, 8.0)
    with pytest.raises(MatrixError, match="multiple"):
        quantised(np.zeros((2, 100), np.float32))


@pytest.mark.parametrize("name", ["pytorch", "pytorch_int4"])
def test_without_pytorch_one_sentence_says_what_to_install(name, gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Unsupported, match=r"PyTorch is missing: pip install 'nnzbench\[torch\]'"):
        every(name, *product(uniform(16, 128, 0.5, 0), 4, "f16"), gpu)


@pytest.mark.parametrize(
    ("matrix", "layouts"),
    [
        (blocks(128, 192, 0.7, 64, 64, 0), ["csr", "bsr16", "bsr64"]),
        (blocks(128, 192, 0.7, 32, 32, 0), ["csr", "bsr16", "bsr64"]),
        (blocks(96, 192, 0.7, 16, 16, 0), ["csr", "bsr16"]),  # no 64 rows make a whole block
        (uniform(128, 192, 0.7, 0), ["csr"]),  # every block holds a nonzero
    ],
)
@pytest.mark.parametrize(("n", "dtype"), [(1, "f16"), (16, "f16"), (5, "bf16"), (3, "f32")])
def test_blocks_are_multiplied_in_bsr_of_each_size_that_fits_and_leaves_some_out(
    matrix, layouts, n, dtype, gpu, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(gpu.backend))
    values = np.random.default_rng(n).standard_normal(matrix.nnz).astype(np.float32)
    problem, operands = product(replace(matrix, values=values), n, dtype)
    found = every("pytorch", problem, operands, gpu)
    assert list(found) == [f"{dtype}_{one}" for one in layouts]
    for candidate in found.values():
        prepared = candidate.prepare()
        (weights,) = prepared.arrays.values()
        over = prepared.copied(list(prepared.arrays))
        prepared.run()
        for run in (prepared.run, over):
            prepared.poison()
            assert np.isnan(prepared.read()).all()
            run()
            assert passes(relative_error(prepared.read(), reference(problem, operands)), candidate.math)
            weights.value.values().fill_(0.0)  # what a copy is multiplied in place of
        prepared.run()
        assert (prepared.read() == 0).all()


def test_what_triton_cannot_compile_is_unsupported(gpu, monkeypatch):
    class CompilationError(Exception):
        """Triton's is none of Python's."""

    def linear(x, weight):
        raise CompilationError("no such block")

    torch = FakeTorch(gpu.backend)
    torch.nn.functional.linear = linear
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = every("pytorch", *product(blocks(128, 128, 0.7, 64, 64, 0), 16, "f16"), gpu)
    with pytest.raises(Unsupported, match="pytorch bsr16: no such block"):
        found["f16_bsr16"].prepare()
