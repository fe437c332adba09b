"""Computes rows of facts.csv, or the numbers of a page's first screen, again from the records alone.

    python runners/recompute.py [--reports reports]

Plain pandas: nothing of the package is imported, and what its words mean (which rows a kernel's name, a rival's, or a
group of problems stands for) is written down a second time, in `recompute_records.py`. Ends with status 1 and names
each sentence or line of a table that says something else than the records, or that nothing here computes.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from recompute_limits import expect, limited
from recompute_records import ROOT, Group, Ratio, Wrong, before_tuning, crossing, ratio, read

KEY = ["problem", "dtype", "kernel", "variant"]
CHECKED = r"\*\*(\d+) candidates of (\d+) kernels on (\d+) problems were right, (\d+) were wrong or failed\.\*\*"
CROSSES = (
    r"(?P<group>.+?): (?P<side>.+?) (?:is|are) faster than (?P<rival>.+?) from \*\*(?P<at>.+?)\*\* zeros on "
    r"\((?P<policy>\w+)(?P<cut>, before tuning)?\)(?:, (?P<second>.+?) from (?P<beside>.+?%)(?P<cut2> before tuning)?)?"
    r"(?:; the paper: (?P<paper>.+?) on (?P<gpu>.+?) \(`(?P<claim>[\w.-]+)`\))?\."
)


def check(folder: Path, text: str) -> list[str]:
    """What is wrong on the first screen of a page."""
    wrong: list[str] = []
    answer, limits, table = (part(text, name) for name in ("Answer", "Where it does not hold", "table"))
    seen: dict[str, list[str]] = {}
    if not answer:
        wrong.append("the page has no answer")
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", answer):
        with told(wrong, sentence):
            answered(folder, sentence, seen)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    found: list[Ratio | None] = []
    for line in lines[2:]:
        with told(wrong, " | ".join(line)):
            found.extend(tabulated(folder, lines[0], line))
    with told(wrong, "what † means"):
        marked(text.partition("\n## ")[0], {"": found})
    if limits:
        with told(wrong, limits):
            limited(folder, limits, lines, seen)
    return wrong


def part(text: str, name: str) -> str:
    """The paragraph that begins with a bold word, or the table of the first screen."""
    first = text.partition("\n## ")[0]
    if name == "table":
        found = re.search(r"(?ms)^\| times as fast as .*?(?=\n\n|\Z)", first)
        return found[0].rstrip() if found else ""
    found = re.search(rf"(?m)^\*\*{name}\.\*\* (.*)$", first)
    return found[1] if found else ""


@contextmanager
def told(wrong: list[str], words: str) -> Iterator[None]:
    """Adds what is found wrong in the `with` block, and in which sentence or line."""
    try:
        yield
    except Wrong as error:
        wrong.append(f"{error}\n    in: {words}")


def answered(folder: Path, sentence: str, seen: dict[str, list[str]]) -> None:
    """One sentence of the answer; notes in `seen` which sides it speaks of, by group."""
    if sentence == "Not recorded yet.":
        return
    if counts := re.fullmatch(CHECKED, sentence):
        checked(folder, counts)
        return
    if crosses := re.fullmatch(CROSSES, sentence):
        crossed(folder, crosses)
        return
    found = re.fullmatch(
        r"(?P<group>.+?): (?P<side>.+?) (?:is|are) \*\*(?P<value>[\d.]+)×\*\* as fast as (?P<rival>.+?) "
        r"\((?P<policy>\w+), (?P<cut>before tuning, )?faster on (?P<wins>\d+) of (?P<count>\d+)\)"
        r"(?:, (?P<second>.+?) (?P<beside>[\d.]+)×(?P<cut2> before tuning)?)?"
        r"(?:; the paper(?P<of>[^:]*): (?P<paper>.+?) on (?P<gpu>.+?) \(`(?P<claim>[\w.-]+)`\))?"
        r"(?:; measured over (?P<other>[^:;]+): (?P<also>[\d.]+)×(?P<cut3> before tuning)?"
        r"(?:, (?P<third>.+?) (?P<also2>[\d.]+)×(?P<cut4> before tuning)?)?)?\.",
        sentence,
    )
    if found is None:
        raise Wrong("nothing computes this sentence")
    group = label_of(found["group"])
    mine = ratio(folder, group, found["policy"], found["side"], found["rival"])
    if mine is None:
        raise Wrong("no problem has both times")
    expect(found["value"], f"{mine.value:.2f}")
    expect(f"{found['wins']} of {found['count']}", f"{mine.wins} of {mine.count}")
    expect(found["cut"] or "", "before tuning, " if mine.cut else "", "of tuning: ")
    seen.setdefault(group, []).append(found["side"])
    if found["second"]:
        told_beside(folder, group, found, ("second", "rival", "beside", "cut2"))
        seen[group].append(found["second"])
    if found["other"]:
        told_beside(folder, group, found, ("side", "other", "also", "cut3"))
    if found["third"]:
        expect(found["third"], found["second"] or "nobody")
        told_beside(folder, group, found, ("third", "other", "also2", "cut4"))
    if found["claim"]:
        published(found["claim"], found["paper"], found["gpu"])


def crossed(folder: Path, found: re.Match[str]) -> None:
    """The sentence on the share of zeros from which on a side is faster."""
    group = label_of(found["group"])
    for side, at, cut, mark in (
        (found["side"], found["at"], found["cut"], ", before tuning"),
        (found["second"], found["beside"], found["cut2"], " before tuning"),
    ):
        if side:
            wanted, before = crossing(folder, group, found["policy"], side, found["rival"])
            expect(at, wanted)
            expect(cut or "", mark if before else "", "of tuning: ")
    if found["claim"]:
        published(found["claim"], found["paper"], found["gpu"])


def told_beside(folder: Path, group: str, found: re.Match[str], names: tuple[str, str, str, str]) -> None:
    """A further number of a sentence; `names` are the parts that have its side, rival, value and `before tuning`."""
    side, rival, value, cut = (found[name] or "" for name in names)
    wanted = ratio(folder, group, found["policy"], side, rival)
    expect(value, f"{wanted.value:.2f}" if wanted else "nothing")
    expect(cut, " before tuning" if wanted and wanted.cut else "", "of tuning: ")


def checked(folder: Path, found: re.Match[str]) -> None:
    """How many candidates of how many kernels computed the right thing, and how many did not."""
    frame = read(folder).drop_duplicates(KEY)
    right = frame[frame["status"] == "ok"]
    failed = frame["status"].isin(["wrong", "compile-error", "launch-error"]).sum()
    wanted = (len(right), right["kernel"].nunique(), frame["problem"].nunique(), failed)
    expect(" ".join(found.groups()), " ".join(map(str, wanted)))


def label_of(words: str) -> str:
    """A group's label from the beginning of a sentence, where it has a capital letter."""
    for label in (words, words[0].lower() + words[1:]):
        try:
            Group(label)
        except Wrong:
            continue
        return label
    raise Wrong(f"no problems are known for '{words}'")


