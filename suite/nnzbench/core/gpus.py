"""The one table of GPUs, `datasets/gpus.csv`, and what a GPU's rates are called wherever they come from.

`Gpu` is a line of the table: a data sheet at the boost clock, and through `architecture` what plans know of the chip.
`Peaks` are its rates as a run measured them, or as the data sheet has them (`Gpu.peaks`).
"""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from statistics import median
from typing import Any

from nnzbench.core import paths
from nnzbench.core.architectures import ARCHITECTURES, Architecture, Family, architecture, number
from nnzbench.core.plan import Unsupported

SCHEDULERS, LANES = 4, 32
"""Of an SM: warps that issue in a clock, and threads of a warp."""
SUSTAINED, PER_OCTAVE, AT_WATTS = 0.7, 0.1, 0.44
"""Share of their peak that tensor cores sustain within the power of a board, by watts per fp16 TFLOP/s: as power
limits, twice the watts give an eighth of the peak more, up to all of it."""


@dataclass(frozen=True)
class Peaks:
    """Peak rates of one GPU, measured or by its data sheet; None where one is not known.

    Bandwidths are in 1e9 bytes per second (read plus written), rates in 1e12 floating-point operations per second,
    dense, without structured sparsity.
    """

    copy_gbs: float | None = None
    """Device-memory bandwidth of a copy far larger than the L2 cache."""
    l2_gbs: float | None = None
    """Bandwidth of reading a buffer that stays in the L2 cache."""
    fp32_tflops: float | None = None
    """Fused multiply-adds on CUDA cores, two operations each."""
    tf32_tflops: float | None = None
    """Largest rate of a big TF32 matrix product on random data."""
    f16_tflops: float | None = None
    """Largest rate of a big fp16 matrix product (fp32 accumulation) on random data."""
    floor_hot_us: float | None = None
    """Time of an empty kernel under the hot policy, microseconds, which no rate shortens."""
    floor_cold_us: float | None = None
    """Time of an empty kernel under the cold policy, microseconds."""
    l2_bytes: float | None = None
    sms: int | None = None
    """Number of streaming multiprocessors."""

    def floor_us(self, policy: str) -> float | None:
        """Time of an empty kernel under `policy`, microseconds: alone (`cold`), or back to back, as in a graph."""
        known = {"cold": self.floor_cold_us, **dict.fromkeys(("hot", "stream", "loop"), self.floor_hot_us)}
        return known.get(policy)

    def tflops(self, math_class: str) -> float:
        """Peak rate of arithmetic class `f32`, `tf32`, `f16` or `bf16`; NaN where it is not known."""
        known = {"f32": self.fp32_tflops, "tf32": self.tf32_tflops}.get(math_class, self.f16_tflops)
        return math.nan if known is None else known

    def bandwidth(self, moved: float, policy: str) -> float:
        """1e9 bytes per second for operands of `moved` bytes: hot ones that fit stay in L2; NaN where not known."""
        rate = self.l2_gbs if policy == "hot" and moved <= (self.l2_bytes or math.nan) else self.copy_gbs
        return math.nan if rate is None else rate


def peaks_of(snapshot: Mapping[str, Any]) -> Peaks:
    """The peaks that a run's snapshot has; None where it has no number above zero."""
    found = snapshot.get("peaks")
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    rates: dict[str, Any] = {one.name: told.get(one.name) for one in fields(Peaks)}
    numbers: dict[str, Any] = {name: one for name, one in rates.items() if isinstance(one, int | float)}
    return Peaks(**{name: one for name, one in numbers.items() if 0 < one < math.inf})


