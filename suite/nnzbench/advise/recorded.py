"""What was recorded on a GPU, as models of its kernels: read from results folders and the trial of `best`.

And how far off the estimates of these models are for recorded problems that they don't know (`held_out`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nnzbench.advise.answer import SURELY
from nnzbench.advise.layer import Op
from nnzbench.core import paths
from nnzbench.core.architectures import architecture
from nnzbench.core.gpus import Gpu, gpus, meant, named
from nnzbench.core.plan import one_line
from nnzbench.data.matrices import index
from nnzbench.data.problems.experiment import CHECKS, OF_MODELS, USUAL
from nnzbench.data.problems.problem import ITEM_BYTES, DType
from nnzbench.kernels.registry import about, baselines, kernels
from nnzbench.papers.predict.estimator import COLUMN_TILE, Carry, Model, Sizes
from nnzbench.papers.predict.model import alike
from nnzbench.results.records import sanitise
from nnzbench.results.records.describe import UNSTRUCTURED, class_of, pattern_of
from nnzbench.results.records.folder import folders, gpu_among, gpus_of, records_file, refuse_links
from nnzbench.results.records.record import RecordError

FEWEST = 16
"""Recorded problems of a kernel from which on its time is estimated."""
LEAST_CERTAIN = 0.5
"""A kernel whose estimates are off by more on average gets none."""
SAME_NONZEROS = 0.01
"""How far apart the nonzeros of two problems may be whose times are taken as the same."""
LAUNCH_SHARE = 0.65
"""Of the least time recorded under a policy, what an estimate takes for the launch."""
MANY = 5
"""Experiments from which on a GPU has enough records to tell another's times from."""
TRIAL = "best_trial"
"""Folder of what `runners/best_trial.py` sums up."""
BLOCKED = r"(?:^|_)bell\d"
"""Variants of cuSPARSE's blocked format: fast where nonzeros lie in blocks, which sizes alone don't say."""
LEFT = 20
"""Rows that must be left to fit to."""
BELOW, ABOVE = 32, 256
"""Widths on whose other side all is held out: the narrowest of most kernels in fp32, the widest of some in fp16."""
NARROW = (2, 4, 8, 16, 32)
"""Columns below which rows are held out, to see what the time at the narrowest width left is worth there."""
_TYPES: tuple[DType, ...] = ("f32", "f16")
_KEPT = ["experiment", "problem", "n", "median_us"]
_USED = (
    "experiment", "problem", "op", "m", "k", "n", "shape", "dtype", "nnz", "kernel", "variant", "selected", "arch",
    "policy", "status", "median_us", "prepare_ms", "compile_ms", "source", "floor_us",
)  # fmt: skip


