"""The answer without the GPU: times estimated from what was recorded on it, with the error that such estimates have.

Each kernel's time follows from its own recorded rows of that op, type and policy (`model.Model`), and from what the
trial of `best` measured of it. The error beside it is that of the same estimate on problems whose layer sizes were held
out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nnzbench.advise.answer import FAR_OCTAVES, Answer, Entry, Near, Width, crossing, ranked
from nnzbench.advise.layer import Layer, Op
from nnzbench.advise.measured import Question
from nnzbench.advise.model import Model, Sizes
from nnzbench.kernels.registry import Kernel, about, kernels, rivals
from nnzbench.matrices import index
from nnzbench.operators.binding import ITEM_BYTES, stored_bytes, weights_bytes
from nnzbench.plans.plan import Unsupported, one_line
from nnzbench.problems.experiment import POLICIES
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import DType, Problem
from nnzbench.records.record import COLUMNS, RecordError
from nnzbench.records.selection import class_of

FEWEST = 20
"""Recorded problems of a kernel from which on its time is estimated."""
LEAST_CERTAIN = 0.5
"""A kernel whose estimates are off by more on average gets none."""
LAUNCH_SHARE = 0.65
"""Of the least time recorded under a policy, what an estimate takes for the launch."""
TRIAL = "best_trial"
"""Folder of what `runners/trials/best_trial.py` sums up."""
CHECKS = "awkward_sizes"
"""The experiment that is for checking, not for speed: its times tell nothing of a layer's."""
BLOCKED = r"(?:^|_)bell\d"
"""Variants of cuSPARSE's blocked format: fast where nonzeros lie in blocks, which sizes alone don't say."""
_USED = (
    "experiment", "problem", "op", "m", "k", "n", "shape", "dtype", "nnz", "kernel", "variant", "selected", "arch",
    "policy", "status", "median_us", "prepare_ms", "compile_ms", "source",
)  # fmt: skip
_LONGEST_HEADER = 1 << 16
_WIDEST = 8192
_WIDTHS = tuple(sorted({round(2 ** (step / 2)) for step in range(27)}))
"""Widths that the crossover is looked for at."""


class Recorded:
    """Everything that was recorded on a GPU, as models by kernel, arithmetic and policy."""

    def __init__(self, gpu: str, frame: pd.DataFrame) -> None:
        self.gpu, self._frame = gpu, frame
        self._models: dict[tuple[Op, DType], dict[tuple[str, str, str], Model]] = {}
        self._before: Recorded | None = None
        """What this one has rows more than: models without new rows are the same."""

    @property
    def arch(self) -> str:
        """Architecture of the GPU."""
        return str(self._frame["arch"].mode().iloc[0])

    def _least_us(self, policy: object) -> float:
        frame = self._frame
        return LAUNCH_SHARE * float(frame.loc[frame["policy"] == policy, "median_us"].min())

    def joined(self, more: pd.DataFrame) -> Recorded:
        """The same with rows more."""
        joined = Recorded(self.gpu, pd.concat([self._frame, more], ignore_index=True))
        joined._before = self
        return joined

    def models(self, op: Op, dtype: DType) -> dict[tuple[str, str, str], Model]:
        """By kernel, arithmetic and policy; those with enough rows."""
        if (op, dtype) not in self._models:
            frame = self._frame
            chosen = frame[(frame["op"] == op) & (frame["dtype"] == dtype)]
            chosen = chosen[chosen["kernel"].isin(rivals(op))]
            before = self._before.models(op, dtype) if self._before else {}
            self._models[op, dtype] = {}
            for (kernel, maths, policy), rows in chosen.groupby(["kernel", "math", "policy"]):
                key = (str(kernel), str(maths), str(policy))
                known = before.get(key)
                if known is not None and len(known.rows) == len(rows):
                    self._models[op, dtype][key] = known
                elif len(rows) >= FEWEST:
                    dense, sddmm = about(key[0]).work == "dense", op == "sddmm"
                    self._models[op, dtype][key] = Model(rows, dense, sddmm, ITEM_BYTES[dtype], self._least_us(policy))
        return self._models[op, dtype]


def load(gpu: str, folders: Sequence[Path], without: frozenset[str] = frozenset()) -> Recorded:
    """What is recorded on `gpu` in the results folders, but for rows of the sources `without`.

    Raises `RecordError` where that is nothing or not readable.
    """
    found = (file for folder in folders for file in sorted((folder / gpu).glob("*/records.csv")))
    files = [file for file in found if file.parent.name != CHECKS]
    if not files:
        known = sorted({path.parent.parent.name for folder in folders for path in folder.glob("*/*/records.csv")})
        there = f"there are records of {', '.join(known)}" if known else "there are no records at all"
        raise RecordError(f"nothing is recorded on '{gpu}' in {' or '.join(map(str, folders))}: {there}")
    tried = [folder / gpu / TRIAL / "trial.jsonl" for folder in folders]
    frames = [*map(_read, files), *(_read_trial(file) for file in tried if file.exists())]
    frame = pd.concat(frames, ignore_index=True)
    return Recorded(gpu, frame[~frame["source"].isin(without)])


