"""Arrays of `.npy` and `.npz` files: read as they are, refused where they are not weights, never trusted."""

import struct
import zipfile

import numpy as np
import pytest

from nnzbench.matrices.checkpoints import load_array
from nnzbench.matrices.files import from_array
from nnzbench.matrices.formats import MatrixError


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


def test_missing_things_are_named(tmp_path):
    np.savez(tmp_path / "w.npz", layer=np.ones((2, 2)))
    (tmp_path / "text.npz").write_text("hello")
    for name, array, says in (
        ("w.npz", "none", "array 'none': is not in the file"),
        ("absent.npy", None, "cannot be read"),
        ("text.npz", "layer", "not a readable archive"),
    ):
        with pytest.raises(MatrixError, match=says):
            load(tmp_path / name, array)
    refused(tmp_path, "no valid array header", b"hello")


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


@pytest.mark.parametrize("keep", [0, 5, 40, 127, 150])
def test_truncation_is_one_sentence(tmp_path, keep):
    np.save(tmp_path / "a.npy", np.ones((16, 16), np.float32))
    refused(tmp_path, "", (tmp_path / "a.npy").read_bytes()[:keep])
    np.savez(tmp_path / "w.npz", layer=np.ones((16, 16), np.float32))
    (tmp_path / "w.npz").write_bytes((tmp_path / "w.npz").read_bytes()[:keep])
    with pytest.raises(MatrixError, match=r"w\.npz"):
        load(tmp_path / "w.npz", "layer")
