"""`reports/prediction/`: how far the prediction is off, GPU by GPU, kernel by kernel and size by size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from nnzbench.core import paths
from nnzbench.core.gpus import gpus
from nnzbench.kernels.registry import about, known
from nnzbench.papers.predict import holdouts, launching, published
from nnzbench.papers.predict.holdouts import AIM, AIM_CALIBRATED, AIMS, ASKED, CALIBRATION, DRAWS, INSIDE
from nnzbench.report.published import read
from nnzbench.report.text import GAP, environment, markdown, number, share
from nnzbench.results.records.folder import folders
from nnzbench.results.result_set import each, load
from nnzbench.results.selector import MATHS

FOLDER = "prediction"
TITLES = {
    holdouts.PRODUCTS: "Dense and 2:4 products, six GPUs as published, others as recorded",
    holdouts.STRATA: "Sputnik, cuSPARSE and cuBLAS over pruned matrices, four GPUs",
    holdouts.MATRICES: "The same, matrix by matrix",
    holdouts.PAIRS: "Records of this suite, H100 and H200 to each other",
    holdouts.PROGRAMS: "Records of this suite to the four GPUs",
}
LONG_US = 100.0
"""Of published times, from which on a launch is no more than a twentieth."""
BANDS = (64, 256, 1024, 4096, math.inf)


def write(reports: Path, found: pd.DataFrame) -> Path:
    """Writes `<reports>/prediction/README.md` and `errors.csv`; errors matrix by matrix stay where `found` has none."""
    folder = reports / FOLDER
    found = pd.concat([found, _kept(folder / "errors.csv", found)])
    places = {data: at for at, data in enumerate(TITLES)}
    order = found["data"].map(lambda data: places.get(data, len(places)))
    found = found.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    paths.write_csv(found, folder / "errors.csv")
    text = (
        environment()
        .get_template("prediction.md.j2")
        .render(
            answer=_answer(found),
            calibration=CALIBRATION,
            draws=DRAWS,
            asked=share(ASKED),
            aims=[share(aim) for aim in (AIMS["cublas"], AIM, AIM_CALIBRATED)],
            summary=_summary(found),
            by_size=_by_size(reports),
            programs=_programs(reports),
            parts=[
                (TITLES.get(str(data), str(data)), _table(rows)) for data, rows in found.groupby("data", sort=False)
            ],
        )
    )
    path = folder / "README.md"
    paths.write_text(path, text)
    return path


def _kept(path: Path, found: pd.DataFrame) -> pd.DataFrame:
    """What only the file of single matrices can tell, from the last time that it was at hand."""
    if not path.is_file() or (found["data"] == holdouts.MATRICES).any():
        return found.iloc[:0]
    before = pd.read_csv(path)
    return before[before["data"] == holdouts.MATRICES].reindex(columns=found.columns)


def _answer(found: pd.DataFrame) -> str:
    """How many hold-outs meet their aim, and how many times lie inside their error bars."""
    lines = []
    for calibration, words in ((0, "Without any time of the target"), (CALIBRATION, f"With {CALIBRATION} problems")):
        rows = found[(found["calibration"] == calibration) & found["mean"].notna()]
        met = int((rows["mean"] <= rows["aim"]).sum())
        inside = np.average(rows["inside"], weights=rows["count"]) if len(rows) else math.nan
        lines.append(
            f"{words} {met} of {len(rows)} hold-outs meet their aim; **{share(inside)}** of the times lie inside "
            f"their error bar (aim {share(INSIDE)})."
        )
    pairs = found[(found["data"] == holdouts.PAIRS) & (found["calibration"] == 0)]
    for target, rows in pairs.groupby("target", sort=False):
        off, inside = (np.average(rows[name], weights=rows["count"]) for name in ("mean", "inside"))
        lines.append(
            f"Times recorded on {target}, told from those recorded on the other of the two GPUs, are off by "
            f"**{100 * off:.1f} %** in the mean ({rows['count'].sum()} times; {share(inside)} inside)."
        )
    return " ".join(lines)


def _summary(found: pd.DataFrame) -> str:
    """A line per kernel and arithmetic: the mean over the GPUs held out."""
    keys = ["data", "kernel", "math"]
    lines = []
    for key, rows in found.groupby(keys, sort=False):
        data, kernel, math_class = map(str, key)
        by = dict(iter(rows.groupby("calibration")))
        alone, helped = by.get(0, rows.iloc[:0]), by.get(CALIBRATION, rows.iloc[:0])
        worst = next(each(alone.sort_values("mean", ascending=False, kind="stable")))
        lines.append(
            [
                *(TITLES.get(data, data), _kernel(kernel), _math(math_class), str(len(alone))),
                *(f"**{share(alone['mean'].mean())}**", share(alone["aim"].iloc[0])),
                f"{worst.target}: {share(worst.mean)}",
                *(share(alone["inside"].mean()), share(helped["mean"].mean()), share(helped["inside"].mean())),
            ]
        )
    header = ["", "kernel", "arithmetic", "GPUs", "mean error", "aim", "worst", "inside bar", f"with {CALIBRATION}"]
    return markdown([*header, "inside bar"], lines, left=3)


def _by_size(reports: Path) -> str:
    """Products: bias and mean error by arithmetic, GPU and tokens."""
    lines = []
    for sparse in (False, True):
        every = holdouts.products_and_records(reports, sparse)
        every = every.assign(band=pd.cut(every["n"], [0, *BANDS], labels=False))
        for (math_class, slug), rows in every.groupby(["math", "gpu"], sort=False):
            cells = []
            for band in range(len(BANDS)):
                off = rows.loc[rows["band"] == band, "off"]
                mean = np.abs(np.expm1(off)).mean()
                cells.append(f"{number(math.exp(off.mean()))} ({share(mean)})" if len(off) else GAP)
            lines.append(["2:4" if sparse else "dense", _math(str(math_class)), gpus()[str(slug)].name, *cells])
    heads = [f"to {band:,} tokens" if band < math.inf else "more" for band in BANDS]
    return markdown(["", "arithmetic", "GPU", *heads], lines, left=3)


def _programs(reports: Path) -> dict[str, object] | None:
    """What tells the published programs from the recorded ones, in numbers of records and of what was published."""
    found = holdouts.programs(reports, "sputnik")
    if found is None:
        return None
    long = found["us"] > LONG_US
    factor, slow, fast = (number(math.exp(-found.loc[rows, "raw"].mean())) for rows in (long | ~long, long, ~long))
    printed = read("sputnik_table1_dataset", ("kernel", "precision", "peak_tflops"))
    spmm = printed[printed["kernel"] == "spmm"]
    most = dict(zip(spmm["precision"], spmm["peak_tflops"], strict=True))
    return {
        "factor": factor,
        "long_us": f"{LONG_US:g}",
        "slow": slow,
        "fast": fast,
        "peaks": [(MATHS[one], number(most[one]), number(us)) for one, us in _most_tflops(reports).items()],
        "sums32": _of_peak("f16"),
        "sums16": _of_peak("f16_sums"),
        "cublas": number(math.exp(holdouts.programs(reports, "cublas")["raw"].mean())),  # type: ignore[index]
        "launched": list(_launched(reports)),
        "methods": [
            (str(method).replace("_", " "), number(math.exp(-raw.mean())))
            for method, raw in found["raw"].groupby(found["problem"].str.partition(" ")[0])
        ],
    }


def _launched(reports: Path) -> Iterator[dict[str, str]]:
    """GPU by GPU: what a pair of events around each launch adds, and what the published programs do otherwise."""
    for slug, table in launching.tables(reports):
        pair, longer = launching.over(table, ("sputnik", "pair"), ("sputnik", "hot"))
        told = {"gpu": gpus()[slug].name if slug in gpus() else slug, "slug": slug}
        told |= {"matrices": str(table["problem"].nunique()), "pair": number(pair), "longer": number(longer)}
        both = launching.over(table, ("sputnik_unsorted", "hot"), ("sputnik", "hot"))[0]
        for new, old in launching.CHANGES:
            told[new] = number(launching.over(table, (new, "hot"), (old, "hot"))[0])
        yield told | {"both": number(both)}


def _of_peak(math_class: str) -> str:
    """The largest share of the rate of that arithmetic in the published means of cuBLAS, GPU by GPU."""
    rows = published.strata("cublas")
    rows["tflops"] = rows["flops"] / (rows["us"] - rows["launch_us"]) * 1e-6
    most = {gpus()[str(slug)]: float(some.max()) for slug, some in rows.groupby("gpu", sort=False)["tflops"]}
    return ", ".join(f"{share(value / gpu.rate(math_class))} ({gpu.name})" for gpu, value in most.items())


def _most_tflops(reports: Path) -> dict[str, float]:
    """By arithmetic: the most that `sputnik` was recorded at over its collection, by the rates of a V100."""
    target = gpus()[published.FOUR["V100"]]
    found: dict[str, float] = {}
    for folder in folders(reports, "*/sputnik_dlmc"):
        if (source := gpus().get(folder.parent.name)) is None:
            continue
        rows = load(folder).frame
        rows = rows[(rows["kernel"] == "sputnik") & (rows["op"] == "spmm") & (rows["policy"] == "hot")]
        rows = rows[rows["variant"].str.startswith("heuristic")]
        rate = math.sqrt(target.issue * target.loads / (source.issue * source.loads))
        for one in ("f32", "f16"):
            mine = rows[(rows["dtype"] == one) & rows["median_us"].notna()]
            if len(mine):
                found[one] = rate * float((mine["flops"] / mine["median_us"]).max()) * 1e-6
    return found


def _table(rows: pd.DataFrame) -> str:
    lines = [
        [
            *(_kernel(row.kernel), _math(row.math), row.target),
            f"with {row.calibration} problems" if row.calibration else "",
            str(row.judged),
            *(f"**{share(row.mean)}**", share(row.p90), number(row.bias)),
            *(f"± {share(row.within)}", share(row.inside), share(row.aim)),
        ]
        for row in each(rows.rename(columns={"count": "judged"}))
    ]
    header = ["kernel", "arithmetic", "held out", "", "times", "mean error", "9 in 10 below", "bias", "error bar"]
    return markdown([*header, "inside", "aim"], lines, left=4)


def _kernel(name: str) -> str:
    return about(name).label or name if name in known() else name


def _math(math_class: str) -> str:
    return "fp16, summed in fp16" if math_class == "f16_sums" else MATHS.get(math_class, math_class)
