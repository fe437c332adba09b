"""PyTorch's calls without PyTorch: what weights in INT4 stand for, and what is said where it is missing."""

import sys

import numpy as np
import pytest
from vendor_candidates import every, product

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.matrices.generate import uniform
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
