"""`reports/prediction/`: how far the prediction is off, GPU by GPU and kernel by kernel."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import each
from nnzbench.predict.holdouts import CALIBRATION, DRAWS
from nnzbench.predict.model import FLOORS
from nnzbench.report.text.tables import GAP, folded, markdown, number

FOLDER = "prediction"
TITLES = {
    "strata": "Means of 28 strata of those matrices, four GPUs",
    "matrices": "Matrix by matrix, four GPUs",
}
"""In the page's order, whatever was computed this time; what has no title follows."""
INTRO = f"""\
`nnzbench predict EXPERIMENT --gpu NAME` tells an experiment's times on a GPU from the records of another. This page
says how far it is off on numbers that it has not seen. Errors are |predicted / published - 1|: their mean, and what
nine in ten stay below.

* **Without calibration** nothing but the cost of a launch is known of the target beside its data sheet: what a time
  has above it shrinks, for a sparse kernel, with the geometric mean of the rates of issue slots and of loads from L1,
  and for a dense one with the rate of its arithmetic or of memory. No constant is fitted.
* **With {CALIBRATION} problems** measured on the target too, a power law of the source's times, times powers of
  nonzeros, rows and columns that are held near 0; over {DRAWS} draws, judged on what each leaves out.
* **Refused** is what would take less than {FLOORS:g} times the cost of a launch on the target: mostly launch, not
  work.
* **Bias** is the geometric mean of predicted over published: an error that is all bias is one factor too much or too
  little, which calibration removes.
* **Bar**: 20 % without calibration; with it, what a power law reaches over all 2,662 published matrices.

Read the errors without calibration with this in mind: no number was fitted, but the form of the sparse law was chosen
with these four GPUs' Sputnik times in view (issue slots alone are off by 25 to 44 % to and from the RTX 2080 Ti, whose
L1 cache loads half as much in a clock), and so was the weight that holds the powers of sizes near 0. The papers' GPUs
below had no part in it.

From this suite's records to the four GPUs Sputnik's error is mostly bias, of nearly the same factor on all four: what
differs is less the GPUs than the programs. The published Sputnik is its authors' in fp16, timed one launch at a time;
the recorded one is this suite's, timed in a graph.

The four GPUs' times are not of this project: published with SSpMM (GitHub `xuezy-mmi/SSpMM`), one pair of events
around each launch. Their cost of a launch is taken from their own fastest time. Single matrices are not republished
here, their means are; errors *matrix by matrix* are computed from their file (`nnzbench fit predictions --matrices
FILE`), all others from what is in this repository. A paper's numbers are of the authors' programs and
software of that time, where records are of this suite's kernels: such an error is of both. Sputnik's own tables print
geometric means over an older cuSPARSE, and no times: between two sparse kernels this model's ratio does not change,
so they judge nothing.
"""


def write(reports: Path, found: pd.DataFrame) -> Path:
    """Writes `<reports>/prediction/README.md` and `errors.csv`; errors matrix by matrix stay where `found` has none."""
    folder = reports / FOLDER
    places = {data: at for at, data in enumerate(TITLES)}
    found = pd.concat([found, _kept(folder / "errors.csv", found)])
    order = found["data"].map(lambda data: places.get(data, len(places)))
    found = found.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    parts = ["# How far predictions are off", _answer(found), INTRO.rstrip()]
    for data in dict.fromkeys(found["data"]):
        parts += [f"## {TITLES.get(data, data)}", folded(_table(found[found["data"] == data]), "Errors")]
    paths.write_csv(found, folder / "errors.csv")
    path = folder / "README.md"
    paths.write_text(path, "\n\n".join(parts) + "\n")
    return path


def _kept(path: Path, found: pd.DataFrame) -> pd.DataFrame:
    """What only the file of single matrices can tell, from the last time that it was at hand."""
    if not path.is_file() or (found["data"] == "matrices").any():
        return found.iloc[:0]
    before = pd.read_csv(path)
    return before[before["data"] == "matrices"]


def _answer(found: pd.DataFrame) -> str:
    """What meets its bar and what does not, in one paragraph."""
    judged = found[found["bar"].notna() & found["mean"].notna()]
    missed = judged[judged["mean"] > judged["bar"]]
    lines = [f"{len(judged) - len(missed)} of {len(judged)} hold-outs that have a bar meet it."]
    for key, group in missed.groupby(["kernel", "source", "calibration", "data"], sort=False):
        kernel, source, calibration, data = key if isinstance(key, tuple) else (key,) * 4
        over = group["mean"] - group["bar"]
        lines.append(
            f"{kernel}, {source} to {', '.join(group['target'])}, {_how(int(str(calibration)))} ({data}): "
            f"{_span(100 * group['mean'], 1)} %, {_span(100 * over, 1)} points over the bar; predicted over published "
            f"is {_span(group['bias'], 2)} in the geometric mean."
        )
    worst = found[(found["calibration"] == 0) & found["bar"].isna() & (found["mean"] > 0.2)]
    names = ", ".join(sorted(set(worst["kernel"])))
    if names:
        lines.append(
            f"Without calibration, do not trust it beyond 20 % for {names}: what bounds them on these GPUs is not in "
            "the model, or the published program is another than the recorded one."
        )
    return " ".join(lines)


def _how(calibration: int) -> str:
    return f"with {calibration} problems" if calibration else "without calibration"


def _span(values: pd.Series, digits: int) -> str:
    """Smallest to largest, or the one that they are."""
    ends = dict.fromkeys(number(float(end), digits) for end in (values.min(), values.max()))
    return " to ".join(ends)


def _share(value: float) -> str:
    return GAP if math.isnan(value) else f"{100 * value:.1f} %"


def _table(rows: pd.DataFrame) -> str:
    lines = [
        [
            row.kernel,
            f"{row.source} → {row.target}",
            row.what,
            _how(row.calibration),
            str(row.count_),
            str(row.refused) if row.refused else "",
            f"**{_share(row.mean)}**",
            _share(row.p90),
            number(row.bias),
            _share(row.bar) if row.bar == row.bar else "",
        ]
        for row in each(rows.rename(columns={"count": "count_"}))
    ]
    header = ["kernel", "from → to", "of", "", "judged", "refused", "mean error", "9 in 10 below", "bias", "bar"]
    return markdown(header, lines, left=4)
