"""How times on some GPUs become one on another.

A time is what bounds its work, by the data sheet, times what the kernel makes of that problem. The bound (`bound`) adds
arithmetic or issue slots and bytes from memory and from L2; what a time has above its launch over that bound is taken
from GPUs that have the problem's time, those of the target's own kind before others (`transfer`). With some problems
measured on the target too, what is left follows a line in the logarithms of sizes that is held near 0 (`calibrate`).
"""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.plans.architectures import ARCHITECTURES, Family, architecture
from nnzbench.records.record import RecordError

Floats = NDArray[np.float64]
Work = Any
"""Rows with columns by name: a DataFrame, or NumPy's records, which are faster where there are few."""
SCHEDULERS, LANES = 4, 32
"""Of an SM: warps that issue in a clock, and threads of a warp."""
SUSTAINED, PER_OCTAVE, AT_WATTS = 0.7, 0.1, 0.44
"""Share of their peak that tensor cores sustain within the power of a board, by watts per fp16 TFLOP/s: as power
limits, twice the watts give an eighth of the peak more, up to all of it."""
MEMORY, L2_CLOCK_BYTES = 0.9, 20
"""Share of the data sheet's bandwidth that reads reach, and bytes from L2 per clock and SM."""
SLOTS = 3.0
"""Issue slots of a sparse kernel per product of a lane: loads and indices beside it."""
SHARP = 2.0
"""Norm that joins what bounds: 1 would add it up, infinity take the longest."""
ROWS, COLUMNS = 4, 64
"""Of a block of a sparse kernel: blocks are dealt to SMs whole."""
LEAST = 0.1
"""Share of a time that is work, whatever a launch costs."""
ALIKE = {"arch": 9.0, "family": 6.0, "": 1.0}
"""Weight of a GPU's time by what it shares with the target."""


@dataclass(frozen=True)
class Gpu:
    """Rates of one GPU by its data sheet, at its boost clock; 1e12 operations or 1e9 bytes per second."""

    slug: str
    name: str
    arch: str
    sms: int
    clock_ghz: float
    bandwidth_gbs: float
    l2_mb: float
    power_w: float
    rates: dict[str, float] = field(hash=False)
    """Dense, by arithmetic; 0 where there is none."""

    @property
    def family(self) -> Family:
        """What else is built alike."""
        return architecture(self.arch).family

    @property
    def issue(self) -> float:
        """Instructions of a lane per nanosecond that its schedulers can issue."""
        return self.sms * SCHEDULERS * LANES * self.clock_ghz

    @property
    def loads(self) -> float:
        """The same of its loads from L1 or shared memory, four bytes each."""
        return self.sms * architecture(self.arch).l1_clock_bytes * self.clock_ghz

    @property
    def sustained(self) -> float:
        """Share of the peak that its tensor cores keep up within its power."""
        octaves = np.log2(self.power_w / max(self.rates["f16"], 1.0) / AT_WATTS)
        return float(np.clip(SUSTAINED + PER_OCTAVE * octaves, 0.3, 1.0))

    def rate(self, math: str) -> float:
        """Of arithmetic `f32`, `tf32`, `f16`, `bf16`, `i8`, `f8` or `f16_sums` (fp16 summed in fp16)."""
        doubled = 2 if math == "f16_sums" and "geforce" in self.slug else 1  # GeForce halves the rate of fp32 sums
        return doubled * self.rates["f16" if math in ("bf16", "f16_sums") else math]

    def alike(self, other: Gpu) -> float:
        """Weight of this GPU's times for the other's."""
        return ALIKE["arch" if self.arch == other.arch else "family" if self.family == other.family else ""]


_RATES = {
    "f32": "fp32_tflops",
    "tf32": "tf32_tflops",
    "f16": "fp16_tensor_tflops",
    "i8": "int8_tensor_tops",
    "f8": "fp8_tensor_tflops",
}


@functools.cache
def listed() -> dict[str, Gpu]:
    """The GPUs of `datasets/gpus.csv` that the table of architectures has, by slug."""
    table = pd.read_csv(paths.datasets() / "gpus.csv").fillna(dict.fromkeys(_RATES.values(), 0.0))
    found = {}
    for row in table[table["arch"].isin(list(ARCHITECTURES))].to_dict("records"):  # what kernels here are made for
        bandwidth, cache, power = (float(row[name]) for name in ("bandwidth_gbs", "l2_mb", "power_w"))
        who, rates = (row["slug"], row["name"], row["arch"]), {math: float(row[name]) for math, name in _RATES.items()}
        found[row["slug"]] = Gpu(*who, int(row["sms"]), row["boost_mhz"] / 1e3, bandwidth, cache, power, rates)
    return found


