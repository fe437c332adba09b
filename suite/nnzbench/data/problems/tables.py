"""Problem tables: `datasets/problems/<experiment>.csv`, one row per problem, to `Problem`s."""

from __future__ import annotations

import csv
import functools
import itertools
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnzbench.core import paths
from nnzbench.data.matrices import index
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.problem import ConvShape, DType, Op, Problem, name_of, stem_of
from nnzbench.data.problems.sources import KINDS, find_real

COLUMNS = (
    "label", "op", "m", "k", "n", "dtype", "sparsity", "matrix", "batch", "channels", "height", "width", "filters", "r",
    "s", "pad_h", "pad_w", "stride", "groups", "count", "model", "citation", "choice", "sample",
)  # fmt: skip
"""All columns a table may have; datasets/README.md explains them."""

_REQUIRED = frozenset({"label", "op", "sparsity", "matrix"})
_CONV = ("batch", "channels", "height", "width", "filters", "r", "s")
_CONV_DEFAULTS = {"pad_h": 0, "pad_w": 0, "stride": 1, "groups": 1}
_MODEL_BATCHES = {"rn50": (1, 256), "transformer": (1, 8)}
"""Inference and training batch sizes of Sputnik's section VII."""
_SEQUENCE = 256
"""Tokens per sentence of the Transformer (a choice: the paper gives 256 to over 2048)."""

COLLECTION = "sputnik_dlmc"
"""The experiment whose problems are the index of Sputnik's matrices, or a sample of it, and no table."""
SAMPLE = 60
"""Matrices of the sample of Sputnik's 3,012: one or two of each model, method and sparsity level."""
_STEPS = (50, 25, 10, 5, 2, 1)
"""Every so many of them make a sample; each holds those before it."""


class TableError(MatrixError):
    """A problem table is wrong; the message names file, line and column."""


def experiments_with_tables() -> list[str]:
    """Experiments that `load` knows, sorted."""
    return sorted({path.stem for path in _folder().glob("*.csv")} | {COLLECTION})


def load(experiment: str, real: bool | None = None, full: bool = False, sample: int = SAMPLE) -> list[Problem]:
    """The problems of `experiment`, in the table's order, with unique names.

    `real`: None takes real matrices where they are on disk and calibrated synthetic patterns elsewhere, False always
    the latter, True always real ones (`load_sparse` then raises where one is missing). `full`: all problems where the
    default is a sample (`sputnik_dlmc`, of at least `sample` matrices, and tables with a column `sample`). Raises
    `TableError`.
    """
    problems = [_choose(problem, real) for problem in rows(experiment, full, sample)]
    seen: dict[str, int] = {}
    for at, problem in enumerate(problems):
        if problem.name in seen:
            raise TableError(f"{experiment}: problems {seen[problem.name] + 1} and {at + 1} are both '{problem.name}'.")
        seen[problem.name] = at
    return problems


def rows(experiment: str, full: bool = False, sample: int = SAMPLE) -> list[Problem]:
    """The problem of each line of the experiment's table, with the preferred (real) source."""
    if experiment == COLLECTION:
        return list(_collection(experiment, dlmc_selection() if full else dlmc_sample(sample)))
    path = _folder() / f"{experiment}.csv"
    if not path.is_file():
        raise TableError(
            f"no problem table for '{experiment}'; there is one for: {', '.join(experiments_with_tables())}."
        )
    return read_table(path, full)


def as_uniform(problem: Problem) -> Problem:
    """The same sizes and level with uniformly random positions, as most papers' synthetic problems have them."""
    return _renamed(replace(problem, source="uniform:0"))


def read_table(path: Path, full: bool = True) -> list[Problem]:
    """Reads and checks one table; its stem is the experiment. All of it, or what is run by default.

    Raises `TableError` naming file, line and column.
    """
    lines = _read_table(path, path.stat().st_mtime_ns if path.is_file() else 0)
    return [problem for problem, sampled in lines if full or sampled]


