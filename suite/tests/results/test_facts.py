"""Facts against brute force over random small tables: least times, pairs, means, and what is tuned."""

import itertools
import math
import re
from dataclasses import replace
from fnmatch import fnmatch
from types import SimpleNamespace

import fake_records
import numpy as np
import pytest
from fake_records import record

from nnzbench.results.data import Data, _runs
from nnzbench.results.groups import Group
from nnzbench.results.records.record import append, frame_of
from nnzbench.results.records.selection import fastest
from nnzbench.results.result_set import load
from nnzbench.results.selector import DEFAULT, Selector, kernel
from nnzbench.results.table import Comparison, compare, pairs

NAMES = ("cublas", "cusparse", "sputnik")
POLICIES = ("hot", "cold")
BEGINNINGS = {"cases": r"([ab])_", "level": 90.0}
GROUPS = (
    Group(), Group(op="spmm", level=90.0, columns=8), Group(like="a_*", where="n > 8 and batch == 1", level=70.0),
    Group(level=70.0, counted=True), Group(parts=("x", "y"), level=90.0, statistic="mean", counted=True),
    Group(columns=8, statistic="mean"), Group(level=90.0, statistic="mean", counted=True), Group(statistic="total"),
    Group(op="spmv", statistic="total", counted=True), Group(level=90.0, statistic="total", counted=True),
    Group(ideal=True, level=70.0), Group(parts=("x", "y"), level=90.0), Group(parts=("x", "y"), level=70.0, columns=16),
    Group(parts=("y",), where="n == 8", statistic="total"), Group(**BEGINNINGS), Group(**BEGINNINGS, statistic="total"),
    Group(**BEGINNINGS, baseline_cases=r"([ab])_dense_"), Group(like="a_*", baseline_like="b_*", level=90.0),
    Group(like="a_*", baseline_like="a_*", statistic="total"),
    Group(like="?_x", baseline_like="?_dense_x", columns=16),
)  # fmt: skip


def made(seed):
    """Rows of three kernels with two variants each, many of equal times, some kernels not tuned or without a time."""
    rng = np.random.default_rng(seed)
    rows = []
    for number, (begin, dense, part) in enumerate(itertools.product("ab", ("", "dense_"), "xyxy")):
        label, us = f"{begin}_{dense}{part}", float(rng.uniform(1.0, 9.0))
        zeros = float(rng.choice([0.7, 0.701, 0.78, 0.86, 0.88, 0.9, 0.919]))
        asked = None if rng.random() < 0.5 else float(rng.choice([70.0, 90.0]))
        sizes = {
            "n": int(rng.choice([8, 16])),
            "op": str(rng.choice(["spmm", "spmv"])),
            "batch": int(rng.integers(1, 3)),
        }
        told = {"label": label, "level": asked, "sparsity": zeros, "count": int(rng.integers(1, 5)), "place": number}
        for name in NAMES:
            search, there = "all" if rng.random() > 0.08 else "first", rng.random() > 0.05
            if name != "cusparse":  # which may be as fast as cuBLAS: then either could stand for both
                told["environment"] = str(rng.choice(["environment.json", "environment-2.json"], p=[0.8, 0.2]))
            for policy, variant in itertools.product(POLICIES, ("f32_a", "f32_b")):
                times = dict.fromkeys(("median_us", "q1_us", "q3_us"), us * float(rng.choice([1.0, 2.0, 3.0])))
                empty = {"hot": 0.1, "cold": 0.3}[policy] * (2 if name == "sputnik" else 1)
                floor = {"floor_us": empty if number % 5 else None, "limit_us": 0.5}
                one = {"problem": f"{label}_{number}", "kernel": name, "variant": variant, "policy": policy}
                if there:
                    rows.append(record(**one, **times, **floor, **sizes, **told, search=search))
    return [rows[at] for at in rng.permutation(len(rows))]


def loaded(tmp_path, rows):
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows[:1])
    (folder / "records.csv").unlink()
    (folder / "environment-2.json").write_text('{"source": {"commit": "another"}}', "utf-8")
    chosen = fastest(frame_of(rows))
    append(folder / "records.csv", [replace(row, selected=bool(one)) for row, one in zip(rows, chosen, strict=True)])
    scopes = {(row.problem, row.kernel): row.search for row in rows}
    return Data(load(fake_records.tuned(folder, lambda row: [scopes[row.problem, row.kernel]])))


def in_group(group, row, baseline):
    """The case of a row's problem, None where it is not the group's."""
    other = baseline and (group.baseline_like or group.baseline_cases)
    near = row.level is None and abs(100 * row.sparsity - group.level) <= 2.5 if group.level else True
    kept = [
        not group.op or row.op == group.op,
        group.columns in (None, row.n),
        not group.where or eval(group.where, {"n": row.n, "batch": row.batch}),
        other or near or row.level == group.level or (group.parts and "dense" in row.label),
        fnmatch(row.label, (group.baseline_like if baseline else "") or group.like or "*"),
    ]
    begin, *_, part = row.label.split("_")
    pattern = (group.baseline_cases if baseline else "") or group.cases
    case = (begin if re.match(pattern, row.problem) else None) if pattern else row.problem
    if group.parts:
        case = (begin, part) if part in group.parts else None
    return case if all(kept) else None


