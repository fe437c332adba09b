"""Facts of the architectures that plans depend on, from the CUDA programming guide's technical specifications."""

from __future__ import annotations

SHARED_BYTES_PER_BLOCK = {
    "sm_70": 96 * 1024,
    "sm_75": 64 * 1024,
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
}
"""Most dynamic shared memory one block can opt in to, bytes."""

# The data-centre or workstation part that each architecture is best known by; tile choice needs only the order of size.
_SM_COUNT = {"sm_70": 80, "sm_75": 40, "sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90": 132}


def sm_count(arch: str) -> int:
    """Multiprocessors of the part an architecture is best known by (V100, T4, A100, RTX A6000, RTX 4090, H100)."""
    return _SM_COUNT[arch.removesuffix("a")]
