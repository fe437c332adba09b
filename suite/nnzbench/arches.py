"""Facts of the architectures that plans depend on, from the CUDA programming guide's technical specifications."""

from __future__ import annotations

_KIB = 1024
_BLOCK_SHARED_BYTES = {
    "sm_70": 96 * _KIB,
    "sm_72": 96 * _KIB,
    "sm_75": 64 * _KIB,
    "sm_80": 163 * _KIB,
    "sm_86": 99 * _KIB,
    "sm_87": 163 * _KIB,
    "sm_89": 99 * _KIB,
    "sm_90": 227 * _KIB,
    "sm_100": 227 * _KIB,
    "sm_103": 227 * _KIB,
    "sm_120": 99 * _KIB,
}
_EVERYWHERE = 48 * _KIB

# The part that each architecture is best known by (V100, T4, A100, RTX A6000, RTX 4090, H100, B200, RTX 5090). Tile
# choice needs only the order of size, so an architecture that is not listed is taken for a middling one.
_SM_COUNT = {
    "sm_70": 80,
    "sm_75": 40,
    "sm_80": 108,
    "sm_86": 84,
    "sm_89": 128,
    "sm_90": 132,
    "sm_100": 148,
    "sm_120": 170,
}
_SOME_SMS = 100


def block_shared_bytes(arch: str) -> int:
    """Most shared memory one block can opt in to, bytes; what every GPU has for an architecture not listed."""
    return _BLOCK_SHARED_BYTES.get(arch.removesuffix("a"), _EVERYWHERE)


def sm_count(arch: str) -> int:
    """Multiprocessors of the part an architecture is best known by."""
    return _SM_COUNT.get(arch.removesuffix("a"), _SOME_SMS)
