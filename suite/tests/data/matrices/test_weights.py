"""Arrays of `.npy` and `.npz` files, and DLMC's own: read as they are, refused in a sentence that names the field."""

import struct
import zipfile

import numpy as np
import pytest

from nnzbench.data.matrices import files
from nnzbench.data.matrices.checkpoints import load_array
from nnzbench.data.matrices.files import from_array
from nnzbench.data.matrices.formats import MatrixError


def load(path, name=None):
    return from_array(f"{path}: '{name}'", load_array(path, name))


def refused(folder, says, content):
    """Both kinds of file with an array's bytes are refused."""
    (folder / "w.npy").write_bytes(content)
    with zipfile.ZipFile(folder / "w.npz", "w") as archive:
        archive.writestr("layer.npy", content)
    for path, name in ((folder / "w.npy", None), (folder / "w.npz", "layer")):
        with pytest.raises(MatrixError, match=rf"w\.np.*{says}"):
            load(path, name)


def test_npz_and_npy_give_the_same_matrix_without_negative_zeros(tmp_path):
    array = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    array[:, 1] = -0.0
    np.savez_compressed(tmp_path / "w.npz", conv=array, other=np.ones((2, 2), np.float32))
    np.save(tmp_path / "w.npy", np.asfortranarray(array))
    for found in (load(tmp_path / "w.npz", "conv"), load(tmp_path / "w.npy")):
        assert np.array_equal(found.to_dense(), array.reshape(4, 27))
        assert found.nnz == 4 * 18


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([[1.0, np.nan]], np.float32), "NaN"),
        (np.array([[1.0, np.inf]], np.float32), "NaN or infinity"),
        (np.array([[1e300, 0.0]]), "NaN or infinity"),
        (np.ones(4, np.float32), "not a weight matrix"),
        (np.ones((0, 4), np.float32), "not a weight matrix"),
        (np.ones((2, 2), np.int32), "not floating point"),
        (np.array([[{}, 1]], dtype=object), "pickled"),
    ],
)
def test_arrays_that_are_no_weights(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    refused(tmp_path, says, (tmp_path / "a.npy").read_bytes())


def _header(shape):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (64 - (10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "shape",
    [
        "(-4, -1)", "(-4, 4)", f"({'1, ' * 70})", "(4, 4", "(4, 'x')", "(4.0, 4)", "((4, 4), 4)", "(True, 4)",
        f"({2**70}, 0)", "(" * 40, "\x00", "4j", "(1000000, 1000000)",
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_header_is_one_sentence(tmp_path, shape):
    refused(tmp_path, ": h.*needs 4000000000000 bytes" if "000000" in shape else ": h", _header(shape) + bytes(16))


GOOD = b"3, 4, 5\n0 2 2 5 \n0 3 0 1 2 \n"


def write(folder, content):
    path = folder / "layer.smtx"
    path.write_bytes(content)
    return path


def test_reads_the_documented_format(tmp_path):
    matrix = files.read_smtx(write(tmp_path, GOOD))
    assert (matrix.m, matrix.k, matrix.nnz) == (3, 4, 5)
    assert matrix.to_dense().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]
    assert (matrix.offsets.dtype, matrix.indices.dtype, matrix.values.dtype) == (np.int32, np.int32, np.float32)
    assert files.read_smtx(write(tmp_path, b"2, 3, 0\n0 0 0 \n\n")).nnz == 0


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
        files.read_smtx(write(tmp_path, content))
    assert says in str(caught.value)


def test_a_missing_or_huge_file_is_refused(tmp_path, monkeypatch):
    with pytest.raises(MatrixError, match="cannot be read"):
        files.read_smtx(tmp_path / "none.smtx")
    monkeypatch.setattr(files, "SMTX_BYTES", 10)
    with pytest.raises(MatrixError, match="larger than the 10 bytes"):
        files.read_smtx(write(tmp_path, GOOD))
