"""One problem recorded on two sources of its pattern: kernels on the real one, others on its calibrated stand-in."""

from __future__ import annotations

import pandas as pd

from nnzbench.problems.names import INTERCHANGEABLE, case_of, parse

STANDIN = "standin"


def joined(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """`frame` with a stand-in's rows under the name of the real pattern recorded beside it, and a sentence on them.

    Each row keeps its own `source`. A stand-in stays a problem of its own where a kernel was recorded on both.
    """
    named = frame[["problem", "kernel"]].drop_duplicates()
    kernels = {str(name): set(group["kernel"]) for name, group in named.groupby("problem")}
    real = {case_of(name): name for name in kernels if _kind(name) in INTERCHANGEABLE - {STANDIN}}
    names = {
        name: real[case_of(name)]
        for name in kernels
        if _kind(name) == STANDIN and case_of(name) in real and not kernels[name] & kernels[real[case_of(name)]]
    }
    if not names:
        return frame, ()
    who = ", ".join(f"`{kernel}`" for kernel in sorted(set().union(*(kernels[name] for name in names))))
    problems = "one problem" if len(names) == 1 else f"{len(names)} problems"
    sentence = (
        f"On {problems} the times of {who} are of a calibrated stand-in for the pattern; the other kernels' are of the "
        "real one."
    )
    return frame.assign(problem=frame["problem"].replace(names)), (sentence,)


def _kind(name: str) -> str:
    parts = parse(name)
    return parts.kind if parts else ""
