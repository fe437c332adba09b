"""The number that the records of one GPU make of what a claim compares.

Ratios of times, and what crossovers stand on, are rows of `results.table.compare`. Rates are the recorded ones of the
rows that stand for a side.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from nnzbench.core import paths
from nnzbench.core.gpus import sheet_peaks
from nnzbench.data.problems import tables
from nnzbench.kernels.registry import Role
from nnzbench.papers.claims.claim import Measured, Quantity, Statistic
from nnzbench.results import crossover, energy
from nnzbench.results.data import Data, planned
from nnzbench.results.groups import Group
from nnzbench.results.groups import Statistic as Mean
from nnzbench.results.records.beside import TUNING
from nnzbench.results.records.folder import has_records
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import GPU_DEVICES, geometric_mean, load
from nnzbench.results.selector import Selector, rows_of
from nnzbench.results.table import KEY, Comparison, compare, facts_of_pairs, one_tuning, spread

LIBRARY: frozenset[Role] = frozenset({"library"})
QUARTILES = 1.349
"""Standard deviations of a normal distribution between its quartiles."""
MEANS: dict[Statistic, Mean] = {"mean percent": "mean", "mean loss": "mean", "total": "total"}
"""What facts make of paired times where that is no geometric mean."""


def grouped(asked: Quantity) -> Group:
    """The quantity's problems, with what facts make of their paired times."""
    return replace(
        asked.group,
        statistic=MEANS.get(asked.statistic, "geometric mean"),
        counted=asked.statistic in ("mean percent", "total"),
        ideal=asked.statistic == "over ideal",
    )


@dataclass(frozen=True)
class Outcome:
    """What the records say of one quantity; `value` is NaN where they say nothing, and `note` then says why.

    It is infinite where a crossover is never reached.
    """

    value: float
    have: int
    """Cases with all times."""
    of: int
    note: str = ""
    low: float = math.nan
    high: float = math.nan
    """Between which it lies of all that these problems are a sample of (95 %); infinite where the sample says nothing,
    NaN where it is not known."""
    synthetic: int = 0
    """Of the cases, those of which a sparse side is on a generated pattern that stands for a real one."""
    cut: bool = False
    """Whether it stands on kernels that were not tuned on some problem."""
    cases: tuple[str, ...] = ()
    """Of those that a number from authors' times is of, their names."""

    @property
    def problems(self) -> str:
        """`n of m`; empty where there can be none."""
        return f"{self.have} of {self.of}" if self.of else ""


