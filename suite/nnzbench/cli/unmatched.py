"""Whether what a run was asked for exists at all, told before any work and with the nearest names where it does not."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence

from nnzbench.kernels.registry import AnyKernel
from nnzbench.measure.sweep import Choice, all_problems, plan_work
from nnzbench.problems.experiment import Experiment

SHOWN = 3
"""Names that a refusal suggests."""


class NothingMatched(ValueError):
    """Nothing would be run; the message says what matched nothing and what is nearest."""


def require_work(experiments: Sequence[Experiment], known: Mapping[str, AnyKernel], choice: Choice) -> None:
    """Raises `NothingMatched` for a pattern that names no problem, and where no kernel runs in the dtypes asked for.

    Several experiments are taken together: a choice may leave some of them without work.
    """
    titles = ", ".join(one.name for one in experiments)
    names = list(dict.fromkeys(problem.name for one in experiments for problem in all_problems(one, choice)))
    for pattern in choice.problems or ():
        if not fnmatch.filter(names, pattern) and pattern not in names:
            raise NothingMatched(f"no problem of {titles} is named like '{pattern}'{nearest(pattern, names)}")
    if any(plan_work(one, known, choice) for one in experiments):
        return
    anything = Choice(kernels=choice.kernels, problems=choice.problems, real=choice.real, uniform=choice.uniform)
    found = {problem.dtype for one in experiments for problem, _ in plan_work(one, known, anything)}
    if choice.dtypes and found:
        raise NothingMatched(
            f"nothing of {titles} runs in {', '.join(choice.dtypes)}: the kernels chosen run there in "
            f"{', '.join(sorted(found))}"
        )
    raise NothingMatched(f"{titles}: no kernel chosen runs on any problem chosen")


def nearest(word: str, names: Iterable[str]) -> str:
    """`: the nearest are ...`, as the end of a sentence; empty where there are no names."""
    by_lower = {name.lower(): name for name in names}
    plain = word.lower().strip("*?")
    found = difflib.get_close_matches(plain, by_lower, SHOWN, cutoff=0.3) or list(by_lower)[:SHOWN]
    return f": the nearest are {', '.join(by_lower[name] for name in found)}" if found else ""
