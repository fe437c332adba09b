"""How near `nnzbench best` comes to trying everything, and its estimates to measured times, on matrices of no fit.

    python runners/best_trial.py [--seconds 2 10 60] [--limit SECONDS] [--out build/best_trial]
    python runners/best_trial.py --summary [--out build/best_trial]

The matrices are those of datasets/best_trial.csv: real DLMC ones (`nnzbench fetch dlmc`, or NNZBENCH_DATA), and random
ones as large as layers of language models, whose sizes and zeros no experiment has. A run needs a GPU. Each matrix is
searched until each of `--seconds` is over, then on without a limit; what only that tries is not timed cold. With the
same `--out` a run goes on where it was cut. It ends within `--limit` seconds.

--summary needs neither a GPU nor the matrices: it estimates the times of the real ones from the published rows, without
those of these matrices and of synthetic patterns made after them, and writes README.md and trial.jsonl, which `best
--gpu` reads in a reports folder.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pandas as pd

from nnzbench import devices
from nnzbench.advise import estimate, layer
from nnzbench.advise.layer import BUDGET_S, Question
from nnzbench.advise.measured import Asked, known_times, unrecorded
from nnzbench.advise.recorded import Recorded, load, of_collection, trial_rows
from nnzbench.bench.session import Session, open_session
from nnzbench.core import paths
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import Lines
from nnzbench.data.matrices import standin
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.problem import DType
from nnzbench.data.problems.sources import find_real
from nnzbench.kernels.registry import about, baselines, kernels
from nnzbench.papers.predict.estimator import Sizes
from nnzbench.report.text import commit, document, markdown, share
from nnzbench.results.records.folder import Results, drop_cut_off_line
from nnzbench.results.records.record import Record, RecordError

LINES = "trial.jsonl"
REAL, RANDOM = "real DLMC matrices", "layers of language models"
_percent = partial(share, form=".1f")


@dataclass(frozen=True)
class Case:
    """What is asked about one matrix."""

    matrix: str
    """Its place in DLMC, or sizes and zeros of a random one, as `nnzbench best` takes them."""
    dtype: DType
    n: int

    @property
    def real(self) -> bool:
        return of_collection(self.matrix)


@dataclass(frozen=True)
class Outcome(Case):
    """A case's fastest sparse kernel, streamed, within the longest time and of all, and the least hot time of each
    kernel."""

    gpu: str
    commit: str
    found: str
    found_us: float
    best: str
    best_us: float
    tried: int
    candidates: int
    seconds: float
    """What the search without a limit took beyond the longest time."""
    measured: dict[str, float]
    """Microseconds by kernel, in the arithmetic asked for."""
    estimated: dict[str, float] = field(default_factory=dict)
    """The same without the GPU, once summed up: from rows of none of these matrices."""
    estimated_beside: dict[str, float] = field(default_factory=dict)
    """The same, from the times of the other matrices, too."""
    given_s: float = BUDGET_S / 4
    """The longest time that the search had; the lines of the first runs don't tell."""
    sooner_us: dict[str, float | None] = field(default_factory=dict)
    """The least streamed time after each of the shorter ones; None where no sparse kernel was timed."""

    def losses(self) -> dict[float, float]:
        """What was found after so many seconds over the least of all, less 1: infinite where nothing was."""
        found = {float(seconds): us for seconds, us in self.sooner_us.items()} | {self.given_s: self.found_us}
        return {seconds: (us / self.best_us if us else math.inf) - 1 for seconds, us in found.items()}


def read_cases() -> list[Case]:
    with (paths.datasets() / "best_trial.csv").open(newline="", encoding="utf-8") as file:
        return [Case(row["matrix"], row["dtype"], int(row["n"])) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def case_of(one: Outcome) -> Case:
    return Case(one.matrix, one.dtype, one.n)


def layer_of(case: Case) -> layer.Layer:
    """The matrix as `nnzbench best` reads it. Raises `MatrixError` where it is not on disk."""
    if not case.real:
        (one,) = layer.load([case.matrix])
        return replace(one, dtype=case.dtype)
    file = find_real(f"dlmc:{case.matrix}")
    if file is None:
        raise MatrixError(f"{case.matrix} is not on disk: run `nnzbench fetch dlmc`, or set NNZBENCH_DATA")
    (one,) = layer.load([str(file)])
    label = case.matrix.removesuffix(".smtx").replace("/", ".")
    return replace(one, label=label, source=f"dlmc:{case.matrix}", dtype=case.dtype)


def read(folder: Path) -> list[Outcome]:
    """The last outcome of each case, in the order of the cases; a line that a kill cut short is none."""
    last: dict[Case, Outcome] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / LINES).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                one = Outcome(**json.loads(line))
                last[case_of(one)] = one
    order = {case: at for at, case in enumerate(read_cases())}
    return [last[case] for case in sorted(last, key=lambda case: order.get(case, len(order)))]