class Recorded:
    """Everything that was recorded on a GPU, as models by kernel, arithmetic and policy.

    With `target`, a GPU without records, their estimates are of that one.
    """

    def __init__(self, gpu: str, frame: pd.DataFrame, target: Gpu | None = None) -> None:
        self.gpu, self._frame, self.target = target.slug if target else gpu, frame, target
        self.sheet, self.source = gpus().get(self.gpu), gpus().get(gpu)
        self._models: dict[tuple[Op, DType], dict[tuple[str, str, str], Model]] = {}
        self._before: Recorded | None = None
        """What this one has rows more than: models without new rows are the same."""

    @property
    def arch(self) -> str:
        """Architecture of the GPU."""
        return self.target.arch if self.target else str(self._frame["arch"].mode().iloc[0])

    @property
    def note(self) -> str:
        """What a GPU without records is told from, in a sentence."""
        if self.target is None or self.source is None:
            return ""
        return (
            f"Nothing is recorded on {self.target.name}: its times are predicted from those of {self.source.name}, and "
            "± also holds nine in ten of such times, held out GPU by GPU; packing is as recorded there."
        )

    def carry(self, kernel: str, math_class: str) -> Carry | None:
        """How the kernel's times become those of the target; None where these are its own."""
        if self.target is None or self.source is None:
            return None
        from nnzbench.papers.predict.records import error_bar, library_factor  # loads the papers' pages

        bar = error_bar(kernel, math_class, self.source, self.target)
        return Carry(self.source, self.target, library_factor(kernel, math_class, self.source, self.target), bar)

    def cannot(self, kernel: str, math_class: str) -> str:
        """Why the target has no such time; empty where nothing speaks against one."""
        if self.target is None:
            return ""
        from nnzbench.papers.predict.records import cannot

        return cannot(kernel, math_class, self.arch)

    @cached_property
    def on_source(self) -> Recorded:
        """The same as estimates of the GPU that they were recorded on."""
        return Recorded(self.source.slug if self.source else self.gpu, self._frame)

    @cached_property
    def _least(self) -> pd.Series[float]:
        return self._frame.groupby("policy")["median_us"].min()

    def least_us(self, policy: str) -> float:
        """What a launch takes under a policy at least."""
        return LAUNCH_SHARE * float(self._least.get(policy, math.nan))

    def joined(self, more: pd.DataFrame) -> Recorded:
        """The same with rows more."""
        joined = Recorded(self.gpu, pd.concat([self._frame, more], ignore_index=True), self.target)
        joined._before = self
        return joined

    def models(self, op: Op, dtype: DType) -> dict[tuple[str, str, str], Model]:
        """By kernel, arithmetic and policy; those with enough rows."""
        if (op, dtype) not in self._models:
            before = self._before.models(op, dtype) if self._before else {}
            self._models[op, dtype] = {}
            for (kernel, maths, policy), rows in self._rows(op, dtype).groupby(["kernel", "math", "policy"]):
                key = (str(kernel), str(maths), str(policy))
                known = before.get(key)
                if known is not None and len(known.rows) == len(rows):
                    self._models[op, dtype][key] = known
                elif len(rows) >= FEWEST:
                    one, item = about(key[0]), ITEM_BYTES[dtype]
                    self._models[op, dtype][key] = Model(
                        rows, one.work == "dense", op == "sddmm", item, self.least_us(key[2]), one.role == "library",
                        policy=key[2], math_class=key[1], gpu=self.sheet, carry=self.carry(*key[:2]),
                        halved=one.pattern == "2:4", coded=one.operand_bytes is not None and one.pattern != "2:4",
                    )  # fmt: skip
        return self._models[op, dtype]

    def expected(self, op: Op, dtype: DType, sizes: Sizes) -> dict[str, float]:
        """Hot microseconds by kernel, of those that are no guess: what a search begins with. A matrix times a matrix of
        one column is a matrix times a vector."""
        others: tuple[Op, ...] = ("spmv",) if op == "spmm" and sizes.n == 1 else ()
        found: dict[str, float] = {}
        with threadpool_limits(limits=1, user_api="blas"):  # of small systems: threads spend most of it on each other
            for one in (op, *others):
                for kernel, model in certain_hot(self.models(one, dtype), dtype, sizes.kind):
                    fits = about(kernel).takes(sizes.kind)
                    if fits and kernel not in found and not model.guess(sizes):
                        found[kernel] = float(model.at([sizes])[0])
        return found

    def few(self, op: Op, dtype: DType) -> dict[tuple[str, str], pd.DataFrame]:
        """The rows of kernels (in an arithmetic) that have too few for a model."""
        enough = {key[:2] for key in self.models(op, dtype)}
        rows = self._rows(op, dtype)
        groups = rows[rows["policy"].isin(USUAL)].groupby(["kernel", "math"])
        named = {(str(kernel), str(maths)): rows for (kernel, maths), rows in groups}
        return {key: rows for key, rows in named.items() if key not in enough}

    def _rows(self, op: Op, dtype: DType) -> pd.DataFrame:
        frame = self._frame
        chosen = frame[(frame["op"] == op) & (frame["dtype"] == dtype)]
        if dtype == "bf16" and architecture(self.arch).has("mma_bf16"):
            # tensor cores take as long for either, and little of bf16 is recorded
            halves = frame[(frame["op"] == op) & (frame["math"] == "f16")]
            takes = [name for name, one in kernels().items() if "bf16" in one.dtypes]
            halves = halves[halves["kernel"].isin(takes)].assign(dtype="bf16", math="bf16")
            chosen = pd.concat([chosen, halves], ignore_index=True)
        return chosen[chosen["kernel"].isin(baselines(op))]


def same(rows: pd.DataFrame, sizes: Sizes, dense: bool) -> dict[str, Any]:
    """By policy, the row of a problem of the same sizes.

    Where nonzeros are all that it multiplies, there are as many to 1 %, in a pattern of the same kind.
    """
    found = rows[(rows["m"] == sizes.m) & (rows["k"] == sizes.k) & (rows["n"] == sizes.n)]
    found = found.assign(off=(found["nnz"] - sizes.nnz).abs())
    if not dense:
        found = found[(found["off"] <= SAME_NONZEROS * sizes.nnz) & (found["source"].map(pattern_of) == sizes.kind)]
    nearest = found.sort_values("off", kind="stable").groupby("policy", sort=False).head(1)
    return {str(row["policy"]): row for _, row in nearest.iterrows()}


def usual_folders() -> list[Path]:
    """One's own results, then what is published: of the checkout, or beside one and in the installed package."""
    return list(dict.fromkeys([paths.results(), paths.reports(), paths.published()]))


