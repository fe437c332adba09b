"""PTX made on another machine, for an architecture that the compiler here has dropped: the folder `$NNZBENCH_PTX`.

CUDA 13 does not compile for sm_70, but still assembles its PTX for a newer GPU. So the PTX is made where CUDA 12 is
(`nnzbench run ... --target-arch sm_70 --ptx FOLDER`, no GPU needed) and found here by what it was made from:
`<key>.ptx`.
"""

from __future__ import annotations

from pathlib import Path

from nnzbench import paths

COMPILER = "compiler"
"""File of the folder that names the NVRTC which made it."""


def read(key: str) -> bytes | None:
    """The PTX of that key; None where there is none, or no folder."""
    folder = paths.ptx()
    path = folder / f"{key}.ptx" if folder else None
    return path.read_bytes() if path and path.is_file() else None


def write(folder: Path, key: str, ptx: bytes) -> None:
    """Keeps the PTX under its key."""
    with paths.replacing(folder / f"{key}.ptx") as partial:
        partial.write_bytes(ptx)


def compiler() -> str | None:
    """Version of the NVRTC that made the folder's PTX; None where it does not say, or there is no folder."""
    folder = paths.ptx()
    path = folder / COMPILER if folder else None
    return path.read_text(encoding="utf-8").strip() if path and path.is_file() else None