def side_of(group, rows, kernels, policy, baseline):
    """By case: least time, how often it counts, its row, whether all that competes was tuned, and its run."""
    least, tuned = {}, {}
    for row in rows:
        case = in_group(group, row, baseline)
        if case is not None and row.policy == policy and row.kernel in kernels:
            if case not in least or row.median_us < least[case].median_us:
                least[case] = row
            tuned.setdefault((case, row.problem if group.parts else ""), []).append(row.search == "all")
    found = {
        case: (row.median_us, row.count, row, all(tuned[case, row.problem if group.parts else ""]), row.environment)
        for case, row in least.items()
    }
    if not group.parts:
        return found
    wholes = {begin: [found[begin, part] for part in group.parts if (begin, part) in found] for begin in "ab"}
    return {begin: added(parts, False) for begin, parts in wholes.items() if len(parts) == len(group.parts)}


def added(cases, counted):
    us = math.fsum(us * (count if counted else 1) for us, count, *_ in cases)
    runs = {run for *_, run in cases}
    return us, 1, cases[0][2], all(tuned for *_, tuned, _ in cases), runs.pop() if len(runs) == 1 else ""


def wanted_of(group, rows, subject, baseline, policy):
    """n, wins, ratio, worst, best, tuned, one_run; None where nothing pairs."""
    below, above = (side_of(group, rows, side, policy, last) for side, last in ((subject, False), (baseline, True)))
    if not group.parts and (group.baseline_like or (group.statistic == "total" and not group.cases)):
        if group.baseline_like in ("", group.like) and below.keys() != above.keys():
            return None
        below, above = ({0: added([*side.values()], group.counted)} if side else {} for side in (below, above))
    cases = {case for case in below.keys() & above.keys() if not group.ideal or below[case][2].floor_us}
    if not cases:
        return None
    us, over, weights = ([side[case][at] for case in cases] for side, at in ((below, 0), (above, 0), (below, 1)))
    if group.ideal:
        mine = [below[case][2] for case in cases]
        over = [(us - row.floor_us) * (1 - row.sparsity) + row.floor_us for us, row in zip(over, mine, strict=True)]
    weights = weights if group.counted else [1] * len(us)
    ratios = [base / us for us, base in zip(us, over, strict=True)]
    if group.statistic == "geometric mean":
        ratio = math.exp(np.dot(weights, np.log(ratios)) / sum(weights))
    elif group.statistic == "mean":
        ratio = np.dot(weights, ratios) / sum(weights)
    else:
        ratio = np.dot(weights, over) / np.dot(weights, us)
    tuned = all(below[case][3] and above[case][3] for case in cases)
    one_run = all(below[case][4] == above[case][4] != "" for case in cases)
    return len(ratios), sum(one > 1 for one in ratios), ratio, min(ratios), max(ratios), tuned, one_run


@pytest.mark.parametrize("seed", range(5))
def test_facts_are_those_of_brute_force(tmp_path, seed):
    rows = made(seed)
    data = loaded(tmp_path, rows)
    every = (kernel("cublas"), kernel("sputnik"), Selector("libraries", NAMES[:2]))
    kernels = {one.label: one.kernels for one in every}
    groups = [replace(one, words=f"group {at}") for at, one in enumerate(GROUPS)]
    facts = compare(data, Comparison(every, every, tuple(groups)))
    assert ((facts["low"] <= facts["ratio"] * (1 + 1e-9)) & (facts["ratio"] <= facts["high"] * (1 + 1e-9))).all()
    key = ["group", "subject", "baseline", "policy"]
    found = facts.set_index(key)[["n", "wins", "ratio", "worst", "best", "tuned", "one_run"]]
    count = 0
    for group, subject, baseline, policy in itertools.product(groups, kernels, kernels, POLICIES):
        wanted = wanted_of(group, rows, kernels[subject], kernels[baseline], policy) if subject != baseline else None
        key = group.label, subject, baseline, policy
        assert (wanted is not None) == (key in found.index), key
        if wanted is not None:
            assert tuple(found.loc[key]) == pytest.approx(wanted, rel=1e-4), key
            count += 1
    assert count == len(found) > 100
    alone = compare(data, Comparison(every, every, by=("problem", "n")))
    assert (alone["n"] == 1).all()
    assert (alone["wins"] == (alone["ratio"] > 1)).all()
    joined = pairs(data, every, every)
    joined = joined[joined["subject"] != joined["baseline"]].set_index(["subject", "baseline", "policy", "stem"])
    for one in alone.itertuples():
        mine, theirs = (
            side_of(Group(), rows, kernels[side], one.policy, False)[one.problem]
            for side in (one.subject, one.baseline)
        )
        both = joined.loc[one.subject, one.baseline, one.policy, one.problem]
        assert one.one_run == both.one_run == (mine[4] == theirs[4])
        assert (one.columns, one.tuned, both.tuned) == (mine[2].n, *[mine[3] and theirs[3]] * 2)
        assert [one.ratio, both.ratio] == pytest.approx([theirs[0] / mine[0]] * 2, rel=1e-4)
    split = Group(cases=r"([ab])_")
    parts = compare(data, Comparison(every, every, (split,), by=("n",)))
    for one in parts.itertuples():
        mine = side_of(split, [row for row in rows if row.n == one.columns], kernels[one.subject], one.policy, False)
        theirs = side_of(split, rows, kernels[one.baseline], one.policy, True)
        ratios = [theirs[case][0] / mine[case][0] for case in mine.keys() & theirs.keys()]
        assert (one.n, one.ratio) == (len(ratios), pytest.approx(np.exp(np.log(ratios).mean()), rel=1e-4))
    assert len(parts) > 10
    assert len(alone) == len(joined) == sum(found["n"].xs("group 0", level="group"))