def _read(file: Path) -> pd.DataFrame:
    if file.is_symlink():
        raise RecordError(f"{file} is a link: nothing outside a results folder is read or written for it")
    try:
        with file.open(encoding="utf-8") as stream:
            if stream.readline(_LONGEST_HEADER).rstrip("\r\n").split(",") != list(COLUMNS):
                raise RecordError(f"{file}: the header is not that of records")
        frame = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8", usecols=list(_USED))
        frame = frame[(frame["status"] == "ok") & (frame["selected"] == "true") & frame["policy"].isin(POLICIES)]
        # a step of a network is not the product that it is recorded as
        frame = frame[~frame["shape"].str.contains("attention|bias_relu")]
        frame = frame[~frame["variant"].str.contains(BLOCKED)].copy()
        for name in ("m", "k", "n", "nnz", "median_us", "prepare_ms", "compile_ms"):
            frame[name] = pd.to_numeric(frame[name].replace("", "nan"))
    except (OSError, UnicodeDecodeError, ValueError, pd.errors.ParserError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{file}: can't be read as records ({one_line(error)})") from error
    named = zip(frame["kernel"], frame["variant"], frame["dtype"], strict=True)
    frame["math"] = [class_of(*map(str, one)) for one in named]
    whole = (frame[["m", "k", "n"]] >= 1).all(axis=1) & (frame["median_us"] > 0) & (frame["nnz"] >= 0)
    return frame[whole]


def _read_trial(file: Path) -> pd.DataFrame:
    if file.is_symlink():
        raise RecordError(f"{file} is a link: nothing outside a results folder is read or written for it")
    try:
        return trial_rows(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise RecordError(f"{file}: can't be read as outcomes of a trial ({one_line(error)})") from error


def trial_rows(outcomes: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The hot times that `runners/trials/best_trial.py` found of each kernel, as rows.

    Of an outcome: `matrix` (a path in DLMC), `dtype`, `n` and `measured`, microseconds by kernel. Raises `ValueError`,
    `LookupError` or `TypeError` for something else.
    """
    rows = []
    for one in outcomes:
        entry = index.dlmc()[one["matrix"]]
        for kernel, us in one["measured"].items():
            if not 0 < float(us) < math.inf:
                raise ValueError(f"{us} is no time")
            rows.append(
                {
                    "experiment": TRIAL, "problem": one["matrix"], "op": "spmm", "m": entry.rows, "k": entry.cols,
                    "n": int(one["n"]), "nnz": entry.nnz, "dtype": one["dtype"],
                    "math": class_of(kernel, "", one["dtype"]),
                    "kernel": kernel, "variant": "", "policy": "hot", "median_us": float(us), "arch": "",
                    "source": f"dlmc:{one['matrix']}",
                }
            )  # fmt: skip
    return pd.DataFrame(rows, columns=[*_USED, "math"])


def answer(layer: Layer, question: Question, recorded: Recorded, every: bool = True) -> Answer:
    """The estimate for one layer. Raises `RecordError` where too little of its kind is recorded.

    With `every`, each kernel is asked whether it takes this matrix, which packs it; else those up to the fastest.
    """
    dtype = question.dtype or layer.dtype
    models = recorded.models(question.op, dtype)
    if question.kernels is not None:
        models = {key: model for key, model in models.items() if key[0] in question.kernels}
    if not models:
        types: tuple[DType, ...] = ("f32", "f16", "bf16")
        enough = [name for name in types if question.kernels is None and recorded.models(question.op, name)]
        raise RecordError(
            f"too little of {question.op} in {dtype} is recorded on {recorded.gpu} to estimate from (fewer than "
            f"{FEWEST} problems of every kernel)" + (f"; enough with --dtype {' or '.join(enough)}" if enough else "")
        )
    able: dict[tuple[str, int], str] = {}
    widths = tuple(_width(layer, question, n, dtype, models, recorded, able, every) for n in question.ns)
    curve: tuple[tuple[int, float, float], ...] = ()
    if question.op == "spmm":
        refused = {kernel for (kernel, _), reason in able.items() if reason}
        kept = {key: one for key, one in models.items() if key[0] not in refused}
        points = {point[0]: point for point in _curve(layer, dtype, kept)}
        for width in widths:  # a kernel may take one width alone
            dense, sparse = width.rival(dtype), width.sparse(dtype)
            if dense and sparse and dense.hot_us and sparse.hot_us and not width.far:
                points[width.n] = (width.n, dense.hot_us, sparse.hot_us)
        curve = tuple(sorted(points.values()))
    return Answer(
        layer.label, question.op, dtype, layer.matrix.m, layer.matrix.k, layer.matrix.nnz, recorded.gpu, True, widths,
        crossing(curve), layer.note, curve,
    )  # fmt: skip


def _sizes(layer: Layer, problem: Problem) -> Sizes:
    return Sizes(problem.m, problem.k, problem.n, layer.matrix.nnz)


def _width(
    layer: Layer,
    question: Question,
    n: int,
    dtype: DType,
    models: dict[tuple[str, str, str], Model],
    recorded: Recorded,
    able: dict[tuple[str, int], str],
    every: bool,
) -> Width:
    problem = layer.problem(question.op, n, dtype, question.image)
    sizes = _sizes(layer, problem)
    if question.op == "spmm" and n == 1:
        models = _of_vectors(models, recorded.models("spmv", dtype), sizes)
    entries = []
    far = _far(models, sizes)
    for kernel, maths in dict.fromkeys(key[:2] for key in models):
        hot, cold = (models.get((kernel, maths, policy)) for policy in POLICIES)
        model = hot or cold
        assert model is not None
        if not model.held_out_error <= LEAST_CERTAIN:
            reason = (
                f"estimates of it are off by {100 * model.held_out_error:.0f} % on average, from {len(model.rows)} rows"
            )
            entries.append(Entry(kernel, maths, reason=reason))
            continue
        if (kernel, maths) in far:
            reason = f"none of its recorded problems is within {FAR_OCTAVES:g} octaves"
            entries.append(Entry(kernel, maths, reason=reason))
            continue
        near_rows = [row for _, row in model.near(sizes)]
        nearest = next((row for row in near_rows if row["variant"]), near_rows[0])  # a trial's rows name none
        entries.append(
            Entry(
                kernel,
                maths,
                str(nearest["variant"]),
                float(hot.at([sizes])[0]) if hot else None,
                float(cold.at([sizes])[0]) if cold else None,
                stored_bytes(kernel, problem, layer.matrix.m, layer.matrix.k, layer.matrix.nnz),
                _packing_ms(kernel, model, nearest, sizes),
                uncertainty=model.held_out_error,
            )
        )
    entries = _that_run(entries, layer, problem, recorded.arch, able, every)
    best = next((one for one in ranked(entries) if one.us is not None and not one.dense), None)
    near: tuple[Near, ...] = ()
    if best is not None:
        model = models.get((best.kernel, best.math, "hot")) or models[best.kernel, best.math, "cold"]
        found = {(row["experiment"], row["problem"]): octaves for octaves, row in reversed(model.near(sizes))}
        near = tuple(Near(*name, octaves) for name, octaves in sorted(found.items(), key=lambda one: one[1])[:3])
    return Width(n, ranked(entries), near=near)


def _of_vectors(
    models: dict[tuple[str, str, str], Model], vectors: dict[tuple[str, str, str], Model], sizes: Sizes
) -> dict[tuple[str, str, str], Model]:
    """The models, of dense kernels those of SpMV where these are nearer: one column is the same product to them."""

    def nearer(key: tuple[str, str, str]) -> bool:
        return bool(vectors[key].distances([sizes])[0] < models[key].distances([sizes])[0])

    dense = [key for key in models if key in vectors and about(key[0]).work == "dense"]
    return {**models, **{key: vectors[key] for key in dense if nearer(key)}}


def _packing_ms(kernel: str, model: Model, row: Any, sizes: Sizes) -> float | None:
    """The nearest row's, in proportion to what is packed (nonzeros, or all weights), but no less than any recorded.

    So is the compilation of programs that hold the weights; another takes as long as that of the nearest row.
    """
    if pd.isna(row["prepare_ms"]):
        return None
    dense, coded = about(kernel).work == "dense", about(kernel).weights_in_code
    here, there = (sizes.m * sizes.k, row["m"] * row["k"]) if dense else (sizes.nnz, row["nnz"])
    share = max(here, 1) / max(float(there), 1.0)
    total = max(float(row["prepare_ms"]) * share, float(model.rows["prepare_ms"].min()))
    if not pd.isna(row["compile_ms"]):
        compiled = float(row["compile_ms"])
        total += max(compiled * share, float(model.rows["compile_ms"].min())) if coded else compiled
    return total


def _far(models: dict[tuple[str, str, str], Model], sizes: Sizes) -> set[tuple[str, str]]:
    """Kernels (and arithmetic) to leave out: nothing near is recorded of them, and something is of others.

    Dense and sparse kernels apart, since an answer needs both.
    """
    far: set[tuple[str, str]] = set()
    for dense in (True, False):
        side: dict[tuple[str, str], float] = {}
        for (kernel, maths, _), model in models.items():
            if (about(kernel).work == "dense") == dense and model.held_out_error <= LEAST_CERTAIN:
                distance = float(model.distances([sizes])[0])
                side[kernel, maths] = min(distance, side.get((kernel, maths), math.inf))
        if side and min(side.values()) <= FAR_OCTAVES:
            far |= {key for key, octaves in side.items() if octaves > FAR_OCTAVES}
    return far


def _that_run(
    entries: list[Entry], layer: Layer, problem: Problem, arch: str, able: dict[tuple[str, int], str], every: bool
) -> list[Entry]:
    """The entries, those that refuse this matrix at this width with the reason in place of times.

    Without `every`, kernels are asked in the order of their times until one takes it, and all that need a pattern of
    their own. `able` remembers the reasons by kernel and width (empty: it takes the matrix).
    """
    found: list[Entry] = []
    settled = False
    operands: Operands | None = None
    for entry in ranked(entries):
        skipped = settled and not every and not about(entry.kernel).pattern
        if entry.us is None or entry.dense or skipped:
            found.append(entry)
            continue
        key = (entry.kernel, problem.n)
        if key not in able:
            operands = operands or layer.operands(problem)
            able[key], size = _asked(entry, layer, problem, operands, arch, able)
            entry = replace(entry, memory_bytes=size)
        if able[key]:
            entry = Entry(entry.kernel, entry.math, reason=able[key])
        else:
            settled = True
        found.append(entry)
    return found


def _asked(
    entry: Entry, layer: Layer, problem: Problem, operands: Operands, arch: str, able: dict[tuple[str, int], str]
) -> tuple[str, int | None]:
    """Why the kernel refuses the matrix (empty where it takes it), and the bytes that it keeps."""
    kernel = kernels()[entry.kernel]
    coded = about(entry.kernel).weights_in_code
    if coded and any(name == entry.kernel and not reason for (name, _), reason in able.items()):
        return "", entry.memory_bytes  # writing the program again for another width is slow, and tells nothing new
    try:
        if entry.kernel in _CHECKS:
            _CHECKS[entry.kernel](layer, problem.dtype)
        elif isinstance(kernel, Kernel):
            plan = next(iter(kernel.plans(problem, operands, arch)), None)
            if plan is None:
                raise Unsupported("no plan for this matrix")
            if plan.language == "cuda":  # generated code holds its weights, and is not compiled here
                return "", weights_bytes(plan, operands)
    except Unsupported as error:
        return str(error), None
    return "", entry.memory_bytes


def _cusparselt(layer: Layer, dtype: DType) -> None:
    from nnzbench.kernels.vendor.cusparselt import require_pattern

    require_pattern(layer.matrix, dtype)


_CHECKS = {"cusparselt": _cusparselt}


def certain_hot(models: Mapping[tuple[str, str, str], Model], dtype: DType) -> Iterator[tuple[str, Model]]:
    """Kernels whose hot times in the type's own arithmetic are estimated well enough for an answer."""
    for (kernel, maths, policy), model in models.items():
        if policy == "hot" and maths == dtype and model.held_out_error <= LEAST_CERTAIN:
            yield kernel, model


def _curve(
    layer: Layer, dtype: DType, models: dict[tuple[str, str, str], Model]
) -> tuple[tuple[int, float, float], ...]:
    """Fastest dense and fastest sparse estimates at the widths near which both sides have recorded problems."""
    matrix = layer.matrix
    widths = np.array(_WIDTHS)
    asked = [Sizes(matrix.m, matrix.k, n, matrix.nnz) for n in _WIDTHS]
    sides = {dense: np.full(len(asked), math.inf) for dense in (True, False)}
    for kernel, model in certain_hot(models, dtype):
        recorded = (model.rows["n"].min() <= widths) & (widths <= model.rows["n"].max())
        near = recorded & (model.distances(asked) <= FAR_OCTAVES)
        dense = about(kernel).work == "dense"
        sides[dense] = np.minimum(sides[dense], np.where(near, model.at(asked), math.inf))
    points = zip(_WIDTHS, sides[True], sides[False], strict=True)
    return tuple((n, float(a), float(b)) for n, a, b in points if a < math.inf and b < math.inf)
