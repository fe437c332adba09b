"""Is a public Python call of the same library faster than the suite's best vendor row? Needs a GPU.

    python runners/fairness.py [OUT_FOLDER]      default: build/fairness

torch.mm, torch.sparse, torch's convolution in benchmark mode and cupyx get the operands that cublas, cublaslt,
cusparse, cudnn and cusparselt get, and are checked and timed alike: hot policy, one stream, each call between two
measurements of the suite's fastest row of the same arithmetic. ratio = theirs / ours; below 0.95 is a finding.
fairness.csv, versions.json and README.md in OUT_FOLDER are written anew after every problem. PyTorch and cupyx are
optional. Exit status: 0 no finding, 1 a call is faster, 2 no GPU, neither library or a wrong command line.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from nnzbench.bench.session import Session, snapshot
from nnzbench.bench.timing import StoppingRule
from nnzbench.bench.trial import Conditions, Outcome, enumerate_candidates, try_candidate
from nnzbench.core import paths
from nnzbench.core.plan import Array, Candidate, Prepared, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.data.problems.tables import read_table
from nnzbench.devices import DeviceLost, open_device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import kernels
from nnzbench.report.text import markdown

ROOT = Path(__file__).resolve().parent.parent
CONDITIONS = Conditions(("hot",), StoppingRule(max_seconds=0.15))
LEAST_RATIO = 0.95
"""A call that takes less than this part of our row's time is a finding."""
DENSE_SPARSITY = 0.5
"""Weights of which no more are zero, on a random pattern, are for dense calls."""
KERNELS = {
    "conv": ("cudnn",), "2:4": ("cusparselt",), "sampled": ("cusparse",), "dense": ("cublas", "cublaslt"),
    "sparse": ("cusparse",),
}  # fmt: skip
"""The suite's kernels that compete, by kind of problem."""
Run = Callable[[], Any]


@dataclass(frozen=True)
class Library:
    """PyTorch or CuPy on the device's stream: what enters the stream, and what makes a result a NumPy array."""

    module: Any
    calls: Callable[[Any, Problem, Operands], Iterator[tuple[str, Run]]]
    """Names and calls that compute a problem; the first argument is this library."""
    device: GpuDevice
    stream: Callable[[], contextlib.AbstractContextManager[Any]]
    to_numpy: Callable[[Any], Array]

    def prepared(self, make: Run, math: str) -> Prepared:
        """A call as something that the suite can check and time; `make` enqueues it and returns its result."""
        if hasattr(self.module, "backends"):
            backends = self.module.backends
            backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = math == "tf32"
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            self.module.cuda.synchronize()  # the operands were made on another stream
        latest: list[Any] = []

        def run() -> None:
            with self.stream():
                latest[:] = [make()]

        def read() -> Array:
            self.device.synchronise()
            return self.to_numpy(latest[0])

        run()  # libraries choose their algorithms in the first call
        self.device.synchronise()
        return Prepared(run, read, latest.clear, latest.clear, capturable=capturable(self.device, run))


def capturable(device: GpuDevice, run: Callable[[], None]) -> bool:
    """Whether a graph can hold `run`; a library that refuses to be captured raises errors of its own."""
    try:
        return device.capturable(run)
    except DeviceLost:
        raise
    except Exception:
        return False


def pytorch(torch: Any, device: GpuDevice) -> Library:
    """PyTorch, which searches for the fastest convolution."""
    torch.backends.cudnn.benchmark = True
    stream = torch.cuda.ExternalStream(device.backend.stream)

    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        with torch.cuda.stream(stream), torch.no_grad():
            yield

    def to_numpy(result: Any) -> Array:
        dense = result.values() if result.layout == torch.sparse_csr else result
        return cast(Array, dense.detach().cpu().numpy())

    return Library(torch, torch_calls, device, entered, to_numpy)


