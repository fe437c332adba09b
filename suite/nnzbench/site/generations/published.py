"""What others print: the papers' times and speed-ups per problem, each under the GPU it was taken on, and data sheets.

Beside data sheets stand the peaks that a run measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import ITEM_BYTES, Problem
from nnzbench.kernels.registry import about
from nnzbench.report.published import read
from nnzbench.results.result_set import each
from nnzbench.results.roofline import INDEX_BYTES, Work, product_work

GPUS = {"T4": "tesla-t4", "V100": "tesla-v100-sxm2-32gb", "Titan X": "nvidia-geforce-gtx-titan-x"}
"""The papers' names. Sputnik's says no more than V100; all its SXM2 models have the same rates."""
UNNAMED = "unnamed"
"""Slug of the GPU of *Balanced Sparsity*, which the paper doesn't name."""


@dataclass(frozen=True)
class Printed:
    """One number of a paper: `time_us`, or where it prints no times `speedup`, over `baseline`."""

    paper: str
    gpu: str
    problem: Problem
    kernel: str
    math: str
    time_us: float
    speedup: float
    baseline: str

    @property
    def work(self) -> Work:
        """Least work of a sparse kernel on CSR, or of the dense product for a dense library."""
        problem, conv, element = self.problem, self.problem.conv, ITEM_BYTES[self.problem.dtype]
        read = problem.k * problem.n if conv is None else conv.batch * conv.channels * conv.height * conv.width
        weights = problem.m * problem.k
        if about(self.kernel).work == "dense":
            return product_work(problem, weights, element * weights, element * read)
        stored = round((1 - problem.sparsity) * weights)
        structure = INDEX_BYTES * (stored + problem.m + 1)
        return product_work(problem, stored, structure + element * stored, element * read)


def rows() -> list[Printed]:
    """Every printed number that belongs to one problem, in the order of the papers.

    Raises `RecordError` where a file of `datasets/published/` or a column is missing.
    """
    return [*_sparsert(), *_balanced(), *_direct_conv(), *_eie()]


def _problems(experiment: str) -> dict[str, Problem]:
    return {problem.name: problem for problem in tables.rows(experiment)}


def _by(experiment: str) -> dict[tuple[str, float, str], Problem]:
    """Problems by label without leading zeros, level and type of the inputs."""
    return {(p.label.lstrip("0"), p.sparsity, p.dtype): p for p in _problems(experiment).values()}


def _timed(paper: str, gpu: str, problem: Problem, times: dict[str, float], baseline: str) -> Iterator[Printed]:
    for kernel, time in times.items():
        yield Printed(paper, gpu, problem, kernel, problem.dtype, time, math.nan, baseline if baseline in times else "")


def _sparsert() -> Iterator[Printed]:
    tables_of = {
        "sparsert_table1": ("spmm", "sparsert", "cublas"),
        "sparsert_table3": ("conv", "sparsert_conv", "cudnn"),
    }
    for name, (file, kernel, dense) in tables_of.items():
        problems = _by(name)
        for row in each(read(f"{name}_{file}", ("problem", "sparsity", "gpu", "speedup"))):
            problem = problems[str(row.problem), row.sparsity, "f32"]
            yield Printed("SparseRT", GPUS[row.gpu], problem, kernel, "f32", math.nan, row.speedup, dense)


def _balanced() -> Iterator[Printed]:
    paper, found = "Balanced Sparsity", {p.label: p for p in _problems("balanced_models").values()}
    for row in each(read("balanced_table2_vgg16", ("layer", "dense_us", "random_us", "balanced_us"))):
        for pattern, kernel, time in (("balanced", "balanced", row.balanced_us), ("random", "cusparse", row.random_us)):
            problem = found.get(f"vgg16_{row.layer}_{pattern}")
            if problem is not None:
                times = {"cublas": float(row.dense_us), kernel: float(time)}
                yield from _timed(paper, UNNAMED, problem, times, "cublas")
    found = {p.label: p for p in _problems("balanced_figure4").values()}
    table = read("balanced_figure4_digitised", ("kept_per_256", "balanced_b1_us", "cusparse_b1_us"))
    for row in each(table):
        for batch in (1, 8):
            for pattern, kernel in (("balanced", "balanced"), ("random", "cusparse")):
                problem = found[f"{pattern}_b{batch}_keep{row.kept_per_256}"]
                time = float(getattr(row, f"{kernel}_b{batch}_us"))
                yield from _timed(paper, UNNAMED, problem, {kernel: time}, "cublas")


