"""The claims on all recorded GPUs, in `claims/README.md`: one counts as judged where any of them judges it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from nnzbench import paths
from nnzbench.claims.verdicts import JUDGED, show
from nnzbench.report.data import context
from nnzbench.report.data.text import GAP, environment, markdown

NAME = "claims"
"""Of the folder, beside those of the GPUs."""


def read(reports: Path) -> pd.DataFrame:
    """The verdicts of each GPU that has a `claims.csv`, one below the other, with the GPU's folder as `gpu`."""
    found = [pd.read_csv(path).assign(gpu=path.parent.name) for path in sorted(reports.glob("*/claims.csv"))]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["id", "gpu", "verdict"])


def sentence(verdicts: pd.DataFrame) -> str:
    """How many claims are judged on any GPU, on each, and on it alone; empty without verdicts."""
    if verdicts.empty:
        return ""
    judged = verdicts[verdicts["verdict"].isin(JUDGED)]
    alone = judged.drop_duplicates("id", keep=False)["gpu"].value_counts()
    counts = judged["gpu"].value_counts()
    each = [
        f"{counts.get(gpu, 0)} on {context.gpu_name(gpu, {})}"
        + (f" ({alone.get(gpu, 0)} of them there alone)" if verdicts["gpu"].nunique() > 1 else "")
        for gpu in verdicts["gpu"].unique()
    ]
    total = verdicts["id"].nunique()
    return f"Of {total} claims {judged['id'].nunique()} are judged on at least one GPU: {', '.join(each)}."


def write(reports: Path) -> None:
    """Writes `claims/README.md` below `reports` from the `claims.csv` of its GPUs, or removes it where none has any."""
    verdicts = read(reports)
    path = reports / NAME / "README.md"
    if verdicts.empty:
        path.unlink(missing_ok=True)
        return
    gpus = list(verdicts["gpu"].unique())
    heads = ["claim", "published", *(f"[{context.gpu_name(gpu, {})}](../{gpu}/claims.md)" for gpu in gpus)]
    papers = {}
    for paper, some in verdicts.groupby("paper", sort=False):
        rows = []
        for _, each in some.groupby("id", sort=False):
            on = {one["gpu"]: one for _, one in each.iterrows()}
            first = next(iter(on.values()))
            cells = [_cell(on[gpu]) if gpu in on else GAP for gpu in gpus]
            rows.append([f"{first['claim']} (`{first['id']}`)", show(first["published"], first["unit"]), *cells])
        papers[paper] = markdown(heads, rows)
    text = environment().get_template("claims_joint.md.j2").render(sentence=sentence(verdicts), papers=papers)
    paths.write_text(path, text)


def _cell(one: pd.Series[str]) -> str:
    word = f"**{one['verdict']}**" if one["verdict"] in JUDGED else str(one["verdict"])
    return f"{show(float(one['measured']), one['unit'])} {word}".strip()