def fastest(rows: Iterable[Record], dtype: DType) -> tuple[dict[str, float], str, float]:
    """The least hot time of each kernel in that precision; kernel, variant and time of the least streamed that leaves
    zeros out."""
    rows = list(rows)
    hot, timed = (
        sorted(
            (row.median_us, row.kernel, row.variant)
            for row in rows
            if row.policy == policy and row.median_us and row.math == dtype
        )
        for policy in ("hot", "stream")
    )
    least = {kernel: us for us, kernel, _ in reversed(hot)}
    sparse = ((f"{kernel} {variant}", us) for us, kernel, variant in timed if about(kernel).work != "dense")
    return least, *next(sparse, ("none", math.nan))


def ask(
    case: Case,
    times: Sequence[float],
    session: Session,
    results: Results,
    known: Recorded | None,
    ends: float = math.inf,
) -> Outcome | None:
    """Searches within the times, ascending, then without a limit; None where `ends` of the session's clock comes first.

    `known`: what is recorded of other matrices.
    """
    one = layer_of(case)
    problem = unrecorded(one.problem("spmm", case.n, case.dtype), results)
    names = [name for name in baselines("spmm") if case.dtype in session.kernels[name].dtypes]
    sizes = Sizes(problem.m, problem.k, problem.n, one.matrix.nnz, one.kind)
    expected = known.expected("spmm", case.dtype, sizes) if known else {}
    asked = Asked(case.n, problem, one, names, session, results, Lines(), expected)
    with asked.search as under_way:
        begun, found_us = session.clock(), []
        for seconds in times:
            within = under_way.go(min(begun + seconds, ends) - session.clock())
            _, found, us = fastest(asked.rows, case.dtype)
            found_us.append(None if math.isnan(us) else us)
        started = session.clock()
        asked.attempts.policies = tuple(one for one in asked.attempts.policies if one != "cold")
        everything = under_way.go(ends - started)
    if everything.unfinished:
        return None
    measured, best, best_us = fastest(asked.rows, case.dtype)
    return Outcome(
        case.matrix, case.dtype, case.n, session.device.gpu, commit(dict(session.environment)), found, us,
        best, best_us, sum(within.tried.values()), sum(everything.tried.values()),
        round(session.clock() - started, 3), measured, given_s=times[-1],
        sooner_us={f"{seconds:g}": us for seconds, us in zip(times[:-1], found_us[:-1], strict=True)},
    )  # fmt: skip


def run(cases: Sequence[Case], times: Sequence[float], limit: float, out: Path, device_name: str | None) -> None:
    """Does the cases that are not done, in at most `limit` seconds."""
    done = {case_of(one) for one in read(out)}
    left = [case for case in cases if case not in done]
    for case in left:
        if case.real:
            layer_of(case)  # raises before any work
    session = open_session(devices.open_device(device_name) if device_name else devices.open_gpu(), kernels(), print)
    known = known_times(session, hidden(cases))
    ends = session.clock() + limit
    out.mkdir(parents=True, exist_ok=True)
    drop_cut_off_line(out / LINES)
    with Results(out, True, False, session.environment, print) as results:
        for number, case in enumerate(left, start=1):
            in_time = session.clock() + times[0] < ends
            one = ask(case, times, session, results, known, ends) if in_time else None
            if one is None:
                print(f"{len(left) - number + 1} of {len(cases)} matrices left to the next run", flush=True)
                break
            with paths.appending(out / LINES) as file:
                file.write(json.dumps(asdict(one)) + "\n")
            took = f"{one.seconds:.0f} s beyond the budget"
            print(f"{number}/{len(left)} {case.matrix}: {one.found_us:.2f} of {one.best_us:.2f} us, {took}", flush=True)
    session.device.close()


def hidden(cases: Iterable[Case]) -> frozenset[str]:
    """The sources of rows that no estimate may know: of these matrices, and of patterns made after them."""
    return frozenset(f"{kind}:{one.matrix}" for one in cases for kind in ("dlmc", "standin"))


def with_estimates(outcomes: Sequence[Outcome], folders: Sequence[Path]) -> list[Outcome]:
    """The outcomes with what the published rows say of the kernels that were measured on real matrices.

    Once without any row of these matrices, and once with what this trial measured of the other ones.
    """
    recorded = {gpu: load(gpu, folders, hidden(outcomes)) for gpu in {one.gpu for one in outcomes}}
    done = []
    for one in outcomes:
        if not one.real:
            done.append(one)
            continue
        rest = [asdict(other) for other in outcomes if other.matrix != one.matrix and other.gpu == one.gpu]
        without = recorded[one.gpu]
        beside = without.joined(trial_rows(rest)) if rest else without
        done.append(replace(one, estimated=_estimates(one, without), estimated_beside=_estimates(one, beside)))
    return done


