"""What `make readme` does: runs README's commands, in the order they stand, in a fresh clone of the last commit.

Every line of a fenced `sh` block is a command. One shell runs them all, so that what one installs or activates is there
for the next. Nothing of this checkout's environment is on its PATH. Comments in README say what is left out, on a line
or, alone on a line, for all up to the next empty one: what "needs a GPU", "needs the network" or "takes 12 minutes".
Exit status: 0 all ended with 0, else that of the first command that did not; 2 where README has no command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLONE = ROOT / "build" / "readme"
MARK = re.compile(r"#.*?\b(needs a GPU(?:'s rows)?|needs the network|takes \d+ minutes)\b")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of the `sh` blocks with the mark that leaves it out, empty where it is run."""
    for block in re.findall(r"(?ms)^```sh\n(.*?)^```", text):
        held = ""
        for line in block.replace("\\\n", " ").splitlines():
            mark = found[1] if (found := MARK.search(line)) else ""
            if not line.strip():
                held = ""
            elif line.lstrip().startswith("#"):
                held = mark
            else:
                yield " ".join(shlex.split(line, comments=True, posix=False)), mark or held


def bare() -> dict[str, str]:
    """This environment without what a fresh machine lacks: `nnzbench`, a virtual environment, the suite's variables."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NNZBENCH_", "PYTHON", "MAKE", "MFLAGS")) and name not in ("VIRTUAL_ENV", "VENV")
    }
    folders = [folder for folder in os.get_exec_path() if shutil.which("nnzbench", path=folder) is None]
    return {**kept, "PATH": os.pathsep.join(one for one in folders if not (Path(one).parent / "pyvenv.cfg").is_file())}


def main() -> int:
    found = list(commands((ROOT / "README.md").read_text(encoding="utf-8")))
    run = [command for command, mark in found if not mark]
    if not run:
        print("README.md has no sh block with a command to run", file=sys.stderr)
        return 2
    shutil.rmtree(CLONE, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--depth", "1", ROOT.as_uri(), CLONE], check=True)
    for command, mark in found:
        if mark:
            print(f"left out, {mark}: {command}")
    script = "set -eo pipefail\n" + "".join(
        f"printf '\\n$ %s\\n' {shlex.quote(command)}; SECONDS=0\n{command}\nprintf '(%s s)\\n' $SECONDS\n"
        for command in run
    )
    start = time.monotonic()
    status = subprocess.run(["bash", "-c", script], cwd=CLONE, env=bare(), stdin=subprocess.DEVNULL).returncode
    end = "all ended with 0" if not status else f"the last one above failed with {status}"
    print(f"\n{len(run)} of README's {len(found)} commands run in {time.monotonic() - start:.0f} s: {end}")
    return status


if __name__ == "__main__":
    sys.exit(main())