def median_peaks(several: Iterable[Peaks]) -> Peaks:
    """Each rate's median over the runs that measured it."""
    known: dict[str, list[float]] = {}
    for one in several:
        for name, value in asdict(one).items():
            known.setdefault(name, []).extend([value] * (value is not None))
    return Peaks(**{name: median(values) for name, values in known.items() if values})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Gpu:
    """One GPU by its data sheet: the columns of `datasets/gpus.csv`, NaN where a data sheet gives no such rate.

    Rates are dense, in 1e12 operations per second at the boost clock; those of tensor cores for fp16 sum in fp32.
    """

    slug: str
    name: str
    arch: str
    sms: int
    boost_mhz: float
    fp32_tflops: float
    tf32_tflops: float
    fp16_tensor_tflops: float
    int8_tensor_tops: float
    fp8_tensor_tflops: float
    bandwidth_gbs: float
    l2_mb: float
    memory_gb: float
    power_w: float
    source: str

    @property
    def architecture(self) -> Architecture:
        """What holds for every GPU of its kind. Raises `Unsupported` for one that kernels here are not made for."""
        return architecture(self.arch)

    @property
    def family(self) -> Family:
        """What else is built alike."""
        return self.architecture.family

    @property
    def peaks(self) -> Peaks:
        """Its rates by the data sheet, which gives none for L2; fp16 without tensor cores counts as unknown."""
        rates = {
            "copy_gbs": self.bandwidth_gbs,
            "fp32_tflops": self.fp32_tflops,
            "tf32_tflops": self.tf32_tflops,
            "f16_tflops": self.fp16_tensor_tflops,
            "l2_bytes": self.l2_mb * 2**20,
        }
        return Peaks(**{name: rate for name, rate in rates.items() if not math.isnan(rate)})  # type: ignore[arg-type]

    @property
    def clock_ghz(self) -> float:
        """Boost clock."""
        return self.boost_mhz / 1e3

    @property
    def issue(self) -> float:
        """Instructions of a lane per nanosecond that its schedulers can issue."""
        return self.sms * SCHEDULERS * LANES * self.clock_ghz

    @property
    def loads(self) -> float:
        """The same of its loads from L1 or shared memory, four bytes each."""
        return self.sms * self.architecture.l1_clock_bytes * self.clock_ghz

    @property
    def sustained(self) -> float:
        """Share of the peak that its tensor cores keep up within its power."""
        octaves = math.log2(self.power_w / max(self.rate("f16"), 1.0) / AT_WATTS)
        return min(max(SUSTAINED + PER_OCTAVE * octaves, 0.3), 1.0)

    def rate(self, math_class: str) -> float:
        """Of `f32`, `tf32`, `f16`, `bf16`, `i8`, `f8` or `f16_sums` (fp16 summed in fp16); 0 where there is none."""
        rate = {
            "f32": self.fp32_tflops,
            "tf32": self.tf32_tflops,
            "i8": self.int8_tensor_tops,
            "f8": self.fp8_tensor_tflops,
        }.get(math_class, self.fp16_tensor_tflops)
        doubled = math_class == "f16_sums" and "geforce" in self.slug  # GeForce halves the rate of fp32 sums
        return 0.0 if math.isnan(rate) else rate * (2 if doubled else 1)


@cache
def data_sheets() -> dict[str, Gpu]:
    """Every GPU of `datasets/gpus.csv` by slug, in its order. Raises `Unsupported` where that is missing."""
    path = paths.datasets() / "gpus.csv"
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except OSError:
        raise Unsupported(f"{path}: the peaks of the GPUs are missing") from None
    texts = {"slug", "name", "arch", "source"}
    rows = [{name: one if name in texts else float(one or "nan") for name, one in line.items()} for line in lines]
    return {str(row["slug"]): Gpu(**{**row, "sms": int(row["sms"])}) for row in rows}  # type: ignore[arg-type]


@cache
def gpus() -> dict[str, Gpu]:
    """Those that kernels here are made for, by slug: the table of architectures has theirs."""
    return {slug: one for slug, one in data_sheets().items() if one.arch in ARCHITECTURES}


def generation(slug: str) -> float:
    """The number of its architecture, 90 for `sm_90`; infinity for a GPU that is not listed."""
    found = data_sheets().get(slug)
    return math.inf if found is None else number(found.arch)


def sheet_peaks(slug: str) -> Peaks:
    """The data sheet's rates of that slug; none of a GPU that is not listed."""
    found = data_sheets().get(slug)
    return Peaks() if found is None else found.peaks


def named(name: str, slugs: Iterable[str]) -> list[str]:
    """The slug of that name, or those with all of its words: `H100`, `rtx 4090`, `RTX4090`, `a100-80`."""
    known = list(slugs)
    words = set(re.split(r"[\s_-]+", name.strip().lower())) - {""}
    return [name] if name in known else [slug for slug in known if words and words <= _words(slug)]


def _words(slug: str) -> set[str]:
    """What a slug is asked by: its words, two or more of them run together, and gigabytes without their unit."""
    parts = slug.split("-")
    joined = {"".join(parts[at:end]) for at in range(len(parts)) for end in range(at + 1, len(parts) + 1)}
    return joined | {part.removesuffix("gb") for part in parts}


def like(name: str) -> list[str]:
    """Slugs that may have been meant by a name that has none, at most three: those with the nearest number, of letters
    that are the same or begin later (`gb200`: `b200`)."""
    known = {word: slug for slug in reversed([*gpus()]) for word in sorted(_words(slug))}
    found: list[str] = []
    for one in re.split(r"[\s_-]+", name.lower()):
        letters = re.match(r"[a-z]*", one)[0]  # type: ignore[index]
        for word in difflib.get_close_matches(one, known, 9, 0.6) if re.search(r"\d", one) else ():
            of_word = re.match(r"[a-z]*", word)[0]  # type: ignore[index]
            if re.search(r"\d", word) and letters.endswith(of_word) and bool(letters) == bool(of_word):
                found.append(known[word])
    return list(dict.fromkeys(found))[:3]


def meant(name: str) -> str:
    """What follows a refusal of that name: the nearest there are."""
    found = like(name)
    return f": did you mean {' or '.join(found)}?" if found else "; its first column has the names"


def gpu(name: str) -> Gpu:
    """The GPU of that name (`named`), the first in the table where several have it.

    Raises `Unsupported` naming the nearest.
    """
    if hits := named(name, gpus()):
        return gpus()[hits[0]]
    raise Unsupported(f"no GPU '{name}' is in datasets/gpus.csv{meant(name)}")