def _direct_conv() -> Iterator[Printed]:
    """Filters with equally full rows, as the method assumes them; table 7 with the image size that fits its times."""
    paper, sparse = "Direct sparse convolution", "direct_conv"
    equal = [p for p in _problems("direct_conv_table6").values() if p.label.endswith("_equal")]
    by_size = {(p.conv.channels, p.conv.height, p.conv.filters, p.dtype): p for p in equal if p.conv}
    for row in each(read("direct_conv_table6_vgg16", ("in_channels", "height", "out_channels", "gpu"))):
        for dtype in ("f32", "f16"):
            times = {
                "cudnn": 1e3 * getattr(row, f"cudnn_{dtype}_ms"),
                sparse: 1e3 * getattr(row, f"sparse_{dtype}_ms"),
            }
            problem = by_size[row.in_channels, row.height, row.out_channels, dtype]
            yield from _timed(paper, GPUS[row.gpu], problem, times, "cudnn")
    labelled = _by("direct_conv_table7")
    for row in each(read("direct_conv_table7_resnet50_1x1", ("dtype", "in_channels", "out_channels", "gpu"))):
        problem = labelled[f"c{row.in_channels}_d{row.out_channels}_32_equal", row.sparsity, row.dtype]
        times = {"cudnn": 1e3 * row.cudnn_ms, sparse: 1e3 * row.sparse_ms}
        yield from _timed(paper, GPUS[row.gpu], problem, times, "cudnn")
    labelled = _by("direct_conv_table8")
    for row in each(read("direct_conv_table8_cnn1d", ("dtype", "kernel", "cudnn_ms", "gpu"))):
        for level, column in ((0.77, "sparse_77_ms"), (0.83, "sparse_83_ms"), (0.875, "sparse_875_ms")):
            problem = labelled[f"filter{row.kernel[0]}", level, row.dtype]
            times = {"cudnn": 1e3 * row.cudnn_ms, sparse: 1e3 * getattr(row, column)}
            yield from _timed(paper, GPUS[row.gpu], problem, times, "cudnn")


def _eie() -> Iterator[Printed]:
    """The GPU rows. At batch 64 the paper prints the time of one of the 64 vectors."""
    problems = {p.label: p for p in _problems("eie_table4").values()}
    table = read("eie_table4_us", ("platform", "batch", "matrix", "layer", "time_us"))
    table = table[table["platform"] == "GPU"]
    for batch, layer in sorted(set(zip(table["batch"], table["layer"], strict=True))):
        group = table[(table["layer"] == layer) & (table["batch"] == batch)]
        printed = dict(zip(group["matrix"], group["time_us"] * batch, strict=True))
        times = {"cublas": float(printed["dense"]), "cusparse": float(printed["sparse"])}
        yield from _timed("EIE", GPUS["Titan X"], problems[f"{layer}_b{batch}"], times, "cublas")


def collection_means() -> pd.DataFrame:
    """Sputnik's geometric means over whole sets of problems, which it doesn't print one by one.

    Columns: paper, gpu, experiment, op, math, baseline, geometric_mean, peak_speedup, peak_tflops (NaN unknown),
    problems (NaN unknown).
    """
    whole = read("sputnik_table1_dataset", ("kernel", "precision", "gpu", "baseline", "geomean_speedup", "peak_tflops"))
    rnn = read("sputnik_rnn", ("kernel", "gpu", "baseline", "geomean_speedup", "peak_speedup"))
    rnn = rnn[(rnn["baseline"] == "cuSPARSE")].assign(precision="f32", peak_tflops=math.nan, problems=math.nan)
    both = pd.concat([whole.assign(experiment="sputnik_dlmc"), rnn.assign(experiment="sputnik_rnn")])
    names = {"kernel": "op", "precision": "math", "geomean_speedup": "geometric_mean"}
    both = both.rename(columns=names).assign(paper="Sputnik", gpu=[GPUS[gpu] for gpu in both["gpu"]])
    columns = ["paper", "gpu", "experiment", "op", "math", "baseline", "geometric_mean", "peak_speedup", "peak_tflops"]
    return both[[*columns, "problems"]].reset_index(drop=True)