@functools.cache
def claims() -> pd.DataFrame:
    """The papers' claims by their ids."""
    return pd.read_csv(ROOT / "datasets" / "published" / "claims.csv", dtype={"published": float}).set_index("id")


def published(claim: str, value: str, gpu: str) -> None:
    """The paper's number beside ours."""
    if claim not in claims().index:
        raise Wrong(f"there is no claim '{claim}'")
    (row,) = claims().loc[[claim]].to_dict("records")
    text = {"x": f"{row['published']:g}×", "sparsity": f"{100 * row['published']:g} % zeros"}
    expect(value, text.get(row["unit"], f"{row['published']:g} {row['unit']}"))
    expect(gpu, "an unnamed GPU" if row["published_gpu"] == "not named" else row["published_gpu"])


def tabulated(folder: Path, header: list[str], line: list[str]) -> list[Ratio | None]:
    """One line of the table; what the records say of it."""
    mine, group = line[0], re.fullmatch(r"(.+) \((\d+)\)", line[1])
    if group is None:
        raise Wrong("the number of problems is missing")
    return compare(folder, mine, group[1], int(group[2]), header[2:], line[2:])


def compare(folder: Path, mine: str, group: str, most: int, heads: list[str], cells: list[str]) -> list[Ratio | None]:
    """The cells of a line against the records, which it returns; a head is `rival, hot / cold`."""
    every: list[Ratio | None] = []
    for head, cell in zip(heads, cells, strict=True):
        rival, _, policies = head.rpartition(", ")
        found = [ratio(folder, group, policy, mine, rival) for policy in policies.split(" / ")]
        wanted = " / ".join(cell_of(one, most) for one in found) if any(found) else "–"
        expect(cell, wanted, f"{head}: ")
        every += found
    return every


def marked(text: str, found: dict[str, list[Ratio | None]]) -> None:
    """The sentence below a table on what its marks mean, of the numbers of each set of problems."""
    said = re.findall(r"(?m)^† .*$", text)
    parts = [f". {words}: {cut}" if words else f": {cut}" for words, of in found.items() if (cut := before_tuning(of))]
    wanted = [f"† Before tuning{''.join(parts)}. Tuned, these may be faster."] if parts else []
    expect("\n".join(said), "\n".join(wanted))


