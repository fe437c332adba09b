"""Plants the mistakes of mutations.csv, one at a time, in a copy of the tree, and runs the tests that must see each.

    python suite/tests/mutations/run.py [--only TEXT] [--jobs N]

`FILE::TEST@WORD` are the cases of a test that have the word in their names. A mistake counts as caught where a test
fails, not where a program does not compile or no test ran. Rows with a reason in the column `equivalent` change no
result; they are planted too, and left out of the share. Exit status 1 where less than 95 % of the others are caught,
or where the tests fail before anything is planted.
"""

from __future__ import annotations

import argparse
import csv
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LEAST = 0.95
LIMIT_S, CLEAN_LIMIT_S = 600, 3600
"""For the tests of one mistake, and for all tests before any is planted."""
PARTS = ("kernels_cu", "suite", "datasets", "conftest.py", "pyproject.toml")
CAUGHT, SURVIVED = "caught", "SURVIVED"


class Mutation(NamedTuple):
    """One row of the list: `old`, at its `number`-th place in `file` (0: its only one), becomes `new`."""

    file: str
    number: int
    old: str
    new: str
    kind: str
    tests: str
    equivalent: str

    def planted(self, text: str) -> str:
        """The file's text with the mistake; raises `ValueError` where `old` is not there as often as `number` says."""
        parts = text.split(self.old)
        if self.old == self.new or (len(parts) != 2 if self.number == 0 else len(parts) <= self.number):
            raise ValueError(f"{self.file}: place {self.number} of {self.old!r}, which is there {len(parts) - 1} times")
        at = max(1, self.number)
        return self.old.join(parts[:at]) + self.new + self.old.join(parts[at:])


def listed() -> list[Mutation]:
    """All rows of mutations.csv."""
    with (HERE / "mutations.csv").open(newline="", encoding="utf-8") as stream:
        return [Mutation(**{**row, "number": int(row["number"] or 0)}) for row in csv.DictReader(stream)]


def copied(folder: Path) -> Path:
    """A copy of what the tests need; published records are only looked at."""
    for part in PARTS:
        source, to = ROOT / part, folder / part
        ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(source, to, ignore=ignored) if source.is_dir() else shutil.copy2(source, to)
    (folder / "reports").symlink_to(ROOT / "reports")
    return folder


def outcome_of(tree: Path, tests: list[str], limit_s: int) -> tuple[str, str]:
    """What became of the tests in `tree`, and the line that says why."""
    named = [test.partition("@") for test in tests]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--tb=short",
        *dict.fromkeys(f"suite/tests/{name}" for name, *_ in named),
    ]
    if any(word for *_, word in named):
        command += ["-k", " or ".join(dict.fromkeys(word or re.split("::|/", name)[-1] for name, _, word in named))]
    environment = {**os.environ, "PYTHONPATH": str(tree / "suite")}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return "NO END", f"no end within {limit_s} s"
    lines = done.stdout.splitlines() or [done.stderr]
    said = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1])
    if "CompileError" in done.stdout:
        return "NOT COMPILED", said
    return {0: SURVIVED, 1: CAUGHT}.get(done.returncode, f"STATUS {done.returncode}"), said


def main() -> int:
    """Prints a line for each mistake and the counts of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="mistakes whose file, kind or old text has this")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree, and tests, at a time")
    options = parser.parse_args()
    rows = [one for one in listed() if options.only in " ".join((one.file, one.kind, one.old))]
    if not rows:
        parser.error(f"no mistake has {options.only!r}")
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        trees: queue.Queue[Path] = queue.Queue()
        for job in range(options.jobs):
            trees.put(copied(Path(scratch) / str(job)))

        tree = trees.get()
        outcome, said = outcome_of(tree, sorted({test for one in rows for test in one.tests.split()}), CLEAN_LIMIT_S)
        trees.put(tree)
        if outcome != SURVIVED:
            print(f"the tests fail with nothing planted: {said}")
            return 1

        def plant(one: Mutation) -> str:
            tree, start = trees.get(), time.perf_counter()
            path = tree / one.file
            try:
                path.write_text(one.planted((ROOT / one.file).read_text("utf-8")), "utf-8")
                outcome, said = outcome_of(tree, one.tests.split(), LIMIT_S)
            finally:
                shutil.copy2(ROOT / one.file, path)
                trees.put(tree)
            kept = f" (equivalent: {one.equivalent})" if one.equivalent else ""
            seconds = time.perf_counter() - start
            print(f"{outcome:12} {one.kind:18} {one.file}: {one.old!r} -> {one.new!r}{kept}", flush=True)
            print(f"{seconds:10.0f} s  {said}", flush=True)
            return outcome

        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(plant, rows))

    counted = [(one.kind, outcome) for one, outcome in zip(rows, outcomes, strict=True) if not one.equivalent]
    planted, caught = Counter(kind for kind, _ in counted), Counter(kind for kind, how in counted if how == CAUGHT)
    print(f"\n{'kind':24}{'planted':>8}{'caught':>8}")
    for kind, count in sorted(planted.items()):
        print(f"{kind:24}{count:8}{caught[kind]:8}")
    print(f"{'all':24}{len(counted):8}{caught.total():8}   and {len(rows) - len(counted)} equivalent")
    return int(caught.total() < LEAST * len(counted))


if __name__ == "__main__":
    sys.exit(main())