def gpu(name: str) -> Gpu:
    """The GPU of that slug, or the first in the table whose slug has all of its words: `H100`, `2080ti`.

    Raises `RecordError` naming those there are.
    """
    known = listed()
    words = set(re.sub(r"(?<=\d)ti\b", " ti", name.lower()).replace("-", " ").split())
    hits = [name] if name in known else [slug for slug in known if words and words <= set(slug.split("-"))]
    if hits:
        return known[hits[0]]
    near = difflib.get_close_matches(name.lower(), known, 3)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise RecordError(f"no GPU '{name}' in datasets/gpus.csv: choose from {', '.join(known)}{meant}")


def bound(work: pd.DataFrame, gpu: Gpu) -> Floats:
    """Least microseconds of each row of `work` on a GPU, one entry a row; infinity for arithmetic that it lacks.

    Columns: `kind` (`dense` or `sparse`), `math`, `flops` executed, `bytes` moved once, `m` and `n`.
    """
    flops, moved, m, n = (work[name].to_numpy(float) for name in ("flops", "bytes", "m", "n"))
    in_l2 = np.clip(1.5 - moved / (gpu.l2_mb * 1e6), 0, 1)
    memory = MEMORY * gpu.bandwidth_gbs
    moving = moved * 1e-3 * ((1 - in_l2) / memory + in_l2 / max(gpu.sms * gpu.clock_ghz * L2_CLOCK_BYTES, memory))
    rates = work["math"].map({math: gpu.rate(math) for math in work["math"].unique()}).to_numpy(float)
    cores = np.where(work["math"] == "f32", 1.0, gpu.sustained)
    with np.errstate(divide="ignore"):
        dense = flops / (rates * cores * 1e6)
    per_sm = np.ceil(m / ROWS) * np.ceil(n / COLUMNS) / gpu.sms
    sparse = flops / 2 * SLOTS * np.ceil(per_sm) / per_sm / np.sqrt(gpu.issue * gpu.loads) * 1e-3
    working = np.where(work["kind"] == "dense", dense, sparse)
    found: Floats = (working**SHARP + moving**SHARP) ** (1 / SHARP)
    return found


def transfer(times: pd.DataFrame, target: Gpu, launch_us: float | None = None) -> pd.Series[float]:
    """Microseconds on `target` by `problem`, from the times (`us`) of other GPUs (`gpu`, a slug) in rows as of `bound`.

    Rows of the target itself are not looked at. `launch_us` of its launches; None for the mean of the others.
    """
    known = times[times["gpu"] != target.slug]
    parts = []
    for slug, rows in known.groupby("gpu", sort=False):
        source = listed()[str(slug)]
        us, launch = rows["us"].to_numpy(float), rows["launch_us"].to_numpy(float)
        over = np.log(np.maximum(us - launch, LEAST * us) / bound(rows, source))
        weight = np.where(rows["kind"] == "dense", source.alike(target), 1.0)
        parts.append(pd.DataFrame({"problem": rows["problem"], "over": over, "weight": weight}))
    if not parts:
        return pd.Series(dtype=float)
    every = pd.concat(parts).assign(over=lambda table: table["over"] * table["weight"]).groupby("problem", sort=False)
    mean = every["over"].sum() / every["weight"].sum()
    own = known.drop_duplicates("problem").set_index("problem")
    added = float(own["launch_us"].mean()) if launch_us is None else launch_us
    return pd.Series(bound(own, target), index=own.index) * mean.map(np.exp) + added


FEWEST = 8
"""Calibration problems from which on a fit is tried."""
RIDGE = 2.0
"""Weight that holds the slopes in sizes near 0."""


def calibrate(predicted: Floats, work: Work, measured: Floats, rest: Floats, of_rest: Work) -> Floats:
    """What is predicted of `rest`, put right by problems measured on the target too; one entry a row of their work."""
    features, off = _features(predicted, work), np.log(measured / predicted)
    centre = features.mean(axis=0)
    weights = np.linalg.solve(
        (features - centre).T @ (features - centre) + RIDGE * np.eye(features.shape[1]),
        (features - centre).T @ (off - off.mean()),
    )
    found: Floats = rest * np.exp((_features(rest, of_rest) - centre) @ weights + off.mean())
    return found


def _features(predicted: Floats, work: Work) -> Floats:
    sizes = [np.asarray(work[name], float) for name in ("flops", "bytes", "m", "n")]
    found: Floats = np.log(np.stack([predicted, *(np.maximum(one, 1.0) for one in sizes)], axis=1))
    return found