class Records:
    """The experiments of one GPU, each read once. One that breaks the schema counts as not recorded; `gap` says so."""

    def __init__(self, reports: Path, gpu: str) -> None:
        self.gpu, self.reports = gpu, reports
        self._data: dict[tuple[str, bool], Data | None] = {}
        self._refused: set[str] = set()
        self._facts: dict[tuple[str, bool, Comparison], pd.DataFrame] = {}
        self.whole_sample = functools.cache(self._whole_sample)

    def measure(self, asked: Quantity, arithmetic: str = "f32", policy: str = "hot", judging: bool = True) -> Outcome:
        """The number of a quantity (of a named experiment) under one policy, its dense sides in `arithmetic`."""
        if asked.of == "counts" and self.data(asked.experiment):
            counted = pd.read_csv(paths.datasets() / "counted.csv").query("name == @asked.group.cases")
            cases = int(counted["cases"].sum())
            return Outcome(float(counted["value"].sum()), cases, cases)
        asked = replace(asked, group=self.whole_sample(asked))
        wanted = asked.on(arithmetic, judging)
        policy = policy if wanted.of == "times" else wanted.of
        mine = self._rows(wanted, policy)
        of = len(_expected(wanted.experiment, asked.subject.math, asked.group) | set(mine.index))
        if wanted.statistic == "nonzeros":
            return self._nonzeros(wanted, policy, of)
        if wanted.baseline is None:
            return self._alone(wanted, policy, mine, of)
        facts = self._compared(wanted, policy)
        if facts.empty:
            return Outcome(math.nan, 0, of, self._gap(wanted, policy))
        theirs = self._rows(wanted, policy, wanted.baseline)
        sides = [mine] if wanted.baseline.dense else [mine, theirs]  # whatever a dense product multiplies takes as long
        synthetic = {case for one in sides for case in one.index[one["source"].str.startswith("standin:")]}
        paired, have, cut = {*mine.index} & {*theirs.index}, int(facts["n"].sum()), not facts["tuned"].all()
        wrong = self._wrong(wanted, policy) - {*theirs.index}
        more = f"{len(wrong)} more problem{'s' * (len(wrong) != 1)}"
        note = f"On {more} {wanted.baseline.label} computes wrong results." * bool(wrong)
        found = Outcome(math.nan, have, of - len(wrong), note, synthetic=len(synthetic & paired), cut=cut)
        if wanted.statistic == "crossover":
            return _crossover(facts, found)
        matrices = mine["source"].nunique() if asked.group.by_matrix else found.have
        return made_of(facts.iloc[0], wanted.statistic, found, matrices)

    def _whole_sample(self, asked: Quantity) -> Group:
        """The group; of a collection's of the largest sample that both sides ran: of a part of one nothing follows."""
        if not asked.group.by_matrix or asked.experiment != tables.COLLECTION:
            return asked.group
        data, sample = self.data(asked.experiment), tables.SAMPLE
        problems = data.of(asked.group) if data else pd.DataFrame(columns=["source"])
        for side in (asked.subject, asked.baseline):
            if data and side and side.kernels:
                ran = data.frame.loc[data.frame["kernel"].isin(side.kernels), "problem"].unique()
                problems = problems[problems["problem"].isin(ran)]
        recorded = {str(source).partition(":")[2] for source in problems["source"]}
        while sample < len(recorded):
            more = len(tables.dlmc_sample(sample)) + 1
            if not recorded.issuperset(one.path for one in tables.dlmc_sample(more)):
                break
            sample = more
        return replace(asked.group, sample=sample)

    def between(self, asked: Quantity, first: str, second: str) -> Outcome:
        """On what percent of problems a ratio is larger on one GPU than on another, by parts of their names."""
        of = len(_expected(asked.experiment, asked.subject.math, asked.group))
        folders = [sorted(self.reports.glob(f"*{part}*/{asked.experiment}")) for part in (first, second)]
        if not all(folders):
            return Outcome(math.nan, 0, of, f"{first.upper()} and {second.upper()} are not both recorded.")
        one, other = (
            Records(self.reports, found[0].parent.name)._compared(asked.on("f32", judging=True), "hot", ("stem",))
            for found in folders
        )
        pairs = one.merge(other, on="stem", suffixes=("", "_other"))
        if pairs.empty:
            return Outcome(math.nan, 0, of, self._gap(asked, "hot"))
        larger = 100 * float((pairs["ratio"] > pairs["ratio_other"]).mean())
        return Outcome(larger, len(pairs), of, cut=not (pairs["tuned"] & pairs["tuned_other"]).all())

    def _compared(self, asked: Quantity, policy: str, by: tuple[str, ...] = ()) -> pd.DataFrame:
        """The fact of the quantity; one for each problem where it is a crossover."""
        data = self.data(asked.experiment, asked.of)
        if data is None or asked.baseline is None:
            return pd.DataFrame(columns=["stem", "ratio", "tuned"])
        group, over = grouped(asked), (asked.baseline,)
        by = ("stem", "sparsity") if asked.statistic == "crossover" else by
        wanted = Comparison((asked.subject,), over, (group,), by, over if asked.same_variant else ())
        key = (asked.experiment, asked.of == "times", wanted)
        if key not in self._facts:
            self._facts[key] = compare(data, wanted)
        return self._facts[key][self._facts[key]["policy"] == policy]

    def _rows(self, asked: Quantity, policy: str, baseline: Selector | None = None) -> pd.DataFrame:
        """By case: the row that stands for the subject, or for the baseline given."""
        data = self.data(asked.experiment, asked.of)
        like, side = asked.subject if baseline and asked.same_variant else None, baseline or asked.subject
        found = data.fastest(asked.group, side, like, baseline=baseline is not None) if data else {}
        return found.get(policy, pd.DataFrame(columns=["source"], dtype=str))

    def _wrong(self, asked: Quantity, policy: str) -> set[str]:
        """Cases of which a library as the baseline has a wrong result: there is nothing to compare with."""
        data, library = self.data(asked.experiment), asked.baseline and replace(asked.baseline, roles=LIBRARY)
        if data is None or library is None or asked.of != "times" or data.wrong.empty:
            return set()
        rows = rows_of(data.wrong[data.wrong["policy"] == policy], library, "wrong")
        if rows.empty:
            return set()
        cases = data.of(asked.group, baseline=True)
        return {*cases.loc[cases["problem"].isin(rows["problem"]), "case"]}

    def _nonzeros(self, asked: Quantity, policy: str, of: int) -> Outcome:
        met = replace(asked, second=None, statistic="crossover")
        sides = {one.label: replace(met, subject=one) for one in (asked.subject, asked.second or asked.subject)}
        found = {name: self.measure(one, policy=policy, judging=False) for name, one in sides.items()}
        note = " ".join(f"{name}: {one.note}" for name, one in found.items() if one.note)
        first, second = found.values()
        cut, have = first.cut or second.cut, min(first.have, second.have)
        value = (1 - first.value) / (1 - second.value) if math.isfinite(second.value) else second.value
        # what one of them never reaches is at the least infinitely sparser
        return Outcome(math.nan if math.isinf(first.value) else value, have, of, note, cut=cut)

    def _alone(self, asked: Quantity, policy: str, rows: pd.DataFrame, of: int) -> Outcome:
        """What is taken against no other time."""
        data = self.data(asked.experiment, asked.of)
        if rows.empty or data is None:
            return Outcome(math.nan, 0, of, self._gap(asked, policy))
        found = Outcome(math.nan, len(rows), of, cut=not rows["tuned"].all())
        if asked.statistic == "deviation":
            deviations = (rows["q3_us"] - rows["q1_us"]) / QUARTILES / rows["median_us"]
            return replace(found, value=100 * deviations.max())
        if asked.statistic == "instances":
            apart = spread(data, (asked.subject,), ("size", "level"))
            return replace(found, value=geometric_mean(apart.loc[apart["policy"] == policy, "slowest"]))
        if asked.statistic == "one tuning":
            over = one_tuning(data, asked.subject, ("size", "level"))
            pairs = over[over["policy"] == policy].assign(**dict.fromkeys(KEY, ""), us=1.0, over_us=over["over"])
            facts = facts_of_pairs(pairs.assign(printed=math.nan, tuned=True, one_run=True))
            return found if facts.empty else made_of(facts.iloc[0], "geometric mean", found, len(pairs))
        if asked.statistic == "exponent":
            return replace(found, value=exponent(rows))
        if asked.statistic == "seconds":
            searches = TUNING.read(data.results.folder)
            wanted, problems = (asked.subject.kernel, "all"), {*rows["problem"]}
            mine = [one for one in searches if (one.kernel, one.scope) == wanted and one.problem in problems]
            whole = {one.problem: one.seconds for one in mine}
            return Outcome(float(np.median([*whole.values()])) if whole else math.nan, len(whole), of)
        peak = sheet_peaks(self.gpu).tflops("f32")
        note, share = "The GPU's peak is not in datasets/gpus.csv." * math.isnan(peak), rows["gflops"].max() / 10 / peak
        return replace(found, value=share, note=note, low=share, high=math.inf)

    def _gap(self, asked: Quantity, policy: str) -> str:
        """Why there is no number: nothing recorded, or no problem with all the times."""
        name = asked.experiment
        if name in self._refused:
            return f"The records of {name} are refused; `nnzbench report {name}` says why."
        if self.data(name) is None:
            return f"{name} is not recorded on this GPU yet."
        if asked.of != "times" and self.data(name, asked.of) is None:
            return f"The energy of {name} is not measured on this GPU yet."
        what = " and ".join(one.label for one in (asked.subject, asked.baseline) if one)
        measured = f"a checked {policy} time" if asked.of == "times" else "measured energy"
        return f"No problem of {name} has {measured} of {what}."

    def data(self, experiment: str, of: Measured = "times") -> Data | None:
        """What is recorded of it, or measured of its energy; None where nothing is, or nothing that counts."""
        key = (experiment, of == "times")
        if key not in self._data:
            folder, self._data[key] = self.reports / self.gpu / experiment, None
            try:
                results = load(folder) if has_records(folder) else None
                if results and results.device in GPU_DEVICES:
                    self._data[key] = Data(results) if of == "times" else energy.data_of(results)
            except RecordError:
                self._refused.add(experiment)
        return self._data[key]


