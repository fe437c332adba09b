"""Where the seconds of a run go, by phase; and whose turn it is where several processes measure on one GPU."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

from nnzbench.data.problems.experiment import POLICIES

Phase = Literal[
    "operands", "reference", "planning", "compiling", "preparing", "checking", "hot", "cold", "stream", "loop",
    "warming", "cooling", "memory", "waiting", "recording",
]  # fmt: skip
"""`operands`: patterns, values, their rounding; `reference`: the float64 result; `planning`: enumerating candidates,
with their packing and generated code; `preparing`: uploading, loading, libraries' own preparation, the first run;
`checking`: comparing with the float64 result; `cooling`: waiting for a GPU that is too hot; `waiting`: for another
process to leave the GPU."""
ON_GPU: tuple[Phase, ...] = ("preparing", *POLICIES, "warming", "memory")
"""Phases in which the GPU is one process's own."""


@dataclass
class Phases:
    """Seconds by phase. A phase inside another one counts for itself alone."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    clock: Callable[[], float] = time.monotonic
    _open: list[Phase] = field(default_factory=list)
    _since: float = 0.0

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """What was added to an earlier copy of `seconds`, the phase under way included. Any thread may ask."""
        now = self.seconds.copy()
        for phase in self._open[-1:]:
            now[phase] += self.clock() - self._since
        return {name: amount - before.get(name, 0.0) for name, amount in now.items()}

    @contextmanager
    def of(self, phase: Phase) -> Iterator[None]:
        """What is done in the `with` block is that phase's."""
        self._switch()
        self._open.append(phase)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def within(self, phases: Collection[Phase]) -> bool:
        """Whether one of these is under way."""
        return any(phase in phases for phase in self._open)

    def _switch(self) -> None:
        now = self.clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


Turn = Callable[[], AbstractContextManager[object]]
"""Waits until the GPU is this process's own, for the time of a `with` block."""


@dataclass(frozen=True)
class Work:
    """How a candidate's work is told apart: its phases, and the turn that what runs on the GPU waits for."""

    phases: Phases = field(default_factory=Phases)
    turn: Turn = nullcontext

    @property
    def shared(self) -> bool:
        """Whether other processes have the GPU in between."""
        return self.turn is not nullcontext

    @contextmanager
    def on_gpu(self, phase: Phase) -> Iterator[None]:
        """The GPU is this process's own in the `with` block, and what is done there is that phase's."""
        with ExitStack() as held:
            if not self.phases.within(ON_GPU):  # else it is already
                with self.phases.of("waiting"):
                    held.enter_context(self.turn())
            with self.phases.of(phase):
                yield


def lines(seconds: Mapping[str, float], processes: int = 1) -> Iterator[str]:
    """In words, the longest phase first: of one process, or of several together."""
    total = sum(seconds.values())
    if total <= 0:
        return
    of = f" of {processes} processes" if processes > 1 else ""
    shown = sorted(seconds.items(), key=lambda one: -one[1])
    parts = ", ".join(f"{name} {amount / total:.0%}" for name, amount in shown if amount / total >= 0.005)
    yield f"{total:.0f} s{of} went into: {parts}."
