"""How near `nnzbench best` comes to trying everything, and its estimates to measured times, on matrices of no fit.

    python runners/trials/best_trial.py [--part 1/2] [--limit SECONDS] [--out build/best_trial]
    python runners/trials/best_trial.py --summary [--out build/best_trial]
    python runners/trials/best_trial.py --choose 42

The matrices are those of datasets/best_trial.csv: real DLMC ones (`nnzbench fetch dlmc`, or NNZBENCH_DATA) whose
pattern no published row was measured on when they were chosen, so that no rule is fitted to them. --choose writes that
file anew, spread over models, pruning methods and levels, in fp32 and fp16 and at 32 and 256 columns in turn.

A run needs a GPU and the matrices, no reports. Each is asked about first within `--seconds`, what `nnzbench best
MATRIX --n N` searches for in its default budget (60 s, half of which looks for the crossover), then with no limit. The
second goes on where the first was over, so that the first is a part of it; what only the second tries is timed hot
alone, as what is compared is hot. A matrix that is done is not done again: a run goes on where it was cut, with the
same `--out`. Within
`--limit` seconds it ends, and leaves out the matrix that it can't end with.

On a host with several GPUs, run one part on each (CUDA_VISIBLE_DEVICES=0 ... --part 1/2). --summary needs no GPU: it
estimates every time from the published rows, without those of these matrices and of stand-ins for them, and writes
README.md and trial.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path

from nnzbench import devices, paths
from nnzbench.advise import estimate, layer
from nnzbench.advise.layer import EXPERIMENT, Layer
from nnzbench.advise.measured import BUDGET_S, Question, unrecorded
from nnzbench.devices import DEVICES
from nnzbench.kernels.registry import about, kernels, rivals
from nnzbench.matrices import index
from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.index import DlmcEntry
from nnzbench.measure.attempts import Attempts, Tried
from nnzbench.measure.search import Search
from nnzbench.measure.session import Session, open_session
from nnzbench.measure.timing import StoppingRule
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.operands import reference
from nnzbench.problems.problem import DType
from nnzbench.problems.sources import find_real
from nnzbench.progress import Lines, counted
from nnzbench.records.folder import Results
from nnzbench.records.record import Record, RecordError, read_records
from nnzbench.records.selection import math_class
from nnzbench.report.data import context
from nnzbench.report.text.tables import markdown

CASES: tuple[tuple[DType, int], ...] = (("f32", 32), ("f16", 256), ("f32", 256), ("f16", 32))
SHARE_S = BUDGET_S / 2
REST_S = 15.0
"""Expected of the search without a limit, beyond the one within the time, before any was made."""


@dataclass(frozen=True)
class Case:
    """What is asked about one matrix."""

    matrix: str
    dtype: DType
    n: int


@dataclass(frozen=True)
class Outcome:
    """One case: the fastest sparse kernel within the time and of all, and the least hot time of each kernel."""

    matrix: str
    dtype: DType
    n: int
    gpu: str
    commit: str
    found: str
    found_us: float
    best: str
    best_us: float
    tried: int
    candidates: int
    seconds: float
    """What the search without a limit took beyond the one within the time."""
    measured: dict[str, float]
    """Microseconds by kernel, in the arithmetic asked for."""
    estimated: dict[str, float] = field(default_factory=dict)
    """The same without the GPU, once summed up: from rows of none of these matrices."""
    estimated_beside: dict[str, float] = field(default_factory=dict)
    """The same, from the times of the other matrices, too."""
    given_s: float = BUDGET_S / 4
    """What the first search had; the lines of the first runs don't tell."""


def case_file() -> Path:
    """The table of cases."""
    return paths.datasets() / "best_trial.csv"


def read_cases() -> list[Case]:
    """The cases in their order."""
    with case_file().open(newline="", encoding="utf-8") as file:
        return [Case(row["matrix"], row["dtype"], int(row["n"])) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def write_cases(cases: Iterable[Case]) -> None:
    """Writes the table."""
    with paths.replacing(case_file()) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("matrix", "dtype", "n"))
        writer.writerows((one.matrix, one.dtype, one.n) for one in cases)


def measured_sources(folders: Iterable[Path]) -> set[str]:
    """DLMC paths whose own pattern any recorded row was measured on."""
    found = set()
    for folder in folders:
        for file in folder.glob("*/**/records.csv"):
            found |= {row.source.removeprefix("dlmc:") for row in read_records(file) if row.source.startswith("dlmc:")}
    return found


