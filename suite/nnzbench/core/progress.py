"""What long work tells while it goes on: a bar on a terminal, a line a minute elsewhere, and all of it to a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

EVERY_S = 60.0
"""Least time between two lines of a log on the screen."""
FEW = 20
"""A pace is known once one step in so many is done."""
RARER = 0.2
"""Share of the time gone that the next line waits for, where that is longer: eight hours are thirty lines."""
LOG = "run.log"
Clock = Callable[[], float]


class RunProgress:
    """What a run tells while it goes on: nothing, for a caller's own program. `Lines` and `Bar` tell it."""

    def start(self, title: str, steps: int, ends: float | None = None) -> None:
        """`steps` problems lie ahead, which end at `ends` of the monotonic clock at the latest."""

    def step(self, text: str) -> None:
        """`text` names the problem and kernel that are next."""

    def advance(self) -> None:
        """One problem is done."""

    def note(self, text: str) -> None:
        """A detail, for the log."""

    def tell(self, text: str) -> None:
        """Something the user should know at once."""


class Within(RunProgress):
    """For a part of longer work, which counts its own steps: what is done now is told, and how far the part is not."""

    def __init__(self, whole: RunProgress) -> None:
        self.step, self.note, self.tell = whole.step, whole.note, whole.tell  # type: ignore[method-assign]


class Lines(RunProgress):
    """Plain lines on standard error, at most one a minute; with `verbose` each step and detail."""

    def __init__(self, log: TextIO | None = None, verbose: bool = False, clock: Clock = time.monotonic) -> None:
        self._log, self._verbose, self._clock = log, verbose, clock
        self.title, self.steps, self.done, self.now = "", 0, 0, ""
        self._ends: float | None = None
        self._began = self._first = self._said = clock()

    def start(self, title: str, steps: int, ends: float | None = None) -> None:
        self.title, self.steps, self.done, self._ends = title, steps, 0, ends
        self._began = self._clock()
        self._keep(title)

    def step(self, text: str) -> None:
        self.now = text
        self.note(f"[{self.done + 1}/{self.steps}] {text}")
        self._show()

    def advance(self) -> None:
        self.done += 1
        self._show()

    def note(self, text: str) -> None:
        self._keep(text)
        if self._verbose:
            self._print(text)

    def tell(self, text: str) -> None:
        self._keep(text)
        self._print(text)

    def left(self) -> str:
        """Such as `4 min left`, by the pace so far and never beyond the end; empty where nothing is known."""
        gone = self._clock() - self._began
        known_pace = self.steps <= FEW * self.done and self.done < self.steps  # the first steps tell little
        paced = gone * (self.steps - self.done) / self.done if known_pace else None
        known = [one for one in (paced, None if self._ends is None else self._ends - self._clock()) if one is not None]
        if not known:
            return ""
        seconds = max(0.0, min(known))
        return f"{seconds:.0f} s left" if seconds < 90 else f"{seconds / 60:.0f} min left"

    def _show(self) -> None:
        now = self._clock()
        if now - self._said < max(EVERY_S, RARER * (now - self._first)):
            return
        self._said = now
        more = self.done - self.steps
        count = f"{self.done} of {self.steps} done" if more <= 0 else f"{self.steps} and {more} more done"
        told = [f"{self.title}: {count}", self.left(), self.now]
        self._print(", ".join(filter(None, told)))

    def _print(self, text: str) -> None:
        click.echo(text, err=True)

    def _keep(self, text: str) -> None:
        if self._log is not None:
            self._log.write(f"{time.strftime('%H:%M:%S')} {text}\n")
            self._log.flush()


class _Left(ProgressColumn):
    """How long it still takes, also while a step does."""

    def __init__(self, of: Lines) -> None:
        super().__init__()
        self._of = of

    def render(self, task: Task) -> Text:
        return Text(self._of.left(), style="cyan")


class Bar(Lines):
    """One bar on a terminal: problems done of those planned, the time left, and what runs now."""

    def __init__(self, console: Console, log: TextIO | None = None, verbose: bool = False) -> None:
        super().__init__(log, verbose)
        self.bar = Progress(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Left(self),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task = self.bar.add_task("", title="", visible=False)

    def start(self, title: str, steps: int, ends: float | None = None) -> None:
        super().start(title, steps, ends)
        self.bar.reset(self._task, total=steps, description="", visible=True, title=title)

    def _show(self) -> None:
        self.bar.update(self._task, completed=self.done, total=max(self.steps, self.done), description=escape(self.now))

    def _print(self, text: str) -> None:
        self.bar.console.print(escape(text), highlight=False)


def terminal(**options: Any) -> Console:
    """A terminal (or file) to write to; under NO_COLOR without bold and dim too."""
    return Console(color_system=None if os.environ.get("NO_COLOR") else "auto", **options)


@contextmanager
def progress_bar(lines: bool = True, log: Path | None = None, verbose: bool = False) -> Iterator[RunProgress]:
    """A bar on a terminal; elsewhere lines, or nothing without `lines`. Every step and detail is added to `log`."""
    errors = terminal(stderr=True)
    with ExitStack() as stack:
        file = None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(log.open("a", encoding="utf-8"))
        if errors.is_terminal:
            bar = Bar(errors, file, verbose)
            stack.enter_context(bar.bar)
            yield bar
        else:
            yield Lines(file, verbose) if lines else RunProgress()
