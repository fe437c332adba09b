"""What a command line names (times, experiments, kernels, problems): found, or refused in one clear sentence."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from nnzbench.bench.sweep import Choice, Summary, all_problems, plan_work
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.experiment import Experiment, unknown
from nnzbench.kernels.registry import AnyKernel, kernels
from nnzbench.papers.catalogue import EXPERIMENTS, experiment

T = TypeVar("T")
SHOWN = 3
"""Names that a refusal suggests."""


class NothingMatched(ValueError):
    """Nothing would be run; the message says what matched nothing and what is nearest."""


def names_of(
    allowed: tuple[str, ...],
) -> Callable[[click.Context, click.Parameter, str | None], tuple[str, ...] | None]:
    """Option callback: comma-separated names out of a fixed set."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
        for name in names:
            if name not in allowed:
                raise click.BadParameter(f"'{name}' is not one of {', '.join(allowed)}", ctx, param)
        return names

    return convert


def choose_experiments(names: tuple[str, ...], any_kernel: bool) -> list[Experiment]:
    """The named experiments; for `all`, those that have a kernel in this version.

    `any_kernel`: the user names the kernels. Raises `Unsupported` where an experiment has none.
    """
    known = kernels()
    chosen = [experiment(name) for name in dict.fromkeys(names) if name != "all"]
    if "all" in names:
        return [one for one in EXPERIMENTS.values() if any(name in known for name in one.kernels)]
    for one in chosen:
        if not (one.kernels or one.problems()):
            raise Unsupported(f"{one.name} runs nothing: `nnzbench report {one.name}` draws it from the data sets")
        if not any_kernel and not any(name in known for name in one.kernels):
            raise Unsupported(f"{one.name} can't run yet: this version has none of {', '.join(one.kernels)}")
    return chosen


def names_of_kernels(given: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names of registered kernels, those of the user's files included; None where none are given."""
    from nnzbench.kernels import user as user_kernels

    if not given:
        return None
    names: list[str] = []
    for text in given:
        if text.endswith(".py"):
            names += user_kernels.load(Path(text))
        elif text in kernels():
            names.append(text)
        else:
            raise click.UsageError(unknown("kernel", text, kernels()))
    return tuple(dict.fromkeys(names))


def require_work(experiments: Sequence[Experiment], known: Mapping[str, AnyKernel], choice: Choice) -> None:
    """Raises `NothingMatched` for a pattern that names no problem, and where no kernel runs in the dtypes asked for.

    Several experiments are taken together: a choice may leave some of them without work.
    """
    titles = ", ".join(one.name for one in experiments)
    names = dict.fromkeys(problem.name for one in experiments for problem in all_problems(one, choice))
    matching(names, lambda name: (name,), choice.problems or (), f"no problem of {titles} is named like")
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


def require_plans(summaries: list[Summary], choice: Choice) -> None:
    """Raises `NothingMatched` where a kernel asked for by name was silent on every problem."""
    silent = sorted(frozenset.intersection(*(summary.planless for summary in summaries)) & set(choice.kernels or ()))
    if silent:
        raise NothingMatched(f"{', '.join(silent)}: no plan for any of the problems chosen, and no reason given")


def matching(items: Iterable[T], names: Callable[[T], Sequence[str]], patterns: Sequence[str], refusal: str) -> list[T]:
    """The items with a name like one of the patterns, all without any; each pattern must match one.

    Raises `NothingMatched`: the refusal with that pattern, and the first names that are nearest.
    """
    every = [(item, names(item)) for item in items]
    found = set[int]()
    for pattern in patterns:
        mine = {at for at, (_, some) in enumerate(every) if any(fnmatch.fnmatchcase(one, pattern) for one in some)}
        if not mine:
            raise NothingMatched(f"{refusal} '{pattern}'{nearest(pattern, (some[0] for _, some in every))}")
        found |= mine
    return [item for at, (item, _) in enumerate(every) if at in found or not patterns]


def nearest(word: str, names: Iterable[str]) -> str:
    """`: the nearest are ...`, as the end of a sentence; empty where there are no names."""
    by_lower = {name.lower(): name for name in names}
    plain = word.lower().strip("*?")
    found = difflib.get_close_matches(plain, by_lower, SHOWN, cutoff=0.3) or list(by_lower)[:SHOWN]
    return f": the nearest are {', '.join(by_lower[name] for name in found)}" if found else ""