def choose(entries: Sequence[DlmcEntry], seen: set[str], count: int) -> list[Case]:
    """`count` unseen ones, evenly over model, method, level and size."""

    def stratum(one: DlmcEntry) -> tuple[str, str, float, int, str]:
        return one.model, one.method, float(one.target_sparsity), one.rows * one.cols, one.path

    left = sorted((one for one in entries if one.path not in seen), key=stratum)
    step = len(left) / max(count, 1)
    chosen = [left[int((at + 0.5) * step)] for at in range(min(count, len(left)))]
    return [Case(one.path, *CASES[at % len(CASES)]) for at, one in enumerate(chosen)]


def fastest(rows: Iterable[Record], dtype: str) -> tuple[str, float]:
    """Kernel and variant of the least hot time of a kernel that leaves zeros out, in that precision."""
    timed = [
        (row.median_us, f"{row.kernel} {row.variant}")
        for row in rows
        if row.policy == "hot" and row.median_us and math_class(row) == dtype and about(row.kernel).work != "dense"
    ]
    us, name = min(timed, default=(math.nan, "none"))
    return name, us


def by_kernel(rows: Iterable[Record], dtype: str) -> dict[str, float]:
    """The least hot time of every kernel, in that precision."""
    found: dict[str, float] = {}
    for row in rows:
        if row.policy == "hot" and row.median_us and math_class(row) == dtype:
            found[row.kernel] = min(row.median_us, found.get(row.kernel, math.inf))
    return found


def layer_of(case: Case) -> Layer:
    """The matrix as `nnzbench best` reads it. Raises `MatrixError` where it is not on disk."""
    file = find_real(f"dlmc:{case.matrix}")
    if file is None:
        raise MatrixError(f"{case.matrix} is not on disk: run `nnzbench fetch dlmc`, or set NNZBENCH_DATA")
    (one,) = layer.load([str(file)])
    label = case.matrix.removesuffix(".smtx").replace("/", ".")
    return Layer(label, one.matrix, one.shape, f"dlmc:{case.matrix}", case.dtype)


def ask(case: Case, seconds: float, session: Session, results: Results, ends: float = math.inf) -> Outcome | None:
    """Searches within the time, then goes on without a limit; None where `ends` of the session's clock comes first."""
    dtype = case.dtype
    one = layer_of(case)
    problem = unrecorded(one.problem("spmm", case.n, dtype), results)
    operands = one.operands(problem)
    rows: list[Record] = []
    attempts = Attempts(EXPERIMENT, session, results, POLICIES, StoppingRule(), kept=rows)
    subject = Tried(problem, operands, functools.cache(lambda: reference(problem, operands)))
    names = [name for name in rivals("spmm") if dtype in session.kernels[name].dtypes]
    timed = session.device.timer is not None
    attempts.policies = POLICIES if timed else ()
    with Search(subject, operands, names, attempts, Lines()) as under_way:
        within = under_way.go(min(seconds, ends - session.clock()))
        found, found_us = fastest(rows, dtype)
        started = session.clock()
        attempts.policies = ("hot",) if timed else ()
        everything = under_way.go(ends - started)
    if everything.unfinished:
        return None
    best, best_us = fastest(rows, dtype)
    return Outcome(
        case.matrix, dtype, case.n, session.device.gpu, context.commit(dict(session.environment)), found, found_us,
        best, best_us, sum(within.tried.values()), sum(everything.tried.values()),
        round(session.clock() - started, 3), by_kernel(rows, dtype), given_s=seconds,
    )  # fmt: skip


def with_estimates(outcomes: Sequence[Outcome], folders: Sequence[Path]) -> list[Outcome]:
    """The outcomes with what the published rows say of the kernels that were measured.

    Once without any row of these matrices, and once with what this trial measured of the other ones.
    """
    hidden = frozenset(f"{kind}:{one.matrix}" for one in outcomes for kind in ("dlmc", "standin"))
    recorded = {gpu: estimate.load(gpu, folders, hidden) for gpu in {one.gpu for one in outcomes}}
    done = []
    for one in counted(outcomes, "estimated", len(outcomes)):
        rest = [asdict(other) for other in outcomes if other.matrix != one.matrix and other.gpu == one.gpu]
        without = recorded[one.gpu]
        beside = without.joined(estimate.trial_rows(rest)) if rest else without
        done.append(replace(one, estimated=_estimates(one, without), estimated_beside=_estimates(one, beside)))
    return done


def _estimates(one: Outcome, recorded: estimate.Recorded) -> dict[str, float]:
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


