"""CSV and Markdown of exactly what is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.problems.names import stem_of
from nnzbench.report.data.series import BEST, MATH_LABELS, Series
from nnzbench.report.draw.figures import SpeedupTable

POINT_COLUMNS = (
    "policy", "level", "label", "problem", "m", "k", "n", "sparsity", "source", "series", "kernel", "variant", "math",
    "median_us", "q1_us", "q3_us", "limit_us", "limit_share", "baseline_us", "speedup", "count",
)  # fmt: skip
GAP = "–"


def number(value: object, digits: int = 2) -> str:
    """Fixed digits, or a dash for what is missing."""
    return GAP if not isinstance(value, float | int) or math.isnan(value) else f"{value:.{digits}f}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are aligned left, the others right."""
    rule = [":--" if i < left else "--:" for i in range(len(header))]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_csv(drawn: SpeedupTable | pd.DataFrame, path: Path) -> None:
    """Writes a frame as it is, or a speed-up table's rows, with the same six digits on every machine."""
    whole = drawn if isinstance(drawn, pd.DataFrame) else drawn_rows(drawn)
    with paths.replacing(path) as partial:
        whole.to_csv(partial, index=False, float_format="%.6g", lineterminator="\n")


def drawn_rows(table: SpeedupTable) -> pd.DataFrame:
    """Every drawn point, then every geometric mean (`problem` = `geometric mean`), then the published numbers."""
    means = table.means.rename(columns={"geometric_mean": "speedup"}).assign(problem="geometric mean")
    parts = [table.points, means]
    if table.paper_label:
        paper = table.problems.dropna(subset=["paper_speedup"])
        parts.append(paper.assign(series="paper", speedup=paper["paper_speedup"], policy="published"))
    shown = [part.reindex(columns=list(POINT_COLUMNS)) for part in parts if not part.empty]
    return pd.concat(shown) if shown else pd.DataFrame(columns=list(POINT_COLUMNS))


def speedups(table: SpeedupTable, policy: str, level: float) -> str:
    """Markdown: one row per problem, the time of the baseline, then each series' speed-up; geometric means last.

    Where the best of all cuBLASLt algorithms was measured, a column sets the best kernel against it.
    """
    problems = table.problems[table.problems["level"] == level]
    points = table.points[(table.points["policy"] == policy) & (table.points["level"] == level)]
    shown = [s for s in table.series if s != table.baseline and (points["series"] == s.key).any()]
    cells = {(p, s): v for p, s, v in zip(points["problem"], points["series"], points["speedup"], strict=True)}
    base = dict(zip(points["problem"], points["baseline_us"], strict=True))
    best = points[points["series"] == BEST.key].set_index("problem")["kernel"].to_dict()
    rival = over_rival(points)
    header = ["problem", "size", f"{table.baseline.label} (µs)", *(s.label for s in shown)]
    header += ["best over cuBLASLt fp32, best"] if rival else []
    header += [table.paper_label] if table.paper_label else []
    rows = []
    for row in each(problems):
        line = [str(row.label), row.size, number(base.get(row.problem, math.nan))]
        for series in shown:
            text = number(cells.get((row.problem, series.key), math.nan))
            named = series == BEST and text != GAP
            line.append(f"**{text}** {best[row.problem]}" if named else text)
        line += [number(rival.get(row.problem, math.nan))] if rival else []
        line += [number(row.paper_speedup, 1)] if table.paper_label else []
        rows.append(line)
    line = ["**geometric mean**", "", "", *(mean_cell(table, policy, level, series) for series in shown)]
    line += [f"**{number(geometric_mean(rival.values()))}**"] if rival else []
    line += [f"**{number(geometric_mean(problems['paper_speedup'].dropna()), 1)}**"] if table.paper_label else []
    return markdown(header, [*rows, line], left=2)


def over_rival(points: pd.DataFrame) -> dict[str, float]:
    """Per problem: time of the best cuBLASLt fp32 algorithm over that of the best of this project's kernels."""
    best = points[points["series"] == BEST.key].set_index("problem")["median_us"]
    rival = points[points["series"] == "cublaslt-f32"].set_index("problem")["median_us"]
    return {str(problem): float(value) for problem, value in (rival / best).dropna().items()}


def mean_cell(table: SpeedupTable, policy: str, level: float, series: Series) -> str:
    """A geometric mean, with `count of expected` where problems are missing from it."""
    means = table.means
    found = means[(means["policy"] == policy) & (means["level"] == level) & (means["series"] == series.key)]
    if found.empty or not found["count"].iloc[0]:
        return GAP
    count, expected = int(found["count"].iloc[0]), int(found["of"].iloc[0])
    partial = "" if count == expected else f" ({count} of {expected})"
    return f"**{number(float(found['geometric_mean'].iloc[0]))}**{partial}"


def means(table: SpeedupTable, policy: str) -> str:
    """Markdown: geometric mean speed-up of every series per level, with range and how often it beats 1x."""
    rows = []
    here = table.means[table.means["policy"] == policy]
    for series in table.series:
        if series == table.baseline:
            continue
        for level in dict.fromkeys(table.problems["level"]):
            found = here[(here["level"] == level) & (here["series"] == series.key)]
            if found.empty:
                continue
            one = found.iloc[0]
            rows.append(
                [
                    series.label,
                    f"{percent(level)}",
                    mean_cell(table, policy, level, series),
                    f"{number(float(one['smallest']))} to {number(float(one['largest']))}",
                    f"{one['faster']} of {one['count']}",
                ]
            )
    return markdown(["", "zeros", "geometric mean", "range", "faster than 1×"], rows)