def cell_of(found: Ratio | None, most: int) -> str:
    """One number of a table; `most` is of how many problems where that is not said."""
    if found is None:
        return "–"
    return f"{found.value:.2f}×{found.mark} ({found.wins}{f' of {found.count}' if found.count < most else ''})"


NAMES = {"best of ours": "this project's kernels"}
PLAIN = ("best ", "cuBLAS", "cuSPARSE", "cuDNN")


def facts(folder: Path) -> tuple[int, list[str]]:
    """How many rows of facts.csv are computed again here, and those that say something else than the records.

    Rows whose subject, baseline or problems are not written down in `recompute_records.py` are not.
    """
    table = pd.read_csv(folder / "facts.csv")
    checked, wrong = 0, []
    for row in table.itertuples(index=False):
        try:
            found = ratio(folder, str(row.group), str(row.policy), named(str(row.subject)), named(str(row.baseline)))
        except (Wrong, KeyError):  # words that are not written down there
            continue
        if found is None:
            continue
        checked += 1
        wanted = (float(f"{found.value:.6g}"), found.wins, found.count, not found.cut)
        if (row.ratio, row.wins, row.n, row.tuned) != wanted:
            wrong.append(f"{row.group}, {row.subject} over {row.baseline}, {row.policy}: wanted {wanted}")
    return checked, wrong


def named(label: str) -> str:
    """A label of facts.csv as `recompute_records.py` has it: kernels in code marks."""
    for old, new in NAMES.items():
        if label.startswith(old):
            return label.replace(old, new, 1)
    if label.startswith(PLAIN):
        return label
    kernel, _, rest = label.partition(" ")
    return f"`{kernel.rstrip(',')}`{',' * kernel.endswith(',')}{f' {rest}' * bool(rest)}"


def counted(gpu: Path) -> Iterator[str]:
    """Yields what is wrong in the first sentences of claims.md and coverage.md."""
    if (gpu / "claims.md").is_file():
        table = pd.read_csv(gpu / "claims.csv", keep_default_na=False)
        words = ("reproduced", "stronger", "weaker", "contradicted")
        today = table["verdict_today"].where(table["verdict_today"] != "", table["verdict"])
        count, best = table["verdict"].value_counts(), today.value_counts()
        wanted = (
            f"**{len(table)} claims, {sum(count.get(word, 0) for word in words)} judged**: as the papers compare "
            + ", ".join(f"{count.get(word, 0)} {word}" for word in words)
            + "; against the best of today "
            + ", ".join(f"{best.get(word, 0)} {word}" for word in words)
            + f". {count.get('not comparable', 0)} are not comparable and {count.get('not measurable', 0)} not"
        )
        if wanted not in (gpu / "claims.md").read_text(encoding="utf-8").partition("\n## ")[0]:
            yield f"claims.md: its first sentence is not what claims.csv says\n    wanted: {wanted}"
    if (gpu / "coverage.md").is_file():
        table = pd.read_csv(gpu / "coverage.csv")
        total = table[["expected", "timed", "refused", "failed", "missing"]].sum()
        wanted = (
            f"Of {total['expected']:,} cells {total['timed']:,} are timed, {total['refused']:,} refused with a reason "
            f"and {total['failed']:,} failed; {total['missing']:,} are missing "
            f"({100 * total['missing'] / total['expected']:.1f} %)"
        )
        if wanted not in (gpu / "coverage.md").read_text(encoding="utf-8"):
            yield f"coverage.md: its first sentence is not what coverage.csv says\n    wanted: {wanted}"


def main() -> int:
    """Checks all pages; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, default=ROOT / "reports")
    asked = parser.parse_args()
    pages = sorted({path.parent for path in asked.reports.glob("*/*/records.*")})
    if not pages:
        print(f"{asked.reports}: no records", file=sys.stderr)
        return 2
    wrong: list[str] = []
    checked = 0
    for folder in pages:
        page = folder / "README.md"
        if not page.is_file():
            wrong.append(f"{page}: there are records and no page")
        elif (folder / "facts.csv").is_file():
            count, found = facts(folder)
            checked += count
            wrong += [f"{folder / 'facts.csv'}: {words}" for words in found]
        else:
            wrong += [f"{page}: {words}" for words in check(folder, page.read_text(encoding="utf-8"))]
    for gpu in sorted({folder.parent for folder in pages}):
        wrong += [f"{gpu}: {words}" for words in counted(gpu)]
    for words in wrong:
        print(words, file=sys.stderr)
    said = f"{len(wrong)} wrong" if wrong else "every number as the records say"
    print(f"{len(pages)} pages, {checked} rows of facts.csv: {said}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
