"""The headline in README.md: generated between two markers from the recorded runs, never typed."""

from __future__ import annotations

import re
from pathlib import Path

from nnzbench import paths
from nnzbench.report import generic
from nnzbench.report.data import context
from nnzbench.report.data.frames import load
from nnzbench.report.draw import layout
from nnzbench.report.text import baselines
from nnzbench.site.index import data as html_data

HEADLINE = re.compile(r"(<!-- nnzbench:headline -->\n).*?(<!-- /?nnzbench:headline -->)", re.DOTALL)
EXPERIMENT = "sparsert_table1"
LARGE = "sputnik_rnn"
LEVELS = (0.9, 0.95)
PREFERRED_GPU = "nvidia-h200"


def write_headline(reports: Path) -> bool:
    """Replaces the text between the markers of the README.md that lies beside `reports`; True where it changed.

    Nothing else writes outside a results folder, and it is done on an explicit word only (`nnzbench report --readme`).
    Does nothing where there is no README, no pair of markers or no recorded run.
    """
    reports = reports.resolve()
    readme = reports.parent / "README.md"
    folder = _folder(reports)
    if folder is None or not readme.is_file():
        return False
    before = readme.read_text(encoding="utf-8")
    if not HEADLINE.search(before):
        return False
    text = headline(folder)
    after = HEADLINE.sub(lambda match: f"{match[1]}{text}\n{match[2]}", before, count=1)
    if after == before:
        return False
    paths.write_text(readme, after)
    return True


def headline(folder: Path) -> str:
    """Markdown: the plot, the table of the best kernel against every dense rival, date, command and link."""
    results = load(folder)
    table = html_data.tabulate(results)
    policy = context.policies(results.frame)[0]
    gpu = context.gpu_name(results.gpu, results.environment)
    link = "/".join(folder.parts[-3:])
    stem = layout.stem("speedup", policy)
    date = context.recorded_on(results.environment)
    when = f", recorded {date}" if date else ""
    root = folder.parts[-3]
    large = folder.parent / LARGE
    claims = "/".join((*folder.parts[-3:-1], "claims.md"))
    return "\n\n".join(
        [
            f"[![Speed-up of sparse kernels over cuBLAS fp32 on {gpu}]({link}/{stem}.png)]({link}/README.md)",
            f"SparseRT's Table 1 on {gpu}, {policy} policy{when}: how many times as fast the best sparse kernel is, "
            "in geometric mean, and on how many problems it wins.",
            baselines.against(table, policy),
            *(_large_layers(large) if (large / "records.csv").is_file() else ()),
            f"Every number and its rows: [{EXPERIMENT}]({link}/README.md). All experiments on one page with filters "
            f"and a roofline: [{root}/index.html]({root}/index.html) (download it; it needs no network). The papers' "
            f"claims, judged: [claims]({claims}). Yours: `nnzbench run {EXPERIMENT}`, then `nnzbench report`.",
        ]
    )


def _large_layers(folder: Path) -> list[str]:
    """The same table for large products, where dense tensor cores do better."""
    results = load(folder)
    table = baselines.products_of(generic.tabulate(results))
    policy = context.policies(results.frame)[0]
    link = "/".join(folder.parts[-3:])
    text = (
        f"Large recurrent layers on the same GPU, {policy} policy, 32 columns and more (sizes of Sputnik's figure 10 "
        f"and others, [{LARGE}]({link}/README.md)):"
    )
    return [text, baselines.against(table, policy, LEVELS)]


def _folder(reports: Path) -> Path | None:
    found = sorted(path.parent for path in reports.glob(f"*/{EXPERIMENT}/records.csv"))
    preferred = [path for path in found if path.parent.name == PREFERRED_GPU]
    return next(iter(preferred or found), None)
