"""PTX version and target directives per architecture."""

from __future__ import annotations

from nnzbench.kernel import Unsupported

_VERSIONS = {
    70: "6.0",
    72: "6.1",
    75: "6.3",
    80: "7.0",
    86: "7.1",
    87: "7.4",
    89: "7.8",
    90: "7.8",
    100: "8.6",
    120: "8.7",
}


def header(arch: str) -> list[str]:
    """The directives a PTX module for `arch` starts with. The version is the oldest that knows the target.

    Raises `Unsupported` for an architecture the generator does not know.
    """
    number = compute_capability(arch)
    if number not in _VERSIONS:
        raise Unsupported(f"the generator writes PTX for sm_{min(_VERSIONS)} to sm_{max(_VERSIONS)}, not for {arch}")
    return [f".version {_VERSIONS[number]}", f".target sm_{number}", ".address_size 64"]


def compute_capability(arch: str) -> int:
    """90 for `sm_90` and `sm_90a`. Raises `Unsupported` for other text."""
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise Unsupported(f"'{arch}' is not an architecture such as sm_90")
    return int(digits)
