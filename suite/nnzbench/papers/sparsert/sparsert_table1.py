"""SparseRT's Table 1 and figures 4 to 6: products of the layers of three pruned networks."""

from __future__ import annotations

import dataclasses

import pandas as pd

from nnzbench.facts.data import Data
from nnzbench.facts.groups import Group
from nnzbench.facts.results import each, load
from nnzbench.facts.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_DEFAULT,
    DEFAULT,
    DENSE,
    FP16,
    TF32,
    UNTUNED,
    Selector,
    kernel,
    own,
    written_here,
)
from nnzbench.facts.table import Comparison
from nnzbench.papers.sparsert import PAPER
from nnzbench.problems.experiment import AND_F16, SPMM, Experiment, dtypes_of
from nnzbench.problems.problem import stem_of
from nnzbench.records.files import has_records
from nnzbench.records.record import RecordError
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Bars, Dots, Made, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sparsert_table1",
    "1x1 convolutions and Transformer layers at 90 and 95 % sparsity",
    PAPER,
    "Table 1, figures 4 and 5",
    dtypes_of("sparsert_paper", *SPMM, "untuned", "cusparse", cublas=AND_F16, cublaslt=AND_F16),
)
LEVELS = (Group(level=90), Group(level=95))
FIRST = tuple(Group(where="label <= '11'", words="problems 1 to 11", level=level) for level in (90, 95))
"""Figure 5: those that have both levels."""
SPARSER = Group(
    words="problems 1 to 11, 95 % zeros against 90 %", cases=r"(\d\d)_.*_95", baseline_cases=r"(\d\d)_.*_90"
)
MOBILENET = Group(where="label >= '12'", level=90, words="layers of MobileNet V1 (problems 12 to 20)")
SMALLER = Group(where="'12' <= label <= '16'", words="problems 12 to 16")
LARGER = Group(where="label >= '17'", words="problems 17 to 20")


def _printed(view: View) -> pd.DataFrame:
    """Table 1's own speed-ups over cuBLAS."""
    table = published.sparsert_table1()
    table = table.assign(label=[f"{int(one):02}" for one in table["label"]], level=100 * table["level"])
    sizes = view.data.problems.drop_duplicates("label").set_index("label")["size"]
    return table.assign(size=table["label"].map(sizes)).rename(columns={"paper_speedup": "value"})


def _orders(view: View) -> pd.DataFrame | None:
    """How alike the order of the problems by their speed-up over cuBLAS is here and on the paper's GPU."""
    facts = view.compare(Comparison((kernel("sparsert_paper"),), (CUBLAS,), by=("label", "level")))
    both = facts.merge(_printed(view)[["label", "level", "value"]], on=["label", "level"]).query("label <= '11'")
    rows = [
        {
            "zeros (%)": f"{level:g}",
            "policy": policy,
            "rank correlation": some["ratio"].rank().corr(some["value"].rank()),
        }
        for (policy, level), some in both.groupby(["policy", "level"], sort=False)
        if len(some) > 2
    ]
    return pd.DataFrame(rows) if rows else None


def _synthetic(view: View) -> pd.DataFrame | None:
    """The run on synthetic patterns beside the one on real patterns, on the problems that have a real one."""
    folder = view.results.folder / "standin"
    if not has_records(folder):
        return None
    other = load(folder)
    if (other.gpu, other.experiment) != (view.results.gpu, view.results.experiment):
        raise RecordError(f"{folder}: not a run of {view.results.experiment} on {view.results.gpu}")
    real = view.frame[~view.frame["source"].str.startswith("standin:")].assign(source="real")
    made = other.frame[other.frame["problem"].map(stem_of).isin(set(real["problem"].map(stem_of)))]
    made = made.assign(source="synthetic", environment="standin/" + made["environment"])
    theirs = ((f"standin/{name}", count, content) for name, count, content in other.environments)
    data = Data(
        dataclasses.replace(
            view.results, frame=pd.concat([real, made]), environments=(*view.results.environments, *theirs)
        )
    )
    sputnik = (kernel("sputnik"), kernel("sputnik", variants=DEFAULT))
    rows = []
    for one in (own(), *map(kernel, ("sparsert", "row_stream")), *sputnik, CUBLAS, TF32):
        twin, synthetic = _of(one, "real"), _of(one, "synthetic")
        times = view.compare(Comparison((twin,), (synthetic,), LEVELS), data)
        over = [
            view.compare(Comparison((side,), (_of(CUBLAS, side.source),), LEVELS), data) for side in (twin, synthetic)
        ]
        gains = [{(row.group, row.policy): row.ratio for row in each(facts)} for facts in over]
        for row in each(times):
            if row.policy == view.policies[0]:  # cold times of two sessions differ by more than patterns do
                speed = [found.get((row.group, row.policy), 1.0) for found in gains]
                span = f"{row.worst:.2f} to {row.best:.2f}"
                rows.append([one.label, f"{row.group} ({row.n})", *speed, row.ratio, span])
    heads = ["kernel", "problems", "real over cuBLAS", "synthetic over cuBLAS", "real over synthetic", "range"]
    return pd.DataFrame(rows, columns=heads) if rows else None


