"""Matrices of one's own: every format gives the same matrix, and what is refused says why."""

import json
import os
import struct
import sys
import zipfile

import numpy as np
import pytest
from own_files import K, M, fake_torch, has_safetensors, has_torch, matrix, write_all
from scipy import io, sparse

from nnzbench.data.matrices import files
from nnzbench.data.matrices.formats import MatrixError

needs_safetensors = pytest.mark.skipif(not has_safetensors(), reason="safetensors is not installed")


def only(text):
    (found,) = files.read(str(text))
    return found


def test_every_format_gives_the_same_matrix(tmp_path):
    dense = matrix()
    for name, text in write_all(tmp_path, has_safetensors(), has_torch()).items():
        found = only(text)
        wanted = dense if found.valued else dense != 0
        assert np.array_equal(found.csr.to_dense(), wanted), name
        assert found.valued == (name not in ("w.smtx", "pattern.mtx"))


@pytest.mark.parametrize(("symmetry", "sign"), [("symmetric", 1), ("skew-symmetric", -1)])
def test_symmetric_and_dense_market_files(tmp_path, symmetry, sign):
    square = matrix()[:, :M] + sign * matrix()[:, :M].T
    io.mmwrite(tmp_path / "half.mtx", sparse.coo_array(square), symmetry=symmetry)
    io.mmwrite(tmp_path / "array.mtx", matrix())
    assert np.allclose(only(tmp_path / "half.mtx").csr.to_dense(), square)
    assert np.allclose(only(tmp_path / "array.mtx").csr.to_dense(), matrix())
    column, row = np.triu_indices(4, k=sign < 0)
    dense = np.zeros((4, 4))
    dense[row, column] = np.arange(1, row.size + 1)
    text = f"%%MatrixMarket matrix array real {symmetry}\n4 4\n" + "\n".join(map(str, range(1, row.size + 1)))
    (tmp_path / "dense.mtx").write_text(text)
    other = sign * dense.T * (1 - np.eye(4))
    assert np.array_equal(only(tmp_path / "dense.mtx").csr.to_dense(), dense + other)


def test_zeros_that_a_file_stores_are_no_nonzeros(tmp_path):
    (tmp_path / "zero.mtx").write_bytes(header("2 2 3", b"1 1 1.0\n2 1 0.0\n2 2 -0.0\n"))
    scipy_file(tmp_path / "zero.npz", data=np.zeros(sparse.csr_array(matrix()).nnz))
    assert only(tmp_path / "zero.mtx").csr.nnz == 1
    assert only(tmp_path / "zero.npz").csr.nnz == 0


def test_weights_of_more_axes_are_filters_by_the_rest(tmp_path):
    weights = np.random.default_rng(0).standard_normal((4, 3, 2, 2)).astype(np.float16)
    weights[:, 1] = 0
    np.save(tmp_path / "conv.npy", weights)
    found = only(tmp_path / "conv.npy")
    assert (found.csr.m, found.csr.k, found.shape, found.dtype) == (4, 12, (4, 3, 2, 2), "float16")
    assert np.array_equal(found.csr.to_dense(), weights.reshape(4, -1).astype(np.float32))


def test_a_mask_is_a_pattern_and_whole_numbers_are_weights(tmp_path):
    for name, array, valued in (("mask", matrix() != 0, False), ("a::b", (matrix() * 50).astype(np.int8), True)):
        np.save(tmp_path / f"{name}.npy", array)
        assert only(tmp_path / f"{name}.npy").valued == valued


