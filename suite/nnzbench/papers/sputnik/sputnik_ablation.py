"""Sputnik's table II: speed without one optimisation against the complete kernel's."""

from __future__ import annotations

from functools import partial

import pandas as pd

from nnzbench.facts.groups import OPS, Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import Selector
from nnzbench.facts.table import Comparison
from nnzbench.papers.sputnik import PAPER
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Bars, Made, Page, Printed
from nnzbench.report.pages.view import View
from nnzbench.report.text.tables import number

EXPERIMENT = Experiment(
    "sputnik_ablation",
    "Sputnik's optimisations, one left out at a time",
    PAPER,
    "Table II",
    dtypes_of("sputnik_ablation", "sputnik_sddmm_ablation"),
)
PARTS = {
    "-load_balancing": ("no_load_balancing", "load balancing"),
    "-vector_inst": ("no_vector", "vector instructions"),
    "-residue_unroll": ("no_residue_unroll", "residue unrolling"),
    "-index_prescale": ("no_prescale", "index pre-scaling"),
}
"""The paper's name of each part left out: how its variant starts, and in words."""
KERNELS = ("sputnik_ablation", "sputnik_sddmm_ablation")
WHOLE = Selector("the complete kernel", KERNELS, variants="complete")
NAMES = {"transformer": "the Transformer", "resnet50": "ResNet-50"}
SETS = (("transformer", 1), ("transformer", 8), ("resnet50", 1), ("resnet50", 256))


def _without(op: str, part: str) -> Selector:
    variant, words = PARTS[part]
    return Selector(f"{OPS[op]} without {words}", (KERNELS[op == "sddmm"],), variants=f"{variant}(_|$)")


SUBJECTS = {
    (op, part): _without(op, part)
    for op, parts in (("spmm", tuple(PARTS)), ("sddmm", tuple(PARTS)[:2]))
    for part in parts
}


def _layers(model: str, batch: int | None = None) -> Group:
    """Every layer counts for as many of the paper's matrices as have its shape and level."""
    where = f"model == '{model}'" + ("" if batch is None else f" and batch == {batch}")
    words = f"layers of {NAMES[model]}" + ("" if batch is None else f" at batch {batch}")
    return Group(where=where, words=words, statistic="mean", counted=True)


def _paper() -> pd.DataFrame:
    columns = ("kernel", "ablation", "model", "batch", "percent_of_full")
    return published.read("sputnik_table2_ablation", columns)


def _printed(model: str, view: View) -> pd.DataFrame:
    table = _paper().query(f"model == '{model}'")
    subjects = [SUBJECTS[key].label for key in zip(table["kernel"], table["ablation"], strict=True)]
    return table.assign(subject=subjects, value=table["percent_of_full"] / 100)


def _beside(view: View) -> pd.DataFrame | None:
    """Table II, ours and the paper's side by side."""
    groups = {one: _layers(*one) for one in SETS}
    asked = Comparison(tuple(SUBJECTS.values()), (WHOLE,), tuple(groups.values()))
    facts = {(row.subject, row.group, row.policy): row for row in each(view.compare(asked))}
    rows = []
    for printed in each(_paper()):
        subject, group = SUBJECTS[printed.kernel, printed.ablation], groups[printed.model, printed.batch]
        found = [facts.get((subject.label, group.label, policy)) for policy in view.policies]
        if any(found):
            ours = [number(100 * one.ratio, 1) if one else number(None) for one in found]
            rows.append([subject.label, f"{group.words} ({max(one.n for one in found if one)})", *ours,
                         number(printed.percent_of_full, 1)])  # fmt: skip
    return pd.DataFrame(rows, columns=["", "layers", *view.policies, "the paper, V100"]) if rows else None


def page() -> Page:
    """Its page."""
    spmm = [one for (op, _), one in SUBJECTS.items() if op == "spmm"]
    return Page(
        question="What is each of Sputnik's optimisations worth?",
        intro="The heuristic's kernel with one optimisation switched off, at inference and training batch sizes "
        "(table II of *Sparse GPU Kernels for Deep Learning*, SC 2020): below 1 the part is worth having. The paper "
        "averages over all 3,012 matrices of its collection; here one matrix of every shape and level of zeros in it "
        "is timed and counts in the arithmetic mean as often as the collection has such matrices.",
        answers=tuple(
            Answer(_layers(model, batch), spmm[0], WHOLE, tuple(spmm[1:]), claim=claim)
            for model, batch, claim in (
                ("resnet50", 256, "sputnik-no-load-balancing-rn50-256"),
                ("transformer", 8, "sputnik-no-load-balancing-tf-8"),
            )
        ),
        figures=tuple(
            Bars(model, f"Sputnik without one optimisation at a time, {name}", tuple(SUBJECTS.values()), "ratio", WHOLE,
                 "subject", "batch", _layers(model), Printed("the paper, V100", partial(_printed, model)))
            for model, name in NAMES.items()
        ),
        tables=(
            Made("Percent of the complete kernel's speed", _beside, "the paper's numbers stand beside ours",
                 collapsed=False),
        ),
    )  # fmt: skip
