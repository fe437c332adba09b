"""Fits the constants of the selection rules to recorded runs and says how near the rules come to the oracle.

    python runners/fit_selection_rule.py reports/nvidia-h200/*/records.csv [--write]

Prints, per rule, the percent of the oracle's speed (geometric mean and worst problem): cross-validated on matrices the
constants were not fitted to, of the paper's heuristic, and of the constants in use. With --write the constants fitted
to all records replace those in datasets/selection_rule.csv.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnzbench import cost_rule, tables
from nnzbench.cost_rule import Costs, Score, Trial
from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.sources import load_sparse
from nnzbench.problem import Problem
from nnzbench.record import Record, read_records
from nnzbench.rule_records import family_trials, heuristic_choices, tile_trials


@cache
def problems(experiment: str, real: bool) -> dict[str, Problem]:
    """The experiment's SpMM problems by name, on real matrices or on stand-ins."""
    return {problem.name: problem for problem in tables.load(experiment, real, full=True) if problem.op == "spmm"}


@cache
def lengths_by_pattern(experiment: str, name: str, real: bool) -> NDArray[np.int64] | None:
    """Row lengths of a problem's matrix, made or read again; None where it is not in the table or on disk any more."""
    problem = problems(experiment, real).get(name)
    try:
        return None if problem is None else load_sparse(problem).row_lengths
    except MatrixError:
        return None


def lengths(record: Record) -> NDArray[np.int64] | None:
    """Row lengths of a record's matrix."""
    real = record.source.startswith(("dlmc:", "weights:"))
    return lengths_by_pattern(record.experiment, record.problem.removesuffix("_f16"), real)


def tell(label: str, score: Score) -> None:
    """One line of the result."""
    ends = f"{score.percent:6.1f} % of the oracle, worst {score.worst_percent:5.1f} %"
    print(f"  {label:<22}{ends}, {score.contests} problems")


def report(rule: str, trials: list[Trial], folds: int) -> Costs:
    """Prints the rule's scores and returns its constants fitted to all trials."""
    matrices = len({trial.matrix for trial in trials})
    print(f"{rule}: {len(trials)} timed candidates on {matrices} matrices")
    costs = cost_rule.fit(trials)
    tell("cross-validated", cost_rule.cross_validate(trials, folds))
    tell("fitted to all", cost_rule.score(trials, cost_rule.choices(costs, trials)))
    return costs


def main() -> None:
    """Parses the command line, fits, prints, and writes where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the constants")
    arguments = parser.parse_args()

    records = [record for path in arguments.records for record in read_records(path)]
    tiles = tile_trials(records, lengths)
    fitted = {"sputnik_tile": report("sputnik_tile", tiles, arguments.folds)}
    tell("paper's heuristic", cost_rule.score(tiles, heuristic_choices(records)))
    tell("constants in use", cost_rule.score(tiles, cost_rule.choices(cost_rule.load("sputnik_tile"), tiles)))
    families = family_trials(records, lengths)
    if len({trial.candidate for trial in families}) > 1:
        fitted["family"] = report("family", families, arguments.folds)
        for family in sorted({trial.candidate for trial in families}):
            always = dict.fromkeys(cost_rule.contests(families), family)
            tell(f"always {family}", cost_rule.score(families, always))
    if arguments.write:
        origin = f"fitted to {', '.join(sorted({f'{r.gpu} {r.experiment}' for r in records}))}"
        cost_rule.save(cost_rule.path(), fitted, origin.replace(",", ";"))
        print(f"wrote {cost_rule.path()}")


if __name__ == "__main__":
    main()
