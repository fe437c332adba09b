"""Facts of random small tables are what loops over their rows make of them."""

import itertools
import math
import random

import pytest
from fake_records import failed, timed, tuned, write

from nnzbench.data.problems import tables
from nnzbench.results.data import Data
from nnzbench.results.groups import Group
from nnzbench.results.result_set import load
from nnzbench.results.selector import CUSPARSE, DEFAULT, DENSE, TF32, kernel, own
from nnzbench.results.table import Comparison, compare

PROBLEMS = tables.load("sparsert_table1", False)
LEVEL = {one.name: 100 * one.sparsity for one in PROBLEMS}
CANDIDATES = (
    ("sputnik", "heuristic_x32_k32"), ("sputnik", "x64_k32_v4"), ("row_stream", "n128_v4"), ("ring", "w4"),
    ("cublas", "f32_default_nn"), ("cublas", "tf32_default_nn"), ("cublaslt", "f32_algo7_nn"),
    ("cusparse", "csr_default_row"), ("cusparse", "csr_alg2_row"),
)  # fmt: skip
SIDES = {
    kernel("sputnik"): lambda row: row.kernel == "sputnik",
    kernel("sputnik", variants=DEFAULT): lambda row: row.variant.startswith("heuristic_"),
    own(): lambda row: row.kernel in ("row_stream", "ring"),
    DENSE: lambda row: row.kernel in ("cublas", "cublaslt") and row.variant.startswith("f32"),
    TF32: lambda row: row.variant.startswith("tf32"),
    CUSPARSE: lambda row: row.kernel == "cusparse",
}


def table(draw):
    """Rows of a few problems: candidates missing, wrong or alone tried; times often equal."""
    rows = []
    for problem in draw.sample(PROBLEMS, draw.randint(1, 6)):
        cut = {name for name in dict(CANDIDATES) if draw.random() < 0.15}
        for (name, variant), policy in itertools.product(CANDIDATES, ("hot", "cold")):
            if draw.random() < 0.25:
                continue
            one = timed(
                name, draw.choice((1.0, 2.0, 2.5, draw.uniform(0.5, 40))), variant, problem=problem.name, policy=policy,
                m=problem.m, k=problem.k, n=problem.n, sparsity=problem.sparsity, source=problem.source,
                search="first" if name in cut else "all",
            )  # fmt: skip
            rows.append(failed(one, "wrong", "error") if draw.random() < 0.1 else one)
    return rows


def data_of(folder, rows):
    """Read as a run leaves them, with what was tried beside them."""
    search = {(row.problem, row.kernel): row.search for row in rows}
    return Data(load(tuned(write(folder, rows), lambda row: [search[row.problem, row.kernel]])))


def least(rows, side, level, policy):
    """By problem: the least time of a side, and whether all that competes for it was tuned."""
    found = {}
    for name in {row.problem for row in rows if level is None or LEVEL[row.problem] == level}:
        able = [row for row in rows if row.problem == name and row.policy == policy and SIDES[side](row)]
        able = [row for row in able if row.status == "ok"]
        if able:
            tuned = side.default or all(row.search == "all" for row in able)
            found[name] = min(row.median_us for row in able), tuned
    return found


def expected(rows, subject, baseline, level, statistic, policy):
    """n, wins, ratio, worst, best and tuned; None where there is no pair."""
    mine, theirs = (least(rows, side, level, policy) for side in (subject, baseline))
    if statistic == "total":
        if not mine or mine.keys() != theirs.keys():
            return None
        pairs = [
            tuple((sum(us for us, _ in one.values()), all(cut for _, cut in one.values())) for one in (mine, theirs))
        ]
    else:
        pairs = [(mine[name], theirs[name]) for name in mine.keys() & theirs.keys()]
    if not pairs:
        return None
    ratios = [over / us for (us, _), (over, _) in pairs]
    mean = (
        math.exp(sum(map(math.log, ratios)) / len(ratios))
        if statistic == "geometric mean"
        else sum(ratios) / len(ratios)
    )
    tuned = all(one and other for (_, one), (_, other) in pairs)
    return len(ratios), sum(one > 1 for one in ratios), mean, min(ratios), max(ratios), tuned


@pytest.mark.parametrize("seed", range(8))
def test_facts_are_what_loops_over_the_rows_make_of_them(tmp_path, seed):
    draw = random.Random(seed)
    rows = table(draw)
    if not any(row.status == "ok" for row in rows):
        return
    data = data_of(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    groups = [
        Group(level=level, statistic=one) for level in (None, 90, 95) for one in ("geometric mean", "mean", "total")
    ]
    found = compare(data, Comparison(tuple(SIDES), tuple(SIDES), tuple(groups)))
    facts = {(one.group, one.subject, one.baseline, one.policy): one for one in found.itertuples()}
    asked = itertools.product(groups, SIDES, SIDES, ("hot", "cold"))
    wanted = {
        (group.label, subject.label, baseline.label, policy): value
        for group, subject, baseline, policy in asked
        if subject != baseline and (value := expected(rows, subject, baseline, group.level, group.statistic, policy))
    }
    assert facts.keys() == wanted.keys()
    for key, one in facts.items():
        assert (one.n, one.wins, one.ratio, one.worst, one.best, one.tuned) == pytest.approx(wanted[key], rel=1e-5), key
        assert one.worst * (1 - 1e-9) <= one.low <= one.ratio * (1 + 1e-9) <= one.high * (1 + 2e-9), key
        assert one.high <= one.best * (1 + 1e-9), key


@pytest.mark.parametrize("seed", range(3))
def test_facts_by_problem_are_those_of_groups_of_one(tmp_path, seed):
    rows = table(random.Random(100 + seed))
    data = data_of(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    found = compare(data, Comparison(tuple(SIDES), (DENSE,), by=("problem",)))
    for one in found.itertuples():
        side = next(side for side in SIDES if side.label == one.subject)
        alone = [row for row in rows if row.problem == one.problem]
        assert (one.n, one.ratio) == pytest.approx(
            (1, expected(alone, side, DENSE, None, "mean", one.policy)[2]), rel=1e-5
        )
