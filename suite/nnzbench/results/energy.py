"""Joules beside times: energy.csv as data that `facts.table` compares, and whose energy is measured at all.

What a candidate takes is its joules over its launches, of all windows that are ok. Rows of `facts.csv` with the policy
`energy` are ratios of joules per launch, `watts` of power, and `energy-time` of times in the same windows: above 1 the
subject takes less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import pandas as pd

from nnzbench.results.data import Data, described
from nnzbench.results.records.beside import ENERGY, Window
from nnzbench.results.result_set import ResultSet, read_environments
from nnzbench.results.selector import Selector, pick
from nnzbench.results.table import Comparison

POLICIES = ("energy", "energy-time", "watts")
"""In the place of a policy: joules per launch, microseconds per launch in the same windows, and watts."""
WITHIN = 0.02
"""Windows of the same work, and of twice the work, agree in joules per launch to this share."""
KEY = ["problem", "dtype", "kernel", "variant", "device"]
MEASURED = ("stream", "hot")
"""The policy whose fastest candidates are measured: the first that has times. Windows rotate weights as `stream`."""


def windows(results: ResultSet) -> pd.DataFrame:
    """Every window of energy.csv, with the columns of its rows. Raises `RecordError` for another table or a link."""
    names = [field.name for field in fields(Window)]
    return pd.DataFrame([vars(one) for one in ENERGY.read(results.folder)], columns=names)


def per_launch(results: ResultSet) -> pd.DataFrame:
    """A row per candidate with a window that is ok: `KEY`, joules and microseconds a launch, watts, `apart` and more.

    `apart`: by which share the windows' joules per launch spread, the highest over the lowest less 1; `windows`: how
    many are ok; `refused`: how many are not; `differ`: the largest share by which counter and integral differ; and
    sm_clock_mhz (median), temperature_c (highest), idle_watts, throttled, environment.
    """
    every = windows(results)
    good = every[every["status"] == "ok"]
    good = good.assign(
        each=good["joules"] / good["launches"], differ=(good["integral_joules"] / good["joules"] - 1).abs()
    )
    groups = good.groupby(KEY, sort=False)
    found = groups.agg(
        joules=("joules", "sum"),
        seconds=("seconds", "sum"),
        launches=("launches", "sum"),
        least=("each", "min"),
        most=("each", "max"),
        windows=("each", "size"),
        differ=("differ", "max"),
        sm_clock_mhz=("sm_clock_mhz", "median"),
        temperature_c=("temperature_c", "max"),
        idle_watts=("idle_watts", "median"),
        throttled=("throttled", lambda some: " ".join(sorted({word for one in some for word in one.split()}))),
        environment=("environment", "last"),
    ).reset_index()
    refused = every[every["status"] == "refused"].groupby(KEY).size().rename("refused").reset_index()
    found = found.merge(refused, how="left", on=KEY).fillna({"refused": 0})
    return found.assign(
        watts=found["joules"] / found["seconds"],
        us=1e6 * found["seconds"] / found["launches"],
        joules=found["joules"] / found["launches"],
        apart=found["most"] / found["least"] - 1,
    )


def agreement(check: Sequence[Window]) -> tuple[float, float]:
    """Of one candidate's windows as `Recipe.order` checks it (one length, twice it, twice it, the one length, ...): by
    which share joules per launch differ at most among windows of one length, and between all of either length."""
    each = [one.joules / max(1, one.launches) for one in check]
    short = [joules for at, joules in enumerate(each) if at % 4 in (0, 3)]
    long = [joules for at, joules in enumerate(each) if at % 4 in (1, 2)]
    same = max(max(some) / min(some) - 1 for some in (short, long))
    return same, abs(sum(long) * len(short) / (sum(short) * len(long)) - 1)


def data_of(results: ResultSet, attributes: str = "") -> Data | None:
    """Records with joules, watts and the windows' times in the place of times, as policies of their own.

    Every row has the columns of `per_launch`, too. None where no window is ok.
    """
    measured = per_launch(results)
    if measured.empty:
        return None
    right = results.frame[results.frame["status"] == "ok"].drop_duplicates(KEY)
    rows = right.drop(columns=[*measured.columns.intersection(right.columns).difference(KEY), "policy"])
    rows = rows.merge(measured, on=KEY)
    values = dict(zip(POLICIES, (1e6 * rows["joules"], rows["us"], rows["watts"]), strict=True))
    frame = pd.concat([rows.assign(policy=name, median_us=value) for name, value in values.items()], ignore_index=True)
    frame = frame.assign(selected=False)
    named = [str(name) for name in measured["environment"].unique()]
    told = tuple((name, 0, found) for name, found in read_environments(results.folder, named).items())
    return Data(replace(results, frame=frame, environments=told), attributes, POLICIES)


def chosen(results: ResultSet, asked: Comparison, attributes: str = "") -> dict[str, pd.DataFrame]:
    """By stem: the fastest candidate of each side, a row for each (problem, dtype, kernel, variant) once.

    Under `stream` where that is recorded, else hot. Where a group's baseline is of other problems, such as those
    without zeros, these come to the subject's. A problem that only one candidate runs has nothing to compare.
    """
    frame = results.frame
    policy = next((one for one in MEASURED if (frame.loc[frame["median_us"].notna(), "policy"] == one).any()), "hot")
    timed = frame[frame["policy"] == policy]

    def fastest(selectors: Sequence[Selector]) -> pd.DataFrame:
        found = pd.concat([pick(timed, one, ("problem", "dtype")) for one in selectors])
        return found[[*KEY, "stem"]].drop_duplicates()

    subjects, baselines = fastest(asked.subjects), fastest(asked.baselines)
    parts = [subjects, baselines]
    for group in (one for one in asked.groups if one.baseline_cases):
        problems = described(frame, attributes)
        cases = [group.problems(problems, side)[["problem", "case"]] for side in (False, True)]
        own = subjects[["problem", "stem"]].drop_duplicates().merge(cases[0], on="problem")[["stem", "case"]]
        parts.append(own.merge(cases[1], on="case").merge(baselines.drop(columns="stem"), on="problem"))
    rows = pd.concat(parts)[[*KEY, "stem"]].drop_duplicates()
    return {str(stem): some for stem, some in rows.groupby("stem", sort=False) if len(some) > 1}
