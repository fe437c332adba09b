"""`reports/index.html`: one self-contained page over every recorded experiment, made from the records alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup, escape

from nnzbench import paths
from nnzbench.claims import verdicts as claims
from nnzbench.claims.verdicts import Verdict
from nnzbench.facts.results import load, percent
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.records.files import records_file
from nnzbench.records.record import RecordError
from nnzbench.report.data import context
from nnzbench.report.text.rendering import environment
from nnzbench.site.index import answer as html_answer
from nnzbench.site.index import data as html_data
from nnzbench.site.index.data import Recorded
from nnzbench.site.index.looks import THEME

NAME = "index.html"
GENERATIONS = "generations"
"""Folder of the page that compares GPUs."""
STATIC = files("nnzbench.report") / "static"
SCRIPTS = ("d3.min.js", "plot.umd.min.js", "plots.js", "layer.js", "asked.js", "index.js")
"""In the order in which they need each other."""


@dataclass(frozen=True)
class Covered:
    """One experiment in the list of pages: its recordings, none for what is not recorded yet."""

    name: str
    title: str
    paper: str
    figure: str
    pages: tuple[tuple[str, str, str, str, str], ...]
    """GPU, folder relative to the page, date and number of rows."""
    refused: tuple[str, ...]
    """GPUs whose records are there and can't be read."""
    beside: bool
    """Whether it has a page that needs no GPU, in a folder of its name."""


def write(
    reports: Path,
    names: Sequence[str],
    found: Mapping[str, Sequence[Path]],
    judged: Mapping[str, Sequence[Verdict]] = MappingProxyType({}),
) -> Path:
    """Writes `index.html` in `reports` from the folders `found` per experiment; `names` are all that could be there.

    `judged` has the claims of GPUs that are judged already; others are judged here.

    A folder whose records break the schema is named on the page as refused: `nnzbench report` of it tells why.
    """
    order = [*names, *sorted(set(found) - set(names))]
    recorded, refused = [], []
    for name in order:
        for folder in found.get(name, ()):
            try:
                results = load(folder)
                recorded.append(Recorded(results, html_data.tabulate(results)))
            except RecordError:
                refused.append((name, folder.parent.name))
    # claims draw on several experiments of a GPU, so all of its records must be sound
    sound = sorted({one.results.gpu for one in recorded} - {gpu for _, gpu in refused})
    verdicts = {gpu: judged[gpu] if gpu in judged else claims.judge(reports, gpu) for gpu in sound}
    path = reports / NAME
    beside = [name for name in (*order, GENERATIONS) if (reports / name / "README.md").is_file()]
    paths.write_text(path, render(recorded, order, refused, verdicts, beside))
    return path


def render(
    recorded: Sequence[Recorded],
    names: Sequence[str],
    refused: Sequence[tuple[str, str]] = (),
    verdicts: Mapping[str, Sequence[Verdict]] | None = None,
    beside: Sequence[str] = (),
) -> str:
    """The whole page. Equal records give equal bytes.

    `refused` are experiments and GPUs that can't be drawn, `verdicts` the claims as judged per GPU,
    `beside` the folders of pages that belong to no single GPU.
    """
    templates = environment(autoescape=True)
    templates.filters["percent"] = percent
    templates.filters["code"] = _code
    templates.globals["show"] = claims.show
    data = html_data.collect(recorded)
    answers = [
        found
        for one in recorded
        if one.results.experiment in html_answer.EXPERIMENTS
        and (found := html_answer.answer(one.results, one.table)).rows  # none without a rival's rows
    ]
    return templates.get_template("index.html.j2").render(
        answers=answers,
        rule=html_answer.RULE,
        answered_by=next(iter(html_answer.EXPERIMENTS)),
        level=html_answer.QUESTION_LEVEL,
        covered=[_covered(name, recorded, refused, name in beside) for name in names],
        generations=GENERATIONS if GENERATIONS in beside else "",
        gpus=_gpus(recorded),
        judged=[_judged(slug, found, recorded) for slug, found in (verdicts or {}).items()],
        policies=context.POLICIES,
        theme=THEME,
        series=data["series"],
        data=Markup(html_data.encode(data)),
        style=_static("index.css"),
        scripts=[_static(name) for name in SCRIPTS],
        licences=STATIC.joinpath("LICENSES.txt").read_text(encoding="utf-8"),
    )


def _static(name: str) -> Markup:
    """A file of the package as it stands; none holds the end of its own element."""
    return Markup(STATIC.joinpath(name).read_text(encoding="utf-8"))


def _covered(name: str, recorded: Sequence[Recorded], refused: Sequence[tuple[str, str]], beside: bool) -> Covered:
    known = EXPERIMENTS.get(name)
    mine = [one.results for one in recorded if one.results.experiment == name]
    return Covered(
        name=name,
        title=known.title if known else "",
        paper=known.paper if known else "",
        figure=known.figure if known else "",
        pages=tuple(
            (
                context.gpu_name(results.gpu, results.environment),
                "/".join(results.folder.parts[-2:]),
                context.recorded_on(results.environment),
                f"{len(results.frame):,}",
                records_file(results.folder).name,
            )
            for results in mine
        ),
        refused=tuple(context.gpu_name(slug, {}) for experiment, slug in refused if experiment == name),
        beside=beside,
    )


def _judged(slug: str, verdicts: Sequence[Verdict], recorded: Sequence[Recorded]) -> dict[str, Any]:
    """The claims of one GPU by paper, and how often each verdict was reached."""
    papers: dict[str, list[Verdict]] = {}
    for one in verdicts:
        papers.setdefault(one.paper, []).append(one)
    counts = Counter(one.verdict for one in verdicts)
    name = next(context.gpu_name(slug, one.results.environment) for one in recorded if one.results.gpu == slug)
    return {"gpu": name, "slug": slug, "papers": papers, "counts": [(word, counts[word]) for word in claims.WORDS]}


def _code(text: str) -> Markup:
    """Escaped text with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _gpus(recorded: Sequence[Recorded]) -> list[dict[str, Any]]:
    """Per GPU what its last recording ran on."""
    last = {one.results.gpu: one.results for one in recorded}
    wanted = {"gpu.driver": "driver", "software.cuda_runtime": "CUDA runtime", "software.cublas": "cuBLAS",
              "software.cudnn": "cuDNN", "software.cusparse": "cuSPARSE", "gpu.sms": "multiprocessors",
              "peaks.copy_gbs": "device copy (GB/s)", "peaks.l2_gbs": "L2 reads (GB/s)",
              "peaks.fp32_tflops": "fp32 (TFLOP/s)", "peaks.tf32_tflops": "TF32 tensor cores (TFLOP/s)",
              "peaks.f16_tflops": "fp16 tensor cores (TFLOP/s)", "peaks.floor_hot_us": "empty kernel, hot (µs)",
              "peaks.floor_cold_us": "empty kernel, cold (µs)"}  # fmt: skip
    out = []
    for slug, results in last.items():
        facts = dict(context.facts(results.environment))
        lines = [(word, _tidy(facts[name])) for name, word in wanted.items() if name in facts]
        lines.append(("measured by the code of", context.commit(results.environment)))
        out.append({"name": context.gpu_name(slug, results.environment), "slug": slug, "facts": lines})
    return out


def _tidy(text: str) -> str:
    """Long measured numbers to four digits; versions and counts as they are."""
    whole, _, digits = text.partition(".")
    return f"{float(text):.4g}" if whole.isdigit() and digits.isdigit() and len(digits) > 3 else text
