"""DLMC files: what is written is read back, and every kind of bad file gets a sentence naming file and field."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnzbench.matrices import generate, sparse_files
from nnzbench.matrices.formats import MatrixError

GOOD = b"3, 4, 5\n0 2 2 5 \n0 3 0 1 2 \n"


def write(folder, content):
    path = folder / "layer.smtx"
    path.write_bytes(content)
    return path


def test_reads_the_documented_format(tmp_path):
    matrix = sparse_files.read_smtx(write(tmp_path, GOOD))
    assert (matrix.m, matrix.k, matrix.nnz) == (3, 4, 5)
    assert matrix.to_dense().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]
    assert (matrix.offsets.dtype, matrix.indices.dtype, matrix.values.dtype) == (np.int32, np.int32, np.float32)


def test_an_empty_pattern_is_a_matrix(tmp_path):
    assert sparse_files.read_smtx(write(tmp_path, b"2, 3, 0\n0 0 0 \n\n")).nnz == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "header"),
        (b"3 4 5\n", "header"),
        (b"-3, 4, 5\n0 2 2 5 \n0 3 0 1 2 \n", "header"),
        (b"3, 0, 0\n0 0 0 0 \n\n", "empty matrix"),
        (b"3, 4, 13\n0 2 2 13 \n0 3 0 1 2 \n", "nnz 13"),
        (b"100000, 100000, 3000000000\n0 \n0 \n", "32-bit"),
        (b"1000, 1000, 500000\n0 1 \n0 \n", "truncated"),
        (b"3, 4, 5\n0 2 2 5 \n", "truncated"),
        (b"3, 4, 5\n0 2 2 5 \n0 3 0 1 \n", "expected 5 column indices, found 4"),
        (b"3, 4, 5\n0 2 5 \n0 3 0 1 2 2 \n", "expected 4 row offsets, found 3"),
        (b"3, 4, 5\n0 2 2 4 \n0 3 0 1 2 \n", "row offsets must run from 0 to nnz 5"),
        (b"3, 4, 5\n0 4 2 5 \n0 3 0 1 2 \n", "decrease at row 1"),
        (b"3, 4, 5\n0 2 2 5 \n0 4 0 1 2 \n", "column index 4 is out of range"),
        (b"3, 4, 5\n0 2 2 5 \n3 0 0 1 2 \n", "not ascending in row 0"),
        (b"3, 4, 5\n0 2 2 5 \n0 3 1 1 2 \n", "repeated in row 2"),
        (b"3, 4, 5\n0 2 2 5 \n0 -3 0 1 2 \n", "other than decimal numbers"),
        (b"3, 4, 5\n0 2 2 5 \n0 3 0 1 99999999999999999999 \n", "does not fit 32 bits"),
        (b"3, 4, 5\n0 2 2 5 \n0 3 0 1 2 \nmore", "unexpected data"),
        (b"3, 4, 5\n0 2 2 5 \n0 3 0 \xff 2 \n", "other than decimal numbers"),
    ],
)
def test_bad_files_are_named(tmp_path, content, says):
    with pytest.raises(MatrixError, match=r"layer\.smtx") as caught:
        sparse_files.read_smtx(write(tmp_path, content))
    assert says in str(caught.value)


def test_a_missing_or_huge_file_is_refused(tmp_path, monkeypatch):
    with pytest.raises(MatrixError, match="cannot be read"):
        sparse_files.read_smtx(tmp_path / "none.smtx")
    monkeypatch.setattr(sparse_files, "SMTX_BYTES", 10)
    with pytest.raises(MatrixError, match="larger than the 10 bytes"):
        sparse_files.read_smtx(write(tmp_path, GOOD))


def test_a_forged_header_allocates_nothing(tmp_path):
    path = write(tmp_path, b"2000000000, 2000000000, 2000000000\n0 1 \n0 \n")
    tracemalloc.start()
    with pytest.raises(MatrixError):
        sparse_files.read_smtx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def write_smtx(path, matrix):
    """Writes the pattern of `matrix` as DLMC does: every number but those of the header is followed by a space."""
    offsets = " ".join(map(str, matrix.offsets.tolist()))
    indices = " ".join(map(str, matrix.indices.tolist()))
    text = f"{matrix.m}, {matrix.k}, {matrix.nnz}\n{offsets} \n{indices + ' ' if indices else ''}\n"
    path.write_text(text, encoding="ascii", newline="\n")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.integers(0, 1000))
def test_round_trip(tmp_path, m, k, sparsity, seed):
    matrix = generate.uniform(m, k, sparsity, seed)
    write_smtx(tmp_path / "a.smtx", matrix)
    assert sparse_files.read_smtx(tmp_path / "a.smtx").pattern_hash() == matrix.pattern_hash()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.sampled_from(b"0123456789, -\n\x00a")), max_size=4))
def test_damage_never_crashes_nor_yields_nonsense(tmp_path, edits):
    content = bytearray(GOOD)
    for at, byte in edits:
        content[at] = byte
    try:
        matrix = sparse_files.read_smtx(write(tmp_path, bytes(content)))
    except MatrixError:
        return
    assert matrix.offsets[-1] == matrix.nnz
    assert (matrix.row_lengths >= 0).all()
    assert matrix.indices.size == 0 or matrix.indices.max() < matrix.k
    rebuilt = matrix.to_scipy()
    assert rebuilt.nnz == matrix.nnz
    assert rebuilt.has_canonical_format
