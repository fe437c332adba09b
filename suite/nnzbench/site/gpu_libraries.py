"""`<gpu>/devices/`: whether CuPy, PyCUDA and cuda.core give the same bits and the same times, from `times.csv`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.core import paths
from nnzbench.report.text import GAP, commit, document, folded, gpu_name, markdown, number, recorded_on
from nnzbench.results.crossover import times_as_fast
from nnzbench.results.records import sanitise
from nnzbench.results.records.beside import Table
from nnzbench.results.records.folder import refuse_links
from nnzbench.results.result_set import each, geometric_mean, read_environment

FOLDER = "devices"
PROGRAM = ["kernel", "op", "inputs", "problem", "variant"]
INTRO = """\
Each program once per library in turn, and again in {order} order: the same cubin, inputs and timing policies.
*Between libraries* is the slowest library's time over the fastest's, each library's the geometric mean of its rounds.
*Repeated* is the most by which two measurements through one library differ: what the comparison can't see through.
Digests of cubins and of results, and all quartiles, are in `times.csv`."""


@dataclass(frozen=True)
class Timing:
    """One measurement; digests tell whether programs and results are the same to the bit. Raises `ValueError`."""

    kernel: str
    op: str
    inputs: str
    problem: str
    variant: str
    library: str
    round: int
    cubin: str
    bits: str
    policy: str
    median_us: float
    q1_us: float
    q3_us: float

    def __post_init__(self) -> None:
        if not self.median_us > 0:
            raise ValueError("a time is missing")


TIMES = Table("times.csv", Timing, "a table of times", ".6g")
"""Of `gpu_studies.py devices`."""


def write(reports: Path, gpu: str) -> Path | None:
    """Writes `<reports>/<gpu>/devices/README.md` where there are measurements; `RecordError` for a damaged file."""
    folder = reports / gpu / FOLDER
    refuse_links(folder, folder.parent)
    rows = pd.DataFrame(map(vars, TIMES.read(folder)))
    if rows.empty:
        return None
    path = folder / "README.md"
    paths.write_text(path, page(sanitise.frame(rows), gpu, read_environment(folder, "environment.json")))
    return path


def spreads(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per program and policy: each library's time, `between` and `repeated` (ratios minus 1)."""
    lines = []
    for key, mine in rows.groupby([*PROGRAM, "policy"], sort=False):
        rounds = {str(name): some["median_us"] for name, some in mine.groupby("library", sort=False)}
        means = {name: geometric_mean(some) for name, some in rounds.items()}
        between = times_as_fast(min(means.values()), max(means.values())) - 1
        repeated = max(times_as_fast(some.min(), some.max()) for some in rounds.values()) - 1
        lines.append({**dict(zip([*PROGRAM, "policy"], key, strict=True)), **means})
        lines[-1] |= {"between": between, "repeated": repeated}
    return pd.DataFrame(lines)


def page(rows: pd.DataFrame, gpu: str, snapshot: dict[str, Any]) -> str:
    """Markdown."""
    found = spreads(rows)
    libraries = list(dict.fromkeys(rows["library"]))
    programs = rows.drop_duplicates(PROGRAM)
    same = rows.groupby(PROGRAM, sort=False)[["cubin", "bits"]].nunique().eq(1).all(axis=1).reset_index(name="equal")
    differ = [f"{row.kernel} ({row.op}, {row.inputs})" for row in each(same[~same["equal"]])]
    bits = "all of them" if not differ else f"all but {', '.join(differ)}"
    turns = [list(dict.fromkeys(rows.loc[rows["round"] == number, "library"])) for number in (1, 2)]
    return document(
        f"# The GPU's libraries side by side on {gpu_name(gpu, snapshot)}",
        f"**{len(programs)} programs of {programs['kernel'].nunique()} kernels through {', '.join(libraries)}: same "
        f"cubin and same bits for {bits}.**",
        *(_finding(found[found["policy"] == policy], policy, libraries) for policy in dict.fromkeys(found["policy"])),
        INTRO.format(order="the same" if turns[0] == turns[1] else "the other"),
        *(_table(found[found["policy"] == policy], policy, libraries) for policy in dict.fromkeys(found["policy"])),
        f"Measured {recorded_on(snapshot) or GAP} by {commit(snapshot)}. Again, on a GPU: "
        "`python runners/gpu_studies.py devices`.",
    )


def _finding(found: pd.DataFrame, policy: str, libraries: list[str]) -> str:
    """The libraries in the mean; typical, rare and largest difference, beside what repeating alone differs by."""
    told = [
        ", ".join(f"{100 * found[column].quantile(q):.1f} %" for q in (0.5, 0.9, 1.0))
        for column in ("between", "repeated")
    ]
    noise = float(found["repeated"].max())
    beyond = found[found["between"] > noise]
    names = ", ".join(f"{row.kernel} {row.op} {row.inputs} ({100 * row.between:.1f} %)" for row in each(beyond))
    more = f": {names}." if names else "."
    first, *others = libraries
    means = {name: geometric_mean(found[name]) for name in libraries}
    by = [f"{name} {100 * (times_as_fast(means[first], means[name]) - 1):+.1f} %" for name in others]
    return (
        f"{policy.capitalize()}: against {first}, in the geometric mean, {', '.join(by)}. Between libraries the times "
        f"of a program differ by {told[0]} (median, 9 in 10 below, most); repeated "
        f"through one library, by {told[1]}. {len(beyond)} of {len(found)} programs differ by more than the largest "
        f"repetition did{more}"
    )


def _table(found: pd.DataFrame, policy: str, libraries: list[str]) -> str:
    lines = [
        [
            *(row["kernel"], row["op"], row["inputs"], f"`{row['variant']}`"),
            *(number(row[name]) for name in libraries),
            *(f"{100 * row[name]:.1f} %" for name in ("between", "repeated")),
        ]
        for row in found.to_dict("records")
    ]
    header = ["kernel", "op", "inputs", "program", *(f"{name} (µs)" for name in libraries), "between", "repeated"]
    return folded(markdown(header, lines, left=4), f"Every program, {policy}")
