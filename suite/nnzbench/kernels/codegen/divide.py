"""Division by a constant: ptxas does not strength-reduce it, and its general division costs a hundred cycles."""

from __future__ import annotations


def divide(quotient: str, dividend: str, divisor: int) -> list[str]:
    """PTX for `quotient = dividend / divisor` of u32 registers, exact for dividends below 2**31. Uses `%wide`.

    Multiplies by ceil(2**(31 + l) / divisor), l = ceil(log2 divisor), which fits 32 bits, and shifts (Granlund and
    Montgomery, 1994).
    """
    if divisor & (divisor - 1) == 0:
        return [f"shr.u32 {quotient}, {dividend}, {divisor.bit_length() - 1};"]
    shift = 31 + (divisor - 1).bit_length()
    factor = -(-(1 << shift) // divisor)
    return [
        f"mul.wide.u32 %wide, {dividend}, {factor};",
        f"shr.u64 %wide, %wide, {shift};",
        f"cvt.u32.u64 {quotient}, %wide;",
    ]


def divmod_ptx(quotient: str, remainder: str, dividend: str, divisor: int) -> list[str]:
    """PTX for quotient and remainder; the three registers must differ."""
    lines = divide(quotient, dividend, divisor)
    if divisor & (divisor - 1) == 0:
        return [*lines, f"and.b32 {remainder}, {dividend}, {divisor - 1};"]
    return [*lines, f"mul.lo.u32 {remainder}, {quotient}, {divisor};", f"sub.u32 {remainder}, {dividend}, {remainder};"]
