"""Is a public Python call of the same library faster than the suite's best vendor row? Needs a GPU.

    python runners/fairness.py [OUT_FOLDER]      default: build/fairness

torch.mm, torch.sparse, torch's convolution in benchmark mode and cupyx get the operands that cublas, cublaslt,
cusparse, cudnn and cusparselt get, and are checked and timed alike: hot policy, one stream, each call between two
measurements of the suite's fastest row of the same arithmetic. ratio = theirs / ours; below 0.95 is a finding.
fairness.csv, versions.json and README.md in OUT_FOLDER are written anew after every problem. PyTorch and cupyx are
optional. Exit status: 0 no finding, 1 a call is faster, 2 no GPU, neither library or a wrong command line.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fairness_calls import (
    Call,
    Libraries,
    convolutions,
    find_libraries,
    sampled_products,
    sparse_products,
    structured_products,
    torch_products,
)
from fairness_page import LEAST_RATIO, Row, save

from nnzbench.devices import DeviceLost, open_device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import kernels
from nnzbench.measure import environment
from nnzbench.measure.session import Session
from nnzbench.measure.timing import StoppingRule
from nnzbench.measure.trial import Conditions, Outcome, enumerate_candidates, try_candidate
from nnzbench.plans.plan import Candidate, Unsupported
from nnzbench.problems.operands import Operands, make_operands
from nnzbench.problems.problem import ConvShape, DType, Op, Problem
from nnzbench.problems.reference import Reference, reference

ROOT = Path(__file__).resolve().parent.parent
CONDITIONS = Conditions(("hot",), StoppingRule(max_seconds=0.15))


@dataclass(frozen=True)
class Best:
    """The suite's fastest correct row of one arithmetic class."""

    us: float
    kernel: str
    candidate: Candidate


@dataclass(frozen=True)
class Case:
    """A problem, the suite's kernels and arithmetic classes that compete on it, and who makes the public calls."""

    problem: Problem
    kernels: tuple[str, ...]
    maths: tuple[str, ...]
    calls: Callable[[Libraries, Problem, Operands], list[Call]]


def problem(name: str, op: Op, sizes: tuple[int, int, int], sparsity: float, dtype: DType = "f32") -> Problem:
    """A product of m x k x n on a uniform random pattern."""
    return Problem("fairness", name, op, *sizes, sparsity, "uniform:0", dtype)


def dense(m: int, k: int, n: int) -> list[Case]:
    """The dense product in fp32, TF32 and fp16; half of the weights are zero."""
    made = functools.partial(problem, f"spmm_{m}x{k}x{n}", "spmm", (m, k, n), 0.5)
    libraries = ("cublas", "cublaslt")
    return [
        Case(made("f32"), libraries, ("f32", "tf32"), torch_products),
        Case(made("f16"), libraries, ("f16",), torch_products),
    ]


def sparse(m: int, k: int, n: int, sparsity: float, dtype: DType = "f32") -> Case:
    """The sparse product, of a vector where n is 1."""
    op: Op = "spmv" if n == 1 else "spmm"
    made = problem(f"{op}_{m}x{k}x{n}_{sparsity}", op, (m, k, n), sparsity, dtype)
    return Case(made, ("cusparse",), (dtype,), sparse_products)


def sampled(m: int, n: int, k: int, sparsity: float) -> Case:
    """The sampled dense product."""
    made = problem(f"sddmm_{m}x{n}x{k}", "sddmm", (m, k, n), sparsity)
    return Case(made, ("cusparse",), ("f32",), sampled_products)


def convolution(shape: ConvShape) -> list[Case]:
    """The dense convolution in fp32, TF32 and fp16."""
    sizes = (shape.filters, shape.channels * shape.r * shape.s, shape.batch * shape.out_height * shape.out_width)
    op: Op = "conv1d" if shape.height == 1 else "conv2d"
    made = functools.partial(Problem, "fairness", str(shape), op, *sizes, 0.9, "uniform:0", conv=shape)
    return [
        Case(made(dtype="f32"), ("cudnn",), ("f32", "tf32"), convolutions),
        Case(made(dtype="f16"), ("cudnn",), ("f16",), convolutions),
    ]


def structured(m: int, k: int, n: int) -> Case:
    """The product with 2:4 weights in fp16."""
    made = Problem("fairness", f"2:4_{m}x{k}x{n}", "spmm", m, k, n, 0.5, "nm:2:4:0", "f16")
    return Case(made, ("cusparselt",), ("f16",), structured_products)


def cases() -> list[Case]:
    """One of each kind first, then further sizes."""
    return [
        *dense(512, 2048, 256),
        sparse(512, 2048, 256, 0.9),
        sampled(2048, 2048, 256, 0.9),
        *convolution(ConvShape(128, 64, 32, 32, 256, 1, 1)),
        structured(4096, 1024, 2048),
        sparse(4096, 9216, 1, 0.91),
        *dense(64, 256, 3136),
        *convolution(ConvShape(1, 64, 56, 56, 64, 3, 3, 1, 1)),
        sparse(2048, 512, 256, 0.95),
        sparse(512, 2048, 256, 0.9, "f16"),
        *convolution(ConvShape(128, 300, 1, 64, 100, 1, 3)),
        *dense(1024, 1024, 2048),
        *dense(4096, 9216, 64),
        sampled(512, 512, 1024, 0.9),
    ]


