"""Facts against brute force over random small tables: least times, pairs, means, and what is tuned."""

import itertools
import math

import fake_records
import numpy as np
import pytest
from fake_records import record

from nnzbench.results.data import Data
from nnzbench.results.result_set import load
from nnzbench.results.selector import Selector, kernel
from nnzbench.results.table import Comparison, compare, pairs

NAMES = ("cublas", "cusparse", "sputnik")
POLICIES = ("hot", "cold")


def made(seed):
    """Rows of three kernels with two variants each, many of equal times, some kernels not tuned or without a time."""
    rng = np.random.default_rng(seed)
    rows = []
    for problem, name in itertools.product("pqrstu", NAMES):
        search, there = "all" if rng.random() > 0.08 else "first", rng.random() > 0.1
        for policy, variant in itertools.product(POLICIES, ("f32_a", "f32_b")):
            us = float(rng.choice([1.0, 2.0, 3.0, 5.0, 8.0]))
            times = {"median_us": us, "q1_us": us, "q3_us": us, "search": search, "limit_us": 0.5}
            if there:
                rows.append(record(problem=problem, kernel=name, variant=variant, policy=policy, **times))
    return [rows[at] for at in rng.permutation(len(rows))]


def loaded(tmp_path, rows):
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    scopes = {(row.problem, row.kernel): row.search for row in rows}
    return Data(load(fake_records.tuned(folder, lambda row: [scopes[row.problem, row.kernel]])))


@pytest.mark.parametrize("seed", range(12))
def test_facts_are_those_of_brute_force(tmp_path, seed):
    rows = made(seed)
    data = loaded(tmp_path, rows)
    every = (*map(kernel, NAMES), Selector("libraries", NAMES[:2]))
    sides = {one.label: one.kernels for one in every}
    facts = compare(data, Comparison(every, every)).set_index(["subject", "baseline", "policy"])
    wanted = {}
    for subject, baseline, policy in itertools.product(sides, sides, POLICIES):
        least, tuned = {}, {}
        for row, side in itertools.product(rows, (subject, baseline)):
            if row.policy == policy and row.kernel in sides[side]:
                key = row.problem, side
                least[key] = min(row.median_us, least.get(key, math.inf))
                tuned[row.problem] = tuned.get(row.problem, True) and row.search == "all"
        ratios = {
            problem: least[problem, baseline] / least[problem, subject]
            for problem in "pqrstu"
            if {(problem, subject), (problem, baseline)} <= least.keys()
        }
        if subject != baseline and ratios:
            of = ratios.values()
            wanted[subject, baseline, policy] = (
                len(of), sum(one > 1 for one in of), math.exp(sum(map(math.log, of)) / len(of)), min(of), max(of),
                all(tuned[problem] for problem in ratios),
            )  # fmt: skip
    found = facts[["n", "wins", "ratio", "worst", "best", "tuned"]]
    assert set(found.index) == set(wanted)
    for key, values in wanted.items():
        assert tuple(found.loc[key]) == pytest.approx(values)
    assert ((facts["low"] <= facts["ratio"]) & (facts["ratio"] <= facts["high"])).all()
    alone = compare(data, Comparison(every, every, by=("problem",)))
    assert (alone["n"] == 1).all()
    assert (alone["wins"] == (alone["ratio"] > 1)).all()
    summed = alone.groupby(["subject", "baseline", "policy"])["wins"].sum()
    assert {key: values[1] for key, values in wanted.items()} == summed.to_dict()
    of_problems = pairs(data, every, every)
    for (subject, baseline, policy), some in of_problems.groupby(["subject", "baseline", "policy"]):
        if subject != baseline:
            n, _, ratio, *_ = wanted[subject, baseline, policy]
            assert (len(some), np.exp(np.log(some["ratio"]).mean())) == (n, pytest.approx(ratio))


@pytest.mark.parametrize("seed", range(3))
def test_of_equal_times_the_row_that_stands_for_its_kernel_is_taken(tmp_path, seed):
    data = loaded(tmp_path, made(seed))
    frame = data.frame
    for name in NAMES:
        mine = frame[(frame["kernel"] == name) & frame["selected"]].set_index(["problem", "policy"])["variant"]
        taken = data.times(kernel(name)).set_index(["problem", "policy"])["variant"]
        assert taken.to_dict() == mine.to_dict()


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
