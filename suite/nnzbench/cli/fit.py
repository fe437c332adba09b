"""`nnzbench fit`: constants in datasets/ from recorded runs, and how far the estimates made of records are off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.bench import costs as tuning_costs
from nnzbench.core import paths
from nnzbench.data.matrices import encodings as codebooks
from nnzbench.data.matrices import encodings as simulation
from nnzbench.data.matrices import prune
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Op, Problem
from nnzbench.data.problems.sources import WEIGHTS_FILE, find_real, input_density, load_sparse
from nnzbench.kernels import cost_rule
from nnzbench.kernels.cost_rule import RuleCosts, Score, Trial
from nnzbench.papers.predict.fitting import STRIPS, TILES, family_trials, untuned_trials
from nnzbench.report.text import markdown
from nnzbench.results.records.record import Record, RecordError, read_records

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FOLDS = 5
LARGE = 1 << 24
"""Weights of a matrix beyond which its pattern isn't made again."""


@click.group("fit")
def command() -> None:
    """Fit constants in datasets/ to recorded runs, or say how far estimates are off; no GPU needed."""


@cache
def _lengths_of(problem: Problem, pattern: str) -> NDArray[np.int64] | None:
    """Row lengths of a problem's matrix, made or read again; None where it is not on disk or has another pattern.

    Those of a large uniform pattern are drawn as they are distributed, because making it takes up to a minute and no
    feature of so many rows differs by a percent.
    """
    if problem.source.startswith("uniform:") and problem.m * problem.k > LARGE:
        count = prune.keep_count(problem.m * problem.k, problem.sparsity)
        seed = int(problem.source.partition(":")[2])
        cells = np.full(problem.m, problem.k)
        return np.random.default_rng(seed).multivariate_hypergeometric(cells, count, method="marginals")
    try:
        matrix = load_sparse(problem)
    except MatrixError:
        return None
    return matrix.row_lengths if matrix.pattern_hash() == pattern else None


def _lengths(record: Record) -> NDArray[np.int64] | None:
    sizes = (record.m, record.k, record.n)
    # Named by its pattern, so that problems which share a matrix share the work.
    op: Op = "sddmm" if record.op == "sddmm" else "spmm"
    problem = Problem(record.experiment, record.pattern_hash, op, *sizes, record.sparsity, record.source)
    return _lengths_of(problem, record.pattern_hash)


RULES: Mapping[str, tuple[Callable[[Sequence[Record]], list[Trial]], Callable[[Sequence[Record]], dict[str, str]]]] = {
    "sputnik_tile": (lambda some: TILES.trials(some, _lengths), TILES.heuristic_choices),
    "sputnik_strip": (lambda some: STRIPS.trials(some, _lengths), STRIPS.heuristic_choices),
    "family": (lambda some: family_trials(some, _lengths), lambda some: {}),
    "family_f8": (lambda some: family_trials(some, _lengths, "family_f8"), lambda some: {}),
}
"""How each rule's trials come from records, and what the paper's heuristic would choose."""


@command.command()
@click.argument("records", nargs=-1, required=True, type=FILE)
@click.option("--rule", "rules", multiple=True, type=click.Choice(list(RULES)), help="Only this rule; repeatable.")
@click.option("--judge", "judged", multiple=True, type=FILE, help="Judge the other files' constants on this one, too.")
@click.option("--write", is_flag=True, help="Keep the constants in datasets/selection_rule.csv.")
def rule(records: tuple[Path, ...], rules: tuple[str, ...], judged: tuple[Path, ...], write: bool) -> None:
    """Fit the rules by which kernels choose without measuring to RECORDS, and print how near they come to the oracle.

    A score is the percent of the oracle's speed: geometric mean and worst problem. All RECORDS must be of the kernels
    as they are now: a tile keeps its name when the kernel behind it changes.
    """
    files = {path: list(read_records(path)) for path in (*records, *judged)}
    every = [record for path in dict.fromkeys(records) for record in files[path]]
    fitted = {}
    for name in rules or RULES:
        make, heuristic = RULES[name]
        trials = make(every)
        if len({trial.candidate for trial in trials}) > 1:
            fitted[name] = cost_rule.fit(trials)
            click.echo(f"{name}: {len(trials)} timed candidates on {len({one.matrix for one in trials})} matrices")
            _print("cross-validated", cost_rule.cross_validate(trials, FOLDS))
            rules_of = {"fitted to all": fitted[name]}
            with suppress(KeyError):  # none are in use yet
                rules_of["constants in use"] = cost_rule.load(name)
            _print_all(trials, heuristic(every), rules_of)
        for path in judged:
            _judge(name, [one for other in records if other != path for one in files[other]], files[path], path)
    for dtype in sorted({record.dtype for record in every}):
        if trials := untuned_trials([record for record in every if record.dtype == dtype]):
            click.echo(f"untuned, as it ran, {dtype}:")
            _print("of tuned kernels", cost_rule.score(trials, dict.fromkeys(cost_rule.contests(trials), "untuned")))
    if write:
        origin = "; ".join(sorted({f"{one.gpu} {one.experiment}" for one in every}))
        cost_rule.save(cost_rule.path(), fitted, f"fitted to {origin}")
        click.echo(f"wrote {cost_rule.path()}")