def exponent(rows: pd.DataFrame) -> float:
    """The slope of the logarithm of `median_us` along that of m times k; NaN where these are all alike."""
    if (rows["m"] * rows["k"]).nunique() < 2:
        return math.nan
    return float(np.polyfit(np.log(rows["m"] * rows["k"]), np.log(rows["median_us"]), 1)[0])


def made_of(fact: pd.Series[float], statistic: Statistic, found: Outcome, matrices: int) -> Outcome:
    """The outcome with the value that a fact on so many matrices gives, and its `low` and `high`.

    A sample's largest ratio is the least that the largest of all can be.
    """
    ratio, low, high = float(fact["ratio"]), float(fact["low"]), float(fact["high"])
    if statistic == "largest":
        ratio, low, high = fact["best"], fact["best"], math.inf
    elif statistic == "share faster":
        share = fact["wins"] / fact["n"]
        ratio, low, high = (100 * one for one in (share, *_wilson(share, matrices)))
    elif statistic == "over ideal":
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    elif statistic == "mean percent":
        ratio, low, high = 100 * ratio, 100 * low, 100 * high
    elif statistic == "mean loss":
        ratio, low, high = 100 * (1 - ratio), 100 * (1 - high), 100 * (1 - low)
    return replace(found, value=ratio, low=low, high=high)


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96 / math.sqrt(count)
    half = z * math.sqrt(share * (1 - share) + z * z / 4)
    low, high = ((share + z * z / 2 + sign * half) / (1 + z * z) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def _crossover(facts: pd.DataFrame, found: Outcome) -> Outcome:
    levels = facts["sparsity"]
    at = crossover.crossover(zip(levels, facts["ratio"], strict=True))
    if not math.isinf(at):
        return replace(found, value=at)
    where = f"Crossover {crossover.text(at, levels.min(), levels.max())}."
    if found.have < found.of:
        return replace(found, note=f"{where} Not all sparsities are recorded.")
    return replace(found, value=at if at == crossover.NEVER else levels.min(), note=where)


@functools.cache
def _expected(experiment: str, arithmetic: str, group: Group) -> frozenset[str]:
    """Cases of the problems of the experiment's table in the type that goes with an arithmetic class.

    Where the table has none of that type, kernels run all of its problems in it. Of cases that are not among those that
    are run by default, all.
    """
    dtype = arithmetic if arithmetic in ("f16", "i8") else "f32"
    for full in (False, True):
        if found := frozenset(group.problems(_listed(experiment, dtype, full, group.sample or tables.SAMPLE))["case"]):
            break
    return found


@functools.cache
def _listed(experiment: str, dtype: str, full: bool, sample: int) -> pd.DataFrame:
    """The problems of a table, made once for all of its groups."""
    listed = tables.load(experiment, False, full, sample)
    return planned([one for one in listed if one.dtype == dtype] or listed)