def test_a_name_picks_an_array_and_a_pattern_several(tmp_path):
    np.savez(tmp_path / "two.npz", **{"a.w": matrix(), "b.w": matrix()[:3], "bias": np.ones(4)})
    assert [one.label for one in files.read(str(tmp_path / "two.npz"), ["*.w"])] == ["two.a.w", "two.b.w"]
    assert only(f"{tmp_path / 'two.npz'}::b.w").csr.m == 3
    for text, match, words in (
        ("two.npz", (), r"holds 2 matrices \(a.w, b.w\): choose one by FILE::NAME"),
        ("two.npz::c", (), "'c': is not in the file"),
        ("two.npz", ("c*",), "none of its 2 matrices is named like"),
        ("two.npz::a.w", ("b*",), "give one of the two"),
    ):
        with pytest.raises(MatrixError, match=words):
            files.read(str(tmp_path / text), match)


def test_weights_and_the_mask_that_prunes_them_are_one_matrix(tmp_path):
    weights = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    mask = (weights % 3 == 0).astype(np.float32)
    path = tmp_path / "w.npz"
    np.savez(path, **{"a.weight_orig": weights, "a.weight_mask": mask, "b_mask": mask})
    found = {one.label: one.csr for one in files.read(str(path), ["*"])}
    assert set(found) == {"w.a.weight", "w.b_mask"}
    assert found["w.a.weight"].values.tolist() == [3, 6, 9, 12]
    np.savez(path, w_orig=weights, w_mask=mask[:2])
    with pytest.raises(MatrixError, match="mask has the shape"):
        files.read(str(path))


def compressed(dense, name="layer.weight"):
    """The four tensors that compressed-tensors writes for one under `sparse-bitmask`; bits are set one by one."""
    rows, columns = np.nonzero(dense)
    bits = np.zeros((len(dense), -(-dense.shape[1] // 8)), np.uint8)
    for row, column in zip(rows, columns, strict=True):
        bits[row, column // 8] |= 1 << column % 8  # the first weight in the lowest bit
    return {
        f"{name}.compressed": dense[rows, columns],
        f"{name}.bitmask": bits,
        f"{name}.shape": np.array(dense.shape, np.int64),
        f"{name}.row_offsets": np.searchsorted(rows, np.arange(len(dense))),
    }


@needs_safetensors
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_bitmask_checkpoints_are_their_weights(tmp_path, kind):
    from safetensors.numpy import save_file

    path, dense = tmp_path / "model.safetensors", matrix().astype(kind)
    save_file({**compressed(dense), "head.weight": dense[:4].copy(), "bias": np.zeros(3, kind)}, path)
    found = {one.name: one for one in files.read(str(path), ["*"])}
    assert set(found) == {"layer.weight", "head.weight"}
    assert np.array_equal(found["layer.weight"].csr.to_dense(), dense.astype(np.float32))
    assert found["layer.weight"].dtype == np.dtype(kind).name
    own = files.pack_bitmask(found["layer.weight"].csr)
    assert all(np.array_equal(own[part], compressed(dense)[f"layer.weight{part}"]) for part in files.PARTS)


@needs_safetensors
@pytest.mark.parametrize("damage", ["compressed", "bitmask", "shape", "row_offsets", "lacking"])
def test_a_damaged_bitmask_is_refused(tmp_path, damage):
    from safetensors.numpy import save_file

    tensors = compressed(matrix())
    if damage == "lacking":
        del tensors["layer.weight.compressed"]
    else:
        array = tensors[f"layer.weight.{damage}"]
        tensors[f"layer.weight.{damage}"] = array[:-1].copy() if damage != "shape" else array + 8
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(MatrixError, match=r"bitmask|row offsets|not in the file"):
        only(tmp_path / "w.safetensors")


@needs_safetensors
def test_an_index_reads_its_shards_as_one_file(tmp_path):
    from safetensors.numpy import save_file

    packed = compressed(matrix())
    first = {name: packed[name] for name in list(packed)[:2]}
    rest = {name: packed[name] for name in list(packed)[2:]} | {"head.weight": matrix(), "unlisted.weight": matrix()}
    save_file(first, tmp_path / "model-1.safetensors")
    save_file(rest, tmp_path / "model-2.safetensors")
    where = dict.fromkeys(first, "model-1.safetensors") | dict.fromkeys(rest, "model-2.safetensors")
    where.pop("unlisted.weight")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    found = {one.label: one.csr for one in files.read(str(index), ["*"])}
    assert set(found) == {"model.layer.weight", "model.head.weight"}
    assert np.array_equal(found["model.layer.weight"].to_dense(), matrix())
    with pytest.raises(MatrixError, match="is not in the file"):
        files.read(f"{index}::unlisted.weight")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "is not an index of shards") for text in ("{", "[]", '{"weight_map": {"a": 1}}')),
        *((json.dumps({"weight_map": {"a": file}}), "a shard is a file beside it")
          for file in ("../a.safetensors", "", "m.index.json")),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors: cannot be read"),
    ],
)  # fmt: skip
def test_an_index_that_names_no_shards_is_refused(tmp_path, text, words):
    (tmp_path / "m.index.json").write_text(text)
    with pytest.raises(MatrixError, match=words):
        files.read(str(tmp_path / "m.index.json"), ["*"])