def find(gpu: str, roots: Sequence[Path]) -> str:
    """The slug that has records there or a line of `datasets/gpus.csv`. Raises `RecordError` for several or none."""
    known = gpus_of(*roots)
    if not (slugs := [one] if (one := gpu_among(gpu, known)) else named(gpu, gpus())):
        there = f"there are records of {', '.join(known)}" if known else "there are no records at all"
        raise RecordError(f"nothing is recorded on '{gpu}' ({there}), nor is it in datasets/gpus.csv{meant(gpu)}")
    return slugs[0]


def load(gpu: str, roots: Sequence[Path], without: frozenset[str] = frozenset()) -> Recorded:
    """What is recorded on `gpu` (a slug or some words of it) in the results folders, but for the sources `without`.

    Of a GPU of `datasets/gpus.csv` without any, what those of the recorded GPU most like it tell.

    Raises `RecordError` where that is nothing, of several GPUs or not readable.
    """
    gpu, known = find(gpu, roots), gpus_of(*roots)
    frame = _usable(gpu, roots, without)
    if frame is not None:
        return Recorded(gpu, frame)
    nothing = f"nothing is recorded on '{gpu}' or on a GPU that it could be predicted from"
    if (target := gpus().get(gpu)) is None:
        raise RecordError(nothing)
    source = _source(target, known, roots)
    frame = _usable(source, roots, without) if source else None
    if source is None or frame is None:
        raise RecordError(nothing)
    # what is known of other GPUs is of products alone
    return Recorded(source, frame[frame["op"].isin(["spmm", "spmv", "gemm"]) & (frame["shape"] == "")], target)


def _usable(gpu: str, roots: Sequence[Path], without: frozenset[str]) -> pd.DataFrame | None:
    """The rows of that slug with a time; None where there are none, as of runs that only checked or failed."""
    found = [one for root in roots for one in folders(root / gpu, "*") if one.name != CHECKS]
    read = _of_products(pd.concat(map(_read, found), ignore_index=True)) if found else pd.DataFrame()
    if read.empty:
        return None
    tried = [root / gpu / TRIAL / "trial.jsonl" for root in roots]
    frame = pd.concat([read, *(_read_trial(file) for file in tried if file.exists())], ignore_index=True)
    return _tuned(frame[~frame["source"].isin(without)] if without else frame)


def _tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows without those of libraries before tuning, of what enough is tuned: their best is up to three times as
    fast. Other kernels' first choices are within a tenth of it, and may be all that is recorded of a size."""
    short = frame["cut_short"].fillna("") != ""
    tuned = (~short).groupby([frame[one] for one in ("op", "dtype", "kernel", "math", "policy")]).transform("sum")
    return frame[~(short & (tuned >= FEWEST))]


def _source(target: Gpu, known: Sequence[str], roots: Sequence[Path]) -> str | None:
    """The recorded GPU most like another; None where there is none."""
    sources = [gpus()[one] for one in known if one in gpus() and one != target.slug]
    counts = {one.slug: sum(len(folders(root / one.slug, "*")) for root in roots) for one in sources}
    best = max(sources, key=lambda one: (counts[one.slug] >= MANY, alike(one, target), counts[one.slug]), default=None)
    return best.slug if best else None


def _read(folder: Path) -> pd.DataFrame:
    file = records_file(folder)
    refuse_links(file)
    columns = [*_USED, "math", "role", "step", "search"]
    return sanitise.read(file, columns)[columns]