def _judge(name: str, others: Sequence[Record], judged: Sequence[Record], path: Path) -> None:
    """Scores on one file, by type of values, of constants fitted to other files' matrices that it does not have."""
    make, heuristic = RULES[name]
    seen = {record.pattern_hash for record in judged}
    training = make([record for record in others if record.pattern_hash not in seen])
    for dtype in sorted({record.dtype for record in judged}):
        rows = [record for record in judged if record.dtype == dtype]
        trials = make(rows)
        if training and len({trial.candidate for trial in trials}) > 1:
            click.echo(f"{name} on {path.parent.name}, {dtype}, fitted elsewhere:")
            _print_all(trials, heuristic(rows), {"rule": cost_rule.fit(training)})


def _print_all(trials: Sequence[Trial], heuristic: dict[str, str], rules: Mapping[str, RuleCosts]) -> None:
    """The scores of rules, and of what they compete with."""
    for label, costs in rules.items():
        _print(label, cost_rule.score(trials, cost_rule.choices(costs, trials)))
    if heuristic:
        _print("paper's heuristic", cost_rule.score(trials, heuristic))
    else:
        for one in sorted({trial.candidate for trial in trials}):
            _print(f"always {one}", cost_rule.score(trials, dict.fromkeys(cost_rule.contests(trials), one)))
    _print("slowest candidate", cost_rule.score(trials, cost_rule.slowest(trials)))


def _print(label: str, score: Score) -> None:
    ends = f"{score.percent:6.1f} % of the oracle, worst {score.worst_percent:5.1f} %"
    click.echo(f"  {label:<22}{ends}, {score.contests} problems")


@command.command()
@click.argument("results", nargs=-1, required=True, type=FOLDER)
def costs(results: tuple[Path, ...]) -> None:
    """Write datasets/costs.csv, what a budget plans with, from the tuning tables of RESULTS (folders as reports)."""
    if not any(any(root.glob("*/*/tuning.*")) for root in results):
        raise RecordError(f"no tuning table lies in <gpu>/<experiment>/ below {' or '.join(map(str, results))}")
    rows = tuning_costs.table(tuning_costs.learn(results, True))
    paths.write_csv(pd.DataFrame(rows, columns=list(tuning_costs.COLUMNS)), paths.datasets() / "costs.csv")


@command.command()
def codebook() -> None:
    """Write datasets/codebook_loss.csv: what quantisers of EIE and direct convolution do to the real pruned weights."""
    weights = find_real("weights:any")
    if weights is None:
        raise MatrixError(f"no {WEIGHTS_FILE} found: set NNZBENCH_DATA to the folder that holds it.")
    rows = []
    with np.load(weights) as arrays:
        for name in sorted(arrays.files):
            if name.endswith("_weight") and "_dw" not in name:  # depthwise filters and biases are not pruned
                matrix = CSR.from_dense(arrays[name])
                for quantiser in codebooks.QUANTISERS:
                    lost = codebooks.loss(matrix, quantiser)
                    size = (matrix.m, matrix.k, matrix.nnz)
                    rows.append((name, *size, quantiser, f"{lost.weights:.4f}", f"{lost.outputs:.4f}"))
    columns = ["array", "rows", "columns", "nonzeros", "quantiser", "weights_error", "outputs_error"]
    paths.write_csv(pd.DataFrame(rows, columns=columns), paths.datasets() / "codebook_loss.csv")


