"""What the runner of every experiment does: run it on this machine's GPU, then redraw its page."""

from __future__ import annotations

import sys

from nnzbench.cli import main


def nnzbench(*arguments: str) -> int:
    """Runs the command in this process; its exit status."""
    try:
        main(list(arguments), prog_name="nnzbench")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def run_and_report(experiment: str) -> None:
    """Runs `experiment` with the options of the command line, then draws its figures; exits with the run's status.

    Nothing is drawn where nothing was recorded under reports/: after `--out`, bad usage or an interruption.
    """
    given = sys.argv[1:]
    status = nnzbench("run", experiment, *given)
    elsewhere = any(option in ("-h", "--help") or option.startswith("--out") for option in given)
    if status in (0, 1) and not elsewhere:
        status = nnzbench("report", experiment) or status
    sys.exit(status)