def read(folder: Path) -> list[Outcome]:
    """The outcomes of all parts, in the order of the cases, those of an earlier sum where no part has any since.

    A line that a kill cut short is none.
    """
    found = []
    for path in sorted(folder.glob("trial*.jsonl"), key=lambda path: (path.name != "trial.jsonl", path.name)):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(Outcome(**json.loads(line)))
    order = {one: at for at, one in enumerate(read_cases())}
    last = {Case(one.matrix, one.dtype, one.n): one for one in found}
    return [last[case] for case in sorted(last, key=lambda case: (order.get(case, len(order)), case.matrix))]


def part_of(cases: Sequence[Case], part: int, parts: int) -> list[Case]:
    """Every so manieth pair, as types take turns and the kernels of one have more to compile."""
    return [one for at, one in enumerate(cases) if at // 2 % parts == part - 1]


def run(cases: Sequence[Case], part: int, seconds: float, limit: float, out: Path, device_name: str | None) -> None:
    """Does the cases that are not done, in at most `limit` seconds."""
    ends = time.monotonic() + limit
    missing = [one.matrix for one in cases if find_real(f"dlmc:{one.matrix}") is None]
    if missing:
        raise MatrixError(f"{len(missing)} matrices are not on disk, such as {missing[0]}: set NNZBENCH_DATA")
    device = devices.open_device(device_name) if device_name else devices.open_gpu()
    session = open_session(device, kernels(), print)
    out.mkdir(parents=True, exist_ok=True)
    done = {Case(one.matrix, one.dtype, one.n) for one in read(out)}
    left = [case for case in cases if case not in done]
    rest_s = REST_S
    lines = out / f"trial-{part}.jsonl"
    with (
        Results(out / f"part-{part}", True, False, session.environment, print) as results,
        lines.open("a", encoding="utf-8") as file,
    ):
        if lines.stat().st_size and not lines.read_bytes().endswith(b"\n"):
            file.write("\n")
        for number, case in enumerate(left, start=1):
            if session.clock() + seconds + rest_s > ends:
                print(f"{len(left) - number + 1} of {len(cases)} matrices left to the next run", flush=True)
                break
            begun = session.clock()
            one = ask(case, seconds, session, results, ends)
            if one is None:
                print(f"{case.matrix}: the time was over before all was tried", flush=True)
                break
            rest_s = max(rest_s, one.seconds)
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
            took = f"{session.clock() - begun:.0f} s, {one.seconds:.0f} of them beyond the budget"
            print(f"{number}/{len(left)} {case.matrix}: {one.found_us:.2f} of {one.best_us:.2f} us, {took}", flush=True)
    device.close()


def _part(text: str) -> tuple[int, int]:
    words = text.split("/")
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not 1 <= int(words[0]) <= int(words[1]):
        raise MatrixError(f"--part {text}: give it as I/N, such as 1/2")
    return int(words[0]), int(words[1])


def main() -> None:
    """Parses the command line; chooses, runs a part or sums up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choose", type=int, metavar="COUNT", help="write datasets/best_trial.csv anew")
    parser.add_argument(
        "--seconds", type=float, default=SHARE_S, help="what one width alone has of the default budget (30)"
    )
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="end within them")
    parser.add_argument("--device", choices=list(DEVICES), help="default: the GPU")
    parser.add_argument("--out", type=Path, default=Path("build/best_trial"))
    parser.add_argument("--summary", action="store_true", help="run nothing, sum up all parts")
    arguments = parser.parse_args()
    published = [paths.reports()]
    if arguments.choose:
        known = [one for one in index.dlmc().values() if one.nnz > 0 and find_real(f"dlmc:{one.path}") is not None]
        chosen = choose(known, measured_sources(published), arguments.choose)
        if len(chosen) < arguments.choose:
            raise SystemExit(f"only {len(chosen)} real matrices are on disk that no row was measured on")
        write_cases(chosen)
        return
    try:
        if not arguments.summary:
            part, parts = _part(arguments.part)
            cases = part_of(read_cases(), part, parts)
            run(cases, part, arguments.seconds, arguments.limit, arguments.out, arguments.device)
            return
        outcomes = with_estimates(read(arguments.out), published)
    except (MatrixError, RecordError, Unsupported) as error:
        parser.error(str(error))
    paths.write_text(arguments.out / "trial.jsonl", "".join(json.dumps(asdict(one)) + "\n" for one in outcomes))
    text = summary(outcomes)
    paths.write_text(arguments.out / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
