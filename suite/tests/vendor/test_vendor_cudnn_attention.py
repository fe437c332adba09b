"""cuDNN's fused attention against float64, over a frontend that computes in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from fake_cudnn import Engine, Knob
from fake_gpu import FACTS
from on_cpu import matrix
from vendor_candidates import check_all, every_of

from nnzbench.bench import memory
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.matrices.generate import banded
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.gpu import LaunchError
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.vendor.attention import MASKED, added_mask, is_causal
from nnzbench.papers.sputnik.networks import attention_bytes
from nnzbench.results.roofline import dense_work

every = every_of("cudnn_attention")

ENGINES = [
    Engine("eng8", 90, proposed=({},)),
    Engine("eng9", 40, proposed=({Knob.SPLIT: 3},)),
    Engine("eng10", 40, proposed=({},), fails="build"),
]
MASKS = {
    "banded": banded(40, 40, 0.8, 6, 1),
    "triangle": banded(24, 24, 0.0, 24, 0),
    "uneven": matrix(45, 70, 0.2, full=3),
    "one query": matrix(1, 49, 0.4),
    "one key": CSR.from_dense(np.ones((7, 1), np.float32)),
}


def make(mask, dtype="f16", features=16):
    problem = Problem("t", "p", "attention", mask.m, mask.k, features, 0.5, "uniform:0", dtype)
    mask = mask.with_values(np.ones(mask.nnz, np.float32))
    return problem, replace(make_operands(problem), sparse=mask).cast(dtype)


def full(mask):
    """The mask with a position in every row."""
    dense = mask.to_dense() != 0
    dense[~dense.any(axis=1), 0] = True
    return CSR.from_dense(dense.astype(np.float32))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_plan_computes_attention_over_the_mask(dtype, name, gpu):
    problem, operands = make(full(MASKS[name]), dtype)
    way = "causal" if name == "triangle" else "bias"
    found = every(problem, operands, gpu)
    assert list(found) == [f"{dtype}_{way}_plan00_default", f"{dtype}_{way}_plan01"]
    check_all(found.values(), problem, operands)


def test_a_position_too_many_or_too_few_is_no_triangle():
    triangle = np.tri(9, dtype=np.float32)
    assert is_causal(CSR.from_dense(triangle))
    for i, j, value in ((5, 2, 0), (0, 4, 1), (8, 8, 0)):
        other = triangle.copy()
        other[i, j] = value
        assert not is_causal(CSR.from_dense(other))
    moved = triangle.copy()
    moved[3, 3], moved[3, 7] = 0, 1  # as many positions as the triangle's row has
    assert not is_causal(CSR.from_dense(moved))
    assert not is_causal(CSR.from_dense(np.tri(9, 12, dtype=np.float32)))


def test_the_added_mask_has_whole_vectors_in_a_row():
    mask = full(MASKS["uneven"])
    bias = added_mask(mask, "f16")
    assert (bias.dtype, bias.shape) == (np.float16, (45, 72))
    np.testing.assert_array_equal(bias[:, :70] == 0, mask.to_dense() != 0)
    assert set(np.unique(bias)) == {0, MASKED}
    stored = added_mask(mask, "bf16")
    assert set(np.unique(stored)) == {0, 0xC700}


def test_a_mask_that_is_not_added_is_noticed(gpu, monkeypatch):
    problem, operands = make(full(MASKS["banded"]))
    monkeypatch.setattr("nnzbench.kernels.vendor.attention.MASKED", 0.0)
    (candidate, _) = every(problem, operands, gpu).values()
    prepared = candidate.prepare()
    assert not passes(relative_error(prepared.read(), reference(problem, operands)), "f16")


def test_what_cudnn_does_not_take_is_a_reason(gpu):
    problem, operands = make(matrix(9, 20, 0.3, empty=(4,)))
    with pytest.raises(Unsupported, match="a query without a key"):
        every(problem, operands, gpu)
    problem, operands = make(full(MASKS["uneven"]), features=12)
    with pytest.raises(Unsupported, match=r"no plan for this attention \(hidden_dim should be multiple of 8\)"):
        every(problem, operands, gpu)["f16_bias"].prepare()
    with pytest.raises(Unsupported, match="cudnn_attention has no f32 form"):
        every(replace(problem, dtype="f32"), operands, gpu)
    gpu.cudnn.engines = ENGINES[2:]
    problem, operands = make(MASKS["triangle"])
    with pytest.raises(Unsupported, match=r"no engine for this attention \(causal\)"):
        every(problem, operands, gpu)["f16_causal"].prepare()
    gpu.backend.facts = replace(FACTS, compute_capability=(7, 5))
    with pytest.raises(Unsupported, match="needs sm_80"):
        every(problem, operands, gpu)


def test_a_plan_that_fails_is_a_launch_error_and_memory_goes_back(gpu):
    problem, operands = make(full(MASKS["banded"]))
    held = len(gpu.backend.memory)
    for candidate in candidates(kernels()["cudnn_attention"], problem, operands, gpu):
        candidate.prepare().close()
        del candidate
    candidate = next(iter(every(problem, operands, gpu).values()))
    assert len(gpu.backend.memory) <= held + 1  # the timer's own
    gpu.cudnn.engines[0] = Engine("eng8", 90, proposed=({},), fails="run")
    with pytest.raises(LaunchError, match="cudnn f16_bias plan 0: CUDNN_STATUS_EXECUTION_FAILED"):
        candidate.prepare()


def test_the_memory_taken_is_that_of_operands_result_and_workspace(gpu):
    for mask, way, added in ((MASKS["triangle"], "causal", 0), (full(MASKS["uneven"]), "bias", 2 * 45 * 72)):
        problem, operands = make(mask)
        candidate = every(problem, operands, gpu)[f"f16_{way}_plan00_default"]
        candidate.prepare().close()  # the handle is made and the timer's kernel loaded once
        use = memory.measure(problem, candidate, gpu)
        counted = attention_bytes("cudnn_attention", candidate.variant, "f16", mask.m, mask.k, 16, mask.nnz)
        assert counted == 2 * 16 * 2 * (mask.m + mask.k) + added
        assert use.taken_bytes == counted + ENGINES[0].workspace
        assert use.after_bytes == use.before_bytes


def test_the_least_dense_work_ends_at_each_querys_last_key():
    problem, operands = make(MASKS["triangle"])
    assert dense_work(problem, operands).flops == 4 * 24 * 25 / 2 * 17
    problem, operands = make(CSR.from_dense(np.ones((6, 8), np.float32)))
    assert dense_work(problem, operands).flops == 4 * 48 * 17