def failures(frame: pd.DataFrame, names: dict[str, str]) -> str:
    """Markdown: rows without a time, with the problems they concern. Empty for none.

    Reasons that differ by numbers alone stand together, with the span of each number.
    """
    missing = frame[frame["status"] != "ok"]
    if missing.empty:
        return ""
    rows = []
    missing = missing.assign(alike=missing["reason"].map(lambda reason: _NUMBER.sub("#", reason)))
    for name, group in missing.groupby(["kernel", "variant", "status", "alike"], sort=True, dropna=False):
        kernel, variant, status, _ = map(str, name)
        reason = _spans(list(dict.fromkeys(group["reason"])))
        problems = list(dict.fromkeys(names.get(p, p) for p in group["problem"]))
        shown = ", ".join(problems) if len(problems) <= 6 else f"{len(problems)} problems"
        policies = ", ".join(dict.fromkeys(group["policy"]))
        rows.append([kernel, f"`{variant}`" if variant else GAP, status, reason, shown, policies, str(len(group))])
    return markdown(["kernel", "variant", "status", "reason", "problems", "policy", "rows"], rows, left=6)


_UNTUNED = {
    "first": "Not tuned on so many problems, as the run's time was over: what their rule, their paper or their library "
    "chooses is drawn.",
    "some": "Of few candidates on so many problems, as `--quick` or `--candidates` asks.",
}


def untuned(frame: pd.DataFrame) -> str:
    """Markdown: on how many problems each kernel was not tuned, as first screens count them. Empty where all were.

    A problem counts once for all its types; where the records have several, columns beside count it in each.
    """
    cut = frame[(frame["cut_short"] != "") & frame["median_us"].notna()]
    cut = cut.assign(stem=[stem_of(name) for name in cut["problem"]])
    several = frame["dtype"].nunique() > 1
    parts = []
    for scope, words in _UNTUNED.items():
        here = cut[cut["cut_short"] == scope]
        types = [one for one in MATH_LABELS if several and (here["dtype"] == one).any()]
        counts = here.groupby("kernel")["stem"].nunique().sort_index().sort_values(ascending=False, kind="stable")
        by_type = here.groupby(["kernel", "dtype"])["stem"].nunique().to_dict()
        rows = [
            [f"`{kernel}`", str(count), *(str(by_type.get((kernel, one), 0)) for one in types)]
            for kernel, count in counts.items()
        ]
        if rows:
            once = " A problem counts once for all its types." if types else ""
            header = ["kernel", "problems", *(f"in {MATH_LABELS[one]}" for one in types)]
            parts.append(f"{words}{once}\n\n{markdown(header, rows)}")
    return "\n\n".join(parts)


_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d)")
"""A number that is no part of a name."""


def _spans(reasons: Sequence[str]) -> str:
    """The one reason that `reasons`, equal but for their numbers, are cases of: `at least 90-97 % ...`."""
    columns = zip(*(_NUMBER.findall(reason) for reason in reasons), strict=True)
    ends = [(min(numbers, key=float), max(numbers, key=float)) for numbers in columns]
    spans = iter(low if low == high else f"{low}-{high}" for low, high in ends)
    return _NUMBER.sub(lambda _: next(spans), reasons[0])


def tuning(frame: pd.DataFrame, seconds: Mapping[str, float]) -> str:
    """Markdown: what choosing the selected variants cost, per kernel: candidates tried and seconds.

    Where the records say what runs untuned, also what it brought: how many times as fast the fastest variant is.
    """
    rows = []
    gains = _gains(frame)
    policies = sorted({policy for _, policy in gains}, reverse=True)  # hot before cold
    candidates = frame.drop_duplicates(["problem", "dtype", "kernel", "variant"])
    for kernel, group in candidates.groupby("kernel", sort=True):
        per_problem = group.groupby("problem").size()
        spread = (
            str(per_problem.max())
            if per_problem.min() == per_problem.max()
            else (f"{per_problem.min()}–{per_problem.max()}")
        )
        rows.append(
            [
                str(kernel),
                str(len(group)),
                spread,
                number(float(group["compile_ms"].sum()) / 1e3, 1),
                number(float(group["prepare_ms"].sum()) / 1e3, 1),
                number(seconds.get(str(kernel), math.nan), 0),
                *(number(gains.get((str(kernel), policy), math.nan), 2) for policy in policies),
            ]
        )
    return markdown(
        [
            *("kernel", "candidates", "per problem", "compiling (s)", "preparing (s)", "tuning in all (s)"),
            *(f"tuned over untuned, {policy}" for policy in policies),
        ],
        rows,
    )


def _gains(frame: pd.DataFrame) -> dict[tuple[str, str], float]:
    """By kernel and policy, the geometric mean of untuned over fastest time in one arithmetic of one role."""
    timed = frame[frame["median_us"] > 0]
    if "untuned" not in timed or not timed["untuned"].any():
        return {}
    contest = ["kernel", "policy", "problem", "dtype", "math", "role"]
    least = timed.groupby(contest)["median_us"].min()
    ratio = timed[timed["untuned"]].groupby(contest)["median_us"].min() / least
    means = ratio.dropna().groupby(level=["kernel", "policy"]).agg(geometric_mean).reset_index(name="gain")
    return {(str(row.kernel), str(row.policy)): float(row.gain) for row in each(means)}
