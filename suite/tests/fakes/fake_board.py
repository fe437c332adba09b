"""A simulated GPU board: work takes time and watts, a counter of joules ticks ten times a second. Not a test file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fakes import FakeDevice, FakeTimer

TICK_S = 0.1
IDLE_W = 70.0


@dataclass
class BoardTimer(FakeTimer):
    """Work runs one after another while the clock passes, each piece at what `watts` says at its start."""

    watts: Callable[[float], float] = lambda at: 400.0
    pieces: deque = field(default_factory=deque)
    """Start, end and watts of each piece of work that has not been counted as past."""
    free_at: float = 0.0
    past_j: float = 0.0

    def enqueue(self, body):
        before = self.enqueued_us
        body()
        start = max(self.clock.now, self.free_at)
        self.free_at = end = start + (self.enqueued_us - before) * 1e-6
        self.pieces.append((start, end, self.watts(start)))
        return lambda: self.clock.now >= end

    def joules(self, until):
        """Above idle, of what is done by then; asked for ever later moments."""
        while self.pieces and self.pieces[0][1] <= until:
            start, end, watts = self.pieces.popleft()
            self.past_j += (end - start) * (watts - IDLE_W)
        start, _, watts = self.pieces[0] if self.pieces else (until, until, 0.0)
        return self.past_j + max(0.0, until - start) * (watts - IDLE_W) + IDLE_W * until


@dataclass
class Board:
    """What NVML tells of it: `gain` is the error of the power sensor, `stuck` a counter that stands still."""

    timer: BoardTimer
    gain: float = 1.0
    stuck: bool = False
    tells: bool = True

    def energy_j(self):
        if not self.tells:
            return None
        return 5000.0 + (0.0 if self.stuck else self.timer.joules(int(self.timer.clock.now / TICK_S + 1e-9) * TICK_S))

    def power_w(self):
        now = self.timer.clock.now
        busy = (watts for start, end, watts in self.timer.pieces if start <= now < end)
        return self.gain * next(busy, IDLE_W)

    def temperature_c(self):
        return 55.0

    def sleep(self, seconds):
        self.timer.clock.now += seconds


class BoardDevice(FakeDevice):
    """A fake GPU with a board."""

    def __init__(self, **board):
        super().__init__()
        self.timer = BoardTimer()
        self.clocks = Board(self.timer, **board)