def test_a_baseline_at_the_subjects_own_variant_is_that_one(tmp_path):
    rows = made(1)
    times = {(row.problem, row.policy, row.kernel, row.variant): row.median_us for row in rows}
    asked = Comparison((kernel("sputnik"),), (kernel("cusparse"),), by=("problem",), same_variant=(kernel("cusparse"),))
    ratios = compare(loaded(tmp_path, rows), asked).set_index(["problem", "policy"])["ratio"]
    for (problem, policy), ratio in ratios.items():
        a, b = (times[problem, policy, "sputnik", variant] for variant in ("f32_a", "f32_b"))
        over = times[problem, policy, "cusparse", "f32_a" if a < b else "f32_b"]
        assert a == b or ratio == pytest.approx(over / min(a, b), rel=1e-4)
    assert len(ratios) > 20


def test_a_run_is_of_one_commit_on_one_gpu():
    told = [("a", "x", "g0"), ("b", "x", "g0"), ("c", "y", "g0"), ("d", "x", "g1"), ("e", "x", None), ("f", "x", None)]
    said = {name: {"source": {"commit": commit}} | ({"worker": gpu} if gpu else {}) for name, commit, gpu in told}
    found = _runs(SimpleNamespace(environments=[(name, 1, one) for name, one in said.items()]))
    assert found["a"] == found["b"]
    assert len(set(found.values())) == 5


def test_what_is_cut_short_under_one_policy_is_tuned_under_the_other(tmp_path):
    """But the first choice of a kernel is the same however far that was tuned."""
    rows = [record(kernel="sputnik", variant="heuristic_v", policy=policy) for policy in POLICIES]
    results = load(fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows))
    cut = results.frame.assign(cut_short=results.frame["policy"].map({"hot": "", "cold": "first"}))
    for variants, cold in (("", False), (DEFAULT, True)):
        times = Data(replace(results, frame=cut)).times(kernel("sputnik", variants=variants))
        assert dict(zip(times["policy"], times["tuned"], strict=True)) == {"hot": True, "cold": cold}


def test_a_problem_in_two_types_has_two_times_and_is_tuned_where_both_are(tmp_path):
    """What competes in two arithmetics is tuned where all of a stem's candidates were tried, in either type."""
    names = {"f32": "a_64x256x3136_90_uniform", "f16": "a_64x256x3136_90_uniform_f16"}
    cut = {"f32": "first", "f16": "all"}
    rows = [
        record(problem=names[kind], dtype=kind, kernel="sputnik", variant=f"{kind}_v", median_us=us, search=cut[kind])
        for kind, us in (("f32", 2.0), ("f16", 3.0))
    ]
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    data = Data(load(fake_records.tuned(folder, lambda row: [cut[row.dtype]])))

    def told(*maths):
        times = data.times(Selector("either", ("sputnik",), *maths[:1], also="".join(maths[1:])))
        return dict(zip(times["problem"], zip(times["median_us"], times["tuned"], strict=True), strict=True))

    assert told("f32", "f16") == {names["f32"]: (2.0, False), names["f16"]: (3.0, False)}
    assert told("f32") == {names["f32"]: (2.0, False)}
    assert told("f16") == {names["f16"]: (3.0, True)}
    either, half = (
        Selector(name, ("sputnik",), kind, also="f16") for name, kind in (("either", "f32"), ("half", "f16"))
    )
    both = pairs(data, [half], [either])[["problem", "ratio", "tuned"]]
    assert both.to_numpy().tolist() == [[names["f16"], 2.0 / 3.0, False]], "the least of a stem"
