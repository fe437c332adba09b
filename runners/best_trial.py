"""How near `nnzbench best` comes to trying everything, and its estimates to measured times, on matrices of no fit.

    python runners/best_trial.py [--count 42] [--seconds 15] [--part 1/4] [--out build/best_trial]
    python runners/best_trial.py --summary [--out build/best_trial]

Takes real DLMC matrices (`nnzbench fetch dlmc`, or NNZBENCH_DATA) that no recorded row names: neither the rules nor the
estimates have seen them. They are spread over models, pruning methods and levels, always the same for a count. Each is
asked about once, in fp32 and fp16 and at 32 and 256 columns in turn: first within `--seconds`, which is what one width
has of the default budget (60 s over three widths and the search for the crossover), then with no limit. Both share
their rows, so that the first is a part of the second. The estimate for this GPU is made from the published rows.

On a host with several GPUs, run one part on each (CUDA_VISIBLE_DEVICES=0 ... --part 1/4), then --summary.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nnzbench import devices, paths
from nnzbench.advise import estimate, layer
from nnzbench.advise.layer import EXPERIMENT, Layer
from nnzbench.advise.measured import BUDGET_S, Question
from nnzbench.kernels.registry import kernels, rivals, role_of
from nnzbench.matrices.index import DlmcEntry
from nnzbench.measure.attempts import Attempts, Tried
from nnzbench.measure.progress import Lines
from nnzbench.measure.search import search
from nnzbench.measure.session import Session, open_session
from nnzbench.measure.timing import StoppingRule
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.operands import reference
from nnzbench.problems.problem import DType
from nnzbench.problems.sources import find_real
from nnzbench.problems.tables import dlmc_selection
from nnzbench.records.folder import Results
from nnzbench.records.record import Record, RecordError, read_records
from nnzbench.records.selection import math_class

CASES: tuple[tuple[DType, int], ...] = (("f32", 32), ("f16", 256), ("f32", 256), ("f16", 32))
SHARE_S = BUDGET_S / 4
GOALS = "goals: within 5 % in geometric mean, 15 % at worst; estimates off by 10 % on average"


@dataclass(frozen=True)
class Outcome:
    """One matrix: the fastest sparse kernel within the time, of all, and what the estimate said of each kernel."""

    matrix: str
    dtype: str
    n: int
    found: str
    found_us: float
    best: str
    best_us: float
    tried: int
    candidates: int
    estimates: dict[str, tuple[float, float]]
    """Estimated and measured microseconds by kernel."""


def recorded_sources(folders: Iterable[Path]) -> set[str]:
    """DLMC paths that any recorded row names, stand-ins' included: rules and estimates may have seen those."""
    found = set()
    for folder in folders:
        for file in folder.glob("*/*/records.csv"):
            for row in read_records(file):
                kind, _, name = row.source.partition(":")
                if kind in ("dlmc", "standin"):
                    found.add(name)
    return found


def choose(entries: Sequence[DlmcEntry], seen: set[str], count: int) -> list[DlmcEntry]:
    """`count` unseen ones, evenly over model, method, level and size."""

    def stratum(one: DlmcEntry) -> tuple[str, str, float, int, str]:
        return one.model, one.method, float(one.target_sparsity), one.rows * one.cols, one.path

    left = sorted((one for one in entries if one.path not in seen), key=stratum)
    step = len(left) / max(count, 1)
    return [left[int((at + 0.5) * step)] for at in range(min(count, len(left)))]


def fastest(rows: Iterable[Record], dtype: str) -> tuple[str, float]:
    """Kernel and variant of the least hot time of a kernel that leaves zeros out, in that precision."""
    timed = [
        (row.median_us, f"{row.kernel} {row.variant}")
        for row in rows
        if row.policy == "hot" and row.median_us and math_class(row) == dtype
        if role_of(row.kernel, row.variant) != "library" or row.kernel == "cusparse"
    ]
    us, name = min(timed, default=(math.nan, "none"))
    return name, us


def ask(
    entry: DlmcEntry,
    dtype: DType,
    n: int,
    seconds: float,
    session: Session,
    results: Results,
    recorded: estimate.Recorded,
) -> Outcome:
    """Searches within the time, then without a limit, on the same rows."""
    (one,) = layer.load([str(find_real(f"dlmc:{entry.path}"))])
    one = Layer(entry.path.removesuffix(".smtx").replace("/", "."), one.matrix, one.shape, f"dlmc:{entry.path}", dtype)
    problem = one.problem("spmm", n, dtype)
    operands = one.operands(problem)
    rows: list[Record] = []
    attempts = Attempts(EXPERIMENT, session, results, POLICIES, StoppingRule(), kept=rows)
    subject = Tried(problem, operands, functools.cache(lambda: reference(problem, operands)))
    names = [name for name in rivals("spmm") if dtype in session.kernels[name].dtypes]
    within = search(subject, operands, names, attempts, seconds, Lines())
    found, found_us = fastest(rows, dtype)
    everything = search(subject, operands, names, attempts, math.inf, Lines())
    best, best_us = fastest(rows, dtype)
    pairs = {}
    try:
        for said in estimate.answer(one, Question((n,), dtype=dtype), recorded).widths[0].timed():
            mine = [row for row in rows if row.kernel == said.kernel and math_class(row) == said.math == dtype]
            times = [row.median_us for row in mine if row.policy == "hot" and row.median_us]
            if times and said.hot_us:
                pairs[said.kernel] = (said.hot_us, min(times))
    except RecordError as error:
        print(f"no estimate: {error}")
    return Outcome(
        entry.path, dtype, n, found, found_us, best, best_us, sum(within.tried.values()),
        sum(everything.tried.values()), pairs,
    )  # fmt: skip


