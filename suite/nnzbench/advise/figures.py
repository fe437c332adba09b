"""Numbers of answers as text: an estimate claims two digits, a measured time more."""

from __future__ import annotations


def ratio_text(ratio: float, estimated: bool) -> str:
    """A quotient of two times in digits."""
    return two_digits(ratio) if estimated else f"{ratio:.2f}"


def two_digits(value: float) -> str:
    """As many as an estimate may claim."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:#.2g}".rstrip(".")


def estimated_us(us: float) -> str:
    """Microseconds of an estimate, with their unit."""
    return f"{two_digits(us / 1e3)} ms" if us >= 1e4 else f"{two_digits(us)} us"


def us_text(us: float | None, estimated: bool = False) -> str:
    """Microseconds with their unit, `-` for none."""
    if us is None:
        return "-"
    if estimated:
        return estimated_us(us)
    return f"{us / 1e3:.2f} ms" if us >= 1e4 else f"{us:.1f} us" if us >= 10 else f"{us:.2f} us"
