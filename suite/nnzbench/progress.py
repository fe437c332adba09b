"""What long work tells while it goes on: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")
EVERY_S = 3.0
"""Between two lines about steps of which there are too many for a line each."""


def counted(items: Iterable[T], what: str, total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[T]:
    """The same items; says on standard error every few seconds how many there were, for logs."""
    told = clock()
    for number, item in enumerate(items, start=1):
        if clock() - told >= EVERY_S:
            told = clock()
            click.echo(f"{what}: {number} of {total}", err=True)
        yield item


class RunProgress(Protocol):
    """What a run tells while it goes on."""

    def start(self, title: str, steps: int) -> None:
        """`steps` pairs of problem and kernel of the experiment `title` lie ahead."""

    def step(self, text: str) -> None:
        """`text` names the problem and kernel that are next."""

    def advance(self) -> None:
        """One pair is done."""

    def note(self, text: str) -> None:
        """Something the user should know."""


class Quiet:
    """Tells nothing: for a caller's own program."""

    def start(self, title: str, steps: int) -> None: ...
    def step(self, text: str) -> None: ...
    def advance(self) -> None: ...
    def note(self, text: str) -> None: ...


class Lines:
    """One line per step, for logs."""

    def __init__(self) -> None:
        self._done = self._steps = 0

    def start(self, title: str, steps: int) -> None:
        self._done, self._steps = 0, steps
        click.echo(title, err=True)

    def step(self, text: str) -> None:
        click.echo(f"[{self._done + 1}/{self._steps}] {text}", err=True)

    def advance(self) -> None:
        self._done += 1

    def note(self, text: str) -> None:
        click.echo(text, err=True)


class Bar:
    """A bar on standard error with the time left; notes scroll above it."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task = self._bar.add_task("", title="", visible=False)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start(self, title: str, steps: int) -> None:
        self._bar.reset(self._task, total=steps, description="", visible=True, title=title)

    def step(self, text: str) -> None:
        self._bar.update(self._task, description=escape(text))

    def advance(self) -> None:
        self._bar.advance(self._task)

    def note(self, text: str) -> None:
        self._bar.console.print(escape(text), highlight=False)


def terminal(**options: Any) -> Console:
    """A terminal (or file) to write to; under NO_COLOR without bold and dim too."""
    return Console(color_system=None if os.environ.get("NO_COLOR") else "auto", **options)


@contextmanager
def progress_bar(lines: bool = True) -> Iterator[RunProgress]:
    """A bar on a terminal; elsewhere lines, or nothing without `lines`."""
    errors = terminal(stderr=True)
    if not errors.is_terminal:
        yield Lines() if lines else Quiet()
        return
    with Bar(errors) as bar:
        yield cast(RunProgress, bar)