def _estimates(one: Outcome, recorded: Recorded) -> dict[str, float]:
    like = layer.from_matrix(standin.for_dlmc(one.matrix))  # its sizes and nonzeros are all that an estimate knows
    said = estimate.answer(like, Question((one.n,), dtype=one.dtype), recorded).widths[0].timed()
    times = {entry.kernel: entry.hot_us for entry in said if entry.math == one.dtype and entry.hot_us}
    return {kernel: round(us, 4) for kernel, us in times.items() if kernel in one.measured}


def errors(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """A row per measured kernel and matrix: |estimate / measured - 1| without and with the times of other matrices.

    `deciding` are the fastest sparse and the fastest dense kernel of each, which the answer's sentence is made of.
    """
    rows = []
    for one in outcomes:
        for kernel, us in one.measured.items():
            side = [name for name in one.measured if (about(name).work == "dense") == (about(kernel).work == "dense")]
            off = (abs(told.get(kernel, math.nan) / us - 1) for told in (one.estimated, one.estimated_beside))
            rows.append((kernel, kernel == min(side, key=one.measured.__getitem__), *off))
    return pd.DataFrame(rows, columns=["kernel", "deciding", "without", "beside"])


def summary(outcomes: Sequence[Outcome]) -> str:
    gpus, commits = (", ".join(sorted({getattr(one, name) for one in outcomes})) for name in ("gpu", "commit"))
    parts = ["# `nnzbench best` against trying everything"]
    timed = [one for one in outcomes if one.best_us > 0 and one.found_us > 0]
    if timed:
        losses: dict[tuple[str, float], list[float]] = {}
        for one in timed:
            for seconds, loss in one.losses().items():
                losses.setdefault((REAL if one.real else RANDOM, seconds), []).append(loss)
        (what, seconds), lost = min(losses.items(), key=lambda one: (one[0][0] != RANDOM, -len(one[1]), one[0][1]))
        parts += [
            f"In {seconds:g} s a search finds a sparse kernel {_mean(lost)} slower than the fastest of all in the "
            f"mean, {_percent(max(lost))} at worst (goals: 5 % and 15 %), over {len(lost)} {what}.",
            f"No rule was fitted to these matrices; measured on {gpus} by the code of {commits}. Every matrix: "
            f"[{LINES}]({LINES}). No search ends before its first candidates are timed.",
            markdown(
                ("matrices", "seconds of search", "number", "mean loss", "worst", "the same kernel's time"),
                (
                    (kind, f"{time:g}", str(len(of)), _mean(of), _percent(max(of)), str(of.count(0.0)))
                    for (kind, time), of in sorted(losses.items())
                ),
            ),
        ]  # fmt: skip
    found = errors(outcomes)
    if found["without"].notna().any():
        every, deciding = (rows[["without", "beside"]].mean() for rows in (found, found[found["deciding"]]))
        parts += [
            "Mean error of estimates without the GPU (`--gpu`) from no row of these matrices or of synthetic patterns "
            f"made after them: {_percent(every['without'])} over all kernels, {_percent(deciding['without'])} over the "
            "fastest sparse and the fastest dense kernel of each matrix (goal: 10 %). With the times of this trial's "
            f"other matrices, each left out in turn: {_percent(every['beside'])} and {_percent(deciding['beside'])}.",
            markdown(
                ("kernel", "estimates", "mean error", "worst", "mean, others known"),
                (
                    (f"`{kernel}`", str(rows["without"].count()), _percent(rows["without"].mean()),
                     _percent(rows["without"].max()), _percent(rows["beside"].mean()))
                    for kernel, rows in found.groupby("kernel")
                    if rows["without"].notna().any()
                ),
            ),
        ]  # fmt: skip
    return document(*parts)


def _mean(shares: Sequence[float]) -> str:
    return _percent(sum(shares) / len(shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[2.0, 10.0, BUDGET_S], help="ascending")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="end within them")
    parser.add_argument("--device", choices=list(devices.DEVICES), help="default: the GPU")
    parser.add_argument("--out", type=Path, default=Path("build/best_trial"))
    parser.add_argument("--summary", action="store_true", help="run nothing, sum up")
    asked = parser.parse_args()
    try:
        if not asked.summary:
            run(read_cases(), asked.seconds, asked.limit, asked.out, asked.device)
            return
        outcomes = with_estimates(read(asked.out), [paths.reports()])
    except (MatrixError, RecordError, Unsupported) as error:
        parser.error(str(error))
    paths.write_text(asked.out / LINES, "".join(json.dumps(asdict(one)) + "\n" for one in outcomes))
    text = summary(outcomes)
    paths.write_text(asked.out / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