def _of_products(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that say how long a product takes."""
    timed = (frame["status"] == "ok") & frame["selected"] & frame["policy"].isin(OF_MODELS) & (frame["median_us"] > 0)
    # a step of a network is not the product that it is recorded as
    timed &= ~frame["step"].isin(("attention", "pointwise", "depthwise")) & (frame[["m", "k", "n"]] >= 1).all(axis=1)
    frame = frame[timed & ~frame["variant"].str.contains(BLOCKED)]
    short = frame["search"].isin(("first", "some")) & (frame["role"] == "library")
    return frame.assign(cut_short=frame["search"].where(short, "")).drop(columns=["role", "step", "search"])


def _read_trial(file: Path) -> pd.DataFrame:
    if file.is_symlink():
        raise RecordError(f"{file} is a link: nothing outside a results folder is read or written for it")
    try:
        return trial_rows(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise RecordError(f"{file}: can't be read as outcomes of a trial ({one_line(error)})") from error


def of_collection(matrix: str) -> bool:
    """Whether a matrix of the trial is a path in DLMC, and not sizes and zeros of a random one."""
    return "@" not in matrix


def trial_rows(outcomes: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The hot times that `runners/best_trial.py` found of each kernel, as rows.

    Of an outcome: `matrix` (a path in DLMC; sizes and zeros are passed over), `dtype`, `n` and `measured`, microseconds
    by kernel. Raises `ValueError`, `LookupError` or `TypeError` for something else.
    """
    rows = []
    for one in outcomes:
        if not of_collection(one["matrix"]):
            continue
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


def certain_hot(models: Mapping[tuple[str, str, str], Model], dtype: DType, kind: str) -> Iterator[tuple[str, Model]]:
    """Kernels whose hot times on such patterns, in the type's own arithmetic, are estimated well enough."""
    for (kernel, maths, policy), model in models.items():
        if policy == "hot" and maths == dtype and model.knows(kind) and model.held_out_error(kind) <= LEAST_CERTAIN:
            yield kernel, model


def _in_turn(parts: NDArray[np.generic]) -> Iterable[NDArray[np.bool_]]:
    return (parts == part for part in np.unique(parts))


WAYS: Mapping[str, Callable[[Model], Iterable[NDArray[np.bool_]]]] = {
    "a fifth of the layer sizes, each in turn": lambda model: _in_turn(model.folds),
    "each experiment in turn": lambda model: _in_turn(model.rows["experiment"].to_numpy()),
    "each width (to a factor of 1.4) in turn": lambda model: _in_turn(np.round(2 * np.log2(model.widths))),
    f"all widths below {BELOW} together": lambda model: [model.widths < BELOW],
    f"all widths above {ABOVE} together": lambda model: [model.widths > ABOVE],
}
"""Which rows of a model are held out at a time."""


def held_out(recorded: Recorded, way: str) -> pd.DataFrame:
    """A row per hot time of SpMM that could be held out: `_KEPT`, `kernel`, `dtype`, `dense`, |estimate / measured - 1|
    as `error`, and `inside`, whether the time lies in the interval that the other rows' errors make.

    As in an answer, kernels whose mean error for unseen layer sizes is above one half on a kind of patterns are left
    out there, and so are those of which too little is left.
    """
    found = []
    for dtype in _TYPES:
        for (kernel, maths, policy), model in recorded.models("spmm", dtype).items():
            if (maths, policy) != (dtype, "hot"):
                continue
            certain = [kind for kind in np.unique(model.kinds) if model.held_out_error(kind) <= LEAST_CERTAIN]
            dense, told = about(kernel).work == "dense", np.isin(model.kinds, certain)
            for out in WAYS[way](model):
                if (out & told).any() and np.count_nonzero(~out) >= LEFT:
                    off = np.log(model.estimates(out) / model.rows.loc[out, "median_us"].to_numpy(float))
                    bars = {kind: model.within(str(kind), ~out) for kind in certain}
                    bar = np.array([bars.get(kind, math.nan) for kind in model.kinds[out]])
                    rows = model.rows.loc[out, _KEPT].assign(kernel=kernel, dtype=dtype, dense=dense)
                    rows = rows.assign(error=np.abs(np.expm1(off)), inside=np.abs(off) <= np.log1p(bar))
                    found.append(rows[told[out]])
    columns = [*_KEPT, "kernel", "dtype", "dense", "error", "inside"]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


def widened(recorded: Recorded) -> pd.DataFrame:
    """A row per hot time of SpMM that is told as its kernel's at the narrowest width, and by it surely is the verdict.

    Columns `_KEPT`, `dtype`, `narrowest`, `us`, the estimate with the kernel's rows below `narrowest` columns held out,
    and `dense_us`, the least recorded time of a dense kernel on that problem.
    """
    found = []
    for dtype in _TYPES:
        models = dict(certain_hot(recorded.models("spmm", dtype), dtype, UNSTRUCTURED))
        dense = pd.concat(
            [pd.DataFrame(columns=_KEPT), *(models[one].rows[_KEPT] for one in models if about(one).work == "dense")]
        )
        least = dense.groupby(_KEPT[:-1])["median_us"].min().rename("dense_us")
        for kernel, model in models.items():
            if about(kernel).work == "dense" or about(kernel).role == "library":
                continue
            for narrowest in NARROW:
                out = model.widths < narrowest
                if out.any() and np.count_nonzero(~out) >= LEFT and model.widths[~out].min() <= COLUMN_TILE:
                    rows = model.rows.loc[out, _KEPT].assign(us=model.estimates(out))
                    rows = rows.assign(kernel=kernel, dtype=dtype, narrowest=narrowest)
                    found.append(rows.join(least, on=_KEPT[:-1], how="inner"))
    told = pd.concat([pd.DataFrame(columns=[*_KEPT, "dtype", "narrowest", "us", "dense_us"]), *found])
    return told[SURELY * told["us"] < told["dense_us"]].reset_index(drop=True)


def fastest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each problem the least time of the sparse kernels and of the dense ones."""
    least = rows.groupby(["experiment", "problem", "n", "dtype", "dense"])["median_us"].idxmin()
    found: pd.DataFrame = rows.loc[least]
    return found
