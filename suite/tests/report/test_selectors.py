"""Which rows stand for a side."""

from __future__ import annotations

import dataclasses

import pandas as pd

from nnzbench.results.records.beside import tunings
from nnzbench.results.records.describe import searched
from nnzbench.results.result_set import _unfinished
from nnzbench.results.selector import kernel, pick


def test_one_choice_is_run_under_every_policy():
    """The fastest hot is slow cold, and the other way round; what was not run cold is no choice."""
    times = {"hot": (1.0, 9.0), "cold": (4.0, 3.0), "both": (2.0, 4.0)}
    rows = [
        (name, policy, us) for name, pair in times.items() for policy, us in zip(("hot", "cold"), pair, strict=True)
    ]
    rows.append(("half", "hot", 0.1))
    frame = pd.DataFrame(rows, columns=["variant", "policy", "median_us"]).assign(
        problem="p", kernel="sputnik", math="f32", status="ok", selected=False
    )
    oracle = kernel("sputnik")
    once = dataclasses.replace(oracle, one_choice=True)
    assert pick(frame, oracle)["variant"].tolist() == ["cold", "half"]
    assert pick(frame, once)[["variant", "policy"]].to_numpy().tolist() == [["both", "hot"], ["both", "cold"]]


def test_a_search_to_the_end_before_a_kernel_had_more_first_choices_is_not_all(tmp_path):
    """A library's first choice may be renamed: its candidates are of its release, but where it multiplies by the
    unpruned matrix since. A search that names others than the first choices before it, as of a network whose products
    a run chooses, is one to the end."""
    lines = [("a", "sparsert", "all", "x"), ("a", "sparsert", "some", "y"), ("b", "sparsert", "first", "x")]
    lines += [("b", "sparsert", "all", "x y"), ("a", "cublas", "first", "y"), ("a", "cublas", "all", "x")]
    lines += [("c", "sparsert", "first", "x"), ("c", "sparsert", "all", "y")]
    lines += [("d", "cublas", "all", "x"), ("d", "cublas", "first", "x_unpruned")]
    path = tmp_path / "tuning.csv"
    head = "problem,kernel,scope,untuned,dtype,device,policies,candidates,ok,seconds\n"
    path.write_text(head + "".join(f"{','.join(line)},f32,cupy,hot,1,1,1.0\n" for line in lines), encoding="utf-8")
    frame = pd.DataFrame([line[:2] for line in lines[1::2]], columns=["problem", "kernel"])
    frame = frame.assign(dtype="f32", device="cupy", policy="hot", variant="x", choice="search")
    assert searched(frame, tunings(path.parent))["search"].tolist() == ["some", "all", "all", "all", "first"]
    path.write_text(path.read_text().replace("all,x,f32,cupy,hot", "all,x,f32,cupy,hot+cold"), encoding="utf-8")
    cold = searched(frame.assign(policy="cold"), tunings(path.parent))["search"]
    assert cold.tolist() == ["some", "", "all", "", "all"], "nothing but the pruned matrix there"


def test_kernels_without_their_last_candidate_are_told_of_in_one_line_each():
    frame = pd.DataFrame({"kernel": ["ring", "ring", "ring", "sputnik"], "problem": ["a", "a", "b", "a"]})
    assert _unfinished(frame.assign(dtype="f32", policy=["hot", "cold", "hot", "hot"])) == [
        "`ring` is not drawn on `a` (f32, hot) and 2 more: the run ended before its last candidate.",
        "`sputnik` is not drawn on `a` (f32, hot): the run ended before its last candidate.",
    ]
