"""How much device memory attention, or a network of it, takes: measured, or counted from its buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from nnzbench.report.claims.quantities import Outcome, Side, pairs
from nnzbench.report.claims.records import Records, Row
from nnzbench.report.data import networks


@dataclass(frozen=True)
class AttentionMemory:
    """Device memory of the rival's attention, or of its network, over the subject's, each at its fastest variant."""

    experiment: str
    scope: str
    subject: Side
    rival: Side
    counted: bool = True
    """Whether buffers of one attention are counted where memory was not measured."""
    dense: bool = True

    @property
    def words(self) -> str:
        how = "measured, or where it was not, counted from their buffers" if self.counted else "measured"
        return (
            f"device memory that {self.rival.label()} takes over what {self.subject.label()} takes, each at its "
            f"fastest variant: {how}; {self.scope}"
        )

    @property
    def against(self) -> str:
        return self.rival.label()

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        both = pairs(records, self.experiment, (self.subject,), (self.rival,), policy, arithmetic)
        if not both.rows:
            return both.nothing()
        ((mine, other),) = both.rows
        measured = other.memory_bytes / mine.memory_bytes
        if not math.isnan(measured):
            return both.outcome(measured)
        if not self.counted:
            return replace(both.nothing(), note="The memory of one of them was not measured.")
        sizes = [
            _attention_bytes(row, side.series(arithmetic).math)
            for row, side in ((mine, self.subject), (other, self.rival))
        ]
        return replace(both.outcome(sizes[1] / sizes[0]), obstacle="Counted, not measured.")


def _attention_bytes(row: Row, arithmetic: str) -> int:
    return networks.attention_bytes(row.kernel, row.variant, arithmetic, row.m, row.k, row.n, row.nnz)
