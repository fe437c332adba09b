"""Estimates beside the times of best_trial.py, and the page on both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from best_trial_cases import Case, Outcome, layer_of

from nnzbench.advise import estimate
from nnzbench.advise.measured import Question
from nnzbench.advise.recorded import Recorded, load, trial_rows
from nnzbench.kernels.registry import about
from nnzbench.progress import counted
from nnzbench.report.text.tables import markdown


def with_estimates(outcomes: Sequence[Outcome], folders: Sequence[Path]) -> list[Outcome]:
    """The outcomes with what the published rows say of the kernels that were measured.

    Once without any row of these matrices, and once with what this trial measured of the other ones.
    """
    hidden = frozenset(f"{kind}:{one.matrix}" for one in outcomes for kind in ("dlmc", "standin"))
    recorded = {gpu: load(gpu, folders, hidden) for gpu in {one.gpu for one in outcomes}}
    done = []
    for one in counted(outcomes, "estimated", len(outcomes)):
        rest = [asdict(other) for other in outcomes if other.matrix != one.matrix and other.gpu == one.gpu]
        without = recorded[one.gpu]
        beside = without.joined(trial_rows(rest)) if rest else without
        done.append(replace(one, estimated=_estimates(one, without), estimated_beside=_estimates(one, beside)))
    return done


def _estimates(one: Outcome, recorded: Recorded) -> dict[str, float]:
    question = Question((one.n,), dtype=one.dtype)
    said = estimate.answer(layer_of(Case(one.matrix, one.dtype, one.n)), question, recorded).widths[0].timed()
    times = {entry.kernel: entry.hot_us for entry in said if entry.math == one.dtype and entry.hot_us}
    return {kernel: round(us, 4) for kernel, us in times.items() if kernel in one.measured}


def summary(outcomes: Sequence[Outcome]) -> str:
    """The page: Markdown."""
    gpus, commits = (", ".join(sorted({getattr(one, name) for one in outcomes})) for name in ("gpu", "commit"))
    lines = ["# `nnzbench best` against trying everything", ""]
    timed = [one for one in outcomes if one.best_us > 0 and one.found_us > 0]
    if timed:
        ratios = [one.found_us / one.best_us for one in timed]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines += [
            f"On {len(timed)} real DLMC matrices that no rule was fitted to, the fastest sparse kernel found within "
            f"{_given(timed)} (one width has 30 s of the default budget, three have 15 s each) takes "
            f"{_percent(mean - 1)} longer than the fastest of all candidates in geometric mean, "
            f"{_percent(max(ratios) - 1)} at worst (goals: 5 % and 15 %); on {sum(one == 1 for one in ratios)} "
            f"it is the same. It tried {sum(one.tried for one in timed):,} of {sum(one.candidates for one in timed):,} "
            f"candidates. Measured on {gpus} by the code of {commits}.",
            "",
        ]
    lines += _estimate_lines(outcomes)
    rows = [
        (
            f"`{one.matrix}`", one.dtype, str(one.n), f"{one.found}, {one.found_us:.2f} µs",
            f"{one.best}, {one.best_us:.2f} µs", f"{one.found_us / one.best_us if one.best_us > 0 else math.nan:.3f}",
            f"{one.tried} of {one.candidates}",
        )
        for one in outcomes
    ]  # fmt: skip
    header = ("matrix", "type", "N", "within the budget", "of all", "ratio", "tried")
    return "\n".join([*lines, markdown(header, rows, 2), ""])


def _given(outcomes: Sequence[Outcome]) -> str:
    """Such as `15 s`, or `15 s (on 39) or 30 s (on 3)`."""
    counts = Counter(one.given_s for one in outcomes)
    if len(counts) == 1:
        return f"{next(iter(counts)):g} s"
    return " or ".join(f"{seconds:g} s (on {count})" for seconds, count in sorted(counts.items()))


def _estimate_lines(outcomes: Sequence[Outcome]) -> list[str]:
    without, deciding = _errors(outcomes, "estimated")
    beside, deciding_beside = _errors(outcomes, "estimated_beside")
    if not without:
        return []
    rows = [
        (f"`{kernel}`", str(len(found)), _mean(found), _percent(max(found)), _mean(beside.get(kernel, [])))
        for kernel, found in sorted(without.items())
    ]
    every, every_beside = (list(chain(*errors.values())) for errors in (without, beside))
    return [
        f"Estimates without the GPU (`--gpu`), made without any row of these matrices or of stand-ins for them, are "
        f"off by {_mean(every)} on average over {len(every)} times, by {_mean(deciding)} over the fastest sparse and "
        f"the fastest dense kernel of each (goal: 10 %). With the times of the other matrices of this trial, as "
        f"`--gpu` has them, each matrix being left out in turn: {_mean(every_beside)} over {len(every_beside)}, "
        f"{_mean(deciding_beside)} over the fastest two.",
        "",
        markdown(("kernel", "estimates", "mean error", "worst", "mean, others known"), rows),
        "",
    ]


def _errors(outcomes: Sequence[Outcome], name: str) -> tuple[dict[str, list[float]], list[float]]:
    """Errors by kernel; and of the fastest sparse and the fastest dense one, which the answer's sentence is made of."""
    errors: dict[str, list[float]] = {}
    deciding: list[float] = []
    for one in outcomes:
        for kernel, said in getattr(one, name).items():
            error = abs(said / one.measured[kernel] - 1)
            errors.setdefault(kernel, []).append(error)
            side = {name: one.measured[name] for name in one.measured if _dense(name) == _dense(kernel)}
            if kernel == min(side, key=lambda name: side[name]):
                deciding.append(error)
    return errors, deciding


def _dense(kernel: str) -> bool:
    return about(kernel).work == "dense"


def _mean(shares: Sequence[float]) -> str:
    return _percent(sum(shares) / len(shares)) if shares else "–"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