@functools.cache
def _read_table(path: Path, changed_ns: int) -> tuple[tuple[Problem, bool], ...]:
    """Each line's problem, and whether it is run by default.

    Once for all that ask for a table: drawing the pages of two GPUs asked 170 times, a twelfth of its time.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream, restkey="(extra)", strict=True)
            columns = reader.fieldnames or []
            for column in sorted(set(columns) - set(COLUMNS)):
                raise TableError(f"{path.name}, line 1: unknown column '{column}'.")
            for column in sorted(_REQUIRED - set(columns)):
                raise TableError(f"{path.name}, line 1: column '{column}' is missing.")
            return _placed([_Line(path, reader.line_num, line).problem() for line in reader])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path.name}: is not a readable CSV table ({error}).") from error


def _placed(found: Sequence[tuple[Problem, bool]]) -> tuple[tuple[Problem, bool], ...]:
    """The lines with their places: that of the first of the same problem, whatever its type."""
    places: dict[str, int] = {}
    for at, (problem, _) in enumerate(found):
        places.setdefault(stem_of(problem.name), at)
    return tuple((replace(problem, place=places[stem_of(problem.name)]), sampled) for problem, sampled in found)


def _folder() -> Path:
    return paths.datasets() / "problems"


@dataclass(frozen=True)
class _Line:
    path: Path
    number: int
    fields: Mapping[str, str | None]

    def problem(self) -> tuple[Problem, bool]:
        if "(extra)" in self.fields or None in self.fields.values():
            raise TableError(f"{self.path.name}, line {self.number}: has not as many columns as the header.")
        op = self._word("op", typing.get_args(Op))
        conv = self._conv() if op.startswith("conv") or op == "depthwise" else None
        sparsity = self._sparsity()
        source = self.fields["matrix"] or ""
        if source.partition(":")[0] not in KINDS or not source.partition(":")[2]:
            raise self._error("matrix", f"'{source}' is no known source")
        label = self.fields["label"] or ""
        if not label or any(c in label for c in " /\\,"):
            raise self._error("label", f"'{label}' is empty or holds a space, comma or slash")
        problem = Problem(
            experiment=self.path.stem,
            name="",
            op=typing.cast(Op, op),
            m=self._derived("m", conv.filters if conv else None),
            k=self._derived("k", conv.channels // conv.groups * conv.r * conv.s if conv else None),
            n=self._derived("n", conv.batch * conv.out_height * conv.out_width if conv else None),
            sparsity=sparsity,
            source=source,
            dtype=typing.cast(DType, self._word("dtype", typing.get_args(DType), "f32")),
            conv=conv,
            label=label,
            count=self._whole("count", 1, default=1),
            model=self.fields.get("model") or "",
        )
        return _renamed(problem), bool(self._whole("sample", 0, default=1))

    def _error(self, column: str, what: str) -> TableError:
        return TableError(f"{self.path.name}, line {self.number}, column '{column}': {what}.")

    def _word(self, column: str, allowed: tuple[str, ...], default: str = "") -> str:
        word = self.fields.get(column) or default
        if word not in allowed:
            raise self._error(column, f"'{word}' is not one of {', '.join(allowed)}")
        return word

    def _whole(self, column: str, least: int, default: int | None = None) -> int:
        text = self.fields.get(column) or ""
        if not text and default is not None:
            return default
        if not text.isdecimal() or not least <= int(text) < 2**31:
            raise self._error(column, f"'{text}' is not a whole number of at least {least}")
        return int(text)

    def _derived(self, column: str, value: int | None) -> int:
        """A size, or for convolutions the one that follows from its shape, which a given one must equal."""
        given = self._whole(column, 1, default=value)
        if value is not None and given != value:
            raise self._error(column, f"{given} contradicts the convolution's {value}")
        return given

    def _sparsity(self) -> float:
        try:
            sparsity = float(self.fields["sparsity"] or "")
        except ValueError:
            sparsity = -1.0
        if not 0.0 <= sparsity < 1.0:
            raise self._error("sparsity", f"'{self.fields['sparsity']}' is not in 0..1")
        return sparsity

    def _conv(self) -> ConvShape:
        sizes = {name: self._whole(name, 1) for name in _CONV}
        sizes |= {name: self._whole(name, default, default) for name, default in _CONV_DEFAULTS.items()}
        shape = ConvShape(**sizes)
        if shape.out_height < 1 or shape.out_width < 1:
            raise self._error("height", "the filter is larger than the padded image")
        if shape.groups != 1 and not shape.groups == shape.channels == shape.filters:
            raise self._error("groups", f"{shape.groups} is neither 1 nor the count of channels and filters")
        return shape


def _choose(problem: Problem, real: bool | None) -> Problem:
    kind, _, name = problem.source.partition(":")
    if kind not in ("dlmc", "weights") or real is True or (real is None and find_real(problem.source) is not None):
        return problem
    return _renamed(replace(problem, source=f"standin:{name}"))


def _renamed(problem: Problem) -> Problem:
    return replace(problem, name=name_of(problem))


def _collection(experiment: str, entries: list[index.DlmcEntry]) -> Iterator[Problem]:
    """Sputnik's figure 9 and table I: each matrix of its data set as SpMM (f32, f16) and SDDMM, at both batch sizes."""
    places = _places()
    for entry in entries:
        for at, batch in enumerate(_MODEL_BATCHES[entry.model]):
            n = columns_of(entry, batch)
            label = entry.path.removesuffix(".smtx").replace("/", ".")
            sparsity = 1 - entry.nnz / (entry.rows * entry.cols)
            variants: tuple[tuple[str, Op, int, int, DType], ...] = (
                (f"{label}_b{batch}", "spmm", entry.cols, n, "f32"),
                (f"{label}_b{batch}", "spmm", entry.cols, n, "f16"),
                (f"sddmm_{label}_b{batch}", "sddmm", n, entry.cols, "f32"),
            )
            for name, op, k, columns, dtype in variants:
                sizes, source = (entry.rows, k, columns), f"dlmc:{entry.path}"
                place = len(variants) * (places[entry.path] + at) + (2 if op == "sddmm" else 0)
                level, model = round(sparsity, 4), entry.model
                problem = Problem(
                    experiment, "", op, *sizes, level, source, dtype, label=name, model=model, place=place
                )
                yield _renamed(problem)


