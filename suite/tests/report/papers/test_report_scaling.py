"""The page of `spmm_scaling` from invented records with known answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sputnik_records import Timed, apart, records, report

from nnzbench.facts.results import load
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.report.draw import style

EXPERIMENT = "spmm_scaling"


def cost(picoseconds: float, launch_us: float = 0.0) -> Callable[[Problem], float | None]:
    """Microseconds at so much per nonzero and column, plus a launch."""
    return lambda p: launch_us + 1e-6 * picoseconds * round(0.1 * p.m * p.k) * p.n


def ring_us(p: Problem) -> float | None:
    """Cheapest and dearest in the middle of the range."""
    return cost({4096: 0.5, 16384: 0.6}.get(p.m, 0.55))(p)


# 104858 x 128 products at 0.1 ps take 1.3421824 us: as much again for the launch doubles the smallest cost
TIMED: tuple[Timed, ...] = (
    ("row_stream", "slow", cost(9.0)),
    ("row_stream", "fast", cost(0.1, launch_us=1.3421824)),
    ("ring", "n128", ring_us),
    ("cusparse", "csr_default_row", cost(1.0)),
)


def both_policies(rows: list[Record]) -> list[Record]:
    """The same rows hot, and cold at twice the time."""
    twice = [
        replace(r, policy="cold", median_us=2 * r.median_us, q1_us=2 * r.q1_us, q3_us=2 * r.q3_us)
        for r in rows
        if r.median_us is not None and r.q1_us is not None and r.q3_us is not None
    ]
    return [*rows, *twice]


def test_cost_is_the_fastest_variants_time_per_nonzero_and_column(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, both_policies(records(EXPERIMENT, TIMED)))
    times = drawn[drawn["row"] == "time"].set_index(["policy", "kernel", "n", "m"])
    assert set(times.loc["hot"].loc["row_stream"]["variant"]) == {"fast"}
    assert times.loc[("hot", "row_stream", 128, 1024), "picoseconds"] == pytest.approx(0.2, rel=1e-5)
    assert times.loc[("hot", "row_stream", 1024, 1024), "picoseconds"] == pytest.approx(0.1125, rel=1e-5)
    assert times.loc[("hot", "row_stream", 128, 32768), "picoseconds"] == pytest.approx(0.1, rel=1e-3)
    assert times.loc[("cold", "ring", 128, 16384), "picoseconds"] == pytest.approx(1.2, rel=1e-5)
    assert len(times) == 2 * 12 * 3
    assert "| 32768×32768×1024 | cuSPARSE | `csr_default_row` | 107,374,182 | 109951.0 | 1.000 |" in page


def test_the_finding_is_the_ratio_of_the_dearest_to_the_cheapest_size(tmp_path: Path) -> None:
    page, drawn = report(tmp_path, both_policies(records(EXPERIMENT, TIMED)))
    ratios = drawn[drawn["row"] == "spread"].set_index(["policy", "kernel", "n"])["dearest_over_cheapest"]
    assert len(ratios) == 2 * 3 * 2
    assert ratios["hot", "row_stream", 128] == pytest.approx(2.0, rel=2e-3)
    assert ratios["hot", "row_stream", 1024] == pytest.approx(1.125, rel=2e-3)
    assert ratios["cold", "ring", 1024] == pytest.approx(1.2, rel=1e-5)
    assert ratios["hot", "cusparse", 128] == pytest.approx(1.0, rel=1e-5)
    hot, cold = page.split("## Cold policy")
    ring = "- 128 columns, ring: within 1.20× from 1.0e5 to 1.1e8 nonzeros"
    assert f"{ring} (0.500 ps at 1.7e6, 0.600 ps at 2.7e7)" in hot
    assert f"{ring} (1.000 ps at 1.7e6, 1.200 ps at 2.7e7)" in cold
    assert "- 1024 columns, row_stream: within 1.12× from 1.0e5 to 1.1e8 nonzeros" in hot
    assert "No checked time of sputnik (hot, cold) is recorded for any row." in page


def test_each_policy_has_its_figure_with_a_panel_per_number_of_columns(
    tmp_path: Path, figures: dict[str, Figure]
) -> None:
    folder = fake_records.write(tmp_path / "r", both_policies(records(EXPERIMENT, TIMED)))
    fake_records.drawn(load(folder))
    assert set(figures) == {"scaling", "scaling_cold"}
    for figure in figures.values():
        assert [axis.get_title(loc="left") for axis in figure.axes] == ["128 columns", "1024 columns"]
        assert len({axis.get_ylim() for axis in figure.axes}) == 1
        assert [line.get_color() for line in figure.axes[0].lines] == [
            style.look(kernel).colour for kernel in ("row_stream", "ring", "cusparse")
        ]
        apart(figure)
    first = figures["scaling"].axes[0].lines[0]
    assert list(first.get_xdata()) == [104858, 419430, 1677722, 6710886, 26843546, 107374182]
    assert first.get_ydata()[0] == pytest.approx(0.2, rel=1e-5)


def test_a_part_of_the_problems_is_drawn_and_the_rest_named(tmp_path: Path, figures: dict[str, Figure]) -> None:
    rows = records(EXPERIMENT, TIMED, keep=lambda p: p.n == 128 and p.m <= 4096)
    rows = [r for r in rows if r.kernel != "cusparse" or r.m == 1024]
    page, drawn = report(tmp_path, rows)
    assert len(figures["scaling"].axes) == 1
    apart(figures["scaling"])
    assert "- 128 columns, row_stream: within 1.88× from 1.0e5 to 1.7e6 nonzeros" in page  # 0.2 / 0.10625
    assert "cuSPARSE: within" not in page  # one size has no ratio
    assert "9 of the 12 problems of spmm_scaling are not recorded" in page
    assert "No checked time of cuSPARSE (hot) is recorded for 2048×2048×128, 4096×4096×128." in page
    assert set(drawn[drawn["row"] == "spread"]["kernel"]) == {"row_stream", "ring"}


def test_records_without_a_time_draw_nothing(tmp_path: Path) -> None:
    rows = [fake_records.failed(r, "unsupported", "too large") for r in records(EXPERIMENT, TIMED[:1])]
    page, drawn = report(tmp_path, rows)
    assert "No row has a time, so nothing is drawn." in page
    assert drawn.empty
    assert isinstance(drawn, pd.DataFrame)


@pytest.mark.figures(kind="svg")
def test_drawing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        report(tmp_path / name, records(EXPERIMENT, TIMED))
        folder = tmp_path / name / "nvidia-h200" / EXPERIMENT
        found.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert found[0] == found[1]
    assert {"README.md", "summary.csv", "scaling.svg"} <= set(found[0])
