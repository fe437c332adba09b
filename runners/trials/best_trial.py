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
same `--out`. Within `--limit` seconds it ends, and leaves out the matrix that it can't end with.

On a host with several GPUs, run one part on each (CUDA_VISIBLE_DEVICES=0 ... --part 1/2). --summary needs no GPU: it
estimates every time from the published rows, without those of these matrices and of stand-ins for them, and writes
README.md and trial.jsonl.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from best_trial_cases import Case, Outcome, choose, layer_of, measured_sources, part_of, read, read_cases, write_cases
from best_trial_page import summary, with_estimates

from nnzbench import devices, paths
from nnzbench.advise.layer import EXPERIMENT
from nnzbench.advise.measured import BUDGET_S, unrecorded
from nnzbench.devices import DEVICES
from nnzbench.kernels.registry import about, baselines, kernels
from nnzbench.matrices import index
from nnzbench.matrices.formats import MatrixError
from nnzbench.measure.attempts import Attempts, Subject
from nnzbench.measure.search import Search
from nnzbench.measure.session import Session, open_session
from nnzbench.measure.timing import StoppingRule
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.reference import reference
from nnzbench.problems.sources import find_real
from nnzbench.progress import Lines
from nnzbench.records.folder import Results
from nnzbench.records.record import Record, RecordError
from nnzbench.records.selection import math_class
from nnzbench.report.data import context

SHARE_S = BUDGET_S / 2
REST_S = 15.0
"""Expected of the search without a limit, beyond the one within the time, before any was made."""


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


def ask(case: Case, seconds: float, session: Session, results: Results, ends: float = math.inf) -> Outcome | None:
    """Searches within the time, then goes on without a limit; None where `ends` of the session's clock comes first."""
    dtype = case.dtype
    one = layer_of(case)
    problem = unrecorded(one.problem("spmm", case.n, dtype), results)
    operands = one.operands(problem)
    rows: list[Record] = []
    attempts = Attempts(EXPERIMENT, session, results, POLICIES, StoppingRule(), kept=rows)
    subject = Subject(problem, operands, functools.cache(lambda: reference(problem, operands)))
    names = [name for name in baselines("spmm") if dtype in session.kernels[name].dtypes]
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
