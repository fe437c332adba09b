"""250 damaged variants of every format: one sentence or a matrix, never a traceback, much memory or much time."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from own_files import has_safetensors, has_torch, write_all

from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.readers import files

MOST_BYTES = 64 << 20
MOST_SECONDS = 5.0


@cache
def originals() -> dict[str, bytes]:
    """Every format's bytes by the end of what names its matrix."""
    with tempfile.TemporaryDirectory() as folder:
        found = write_all(Path(folder), has_safetensors(), has_torch())
        return {
            f"{file}{mark}{name}": Path(folder, file).read_bytes()
            for file, mark, name in (text.removeprefix(f"{folder}/").partition("::") for text in found.values())
        }


NUMBERS = (b"-1", b"0", b"9" * 10, b"4294967296", b"9" * 18, b"1e9", b"nan", b"0x7")
HEADERS = (b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f", b"\x93NUMPY\x03\x00", b"PK\x05\x06", b"(99999999999, 20)")


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, bytes]:
    """A format and its bytes after one to three blows."""
    name = draw(st.sampled_from(sorted(originals())))
    data = bytearray(originals()[name])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(("cut", "flip", "insert", "number", "header", "repeat", "zeros"))):
            case "cut":
                del data[at:]
            case "flip" if data:
                data[at] ^= draw(st.integers(1, 255))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=20))
            case "number":
                data[at : at + 3] = draw(st.sampled_from(NUMBERS))
            case "header":
                data[at : at + 8] = draw(st.sampled_from(HEADERS))
            case "repeat":
                data[at:at] = data[: draw(st.integers(0, 200))]
            case "zeros":
                data[at : at + draw(st.integers(1, 50))] = bytes(20)
    return name, bytes(data)


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(damages())
@example(("w.npy", b""))
@example(("csr.npz", b"PK\x05\x06" + bytes(18)))
@example(("w.mtx", b"%%MatrixMarket matrix array real general\n16777216 16777216\n"))
@example(("w.smtx", b"999999999999, 1, 0\n\n\n"))
def test_damaged_files_end_in_a_sentence_or_a_matrix(damaged):
    name, data = damaged
    file, _, member = name.partition("::")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        path.write_bytes(data)
        tracemalloc.start()
        started, refusal = time.process_time(), ""
        try:
            for found in files.read(f"{path}::{member}" if member else str(path)):
                assert found.csr.offsets[-1] == found.csr.nnz == found.csr.values.size
                assert found.csr.nnz == 0 or found.csr.indices.max() < found.csr.k
        except MatrixError as error:
            refusal = str(error)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "\n" not in refusal
        assert len(refusal) < 1000
        assert most < MOST_BYTES
        assert time.process_time() - started < MOST_SECONDS