def header(entry, text=b""):
    return b"%%MatrixMarket matrix coordinate real general\n" + entry.encode() + b"\n" + text


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.mtx", b"hello\n", "does not begin with"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n", "its field is 'complex'"),
        ("a.mtx", header("9 9 1000000"), "cannot hold 1000000 entries"),
        ("a.mtx", header("99999999 1 0"), "more than the 16777216 allowed"),
        ("a.mtx", header("0 5 0"), "not those of a matrix"),
        ("a.mtx", header("2 2 -1"), "must hold 3 whole numbers"),
        ("a.mtx", header("2 2 1", b"3 1 1.0\n"), "not a readable Matrix Market file"),
        ("a.mtx", header("2 2 1", b"1.5 1 1.0\n"), "a place is not one of 2 x 2"),
        ("a.mtx", header("2 2 1", b"1 2 1.0\n").replace(b"general", b"symmetric"), "more than the lower half"),
        ("a.mtx", header("2 2 2", b"1 1 1.0\n1 1 2.0\n"), "gives an entry twice"),
        ("a.mtx", header("2 2 1", b"1 1 nan\n"), "NaN or infinity"),
        ("a.mtx", header("2 2 1", b"1 1 1e300\n"), "do not fit float32"),
        ("a.txt", b"1 2 3", "its ending tells no format"),
        ("a.npy", b"\x93NUMPY", "no valid array header"),
        ("a.npz", b"PK\x03\x04", "not a readable archive"),
        ("a.pt", b"\x80\x02c", "PyTorch"),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(MatrixError, match=words) as caught:
        only(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    (tmp_path / "gone.npy").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.npy").mkdir()
    for name in ("pipe.npy", "loop.npy", "gone.npy", "folder.npy", "nul\0.npy", "/dev/zero"):
        with pytest.raises(MatrixError, match=r"plain file|cannot be read"):
            files.read(name if name.startswith("/") else str(tmp_path / name))


FALLING = sparse.csr_array(matrix()).indptr.copy()
FALLING[1:3] = FALLING[2:0:-1]


def scipy_file(path, **changes):
    csr = sparse.csr_array(matrix())
    arrays = {
        "format": np.array(b"csr"), "shape": np.array(csr.shape), "data": csr.data, "indices": csr.indices,
        "indptr": csr.indptr, **changes,
    }  # fmt: skip
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": np.array(b"dia")}, "stored as 'dia'"),
        ({"shape": np.array([M])}, "has 1 numbers"),
        ({"shape": np.array([M, 3])}, "is not a readable sparse matrix"),
        ({"shape": np.array([2**40, K])}, "more than the 16777216"),
        ({"shape": np.array([-1, K])}, "not those of a matrix"),
        ({"indptr": np.arange(M + 1)}, "is not a readable sparse matrix"),
        ({"indptr": FALLING}, "is not a readable sparse matrix"),
        ({"data": np.ones(3)}, "is not a readable sparse matrix"),
        ({"indices": np.array([1, 2])}, "is not a readable sparse matrix"),
        ({"data": np.array([object()])}, "pickled"),
        ({"data": np.full(sparse.csr_array(matrix()).nnz, np.nan)}, "NaN or infinity"),
    ],
)
def test_damaged_scipy_files_are_refused(tmp_path, changes, words):
    scipy_file(tmp_path / "a.npz", **changes)
    with pytest.raises(MatrixError, match=words):
        only(tmp_path / "a.npz")


