"""Kills runs, `best` and `report` at random moments and says what was lost: no finished row, and no half-written file.

    python runners/trials/kill_trial.py [--times 100] [--command best|run|report ...] [--seed 0]
    python runners/trials/kill_trial.py --chain 20 [--device cpu]

Each command is first run to its end, which tells how long it takes. Each trial then starts it on the processor in a
folder of its own, ends it by SIGKILL at a random moment of that time, and looks: every line of records.csv but a last
one must be whole and parse; rows seen on disk before the kill must still be there; no other file may be cut short; and
the same command must then finish. With `--chain` one run is killed so often and gone on with each time, on the
processor or a GPU: at its end it must have the cells of a run that was never killed, each once. Exit status 1 where
anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnzbench import paths
from nnzbench.records.folder import drop_cut_off_line
from nnzbench.records.record import Key, RecordError, read_records

LIMIT_S = 300.0
COMMANDS = ("best", "run", "report")
KERNELS = ("row_stream", "sputnik")
WIDTHS = 24
"""Widths that `best` is asked about: so many that most of its time goes into rows."""


@dataclass(frozen=True)
class Trial:
    """One killed command."""

    command: str
    after_s: float
    rows: int
    faults: tuple[str, ...]


def arguments(command: str, folder: Path) -> list[str]:
    """What is run in `folder`."""
    if command == "best":
        widths = ",".join(map(str, range(1, WIDTHS + 1)))
        return ["best", "24x32@0.7", "--device", "cpu", *_named(KERNELS), "--n", widths, "--out", str(folder)]
    if command == "run":
        chosen = [*_named(KERNELS), "--quick", "--candidates", "2", "--resume"]
        return ["run", "sparsert_table1", "--device", "cpu", *chosen, "--out", str(folder)]
    return ["report", "eie_table4", "--reports", str(folder)]


def _named(kernels: Sequence[str]) -> list[str]:
    return [word for name in kernels for word in ("--kernel", name)]


def prepare(command: str, folder: Path) -> None:
    """What the command needs in its folder: a report draws a copy of published rows."""
    if command == "report":
        for recorded in sorted(paths.reports().glob("*/eie_table4")):
            shutil.copytree(recorded, folder / recorded.parent.name / recorded.name)


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """The command, as the leader of a process group of its own."""
    command = [sys.executable, "-m", "nnzbench", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def lines_of(folder: Path) -> int:
    """Whole lines of all records files below the folder."""
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("records.csv"))


def kill(command: str, folder: Path, after_s: float) -> Trial:
    """Starts, watches, kills and looks."""
    child = start(arguments(command, folder))
    ends = time.monotonic() + after_s
    seen = 0
    while time.monotonic() < ends and child.poll() is None:
        time.sleep(0.02)
        seen = max(seen, lines_of(folder))
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    return Trial(command, after_s, seen, tuple(faults(folder, seen)))


def faults(folder: Path, seen: int) -> list[str]:
    """What is not as it must be after a kill, where `seen` whole lines were on disk before it."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith(".partial-"):  # what a kill leaves is never read
            continue
        if path.name == "records.csv":
            drop_cut_off_line(path)
            try:
                if path.stat().st_size:
                    read_records(path)
            except RecordError as error:
                found.append(str(error))
        elif path.suffix == ".json":
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                found.append(f"{path.name}: half-written ({error})")
        elif path.suffix in (".html", ".svg") and not path.read_text(encoding="utf-8").rstrip().endswith(">"):
            found.append(f"{path.name}: half-written")
    if lines_of(folder) < seen:
        found.append(f"{seen} rows were on disk before the kill, {lines_of(folder)} after it")
    return found


def finish(command: str, folder: Path) -> list[str]:
    """Runs the command to its end in the same folder; what it says where it does not end well."""
    child = start(arguments(command, folder))
    try:
        _, said = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return [f"did not end within {LIMIT_S:g} s"]
    if child.returncode:
        return [f"ended with status {child.returncode}: {said.decode(errors='replace').strip()[-300:]}"]
    return faults(folder, 0)


