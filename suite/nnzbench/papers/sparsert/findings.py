"""What SparseRT's figures 4 to 6 say on this GPU, each sentence beside what the paper says."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from nnzbench.papers.sparsert.values import (
    CUBLAS,
    CUSPARSE,
    HEURISTIC,
    LEVELS,
    MEAN,
    MOBILENET,
    PAPER_GPU,
    SMALLER,
    SPARSERT,
    SPUTNIK,
    Measured,
    Values,
    labels_of,
)
from nnzbench.facts.results import geometric_mean, percent
from nnzbench.report.draw.grouped_bars import known


def figure4(here: Measured, values: Values) -> str:
    """Who is faster than whom, how the level changes the rate, and the means."""
    labels = labels_of(here.table, LEVELS[0])
    speed = {
        series: values.of("4a", labels, "tflops", gpu=here.gpu, level=LEVELS[0], series=series)
        for series in (CUBLAS, CUSPARSE, SPARSERT)
    }
    sentences = []
    over = [f"{name} on {_wins(speed[SPARSERT], speed[key])}" for key, name in NAMED]
    if all(known(found) for found in speed.values()):
        sentences.append(
            f"At {percent(LEVELS[0])} zeros sparsert_paper is faster than {' and than '.join(over)} problems (the "
            f"paper: on all), and cuBLAS is faster than cuSPARSE on {_wins(speed[CUBLAS], speed[CUSPARSE])} (the "
            "paper: on all, with the cuSPARSE of CUDA 10.1)."
        )
    both = labels_of(here.table, LEVELS[1])
    denser, sparser = (values.of("4b", both, "tflops", gpu=here.gpu, level=level, series=SPARSERT) for level in LEVELS)
    changes = known(b / a for a, b in zip(denser, sparser, strict=True))
    if changes:
        sentences.append(
            f"At {percent(LEVELS[1])} zeros it reaches {geometric_mean(changes):.2f} times the TFLOP/s of "
            f"{percent(LEVELS[0])}, in geometric mean over {len(changes)} problems (the paper: slightly fewer)."
        )
    for figure, key, name in (("4c", CUBLAS, "cuBLAS"), ("4d", CUSPARSE, "cuSPARSE")):
        parts = []
        for level in LEVELS:
            ours, paper = (
                values.of(figure, (MEAN,), "speedup", gpu=gpu, level=level, series=series, over=key)
                for gpu, series in ((here.gpu, SPARSERT), (PAPER_GPU, "paper"))
            )
            if known(ours):
                parts.append(f"{ours[0]:.2f}× at {percent(level)} (the paper on a T4: {paper[0]:g}×)")
        if parts:
            sentences.append(f"Over {name} it is {' and '.join(parts)} in geometric mean.")
    return " ".join(sentences) or "No problem has the times that this figure compares."


NAMED = ((CUBLAS, "cuBLAS"), (CUSPARSE, "cuSPARSE"))


def _wins(first: Sequence[float], second: Sequence[float]) -> str:
    ratios = known(a / b for a, b in zip(first, second, strict=True))
    return f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"


def figure5(here: Measured, others: Sequence[Measured], values: Values) -> str:
    """The means of every GPU, and whether problems that gain more on the paper's T4 gain more here."""
    labels = labels_of(here.table, LEVELS[1])
    sentences = []
    for one in (here, *others):
        for level in LEVELS:
            means = [
                values.of(figure, (MEAN,), "speedup", gpu=one.gpu, level=level, series=SPARSERT, over=over)[0]
                for figure, over in (("5a", CUBLAS), ("5b", CUSPARSE))
            ]
            if len(known(means)) == len(means):
                sentences.append(
                    f"On {one.name} sparsert_paper is {means[0]:.2f}× as fast as cuBLAS and {means[1]:.2f}× as fast as "
                    f"cuSPARSE at {percent(level)} zeros, in geometric mean over problems 1 to 11."
                )
    for level in LEVELS:
        ours = values.of("5a", labels, "speedup", gpu=here.gpu, level=level, series=SPARSERT, over=CUBLAS)
        paper = values.of("5a", labels, "speedup", gpu=PAPER_GPU, level=level, series="paper", over=CUBLAS)
        both = pd.DataFrame({"ours": ours, "paper": paper}).dropna().rank()
        if len(both) >= 3:
            sentences.append(
                f"Over cuBLAS at {percent(level)}, the ranks of {len(both)} problems here and on the paper's T4 "
                f"correlate at {both['ours'].corr(both['paper']):.2f}."
            )
    sentences.append(
        "Of its V100 the paper says that the speed-up over cuBLAS is above 1× and below the T4's on every problem and "
        "that the order of the problems is similar. Every other GPU with records of this experiment joins the figure."
    )
    return " ".join(sentences)


def figure6(here: Measured, values: Values) -> str:
    """The speed-up over both tilings of Sputnik's kernel on smaller and on larger matrices."""
    sentences = []
    for over, what in ((SPUTNIK, "its fastest tiling"), (HEURISTIC, "the tiling of Sputnik's rule")):
        parts = []
        for labels in (SMALLER, MOBILENET[len(SMALLER) :]):
            found = known(values.of("6b", labels, "speedup", gpu=here.gpu, level=LEVELS[0], series=SPARSERT, over=over))
            if found:
                parts.append(f"{geometric_mean(found):.2f}× on problems {labels[0]} to {labels[-1]}")
        if parts:
            sentences.append(f"Against sputnik with {what}, sparsert_paper is {' and '.join(parts)} in geometric mean.")
    sentences.append("The paper states 2 to 3× on smaller matrices and comparable speed on larger ones.")
    return " ".join(sentences)


def headline4(here: Measured, values: Values) -> str:
    """Title of figure 4: the means that its lower panels draw, at the lower level; empty where one is not known."""
    return _headline(here, values, (("4c", CUBLAS, "cuBLAS fp32"), ("4d", CUSPARSE, "cuSPARSE")), LEVELS[0])


def headline5(here: Measured, values: Values) -> str:
    """Title of figure 5: the means at the higher level."""
    words = (("5a", CUBLAS, "cuBLAS fp32"), ("5b", CUSPARSE, "cuSPARSE"))
    return _headline(here, values, words, LEVELS[1], " on problems 1 to 11")


def headline6(here: Measured, values: Values) -> str:
    """Title of figure 6: the means over both tilings of Sputnik's kernel."""
    words = (("6b", SPUTNIK, "sputnik's fastest tiling"), ("6b", HEURISTIC, "its rule's"))
    return _headline(here, values, words, LEVELS[0], " on MobileNet V1")


def _headline(
    here: Measured, values: Values, rivals: Sequence[tuple[str, str, str]], level: float, where: str = ""
) -> str:
    said = []
    for figure, over, words in rivals:
        mean = values.of(figure, (MEAN,), "speedup", gpu=here.gpu, level=level, series=SPARSERT, over=over)
        said += [f"{value:.2f}× as fast as {words}" for value in known(mean)]
    if len(said) < len(rivals):
        return ""
    return f"At {percent(level)} zeros{where}: sparsert_paper is {' and '.join(said)}"
