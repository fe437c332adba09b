"""`reports/index.html`: one self-contained page over every recorded experiment, made from the records alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup, escape

from nnzbench.advise import grid
from nnzbench.core import paths
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.papers.claims import page as claims_page
from nnzbench.papers.nnzbench import decoder_block
from nnzbench.report import render as pages
from nnzbench.report.draw.maps import COLOURS, STEPS
from nnzbench.report.page import Page, View
from nnzbench.report.tables import MARK
from nnzbench.report.text import GAP, POLICIES, commit, environment, gpu_name, recorded_on
from nnzbench.results import nearby, table
from nnzbench.results.records.folder import records_file
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import ResultSet, load
from nnzbench.site.generations.page import FOLDER as GENERATIONS
from nnzbench.site.index import data as html_data
from nnzbench.site.index.data import THEME
from nnzbench.site.index.headlines import LAYERS, Answer, answer

NAME = "index.html"
STATIC = files("nnzbench.report") / "static"
SCRIPTS = ("d3.min.js", "plot.umd.min.js", "plots.js", "asked.js", "map.js", "index.js")
"""In the order in which they need each other."""


class Entry(NamedTuple):
    """What the page says of one experiment on one GPU."""

    folder: Path
    environment: dict[str, Any]
    rows: int
    models: dict[str, Any] | None
    answer: Answer | None
    part: html_data.Part | None

    @property
    def gpu(self) -> str:
        return self.folder.parent.name

    @property
    def experiment(self) -> str:
        return self.folder.name


def entry(page: Page, view: View) -> Entry:
    """Of a page that is drawn already, whose times are at hand."""
    results = view.results
    told = _models(results), answer(page, view), html_data.part(page, view)
    return Entry(results.folder, results.environment, len(results.frame), *told)


def entry_of(folder: Path) -> Entry | None:
    """The same of a folder; None where its records break the schema."""
    try:
        results = load(folder)
    except RecordError:
        return None
    page = page_of(results.experiment) or pages.generic(results)
    return entry(page, View(results, page.attributes))


def write(
    reports: Path,
    names: Sequence[str],
    found: Mapping[str, Sequence[Path]],
    made: Mapping[Path, Any],
    gpus: Sequence[str],
) -> Path:
    """Writes `index.html` in `reports` from the folders `found` per experiment; `names` are all that could be there.

    `made` has the entry of each, None where its records break the schema: it is named on the page as refused, and
    `nnzbench report` of it tells why; and by the folder of a GPU its estimates (`grid.of_gpu`). GPUs come in the order
    of `gpus`, others after them. The verdicts on claims are those of each GPU's `claims.csv`.
    """
    names = [*names, *sorted(set(found) - set(names))]
    recorded: list[Entry] = []
    refused: list[tuple[str, str]] = []
    for name in names:
        for folder in sorted(found.get(name, ()), key=lambda one: [*gpus, one.parent.name].index(one.parent.name)):
            if one := made[folder]:
                recorded.append(one)
            else:
                refused.append((name, folder.parent.name))
    beside = [name for name in (*names, GENERATIONS) if (reports / name / "README.md").is_file()]
    estimates = {gpu: made.get(reports / gpu, {}) for gpu in {one.gpu for one in recorded}}
    paths.write_text(reports / NAME, render(recorded, names, refused, beside, estimates))
    return reports / NAME


def render(
    recorded: Sequence[Entry],
    names: Sequence[str],
    refused: Sequence[tuple[str, str]] = (),
    beside: Sequence[str] = (),
    estimates: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The whole page. Equal records give equal bytes.

    `refused` are experiments and GPUs that can't be drawn, `beside` the folders of pages that belong to no single GPU.
    """
    templates = environment(autoescape=True)
    templates.filters |= {"inline": _inline, "measure": _measure}
    folders = {one.gpu: one.folder.parent for one in recorded}
    sound = [gpu for gpu in folders if gpu not in {slug for _, slug in refused}]
    known = {gpu: [one.environment for one in recorded if one.gpu == gpu] for gpu in folders}
    data = html_data.collect(
        [one.part for one in recorded if one.part],
        {gpu: {**html_data.gpu_of(gpu, mine), "estimates": estimates.get(gpu, {})} for gpu, mine in known.items()},
    )
    told = {(one.gpu, one.experiment): one.answer for one in recorded}
    return templates.get_template("index.html.j2").render(
        answers=[said for gpu in sound for name in LAYERS if (said := told.get((gpu, name)))],
        models=[one.models for one in recorded if one.models],
        mark=MARK,
        covered=[_covered(name, recorded, refused, name in beside) for name in names],
        generations=GENERATIONS if GENERATIONS in beside else "",
        gpus=_gpus(recorded),
        judged=[one for gpu in sound if (one := _judged(gpu, folders[gpu]))],
        together=claims_page.sentence(claims_page.read_together(recorded[0].folder.parents[1])) if recorded else "",
        policies=POLICIES,
        theme=THEME,
        data=data,
        points=f"{math.prod(map(len, (grid.SIZES, grid.SIZES, grid.WIDTHS, grid.SHARES))):,}",
        encoded=html_data.encode(data),
        map={
            "zeros": nearby.ZEROS,
            "widths": nearby.WIDTHS,
            "panels": list(dict.fromkeys(nearby.SIZES.values())),
            "colours": COLOURS,
            "steps": [f"{step:g}" for step in STEPS],
            "one": STEPS.index(1) + 1,
        },
        style=_static("index.css"),
        scripts=[_static(name) for name in SCRIPTS],
        licences=STATIC.joinpath("LICENSES.txt").read_text(encoding="utf-8"),
    )


