"""Which rows stand for a side."""

from __future__ import annotations

import dataclasses

import pandas as pd

from nnzbench.facts.selector import kernel, pick


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
