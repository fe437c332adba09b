"""What `nnzbench compile` prints: a row per entry point, or a screenful of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from nnzbench.plans.architectures import number


@dataclass(frozen=True)
class Row:
    """One entry point of one variant on one architecture. None where the compiler or the launch does not tell."""

    kernel: str
    variant: str
    entry: str
    arch: str
    status: str
    """`ok`, `unsupported`, `compile-error` or `launch-error` (not one block fits on an SM)."""
    reason: str = ""
    threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    """Static plus dynamic, per block."""
    spill_bytes: int | None = None
    code_bytes: int | None = None
    occupancy: float | None = None
    """Theoretical: resident warps over the most an SM holds."""
    limiter: str | None = None
    compile_ms: float | None = None
    cached: bool | None = None


def details(rows: Iterable[Row]) -> Table:
    """A row per entry point of every variant, its architectures side by side."""
    table = Table("kernel", "variant", "entry", "arch")
    for heading in ("registers", "shared B", "spills B", "code B", "threads", "occupancy", "ms"):
        table.add_column(heading, justify="right")
    before: tuple[str, ...] = ()
    for row in rows:
        label = (row.kernel, row.variant, row.entry)
        head = ("", "", "") if label == before else label
        before = label
        share = "" if row.occupancy is None else f"{row.occupancy:.0%} ({row.limiter})"
        counts = (row.registers, row.shared_bytes, row.spill_bytes, row.code_bytes, row.threads)
        spent = "" if row.compile_ms is None else f"{row.compile_ms:.0f}{' cached' if row.cached else ''}"
        cells = ("" if count is None else str(count) for count in counts)
        table.add_row(*head, row.arch, *cells, share, spent if row.status == "ok" else f"[red]{row.status}[/red]")
    return table


def summary(rows: Sequence[Row], arches: Iterable[str], missing: str = "not for it") -> Table:
    """A line per kernel, a column per architecture: entry points compiled, of those spilling (s), failed (!).

    `missing` says why a kernel has none on an architecture.
    """
    table = Table("kernel", title=f"entry points compiled; s: of these with spills, !: failed, -: {missing}")
    columns = list(arches)
    for arch in columns:
        table.add_column(arch, justify="right")
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        base = row.arch if row.arch in columns else f"sm_{number(row.arch)}"
        counts[row.kernel, base, row.status] += 1
        counts[row.kernel, base, "spills"] += bool(row.spill_bytes)
    for kernel in dict.fromkeys(row.kernel for row in rows):
        table.add_row(kernel, *(_cell(counts, kernel, arch) for arch in columns))
    return table


def _cell(counts: Counter[tuple[str, str, str]], kernel: str, arch: str) -> str:
    ok, spills = counts[kernel, arch, "ok"], counts[kernel, arch, "spills"]
    failed = counts[kernel, arch, "compile-error"] + counts[kernel, arch, "launch-error"]
    if not ok + failed:
        return "-"
    return f"{ok}" + f" s{spills}" * bool(spills) + f" [red]!{failed}[/red]" * bool(failed)
