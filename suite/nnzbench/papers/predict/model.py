"""How times on some GPUs become one on another.

A time is what bounds its work, by the data sheet, times what the kernel makes of that problem. The bound (`bound`) adds
arithmetic or issue slots and bytes from memory and from L2; what a time has above its launch over that bound is taken
from GPUs that have the problem's time, those of the target's own kind before others (`transfer`). With some problems
measured on the target too, what is left follows a line in the logarithms of sizes that is held near 0 (`calibrate`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.core.gpus import Gpu, gpus
from nnzbench.data.problems.experiment import WARM

Floats = NDArray[np.float64]
Work = Any
"""Rows with columns by name: a DataFrame, or NumPy's records, which are faster where there are few."""
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


def alike(one: Gpu, other: Gpu) -> float:
    """Weight of one GPU's times for the other's."""
    return ALIKE["arch" if one.arch == other.arch else "family" if one.family == other.family else ""]


def bound(work: pd.DataFrame, gpu: Gpu, policy: str = "hot") -> Floats:
    """Least microseconds of each row of `work` on a GPU, one entry a row; infinity for arithmetic that it lacks.

    Columns: `kind` (`dense` or `sparse`), `math`, `flops` executed, `bytes` moved once, `m` and `n`. Hot operands come
    from L2 as far as they fit, others from memory.
    """
    flops, moved, m, n = (work[name].to_numpy(float) for name in ("flops", "bytes", "m", "n"))
    in_l2 = np.clip(1.5 - moved / (gpu.l2_mb * 1e6), 0, 1) * (policy in WARM)
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


def carried(us: Floats, launch_us: Floats | float, work: pd.DataFrame, source: Gpu, target: Gpu, policy: str) -> Floats:
    """Times on one GPU as those of another: what is above the launch over the bound of the one, by that of the other.

    A launch costs as much on both. Infinity for arithmetic that the target lacks.
    """
    working = np.maximum(us - launch_us, LEAST * us)
    found: Floats = working / bound(work, source, policy) * bound(work, target, policy) + launch_us
    return found


def transfer(times: pd.DataFrame, target: Gpu, launch_us: float | None = None) -> pd.Series[float]:
    """Microseconds on `target` by `problem`, from the times (`us`) of other GPUs (`gpu`, a slug) in rows as of `bound`.

    Rows of the target itself are not looked at. `launch_us` of its launches; None for the mean of the others.
    """
    known = times[times["gpu"] != target.slug]
    parts = []
    for slug, rows in known.groupby("gpu", sort=False):
        source = gpus()[str(slug)]
        us, launch = rows["us"].to_numpy(float), rows["launch_us"].to_numpy(float)
        over = np.log(np.maximum(us - launch, LEAST * us) / bound(rows, source))
        weight = np.where(rows["kind"] == "dense", alike(source, target), 1.0)
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
