"""Joules on a page: shown beside times, as facts of their own policies, and judged by nothing that was refused."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fake_claim_records import Judged
from fake_records import timed, write, written
from sputnik_records import view_of

from nnzbench.data.problems.tables import load
from nnzbench.papers.catalogue import page_of
from nnzbench.papers.claims.verdicts import NOT_MEASURABLE, REPRODUCED, STRONGER
from nnzbench.report.page import View
from nnzbench.report.tables import energy_table
from nnzbench.results import energy
from nnzbench.results.records.beside import ENERGY, Window
from nnzbench.results.records.record import RecordError, read_records
from nnzbench.results.result_set import load as load_results
from nnzbench.site.contribute.validate import validate

KERNELS = {("cusparse", "csr_default_col"): (60.0, 150.0), ("cublas", "f32_default_nn"): (40.0, 300.0)}
"""Microseconds and watts; at half of the power in one and a half times the time energy is 0.75 of dense."""


def window(row, watts, place=1, **changes) -> Window:
    seconds = 2.0
    launches = round(seconds / (row.median_us * 1e-6))
    found = Window(
        problem=row.problem, dtype=row.dtype, kernel=row.kernel, variant=row.variant, device=row.device, trial=1,
        place=place, status="ok", reason="", launches=launches, seconds=seconds, joules=watts * seconds,
        integral_joules=1.01 * watts * seconds, tick_ms=100.0, idle_watts=70.0, temperature_c=50.0,
        sm_clock_mhz=1980.0, throttled="", environment="environment.json",
    )  # fmt: skip
    return dataclasses.replace(found, **changes)


def test_what_a_candidate_takes_is_of_all_its_windows_that_are_ok(monkeypatch):
    rng, made = np.random.default_rng(3), []
    for name in "abc" * 6:
        of = SimpleNamespace(problem="p", dtype="f32", kernel=name, variant="v", device="cupy", median_us=100.0)
        refused = {"status": "refused", "reason": "why"} if rng.random() < 0.3 else {}
        drawn = [float(one) for one in rng.uniform(0.5, 2.0, 5)]
        told = dict(zip(("seconds", "joules", "integral_joules", "sm_clock_mhz", "idle_watts"), drawn, strict=True))
        told["integral_joules"] = told["joules"] * float(rng.uniform(0.1, 1.2))
        seen = " ".join(rng.choice(["cap", "heat", "power"], 2))
        numbers = {"launches": int(rng.integers(100, 200)), "temperature_c": float(rng.integers(30, 90))}
        made.append(window(of, 100.0, **refused, **told, **numbers, throttled=seen))
    monkeypatch.setattr(energy, "windows", lambda _: pd.DataFrame(map(vars, made)))
    found = energy.per_launch(None).set_index("kernel")
    for name in "abc":
        good = [one for one in made if one.kernel == name and one.status == "ok"]
        launches, joules, seconds = (sum(getattr(one, of) for one in good) for of in ("launches", "joules", "seconds"))
        each = [one.joules / one.launches for one in good]
        wanted = {
            "joules": joules / launches, "us": 1e6 * seconds / launches, "watts": joules / seconds,
            "apart": max(each) / min(each) - 1, "windows": len(good), "refused": 6 - len(good),
            "differ": max(abs(one.integral_joules / one.joules - 1) for one in good),
            "sm_clock_mhz": np.median([one.sm_clock_mhz for one in good]),
            "idle_watts": np.median([one.idle_watts for one in good]),
            "temperature_c": max(one.temperature_c for one in good),
        }  # fmt: skip
        assert found.loc[name, [*wanted]].to_dict() == pytest.approx(wanted)
        assert found.loc[name, "throttled"].split() == sorted({word for one in good for word in one.throttled.split()})


def test_windows_agree_where_those_of_one_length_and_of_twice_the_length_do():
    def of(*joules):
        return [SimpleNamespace(joules=one, launches=10) for one in joules]

    assert energy.agreement(of(10, 24, 24, 11)) == pytest.approx((0.1, 24 / 10.5 - 1))
    assert energy.agreement(of(10, 11, 12, 10)) == pytest.approx((1 / 11, 0.15), abs=1e-9)
    assert energy.agreement(of(10, 8, 8, 10, 12, 8, 8, 12)) == pytest.approx((0.2, 1 - 8 / 11))


@pytest.fixture
def folder(tmp_path):
    problems = [one for one in load("ese_lstm", False) if one.n == 32]
    rows = [
        timed(
            kernel, us, variant, experiment="ese_lstm", problem=one.name, m=one.m, k=one.k, n=one.n,
            source=one.source, nnz=round(0.1 * one.m * one.k), sparsity=0.9, selected=True, policy=policy,
        )
        for one in problems for (kernel, variant), (us, _) in KERNELS.items() for policy in ("hot", "cold")
    ]  # fmt: skip
    place = tmp_path / "reports" / "nvidia-h200" / "ese_lstm"
    place.mkdir(parents=True)
    write(place, rows)
    hot = [row for row in rows if row.policy == "hot"]
    ENERGY.add(place, *[window(row, KERNELS[row.kernel, row.variant][1], at) for row in hot for at in (1, 2)])
    return place


def facts(folder, policy):
    found = pd.read_csv(folder / "facts.csv")
    rows = found[(found["policy"] == policy) & (found["baseline"] == "cuBLAS fp32")]
    rows = rows[rows["subject"] == "cuSPARSE's column-major default fp32"].set_index("group")
    return rows["ratio"].to_dict()


def test_a_page_shows_joules_beside_times_and_both_are_facts(folder):
    text = written(folder).read_text(encoding="utf-8")
    step = "both products of a step at batch 32 (total)"
    assert facts(folder, "energy")[step] == pytest.approx(40 * 300 / (60 * 150), rel=1e-3)
    assert facts(folder, "energy-time")[step] == pytest.approx(40 / 60, rel=1e-3)
    assert facts(folder, "watts")[step] == pytest.approx(2.0, rel=1e-3)
    (line,) = (line for line in text.splitlines() if line.startswith("| gates_b32") and "150" in line)
    assert "0.67× / 1.33×" in line
    assert "| 60.00 | 150 | 9.00 |" in line
    assert validate(folder)[0].sentence.find("energy") < 0


def test_claims_of_energy_and_power_are_judged_by_windows_and_by_no_time(folder):
    found = Judged(folder.parents[1], "nvidia-h200")
    energy_claim, power, time = (found[name] for name in ("ese-energy", "ese-power", "ese-gpu"))
    assert (energy_claim.measured, power.measured) == (pytest.approx(4 / 3, rel=1e-3), pytest.approx(2.0, rel=1e-3))
    assert energy_claim.verdict == REPRODUCED
    assert power.verdict == STRONGER
    assert time.measured == pytest.approx(40 / 60)
    assert "joules" in energy_claim.rule
    (folder / ENERGY.file).unlink()
    found = Judged(folder.parents[1], "nvidia-h200")
    assert found["ese-energy"].verdict == NOT_MEASURABLE
    assert "energy of ese_lstm is not measured" in found["ese-energy"].reason


def test_refused_windows_are_counted_and_count_for_nothing(folder):
    row = next(row for row in read_records(folder / "records.csv") if row.kernel == "cusparse")
    ENERGY.add(folder, window(row, 9999.0, 3, status="refused", reason="they differ"))
    text = written(folder).read_text(encoding="utf-8")
    assert "2 (1 refused)" in text
    assert "9999" not in text
    assert "Energy: every" not in text
    no = {"status": "refused", "reason": "they differ"}
    rows = [dataclasses.replace(one, **no) if one.kernel == "cusparse" else one for one in ENERGY.read(folder)]
    (folder / ENERGY.file).unlink()
    ENERGY.add(folder, *rows)
    assert "Energy: every window was refused of 6 of 12 candidates" in written(folder).read_text(encoding="utf-8")


def test_what_is_no_table_of_energy_is_refused_with_its_place(folder):
    path = folder / ENERGY.file
    good = path.read_text(encoding="utf-8")
    row = next(iter(read_records(folder / "records.csv")))
    for changes in ({"status": "refused"}, {"joules": -1.0}, {"joules": float("nan")}, {"launches": 0}, {"trial": 0}):
        with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
            window(row, 100.0, **changes)
    for text in (good.replace("joules", "jewels"), good.replace(",ok,", ",fine,")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(RecordError, match="not a table of energy"):
            written(folder)
    path.write_text(good.replace("cusparse", "sputnik"), encoding="utf-8")
    assert any("energy of what has no row that is ok" in one.sentence for one in validate(folder))
    path.write_text(good.replace(",cupy,", f",cupy {'/'.join(('', 'home', 'me', 'x'))},"), encoding="utf-8")
    assert any(one.fault and "energy.csv" in one.sentence for one in validate(folder))


def test_a_network_is_measured_beside_the_one_without_zeros(tmp_path):
    times = [
        ("sparse_block", "f16_block", lambda p: 5.0 * p.n if p.sparsity in (0.7, 0.9) else None),
        ("dense_block", "f16_block", lambda p: 9.0 * p.n if p.sparsity == 0 else None),
    ]
    page = page_of("decoder_block")
    view = view_of(tmp_path, "decoder_block", times)
    found = energy.chosen(view.results, page.energy, page.attributes)
    stem = "llama3_8b_kv2048_53248x4096x16_90_uniform"
    assert list(found[stem]["problem"].str.extract(r"x16_(\d+)_uniform")[0]) == ["90", "0"]
    assert not [name for name in found if "_0_uniform" in name], "nothing to compare there"
    measured = {*found[stem]["problem"], *found[stem.replace("x16_", "x1_")]["problem"]}
    for row in read_records(tmp_path / "records.csv"):
        if row.problem in measured:
            ENERGY.add(tmp_path, window(row, 300.0 if row.n == 1 else 600.0 if "_90_" in row.problem else 450.0))
    lines = energy_table(page.energy, View(load_results(tmp_path), page.attributes)).splitlines()
    (one, many) = (next(line for line in lines if f"| 90 | {n} |" in line) for n in (1, 16))
    assert "| 1.80× / 1.80× |" in one
    assert "| 1.80× / 1.35× |" in many
