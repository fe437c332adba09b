"""The headline in README.md: generated between two markers from the recorded runs, never typed."""

from __future__ import annotations

import re
from pathlib import Path

from nnzbench import paths
from nnzbench.site.index.answer import SETS, answers

HEADLINE = re.compile(r"(<!-- nnzbench:headline -->\n).*?(<!-- /?nnzbench:headline -->)", re.DOTALL)
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
    text = headline(folder)
    after = HEADLINE.sub(lambda match: f"{match[1]}{text}\n{match[2]}", before, count=1)
    if after == before:
        return False
    paths.write_text(readme, after)
    return True


def headline(folder: Path) -> str:
    """Markdown: the figure and one answer for each kind of layer that `folder`, a GPU's, has records of."""
    root, gpu = folder.parts[-2:]
    link = f"{root}/{gpu}"
    lines = [
        f"* **{one.layers}** on {one.gpu} ([page]({root}/{one.folder}/README.md)): {one.text}"
        for one in answers(folder)
    ]
    name = next(iter(SETS))
    drawn = (folder / name / "speedup.svg").is_file()
    picture = f"[![Times as fast as the best dense product]({link}/{name}/speedup.svg)]({link}/{name}/README.md)"
    rest = (
        f"Every ratio is a row of its page's `facts.csv`, which `make numbers` computes again. All experiments with "
        f"filters: [{root}/index.html]({root}/index.html) (download it; it needs no network). The papers' claims, "
        f"judged: [claims]({link}/claims.md)."
    )
    return "\n\n".join([*([picture] if drawn else []), "\n".join(lines), rest])


def _folder(reports: Path) -> Path | None:
    found = sorted({path.parent.parent for name in SETS for path in reports.glob(f"*/{name}/environment.json")})
    preferred = [path for path in found if path.name == PREFERRED_GPU]
    return next(iter(preferred or found), None)