def attempt(candidate: Candidate, session: Session, truth: Callable[[], Reference]) -> Outcome:
    """Checks, times and checks again. Raises `DeviceLost` where nothing can follow."""
    outcome = try_candidate(candidate, session.device.timer, truth, CONDITIONS, session.warm_up)
    if outcome.lost:
        raise DeviceLost(outcome.reason)
    return outcome


def find_best(
    case: Case, session: Session, operands: Operands, truth: Callable[[], Reference]
) -> tuple[dict[str, Best], list[str]]:
    """The fastest correct candidate per arithmetic class, and why others gave no time."""
    best: dict[str, Best] = {}
    reasons = []
    for name in case.kernels:
        for found in enumerate_candidates(session.kernels[name], case.problem, operands, session.device):
            outcome = found if isinstance(found, Outcome) else attempt(found, session, truth)
            if isinstance(found, Outcome) or outcome.status != "ok":
                reasons.append(f"{name}: {outcome.reason}")
                continue
            us = outcome.measurements["hot"].median
            if found.math not in best or us < best[found.math].us:
                best[found.math] = Best(us, name, found)
    return best, reasons


def compare(case: Case, session: Session, libraries: Libraries) -> Iterator[Row]:
    """A row per arithmetic class and call."""
    operands = make_operands(case.problem)
    name = case.problem.name
    try:
        calls = case.calls(libraries, case.problem, operands)
    except Exception as error:  # an old version of a library lacks a function
        yield from (Row(name, math, "none", reason=f"{type(error).__name__}: {error}") for math in case.maths)
        return
    if not calls:
        return
    truth = functools.cache(lambda: reference(case.problem, operands))
    best, reasons = find_best(case, session, operands, truth)
    for math in case.maths:
        for call in calls:
            if math in best:
                yield compare_one(Row(name, math, call.name), call, best[math], session, truth)
            else:
                yield Row(name, math, call.name, reason="; ".join(["the suite has no row", *dict.fromkeys(reasons)]))


def compare_one(row: Row, call: Call, best: Best, session: Session, truth: Callable[[], Reference]) -> Row:
    """`row` with the call's time between two of ours, the faster of which counts, or with the reason for none."""
    theirs = attempt(Candidate(call.name, row.math, lambda: call.prepare(row.math)), session, truth)
    if theirs.status != "ok":
        return Row(row.problem, row.math, row.call, reason=" ".join(theirs.reason.split()))
    again = attempt(best.candidate, session, truth)
    times = [best.us, *(measurement.median for measurement in again.measurements.values())]
    us, ours = theirs.measurements["hot"].median, min(times)
    return Row(
        row.problem,
        row.math,
        row.call,
        theirs_us=round(us, 3),
        graph=theirs.capturable,
        their_error=float(f"{theirs.error:.2g}"),
        ours_us=round(ours, 3),
        kernel=best.kernel,
        variant=best.candidate.variant,
        ratio=round(us / ours, 4),
    )


def told(row: Row) -> str:
    """One line of what is printed."""
    start = f"{row.problem:32} {row.math:4} {row.call:30}"
    if row.ratio is None:
        return f"{start} not measured: {row.reason}"
    flag = "  FASTER THAN OURS" if row.ratio < LEAST_RATIO else ""
    loop = "" if row.graph else " (no graph)"
    return (
        f"{start} {row.theirs_us:9.2f} us{loop}  ours {row.ours_us:9.2f} us {row.kernel}  ratio {row.ratio:.3f}{flag}"
    )


def versions_of(device: GpuDevice) -> dict[str, str]:
    """Date, GPU and the libraries that the suite loads, by name."""
    known = environment.snapshot(device)
    software = {name: str(version) for name, version in known["software"].items() if version is not None}
    return {"recorded": known["recorded_at"][:10], "gpu": device.facts.name, **software}


def run(device: GpuDevice, libraries: Libraries, versions: Mapping[str, str], folder: Path) -> list[Row]:
    """Every case; the files are complete after each."""
    session, rows = Session(device, kernels()), list[Row]()
    planned = [(case.problem.name, math) for case in cases() for math in case.maths]
    for case in cases():
        for row in compare(case, session, libraries):
            print(told(row), flush=True)
            rows.append(row)
        save(folder, rows, versions, planned)
    return rows


def main() -> int:
    """Parses the command line, compares and prints the result; the exit status as above."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) > 2 or any(word.startswith("-") for word in sys.argv[1:]):
        print("usage: python runners/fairness.py [OUT_FOLDER]", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "fairness"
    try:
        device = cast(GpuDevice, open_device("cupy"))
    except Unsupported as reason:
        print(f"no GPU: {reason}", file=sys.stderr)
        return 2
    try:
        libraries, versions = find_libraries(device)
        if libraries == Libraries():
            print("nothing to compare: install PyTorch or CuPy", file=sys.stderr)
            return 2
        rows = run(device, libraries, {**versions_of(device), **versions}, folder)
    finally:
        device.close()
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        below = sum(ratio < LEAST_RATIO for ratio in ratios)
        print(f"lowest ratio {min(ratios):.3f}; {below} of {len(ratios)} below {LEAST_RATIO:g}")
    print(f"rows and page: {folder}")
    return int(any(ratio < LEAST_RATIO for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
