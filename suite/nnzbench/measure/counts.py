"""What a run brought, in counts: its rows, its candidates by verdict, and the reasons that not all are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nnzbench.kernels.registry import about
from nnzbench.records.record import Record, Verdict, is_fault, verdict

REASON_LENGTH = 200
"""Characters of a reason that a summary tells."""


@dataclass
class Counts:
    """Of the rows that a run added."""

    rows: Counter[str] = field(default_factory=Counter)
    """By status."""
    candidates: Counter[tuple[Verdict, str]] = field(default_factory=Counter)
    """By verdict and kernel; a candidate's rows under several policies count once."""
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Rows that are not `ok`, by status, kernel and the first line of the reason."""

    def add(self, rows: Iterable[Record]) -> None:
        """Counts rows; all of one candidate together."""
        rows = list(rows)
        self.rows.update(row.status for row in rows)
        each = {row.key[:-1]: row for row in rows}.values()
        self.candidates.update((verdict(row.status, row.kernel), row.kernel) for row in each)
        bad = [(row, row.reason.strip().partition("\n")[0]) for row in rows if row.status != "ok"]
        self.reasons.update((row.status, row.kernel, reason[:REASON_LENGTH]) for row, reason in bad)

    def update(self, other: Counts) -> None:
        """Adds what another part of the run brought."""
        self.rows.update(other.rows)
        self.candidates.update(other.candidates)
        self.reasons.update(other.reasons)

    @property
    def failed(self) -> bool:
        """Whether something was wrong, or a kernel that is no library's crashed or did not compile."""
        return any(is_fault(status, kernel) for status, kernel, _ in self.reasons)

    def number(self, what: Verdict) -> int:
        """Candidates of which that was said."""
        return sum(count for (said, _), count in self.candidates.items() if said == what)

    def refused(self) -> dict[str, int]:
        """Candidates refused, by the name that readers know of the kernel; most first."""
        found = {about(name).label: count for (said, name), count in self.candidates.items() if said == "refused"}
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    def line(self) -> str:
        """Such as `done: 692 candidates right, 0 wrong, 3 refused by cuSPARSELt, 0 failed, 12 unsupported`."""
        refused = self.refused()
        by = ", ".join(name if len(refused) == 1 else f"{name} ({count})" for name, count in refused.items())
        told = f"{self.number('refused')} refused{f' by {by}' if by else ''}"
        wrong, failed = self.number("wrong"), self.number("failed")
        return (
            f"done: {self.number('right')} candidates right, {wrong} wrong, {told}, {failed} failed, "
            f"{self.number('unsupported')} unsupported"
        )

    def explain(self, faults: bool = False) -> Iterator[str]:
        """One line per reason that something is not right, most frequent first; with `faults` those alone."""
        for (status, kernel, reason), count in self.reasons.most_common():
            if not faults or is_fault(status, kernel):
                yield f"{count} {status}: {kernel}: {reason}"