def test_an_archive_that_names_an_array_otherwise_where_it_lies_is_refused_briefly(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.eye(40, dtype=np.float32))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[27] = 4  # the array's own header claims 1,024 more bytes of name, which zipfile's message would show
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(MatrixError, match="is not a readable archive") as refused:
        only(tmp_path / "a.npz")
    assert len(str(refused.value)) < 300 + len(str(tmp_path))


def test_an_archive_that_unpacks_to_gigabytes_is_refused_by_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr("nnzbench.data.matrices.checkpoints.MAX_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "bomb.npz", w=np.zeros((2048, 1024), np.float32))
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    with pytest.raises(MatrixError, match="more than the 1048576 allowed"):
        only(f"{tmp_path / 'bomb.npz'}::w")


def safetensors_file(path, header, data, size=None):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + data)


@needs_safetensors
def test_bf16_tensors_are_their_values(tmp_path):
    bits = np.array([0x3F80, 0, 0xC000, 0], np.uint16)
    entry = {"w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}
    safetensors_file(tmp_path / "w.safetensors", entry, bits.tobytes())
    found = only(tmp_path / "w.safetensors")
    assert found.dtype == "bfloat16"
    assert np.array_equal(found.csr.to_dense(), [[1.0, 0.0], [-2.0, 0.0]])


@needs_safetensors
@pytest.mark.parametrize(
    ("shape", "offsets", "size"),
    [([2, 2], [0, 8], None), ([-2, 2], [0, 16], None), ([2, 2], [16, 0], None), ([2**40, 2**40], [0, 16], None),
     ([2, 2], [0, 16], 2**62)],
)  # fmt: skip
def test_forged_safetensors_are_refused(tmp_path, shape, offsets, size):
    entry = {"w": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}
    safetensors_file(tmp_path / "w.safetensors", entry, bytes(16), size)
    with pytest.raises(MatrixError, match="is not a safetensors file"):
        only(tmp_path / "w.safetensors")


def test_missing_libraries_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    for name, extra in (("w.safetensors", "safetensors"), ("w.pt", "torch")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(MatrixError, match=rf"pip install 'nnzbench\[{extra}\]'"):
            only(tmp_path / name)


def test_a_state_dict_is_loaded_without_unpickling_freely(tmp_path, monkeypatch):
    """PyTorch itself is not installed for the tests: what it is asked for is checked here."""
    fake_torch(
        tmp_path,
        monkeypatch,
        "assert more['weights_only'] is True; "
        "return {'state_dict': {'w': Tensor(range(12)), 'bias': Tensor([1, 1], (2,)), 'epoch': 7}}",
    )
    (found,) = files.read(str(tmp_path / "w.pt"))
    assert (found.label, found.dtype) == ("w.w", "float32")
    assert np.array_equal(found.csr.to_dense(), np.arange(12).reshape(3, 4))
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(1 << 20))
    with pytest.raises(MatrixError, match="compressed members"):
        only(tmp_path / "bomb.pt")


def test_a_real_state_dict(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save({"w": torch.from_numpy(matrix()), "half": torch.ones(2, 2, dtype=torch.bfloat16)}, tmp_path / "w.pt")
    assert np.array_equal(only(f"{tmp_path / 'w.pt'}::w").csr.to_dense(), matrix())
    assert only(f"{tmp_path / 'w.pt'}::half").dtype == "bfloat16"