@command.command()
def queues() -> None:
    """Write datasets/queues.csv: how evenly EIE's and ESE's processing elements work on their papers' layers."""
    rows = []
    for problem, elements in _interleaved():
        matrix = load_sparse(problem)
        entries = simulation.entries_by_element(matrix, elements)
        kept = round(input_density(problem) * problem.k)
        taken = entries[np.sort(np.random.default_rng(problem.seed).permutation(problem.k)[:kept])]
        of_layer = {
            "experiment": problem.experiment,
            "label": problem.label,
            "elements": elements,
            "padding": f"{entries.sum() / matrix.nnz - 1:.4f}",
            "imbalance": f"{taken.sum(axis=0).max() / taken.sum(axis=0).mean():.4f}",
        }
        found = zip(simulation.DEPTHS, simulation.utilisation(taken, simulation.DEPTHS), strict=True)
        rows += [{**of_layer, "depth": depth, "utilisation": f"{share:.4f}"} for depth, share in found]
    paths.write_csv(pd.DataFrame(rows), paths.datasets() / "queues.csv")


def _interleaved() -> Iterator[tuple[Problem, int]]:
    """EIE's layers at their densities of inputs on 64 elements, ESE's matrices on the 32 of a channel."""
    yield from ((one, 64) for one in tables.load("eie_activations") if "codebook" in one.source)
    yield from ((one, 32) for one in tables.load("ese_lstm") if one.source.startswith("elements") and one.n > 1)


@command.command()
@click.option("--reports", type=FOLDER, help="Folder of the records [default: the published ones].")
@click.option("--gpu", default="nvidia-h200", show_default=True, metavar="SLUG")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output, shares instead of percent.")
def estimates(reports: Path | None, gpu: str, as_json: bool) -> None:
    """Print how far the estimates of `best --gpu` are off for recorded problems that they don't know.

    Holds out recorded times in several ways, estimates them from the rest and prints mean and median of
    |estimate / measured - 1|, and the mean over the fastest sparse and the fastest dense kernel of each problem. Then
    how often a kernel that seems faster than dense at fewer columns than it is recorded at is not.
    """
    from nnzbench.advise.answer import SURELY
    from nnzbench.advise.recorded import NARROW, WAYS, fastest, held_out, load, widened

    recorded = load(gpu, [reports or paths.reports()])
    found = {way: held_out(recorded, way) for way in WAYS}
    told = {
        way: (one["error"].mean(), one["error"].median(), fastest(one)["error"].mean(), one["inside"].mean())
        for way, one in found.items()
        if len(one)
    }
    narrow = widened(recorded)
    slow = narrow["median_us"] > narrow["dense_us"]
    least = narrow.sort_values("us").drop_duplicates(["experiment", "problem", "n", "dtype", "narrowest"]).index
    counts = {
        "times": len(narrow),
        "slower": int(slow.sum()),
        "least": len(least),
        "least_slower": int(slow[least].sum()),
    }
    if as_json:
        keys = ("times", "mean", "median", "mean_of_fastest", "inside")
        of_ways = {way: dict(zip(keys, (len(found[way]), *of), strict=True)) for way, of in told.items()}
        click.echo(json.dumps(of_ways | {"narrower than recorded": counts}, indent=2))
        return
    rows = [(way, f"{len(found[way]):,}", *(f"{100 * one:.0f} %" for one in of)) for way, of in told.items()]
    of_fastest = "mean of the fastest sparse and dense kernel of each problem"
    click.echo(markdown(("held out", "times", "mean error", "median", of_fastest, "in their 90 % interval"), rows))
    layers = next(iter(found.values()))
    lines = [
        (f"{kernel} {dtype}", f"{len(some):,}", *(f"{100 * some[name].mean():.0f} %" for name in ("error", "inside")))
        for (kernel, dtype), some in layers.groupby(["kernel", "dtype"])
    ]
    click.echo(
        "\n" + markdown(("kernel, layer sizes held out", "times", "mean error", "in their 90 % interval"), lines)
    )
    click.echo(
        f"\nWith a kernel's rows below {', '.join(map(str, NARROW[:-1]))} or {NARROW[-1]} columns held out, "
        f"{counts['times']:,} of them are told to be {SURELY} times as fast as dense or more: {counts['slower']} are "
        f"slower than dense, and {counts['least_slower']} of the {counts['least']:,} that are told to be the fastest."
    )


@command.command()
@click.option("--matrices", type=FILE, help="The published table of four GPUs, which is not part of this repository.")
@click.option("--reports", type=FOLDER, help="Folder of the records, and of the page [default: the published ones].")
def predictions(matrices: Path | None, reports: Path | None) -> None:
    """Compute how far `nnzbench predict` is off on published times, and write reports/prediction/.

    Without --matrices, errors matrix by matrix stay as they were last computed.
    """
    from nnzbench.papers.predict import holdouts, page

    folder = reports or paths.reports()
    click.echo(page.write(folder, holdouts.errors(folder, matrices)))