def whole_s(command: str, folder: Path) -> float:
    """Seconds that the command takes from its start to its end, programs being compiled already."""
    for name in ("first", "second"):
        (folder / name).mkdir(parents=True)
        prepare(command, folder / name)
        started = time.monotonic()
        told = finish(command, folder / name)
        if told:
            raise SystemExit(f"{command} does not run to its end: {'; '.join(told)}")
    return time.monotonic() - started


def chain(times: int, device: str, draw: random.Random, scratch: Path) -> list[str]:
    """Kills one run `times` times and goes on with it; what sets its cells apart from those of a run in one piece."""
    words = ["run", "sputnik_figure7", "--quick", "--resume", "--device", device]
    words += _named((*KERNELS, "cusparse"))
    told: list[str] = []
    cells: dict[str, set[Key]] = {}

    def to_the_end(name: str) -> float:
        started = time.monotonic()
        child = start([*words, "--out", str(scratch / name)])
        _, said = child.communicate(timeout=LIMIT_S)
        if child.returncode:
            told.append(f"{name}: status {child.returncode}: {said.decode(errors='replace').strip()[-300:]}")
        (path,) = (scratch / name).glob("*/sputnik_figure7/records.csv")
        rows = read_records(path)
        cells[name] = {row.key for row in rows}
        if len(rows) != len(cells[name]):
            told.append(f"{name}: {len(rows) - len(cells[name])} cells twice")
        return time.monotonic() - started

    to_the_end("compiled")  # so that the next one's time is what its work takes
    longest = to_the_end("whole")
    nothing_s = to_the_end("whole")
    share_s = max(longest - nothing_s, 0.0) / times
    killed = 0
    for at in range(times):
        child = start([*words, "--out", str(scratch / "killed")])
        # at work, or just before; each kill loses what is not recorded yet, so a share each is not too much
        ends = time.monotonic() + nothing_s + share_s * draw.uniform(-1.0, 3.0)
        while time.monotonic() < ends and child.poll() is None:
            time.sleep(0.02)
        done = child.poll() is not None
        if not done:
            os.killpg(child.pid, signal.SIGKILL)
            killed += 1
        child.communicate()
        lines = lines_of(scratch / "killed")
        told += faults(scratch / "killed", lines)
        print(f"[{at + 1}/{times}] {'ended by itself' if done else 'killed'} at {lines} lines", flush=True)
    to_the_end("killed")
    lost, more = cells["whole"] - cells["killed"], cells["killed"] - cells["whole"]
    print(f"{len(cells['killed'])} cells after {killed} kills, {len(cells['whole'])} in one piece")
    return told + ([f"{len(lost)} cells missing, {len(more)} too many"] if lost or more else [])


def main() -> None:
    """Parses the command line, kills and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--command", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chain", type=int, default=0, metavar="TIMES", help="one run, killed so often")
    parser.add_argument("--device", default="cpu", help="of --chain")
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    if chosen.chain:
        with tempfile.TemporaryDirectory(prefix="nnzbench-kill-") as scratch:
            told = chain(chosen.chain, chosen.device, draw, Path(scratch))
        print("; ".join(told) or "nothing lost, nothing twice")
        sys.exit(1 if told else 0)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="nnzbench-kill-") as scratch:
        whole = {command: whole_s(command, Path(scratch) / command) for command in chosen.command}
        print(", ".join(f"{command} takes {seconds:.1f} s" for command, seconds in whole.items()), flush=True)
        for at in range(chosen.times):
            command = chosen.command[at % len(chosen.command)]
            folder = Path(scratch) / f"{at}"
            folder.mkdir()
            prepare(command, folder)
            trial = kill(command, folder, draw.uniform(0.2, whole[command]))
            told = [*trial.faults, *(f"afterwards: {text}" for text in finish(command, folder))]
            bad += bool(told)
            words = "; ".join(told) or "nothing lost"
            print(
                f"[{at + 1}/{chosen.times}] {command} after {trial.after_s:.2f} s, {trial.rows} lines: {words}",
                flush=True,
            )
    print(f"{bad} of {chosen.times} kills lost something")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
