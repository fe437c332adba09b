"""The `nnzbench` command. Subcommands are imported when they are called: `nnzbench list` loads no GPU library."""

from __future__ import annotations

import difflib
import errno
import importlib
import importlib.util
import io
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import click

from nnzbench import __version__
from nnzbench.core import paths

_COMMANDS = {
    "best": ("nnzbench.cli.best:command", "Which kernel is fastest for your own matrix, and how much over dense."),
    "run": ("nnzbench.cli.run:command", "Run experiments on this machine's GPU (or check them on its processor)."),
    "energy": ("nnzbench.cli.energy:command", "Measure joules of the fastest candidates of recorded experiments."),
    "tune": ("nnzbench.cli.tune:command", "Measure all tilings of the code generator; keep the best."),
    "fit": ("nnzbench.cli.fit:command", "Fit constants to recorded runs; say how far estimates are off."),
    "report": ("nnzbench.cli.report:command", "Redraw tables and figures from recorded runs."),
    "compare": ("nnzbench.cli.result_sets:compare", "Compare two runs on one GPU; exit 1 if anything regressed."),
    "validate": ("nnzbench.cli.result_sets:validate", "Check that a result set is fit to be contributed."),
    "export": ("nnzbench.cli.result_sets:export", "Write records as CSV or as Parquet."),
    "predict": ("nnzbench.cli.result_sets:predict", "Predict an experiment's times on a GPU from another's records."),
    "list": ("nnzbench.cli.list:command", "List experiments, kernels or problems."),
    "compile": ("nnzbench.cli.compile:command", "Compile every kernel for every architecture; needs no GPU."),
    "fetch": ("nnzbench.data.matrices.download:command", "Download the matrices of the papers."),
    "doctor": ("nnzbench.cli.doctor:command", "Say what this machine can run, and why not the rest."),
}


INTERRUPTED = 130
"""Exit status, as shells have it."""


class _InputError(click.ClickException):
    exit_code = 2


class _LazyGroup(click.Group):
    """Finds commands by name in `_COMMANDS`, and turns errors of the user's input into one sentence and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def main(self, *args: Any, **extra: Any) -> Any:
        _open_streams()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a locale without such a letter is no reason to say nothing
        try:
            return super().main(*args, **extra)
        except OSError as error:  # of what Click itself says: help, or an error
            if not paths.of_machine(error) or not extra.get("standalone_mode", True):
                raise
            with suppress(OSError):
                click.echo(f"Error: {error.strerror}", err=True)
            nothing = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):  # what is still to be written at the end of the process
                os.dup2(nothing, stream)
            sys.exit(_InputError.exit_code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], _COMMANDS, 1)
            ctx.fail(f"No such command '{args[0]}'" + (f": did you mean {near[0]}?" if near else "."))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        from nnzbench.cli import options

        options.late_pandas()  # an error need not wait for it
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        with suppress(ValueError):  # not the main thread's
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # what a time limit sends ends as Ctrl-C does
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Click would end with 1, which says that something computed wrong
            click.echo("Interrupted: what is recorded is whole.", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if paths.of_machine(error):
                where = f"{error.filename}: " if error.filename else ""
                raise _InputError(
                    f"{where}{error.strerror}: what is recorded is whole, the rest is not written"
                ) from error
            if error.errno == errno.EPIPE or error.filename is None:
                raise
            raise _InputError(f"{error.filename}: {error.strerror}") from error
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception as error:
            shown = _for_the_user(error)
            if shown is None:
                raise
            raise shown from error


def _open_streams() -> None:
    """Opens the standard streams that this process was started without, on nothing: a file would get their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
                setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _for_the_user(error: Exception) -> click.ClickException | None:
    """What is said of an error whose message was written for the user; None for others, which are defects and keep
    their traceback, as a plain ValueError does.
    """
    from nnzbench.advise.operators.arrays import OperatorError
    from nnzbench.cli.chosen import NothingMatched
    from nnzbench.core.plan import Unsupported
    from nnzbench.data.matrices.formats import MatrixError
    from nnzbench.data.problems.experiment import UnknownExperiment
    from nnzbench.devices import DeviceLost
    from nnzbench.results.records.record import RecordError

    if isinstance(error, DeviceLost):
        return click.ClickException(str(error))
    inputs = MatrixError | NothingMatched | OperatorError | RecordError | UnknownExperiment | Unsupported
    return _InputError(str(error)) if isinstance(error, inputs) else None


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run every published way of multiplying by a pruned weight matrix, checked against float64 and timed honestly.

    Exit status: 0 done, 1 something computed wrong or regressed, 2 bad usage or input, 130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
