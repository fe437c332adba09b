"""DLMC files: what is written is read back, and every kind of bad file gets a sentence naming file and field."""

import numpy as np
import pytest

from nnzbench.matrices import sparse_files
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