def summary(outcomes: Sequence[Outcome]) -> str:
    """What the page states: Markdown."""
    ratios = [one.found_us / one.best_us for one in outcomes if one.best_us > 0 and one.found_us > 0]
    lines = ["# `nnzbench best` against trying everything", ""]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        worst = max(ratios)
        lines += [
            f"On {len(ratios)} real DLMC matrices that no rule or estimate was fitted to, the fastest kernel within "
            f"the default budget takes {100 * (mean - 1):.1f} % longer than the fastest of all candidates in geometric "
            f"mean, {100 * (worst - 1):.1f} % at worst. It tried {sum(one.tried for one in outcomes)} of "
            f"{sum(one.candidates for one in outcomes)} candidates.",
            "",
        ]
    errors: dict[str, list[float]] = {}
    for one in outcomes:
        for kernel, (said, measured) in one.estimates.items():
            errors.setdefault(kernel, []).append(abs(said / measured - 1))
    if errors:
        every = [error for found in errors.values() for error in found]
        lines += [
            f"Estimates without the GPU are off by {100 * sum(every) / len(every):.1f} % on average over {len(every)} "
            "times.",
            "",
            "| kernel | estimates | mean error | worst |",
            "| --- | --: | --: | --: |",
        ]
        for kernel, found in sorted(errors.items()):
            mean_error, worst_error = 100 * sum(found) / len(found), 100 * max(found)
            lines.append(f"| {kernel} | {len(found)} | {mean_error:.1f} % | {worst_error:.1f} % |")
        lines.append("")
    lines += [
        f"({GOALS})",
        "",
        "| matrix | type | N | within the budget | of all | ratio |",
        "| --- | --- | --: | --- | --- | --: |",
    ]
    for one in outcomes:
        ratio = one.found_us / one.best_us if one.best_us > 0 else math.nan
        lines.append(
            f"| {one.matrix} | {one.dtype} | {one.n} | {one.found}, {one.found_us:.2f} us | {one.best}, "
            f"{one.best_us:.2f} us | {ratio:.3f} |"
        )
    return "\n".join(lines) + "\n"


def read(folder: Path) -> list[Outcome]:
    """The outcomes of all parts."""
    found = []
    for path in sorted(folder.glob("trial-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            found.append(
                Outcome(**{**one, "estimates": {name: tuple(pair) for name, pair in one["estimates"].items()}})
            )
    return found


def main() -> None:
    """Parses the command line, runs a part or sums up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=42, help="matrices in all parts together")
    parser.add_argument("--seconds", type=float, default=SHARE_S, help="what one width has of the default budget")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th matrix from the I-th")
    parser.add_argument("--out", type=Path, default=Path("build/best_trial"))
    parser.add_argument("--summary", action="store_true", help="run nothing, sum up all parts")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    if not arguments.summary:
        published = [paths.reports()]
        seen = recorded_sources(published)
        known = [one for one in dlmc_selection() if find_real(f"dlmc:{one.path}") is not None]
        if len(known) < arguments.count:
            raise SystemExit(
                f"{len(known)} of the real matrices are on disk: run `nnzbench fetch dlmc`, or set NNZBENCH_DATA"
            )
        chosen = choose(known, seen, arguments.count)
        try:
            device = devices.open_gpu()
        except Unsupported as error:
            raise SystemExit(str(error)) from None
        session = open_session(device, kernels(), print)
        recorded = estimate.load(device.gpu, published)
        arguments.out.mkdir(parents=True, exist_ok=True)
        with (
            Results(arguments.out / f"part-{part}", True, False, session.environment, print) as results,
            (arguments.out / f"trial-{part}.jsonl").open("a", encoding="utf-8") as file,
        ):
            for at, entry in enumerate(chosen):
                if at % parts == part - 1:
                    dtype, n = CASES[at % len(CASES)]
                    outcome = ask(entry, dtype, n, arguments.seconds, session, results, recorded)
                    file.write(json.dumps(asdict(outcome)) + "\n")
                    file.flush()
                    print(f"{entry.path}: {outcome.found_us:.2f} of {outcome.best_us:.2f} us", flush=True)
        device.close()
    text = summary(read(arguments.out))
    paths.write_text(arguments.out / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
