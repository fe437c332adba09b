"""Weight arrays: read as they are, refused where they are not weights, never trusted."""

import struct
import zipfile

import numpy as np
import pytest

from nnzbench.matrices import checkpoints
from nnzbench.matrices.checkpoints import load_weights
from nnzbench.matrices.formats import CSR, MatrixError


def test_npz_and_npy_give_the_same_matrix(tmp_path):
    array = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    np.savez_compressed(tmp_path / "w.npz", conv=array, other=np.ones((2, 2), np.float32))
    np.save(tmp_path / "w.npy", np.asfortranarray(array))
    expected = array.reshape(4, 27)
    assert np.array_equal(load_weights(tmp_path / "w.npz", "conv"), expected)
    assert np.array_equal(load_weights(tmp_path / "w.npy"), expected)


def test_negative_zero_is_a_zero(tmp_path):
    np.save(tmp_path / "w.npy", np.array([[-0.0, 1.0], [0.0, -2.0]], np.float32))
    matrix = CSR.from_dense(load_weights(tmp_path / "w.npy"))
    assert matrix.nnz == 2
    assert matrix.indices.tolist() == [1, 1]


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
    np.save(tmp_path / "w.npy", array, allow_pickle=True)
    np.savez(tmp_path / "w.npz", layer=array)
    for path, name in ((tmp_path / "w.npy", None), (tmp_path / "w.npz", "layer")):
        with pytest.raises(MatrixError, match=says):
            load_weights(path, name)


def test_missing_things_are_named(tmp_path):
    np.savez(tmp_path / "w.npz", layer=np.ones((2, 2)))
    with pytest.raises(MatrixError, match="array 'none': is not in the file"):
        load_weights(tmp_path / "w.npz", "none")
    with pytest.raises(MatrixError, match="cannot be read"):
        load_weights(tmp_path / "absent.npy")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(MatrixError, match="not a readable archive"):
        load_weights(tmp_path / "text.npz", "layer")
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(MatrixError, match="no valid array header"):
        load_weights(tmp_path / "text.npy")


def _header(shape):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (64 - (10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_a_header_that_promises_more_than_the_file_is_refused(tmp_path):
    content = _header("(1000000, 1000000)") + bytes(16)
    (tmp_path / "w.npy").write_bytes(content)
    with pytest.raises(MatrixError, match="needs 4000000000000 bytes, the file has 16"):
        load_weights(tmp_path / "w.npy")
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("layer.npy", content)
    with pytest.raises(MatrixError, match="needs 4000000000000 bytes, the file has 16"):
        load_weights(tmp_path / "w.npz", "layer")


@pytest.mark.parametrize(
    "shape",
    [
        "(-4, -1)",
        "(-4, 4)",
        f"({'1, ' * 70})",
        "(4, 4",
        "(4, 'x')",
        "(4.0, 4)",
        "((4, 4), 4)",
        "(True, 4)",
        f"({2**70}, 0)",
        "(" * 40,
        "\x00",
        "4j",
    ],
    ids=str,
)
def test_an_impossible_header_is_one_sentence(tmp_path, shape):
    content = _header(shape) + bytes(16)
    (tmp_path / "w.npy").write_bytes(content)
    with pytest.raises(MatrixError, match=r"w\.npy: h"):
        load_weights(tmp_path / "w.npy")
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("layer.npy", content)
    with pytest.raises(MatrixError, match=r"array 'layer': h"):
        load_weights(tmp_path / "w.npz", "layer")


def test_a_zip_bomb_is_refused_by_its_declared_size(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "w.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("layer.npy", _header("(1024, 1024)") + bytes(4 << 20))
    with pytest.raises(MatrixError, match="more than the 1048576 allowed"):
        load_weights(tmp_path / "w.npz", "layer")


@pytest.mark.parametrize("keep", [0, 5, 40, 127, 150])
def test_truncation_is_one_sentence(tmp_path, keep):
    np.save(tmp_path / "w.npy", np.ones((16, 16), np.float32))
    (tmp_path / "w.npy").write_bytes((tmp_path / "w.npy").read_bytes()[:keep])
    with pytest.raises(MatrixError, match=r"w\.npy"):
        load_weights(tmp_path / "w.npy")
    np.savez(tmp_path / "w.npz", layer=np.ones((16, 16), np.float32))
    (tmp_path / "w.npz").write_bytes((tmp_path / "w.npz").read_bytes()[:keep])
    with pytest.raises(MatrixError, match=r"w\.npz"):
        load_weights(tmp_path / "w.npz", "layer")
