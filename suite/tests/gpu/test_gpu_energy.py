"""The board's counter on a real GPU."""

from __future__ import annotations

import pytest

from nnzbench.bench.energy import open_bench, window
from nnzbench.core.plan import Unsupported

pytestmark = pytest.mark.gpu


def test_an_idle_board_takes_a_plausible_power_by_counter_and_integral(gpu):
    try:
        bench = open_bench(gpu)
    except Unsupported as reason:
        pytest.skip(str(reason))
    found = window(bench, None, 1.0)
    assert 5 < found.watts < 1500
    assert found.integral_joules == pytest.approx(found.joules, rel=0.1)
    assert 10 < found.tick_ms < 250