def _static(name: str) -> Markup:
    """A file of the package as it stands; none holds the end of its own element."""
    return Markup(STATIC.joinpath(name).read_text(encoding="utf-8"))


def _covered(name: str, recorded: Sequence[Entry], refused: Sequence[tuple[str, str]], beside: bool) -> dict[str, Any]:
    """One experiment in the list of pages: its recordings, the GPUs whose records can't be read, and whether it has a
    page that needs no GPU, in a folder of its name (`beside`)."""
    known = EXPERIMENTS.get(name)
    return {
        "name": name,
        **{one: getattr(known, one, "") for one in ("title", "paper", "figure")},
        "pages": [
            (
                gpu_name(results.gpu, results.environment),
                "/".join(results.folder.parts[-2:]),
                recorded_on(results.environment),
                f"{results.rows:,}",
                records_file(results.folder).name,
                (results.folder / table.FILE).is_file(),
            )
            for results in recorded
            if results.experiment == name
        ],
        "refused": [gpu_name(slug, {}) for experiment, slug in refused if experiment == name],
        "beside": beside,
    }


def _models(results: ResultSet) -> dict[str, Any] | None:
    """What whole models do a second on a GPU, as a table; None where none is recorded."""
    found = decoder_block.by_model(results)
    gpu = gpu_name(results.gpu, results.environment)
    folder = "/".join(results.folder.parts[-2:])
    return {"gpu": gpu, "folder": folder, "table": found.to_dict("split")} if len(found) else None


def _judged(gpu: str, folder: Path) -> dict[str, Any] | None:
    """The claims of one GPU by paper as `claims.csv` has them, and how often each verdict was reached."""
    path = folder / "claims.csv"
    if not path.is_file():
        return None
    claims = pd.read_csv(path).astype(object).fillna("")
    papers = {paper: some.to_dict("records") for paper, some in claims.groupby("paper", sort=False)}
    return {"gpu": gpu_name(gpu, {}), "slug": gpu, "papers": papers, "counts": Counter(claims["verdict"])}


def _inline(text: str) -> Markup:
    """Escaped text with Markdown's code and bold as HTML."""
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", code))


def _measure(value: object, unit: str) -> str:
    """A number with its unit, `2.31×` or `71.0 %`; a dash where there is none."""
    if not isinstance(value, float | int):
        return GAP
    if unit in ("x", "%", "sparsity"):
        return (
            f"{100 * value if unit == 'sparsity' else value:.{2 if unit == 'x' else 1}f}{'×' if unit == 'x' else ' %'}"
        )
    return f"{value:,.0f} {unit}"


def _gpus(recorded: Sequence[Entry]) -> list[dict[str, Any]]:
    """Per GPU what its last recording ran on."""
    last = {one.gpu: one for one in recorded}
    wanted = {"gpu.driver": "driver", "software.cuda_runtime": "CUDA runtime", "software.cublas": "cuBLAS",
              "software.cudnn": "cuDNN", "software.cusparse": "cuSPARSE", "gpu.sms": "multiprocessors",
              "peaks.copy_gbs": "device copy (GB/s)", "peaks.l2_gbs": "L2 reads (GB/s)",
              "peaks.fp32_tflops": "fp32 (TFLOP/s)", "peaks.tf32_tflops": "TF32 tensor cores (TFLOP/s)",
              "peaks.f16_tflops": "fp16 tensor cores (TFLOP/s)", "peaks.floor_hot_us": "empty kernel, hot (µs)",
              "peaks.floor_cold_us": "empty kernel, cold (µs)"}  # fmt: skip
    out = []
    for slug, results in last.items():
        told = {name: _told(results.environment, *name.split(".")) for name in wanted}
        lines = [(word, _tidy(told[name])) for name, word in wanted.items() if told[name]]
        lines.append(("measured by the code of", commit(results.environment)))
        out.append({"name": gpu_name(slug, results.environment), "slug": slug, "facts": lines})
    return out


def _told(environment: Mapping[str, Any], table: str, name: str) -> str:
    """A value of a snapshot as text; empty where it has none."""
    found = environment.get(table)
    value = found.get(name) if isinstance(found, dict) else None
    return str(value) if isinstance(value, str | int | float) else ""


def _tidy(text: str) -> str:
    """Long measured numbers to four digits; versions and counts as they are."""
    whole, _, digits = text.partition(".")
    return f"{float(text):.4g}" if whole.isdigit() and digits.isdigit() and len(digits) > 3 else text