def cupyx(cupy: Any, device: GpuDevice) -> Library:
    stream = cupy.cuda.ExternalStream(device.backend.stream)
    to_numpy = lambda found: cupy.asnumpy(found).reshape(len(found), -1)  # noqa: E731
    return Library(cupy, cupy_calls, device, lambda: stream, to_numpy)


def find_libraries(device: GpuDevice) -> tuple[list[Library], dict[str, str]]:
    """What is installed, and versions by name; what is missing is named on stderr."""
    libraries, versions = [], {}
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            libraries.append(pytorch(torch, device))
            versions = {"torch": torch.__version__, "torch_cudnn": str(torch.backends.cudnn.version())}
        else:
            print("PyTorch finds no GPU: its calls are skipped", file=sys.stderr)
    except ImportError:
        print("torch is missing: its calls are skipped", file=sys.stderr)
    try:
        importlib.import_module("cupyx.scipy.sparse")
        cupy = importlib.import_module("cupy")
        libraries.append(cupyx(cupy, device))
        versions["cupy"] = cupy.__version__
    except ImportError:
        print("cupyx.scipy.sparse is missing: its calls are skipped", file=sys.stderr)
    return libraries, versions


def torch_calls(library: Library, problem: Problem, operands: Operands) -> Iterator[tuple[str, Run]]:
    """PyTorch's calls that compute a problem, with their operands in each layout."""
    torch = library.module

    def tensor(array: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to("cuda")

    def csr(matrix: CSR, values: Array) -> Any:
        parts = (tensor(part) for part in (matrix.offsets, matrix.indices, values))
        return torch.sparse_csr_tensor(*parts, size=(matrix.m, matrix.k))

    kind, sparse, c = kind_of(problem), operands.sparse, problem.conv
    if c is not None:
        x, w = tensor(operands.dense["x"]), tensor(sparse.to_dense().reshape(c.filters, c.channels, c.r, c.s))
        xl, wl = (one.contiguous(memory_format=torch.channels_last) for one in (x, w))
        conv = functools.partial(torch.nn.functional.conv2d, stride=c.stride, padding=(c.pad_h, c.pad_w))
        yield "conv2d benchmark", lambda: conv(x, w)
        yield "conv2d benchmark channels_last", lambda: conv(xl, wl)
        return
    b = tensor(operands.dense["b"])
    if kind == "sampled":
        mask, a = csr(sparse, np.zeros_like(sparse.values)), tensor(operands.dense["a"])
        yield "torch sampled_addmm", lambda: torch.sparse.sampled_addmm(mask, a, b.t(), beta=0.0)
        return
    columns = b.t().contiguous().t()
    if kind == "2:4":
        torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = False  # so that cuSPARSELt computes it
        packed = torch.sparse.to_sparse_semi_structured(tensor(sparse.to_dense()))
        yield "torch semi-structured mm", lambda: torch.mm(packed, b)
        yield "torch semi-structured mm col", lambda: torch.mm(packed, columns)
    elif kind == "dense":
        dense = tensor(sparse.to_dense())
        transposed = dense.t().contiguous()
        out = torch.empty(problem.m, problem.n, device="cuda", dtype=dense.dtype)
        yield "torch.mm", lambda: torch.mm(dense, b, out=out)
        yield "torch.mm, weights transposed", lambda: torch.mm(transposed.t(), b, out=out)
    else:
        packed = csr(sparse, sparse.values)
        yield "torch.sparse_csr @ dense", lambda: packed @ b
        yield "torch.sparse_csr @ col-major", lambda: packed @ columns


def cupy_calls(library: Library, problem: Problem, operands: Operands) -> Iterator[tuple[str, Run]]:
    """CSR in fp32 times a column-major matrix, which saves cupyx a copy, or a vector where there is one column."""
    if kind_of(problem) != "sparse" or problem.dtype != "f32":
        return
    cupy, matrix, b = library.module, operands.sparse, operands.dense["b"]
    with library.stream():
        parts = tuple(cupy.asarray(part) for part in (matrix.values, matrix.indices, matrix.offsets))
        left = importlib.import_module("cupyx.scipy.sparse").csr_matrix(parts, shape=(matrix.m, matrix.k))
        right = cupy.asfortranarray(cupy.asarray(b if b.shape[1] > 1 else b[:, 0]))
    yield "cupyx csr @ dense", lambda: left @ right


def problems() -> list[Problem]:
    """Dense products, sparse ones (of a vector where n is 1), sampled ones, convolutions and 2:4 weights."""
    return [replace(one, name=one.label) for one in read_table(Path(__file__).with_suffix(".csv"))]


def kind_of(problem: Problem) -> str:
    """`conv`, `2:4`, `sampled`, `dense` or `sparse`: which calls compute it."""
    if problem.conv is not None:
        return "conv"
    if problem.source.startswith("nm:"):
        return "2:4"
    return "sampled" if problem.op == "sddmm" else "dense" if problem.sparsity <= DENSE_SPARSITY else "sparse"


def maths_of(problem: Problem) -> tuple[str, ...]:
    """The arithmetic classes that compete on a problem."""
    return ("f32", "tf32") if problem.dtype == "f32" and kind_of(problem) in ("dense", "conv") else (problem.dtype,)


@dataclass(frozen=True)
class Row:
    """One comparison: microseconds, the call's error as in `problems.check`, ratio = theirs / ours, or a reason."""

    problem: str
    math: str
    call: str
    theirs_us: float | None = None
    graph: bool | None = None
    """False where the call can't be captured: then it is timed as a loop, which may hold the host's own time."""
    their_error: float | None = None
    ours_us: float | None = None
    kernel: str = ""
    variant: str = ""
    ratio: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        start = f"{self.problem:32} {self.math:4} {self.call:30}"
        if self.ratio is None:
            return f"{start} not measured: {self.reason}"
        flag = "  FASTER THAN OURS" if self.ratio < LEAST_RATIO else ""
        theirs = f"{self.theirs_us:9.2f} us{'' if self.graph else ' (no graph)'}"
        return f"{start} {theirs}  ours {self.ours_us:9.2f} us {self.kernel}  ratio {self.ratio:.3f}{flag}"


def attempt(candidate: Candidate, session: Session, truth: Callable[[], Reference]) -> Outcome:
    """Checks, times and checks again. Raises `DeviceLost` where nothing can follow."""
    outcome = try_candidate(candidate, session.device.timer, truth, CONDITIONS, session.warm_up)
    if outcome.lost:
        raise DeviceLost(outcome.reason)
    return outcome


Best = tuple[float, str, Candidate]
"""Microseconds, kernel and candidate of the suite's fastest correct row of one arithmetic class."""


def find_best(
    problem: Problem, session: Session, operands: Operands, truth: Callable[[], Reference]
) -> tuple[dict[str, Best], list[str]]:
    """The fastest correct candidate per arithmetic class, and why others gave no time."""
    best: dict[str, Best] = {}
    reasons = []
    for name in KERNELS[kind_of(problem)]:
        for found in enumerate_candidates(session.kernels[name], problem, operands, session.device):
            outcome = found if isinstance(found, Outcome) else attempt(found, session, truth)
            if isinstance(found, Outcome) or outcome.status != "ok":
                reasons.append(f"{name}: {outcome.reason}")
                continue
            us = outcome.measurements["hot"].median
            if found.math not in best or us < best[found.math][0]:
                best[found.math] = us, name, found
    return best, reasons


def compare(problem: Problem, session: Session, libraries: Sequence[Library]) -> Iterator[Row]:
    operands = make_operands(problem)
    try:
        calls = [(one, *call) for one in libraries for call in one.calls(one, problem, operands)]
    except Exception as error:  # an old version of a library lacks a function
        reason = f"{type(error).__name__}: {error}"
        yield from (Row(problem.name, math, "none", reason=reason) for math in maths_of(problem))
        return
    if not calls:
        return
    truth = functools.cache(lambda: reference(problem, operands))
    best, reasons = find_best(problem, session, operands, truth)
    for math in maths_of(problem):
        for library, name, make in calls:
            row = Row(problem.name, math, name)
            if math in best:
                theirs = Candidate(name, math, functools.partial(library.prepared, make, math))
                yield compare_one(row, theirs, best[math], session, truth)
            else:
                yield replace(row, reason="; ".join(["the suite has no row", *dict.fromkeys(reasons)]))


def compare_one(row: Row, call: Candidate, best: Best, session: Session, truth: Callable[[], Reference]) -> Row:
    """`row` with the call's time between two of ours, the faster of which counts, or with the reason for none."""
    theirs = attempt(call, session, truth)
    if theirs.status != "ok":
        return replace(row, reason=" ".join(theirs.reason.split()))
    before, kernel, candidate = best
    after = attempt(candidate, session, truth).measurements.values()
    us, ours = theirs.measurements["hot"].median, min(before, *(one.median for one in after))
    return replace(
        row, theirs_us=round(us, 3), graph=theirs.capturable, their_error=float(f"{theirs.error:.2g}"),
        ours_us=round(ours, 3), kernel=kernel, variant=candidate.variant, ratio=round(us / ours, 4),
    )  # fmt: skip


def page(frame: pd.DataFrame, gpu: str) -> str:
    """README.md: the answer and a line per call; what gave no time has its reason in fairness.csv."""
    ratios = frame.groupby("call")["ratio"].agg(["count", "min", "max"])
    lines = ((str(row.Index), f"{row.count:.0f}", f"{row.min:.3f}", f"{row.max:.3f}") for row in ratios.itertuples())
    below, timed = int((frame["ratio"] < LEAST_RATIO).sum()), int(frame["ratio"].count())
    return f"""\
# Public Python calls against the vendor rows on {gpu}

Ratio: time of a public Python call over that of the vendor row of the same library and arithmetic. Of {timed} ratios
on {frame["problem"].nunique()} problems {below} are below {LEAST_RATIO:g}: there the call is faster. All rows, and what
was not measured: [fairness.csv](fairness.csv). Made by `runners/fairness.py`.

{markdown(("call", "timed", "lowest ratio", "highest"), lines)}
"""


def run(device: GpuDevice, libraries: Sequence[Library], versions: Mapping[str, str], folder: Path) -> pd.DataFrame:
    """Every problem; the files are complete after each."""
    session, rows = Session(device, kernels()), list[Row]()
    for problem in problems():
        for row in compare(problem, session, libraries):
            print(row, flush=True)
            rows.append(row)
        frame = pd.DataFrame(map(vars, rows), columns=[field.name for field in fields(Row)])
        paths.write_csv(frame, folder / "fairness.csv")
        paths.write_text(folder / "versions.json", json.dumps(versions, indent=2) + "\n")
        paths.write_text(folder / "README.md", page(frame, versions["gpu"]))
    return frame


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "build" / "fairness")
    folder = parser.parse_args(arguments).out
    try:
        device = cast(GpuDevice, open_device("cupy"))
    except Unsupported as reason:
        print(f"no GPU: {reason}", file=sys.stderr)
        return 2
    with contextlib.closing(device):
        libraries, versions = find_libraries(device)
        if not libraries:
            print("nothing to compare: install PyTorch or CuPy", file=sys.stderr)
            return 2
        known = snapshot(device)
        software = {name: str(version) for name, version in known["software"].items() if version is not None}
        about = {"recorded": known["recorded_at"][:10], "gpu": device.facts.name, **software, **versions}
        ratios = run(device, libraries, about, folder)["ratio"].dropna()
    below = int((ratios < LEAST_RATIO).sum())
    print(f"lowest ratio {ratios.min():.3f}; {below} of {len(ratios)} below {LEAST_RATIO:g}; rows and page: {folder}")
    return int(below > 0)


if __name__ == "__main__":
    sys.exit(main())