def _of(one: Selector, source: str) -> Selector:
    return dataclasses.replace(one, label=f"{one.label}, {source} patterns", source=source)


def page() -> Page:
    """Its page."""
    paper, tuned, sputnik = kernel("sparsert_paper"), kernel("sputnik"), kernel("sputnik", variants=DEFAULT)
    every = (
        paper, own(), *map(kernel, ("sparsert", "row_stream", "ring")), tuned, sputnik, UNTUNED,
        CUSPARSE, CUSPARSE_DEFAULT, kernel("cusparse", "tf32"), CUBLAS, DENSE, TF32, FP16,
    )  # fmt: skip
    printed = Printed("SparseRT's paper, T4", _printed)
    once = dataclasses.replace(own(), label="best of ours, one choice hot and cold", one_choice=True)
    sparser = dataclasses.replace(paper, label="sparsert_paper at 90 % zeros")
    return Page(
        question="Is a pruned layer of ResNet-50, MobileNet or a Transformer faster as code generated from its weights "
        "than as a dense product?",
        intro="31 products of a pruned weight matrix (M×K) with dense activations (K×N): the 20 layer shapes of "
        "ResNet-50, Transformer and MobileNet V1 in Table 1 of *SparseRT: Accelerating Unstructured Sparsity on GPUs "
        "for Deep Learning Inference* (PACT 2020) with 90 % zeros, and 11 of them with 95 %. Patterns and weights are "
        "real ones where they are public, of all but problem 20. `sparsert_paper` has the paper's tilings, "
        "`sparsert` is our form of the generator.",
        answers=tuple(
            Answer(group, paper, FP16, (own(), own("f16")), DENSE, claim)
            for group, claim in zip(LEVELS, ("sparsert-spmm-90", "sparsert-spmm-95"), strict=True)
        ),
        comparison=Comparison(
            (paper, own(), once, own(as_data=True), UNTUNED, sputnik), (DENSE, TF32, FP16, CUSPARSE), LEVELS
        ),
        figures=(
            Dots("speedup", "Sparse products of pruned layers over dense ones", (paper, own(), sputnik), DENSE,
                 x="size", printed=printed),
            Bars("figure4", "Useful TFLOP/s (SparseRT's figure 4)", (CUBLAS, CUSPARSE, paper), "rate",
                 panels="level"),
            Dots("figure6", "SparseRT over Sputnik on MobileNet V1 (SparseRT's figure 6)", (paper, own()), sputnik,
                 group=MOBILENET),
        ),
        tables=(
            RatioTable("Every kernel over best dense fp32", Comparison(every, (DENSE,), LEVELS)),
            Pivot("Every problem, µs", every, rows=("label", "size", "level")),
            Pivot("Every problem, useful TFLOP/s", (CUBLAS, CUSPARSE, paper, tuned, sputnik), "rate",
                  rows=("label", "size", "level")),
            Pivot("SparseRT over cuSPARSE (its figure 4d)", (paper,), "ratio", CUSPARSE,
                  rows=("label", "size"), columns="level"),
            RatioTable("cuBLAS over cuSPARSE", Comparison((CUBLAS,), (CUSPARSE, CUSPARSE_DEFAULT), LEVELS)),
            RatioTable("Problems with both levels (its figure 5)", Comparison((paper,), (CUBLAS, CUSPARSE), FIRST)),
            RatioTable("From 90 to 95 % zeros", Comparison((paper,), (sparser,), (SPARSER,))),
            RatioTable("Over Sputnik (its figure 6)", Comparison((paper,), (tuned, sputnik), (SMALLER, LARGER))),
            Pivot("Over Sputnik's fastest tiling, MobileNet V1", (paper, own()), "ratio", tuned, rows=("label", "size"),
                  group=MOBILENET),
            Published("Means that the paper states, on a T4", "sparsert_headlines",
                      {"baseline": "over", "scope": "problems", "sparsity": "zeros", "value": "times as fast"},
                      "claim == 'geomean_speedup'"),
            Made("Order of problems 1 to 11 by their speed-up over cuBLAS, here and on the paper's T4", _orders,
                 "a correlation of ranks is neither a time nor a ratio"),
            Made("Real and synthetic patterns, hot", _synthetic, "it compares two runs, in two folders"),
        ),
        energy=Comparison((written_here(),), (FP16, DENSE)),
        baseline=CUBLAS,
    )  # fmt: skip
