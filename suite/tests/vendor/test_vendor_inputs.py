"""Inputs shared by a library's candidates: made once, counted for each, kept within bounds, dropped after failures."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FACTS, open_fake
from fakes import FakeClock

from nnzbench.core import plan
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.devices.gpu import LaunchError
from nnzbench.kernels.vendor.support import (
    SHARE,
    WEIGHTS,
    Inputs,
    Output,
    Preparing,
    UnprunedTruth,
    before_pruning,
    dense_weights,
    finish,
    swapped,
    to_storage,
)

MOMENT = 1e-2
"""Milliseconds that looking at the clock some times takes."""


@pytest.fixture
def clock(monkeypatch):
    """The time that shared work sees."""
    made = FakeClock()
    monkeypatch.setattr(plan, "time", SimpleNamespace(perf_counter=made))
    return made


class Counted:
    def __init__(self, array, clock=None, seconds=0.0):
        self.array, self.clock, self.seconds, self.made = array, clock, seconds, 0

    def __call__(self):
        self.made += 1
        if self.clock is not None:
            self.clock.now += self.seconds
        return self.array


def test_a_form_is_made_once_and_its_time_counts_for_every_candidate(clock):
    inputs, slow = Inputs(open_fake()), Counted(np.arange(6, dtype=np.float32), clock, 0.2)
    first, other = Preparing(inputs), Preparing(inputs)
    taken = first.array(("b", False), slow)
    alone = first.milliseconds()
    second = Preparing(inputs)
    assert second.array(("b", False), slow) is taken
    assert slow.made == 1
    assert second.milliseconds() == pytest.approx(200, abs=MOMENT)
    assert alone == pytest.approx(200, abs=MOMENT)
    assert other.array(("b", True), Counted(np.ones(2, np.float32))) is not taken
    np.testing.assert_array_equal(taken.read(), slow.array)


def test_time_before_a_candidate_is_not_its_own(clock):
    inputs = Inputs(open_fake())
    Preparing(inputs).array(("a",), Counted(np.ones(2, np.float32), clock, 0.2))
    fresh = Preparing(inputs)
    fresh.array(("b",), Counted(np.ones(2, np.float32), clock, 0.3))
    assert fresh.milliseconds() == pytest.approx(300, abs=MOMENT)


def test_a_form_made_ahead_is_made_once_and_its_time_still_counts(clock):
    inputs, slow = Inputs(open_fake()), Counted(np.arange(6, dtype=np.float32), clock, 0.2)
    for _ in range(2):
        inputs.ahead(("b",), slow)
    assert not inputs.device.backend.memory
    for _ in range(2):
        preparing = Preparing(inputs)
        np.testing.assert_array_equal(preparing.array(("b",), slow).read(), slow.array)
        assert preparing.milliseconds() == pytest.approx(200, abs=MOMENT)
        inputs.ahead(("b",), slow)
    assert slow.made == 1


def test_inputs_keep_a_bounded_share_of_the_memory():
    gpu = open_fake(facts=replace(FACTS, memory_bytes=1 << 20))
    inputs, most = Inputs(gpu), (1 << 20) // SHARE
    half = Counted(np.zeros(most // 2, np.uint8))
    small = Counted(np.zeros(16, np.uint8))
    inputs.take(("a",), lambda: (half(),))
    inputs.take(("b",), lambda: (half(),))
    assert len(gpu.backend.memory) == 2
    held = inputs.take(("c",), lambda: (small(),))  # one too many: the others go, and come back when asked for
    assert len(gpu.backend.memory) == len(held) == 1
    inputs.take(("a",), lambda: (half(),))
    assert (half.made, small.made) == (3, 1)
    del inputs, held
    assert not gpu.backend.memory


def test_weights_are_shared_by_all_who_have_the_matrix_and_go_with_it():
    gpu = open_fake()
    matrix, weights = CSR.from_dense(np.eye(4, dtype=np.float32)), Counted(np.eye(4, dtype=np.float32))
    for _ in range(2):
        inputs = Inputs(gpu, matrix)
        inputs.take((WEIGHTS, False), lambda: (weights(),))
        inputs.take(("b",), lambda: (np.ones(4, np.float32),))
        assert len(gpu.backend.memory) == 2
        del inputs
        assert len(gpu.backend.memory) == 1
    assert weights.made == 1
    other = CSR.from_dense(np.ones((2, 2), np.float32))
    Inputs(gpu, other).take((WEIGHTS, False), lambda: (np.ones((2, 2), np.float32),))
    assert len(gpu.backend.memory) == 1
    del other
    assert not gpu.backend.memory
    Inputs(gpu, matrix).take((WEIGHTS, False), lambda: (weights(),))
    assert weights.made == 2


@pytest.mark.parametrize(("error", "kept"), [(LaunchError("no"), 0), (Unsupported("no"), 1)])
def test_a_failed_run_drops_the_inputs_and_a_refusal_keeps_them(error, kept):
    gpu = open_fake()
    inputs = Inputs(gpu)
    preparing = Preparing(inputs)
    preparing.array(("a",), lambda: np.ones(4, np.float32))

    def run():
        raise error

    with pytest.raises(type(error)):
        finish(preparing, run, Output(gpu, (2, 2), "f32"))
    assert len(gpu.backend.memory) == kept


def test_no_memory_for_a_form_is_a_launch_error_and_leaves_nothing():
    gpu = open_fake()
    inputs = Inputs(gpu)
    gpu.backend.fail_at, gpu.backend.message = "allocate", "out of memory"
    with pytest.raises(LaunchError, match="out of memory"):
        inputs.take(("a",), lambda: (np.ones(4, np.float32),))
    gpu.backend.fail_at = None
    assert inputs.take(("a",), lambda: (np.ones(4, np.float32),))[0].read().all()


@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (40, 5), (16, 16), (33, 7), (2, 35, 6), (3, 1, 4), (0, 4), (4, 0)])
def test_swapped_is_a_contiguous_transpose(shape):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    result = swapped(array)
    np.testing.assert_array_equal(result, np.swapaxes(array, -1, -2))
    assert result.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1), (20, 35), (7, 64)])
def test_dense_weights_are_the_bits_of_the_matrix(dtype, shape):
    rng = np.random.default_rng(shape[0])
    dense = (rng.integers(-4, 5, shape) * (rng.random(shape) < 0.4)).astype(
        np.float16 if dtype == "f16" else np.float32
    )
    matrix = CSR.from_dense(dense)
    if matrix.nnz:
        matrix.values[0] = -0.0  # a stored zero has its sign
    expected = to_storage(matrix.to_dense(), dtype)
    for transposed in (False, True):
        found = dense_weights(matrix, dtype, transposed)
        assert found.flags.c_contiguous
        assert found.tobytes() == np.ascontiguousarray(expected.T if transposed else expected).tobytes()


def test_the_result_before_pruning_is_of_the_matrix_and_the_operand_at_hand():
    truth, rng = UnprunedTruth(), np.random.default_rng(0)
    matrices = [CSR.from_dense(rng.integers(0, 3, (4, 6)).astype(np.float32)) for _ in "ab"]
    for matrix in matrices:
        for b in rng.standard_normal((2, 6, 5)):
            assert np.allclose(truth(matrix, b).value, before_pruning(matrix) @ b)
            assert truth(matrix, b) is truth(matrix, b)