@functools.cache
def _places() -> Mapping[str, int]:
    """Of each selected matrix, how many batch sizes those before it have in all."""
    every = dlmc_selection()
    before = itertools.accumulate((len(_MODEL_BATCHES[entry.model]) for entry in every), initial=0)
    return {entry.path: at for entry, at in zip(every, before, strict=False)}


def dlmc_selection() -> list[index.DlmcEntry]:
    """Sputnik's 3,012 matrices: BLEU above 20 or top-1 above 70 as the collection's table has them, not empty."""
    least = {"transformer": 20.0, "rn50": 70.0}
    return [e for e in index.dlmc().values() if e.nnz > 0 and e.quality > least[e.model]]


def dlmc_sample(count: int = SAMPLE) -> list[index.DlmcEntry]:
    """A stratified sample of `dlmc_selection`: every 50th of its matrices ordered by stratum, then by size.

    Strata are model, pruning method, sparsity level and kind of layer, so that each has its share of the sample. For
    more matrices the steps are shorter, so that there are at least `count`, and all of a smaller sample are among them.
    """
    every = _by_stratum()
    step = next((step for step in _STEPS if len(every) // step >= count), 1)
    return every[_STEPS[0] // 2 % step :: step]


@functools.cache
def _by_stratum() -> list[index.DlmcEntry]:
    def stratum(e: index.DlmcEntry) -> tuple[str, str, float, str, int, str]:
        return e.model, e.method, float(e.target_sparsity), e.layer_kind, e.rows * e.cols, e.path

    return sorted(dlmc_selection(), key=stratum)


def columns_of(entry: index.DlmcEntry, batch: int) -> int:
    """Columns of the dense operand: output positions or tokens times `batch`, in multiples of four (section VII)."""
    each = entry.n_single_image if entry.n_single_image is not None else _SEQUENCE
    return -(-each * batch // 4) * 4
