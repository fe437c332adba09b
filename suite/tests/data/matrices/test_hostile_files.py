"""Damaged variants of every format: one sentence or a matrix, never a traceback, much memory or much time.

250 of them are tried, or as many as `NNZBENCH_HOSTILE` says (`NNZBENCH_HOSTILE=1000`).
"""

import contextlib
import json
import os
import tempfile
import time
import tracemalloc
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from own_files import M, fake_torch, has_safetensors, has_torch, matrix, write_all

import nnzbench
from nnzbench.advise import layer
from nnzbench.data.matrices import checkpoints, files, formats
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.results.records.record import read_records

MOST_BYTES = 64 << 20
MOST_SECONDS = 5.0


@contextlib.contextmanager
def at_most(limit):
    """No more bytes are allocated than that, at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@cache
def originals():
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
def damages(draw):
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


@settings(max_examples=max(250, int(os.environ.get("NNZBENCH_HOSTILE") or 0)), suppress_health_check=list(HealthCheck))
@given(damages())
@example(("w.npy", b""))
@example(("csr.npz", b"PK\x05\x06" + bytes(18)))
@example(("w.mtx", b"%%MatrixMarket matrix array real general\n16777216 16777216\n"))
@example(("w.smtx", b"999999999999, 1, 0\n\n\n"))
@example(("w.smtx", b"2000000000, 2000000000, 2000000000\n0 1 \n0 \n"))
def test_damaged_files_end_in_a_sentence_or_a_matrix(damaged):
    name, data = damaged
    file, _, member = name.partition("::")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        path.write_bytes(data)
        started, refusal = time.process_time(), ""
        with at_most(MOST_BYTES):
            try:
                for found in files.read(f"{path}::{member}" if member else str(path)):
                    assert found.csr.offsets[-1] == found.csr.nnz == found.csr.values.size
                    assert found.csr.nnz == 0 or found.csr.indices.max() < found.csr.k
                    assert found.csr.to_scipy().has_canonical_format
            except MatrixError as error:
                refusal = str(error)
        assert refusal.isprintable()
        assert len(refusal) < 1000
        assert time.process_time() - started < MOST_SECONDS


def archive(path, array):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("w.npy", "w") as member:
        np.lib.format.write_array(member, array)


def test_a_compressed_array_takes_what_it_declares_and_little_time(tmp_path):
    archive(tmp_path / "w.npz", np.zeros((1 << 11, 1 << 13), np.int8))
    assert (tmp_path / "w.npz").stat().st_size < 1 << 15
    with at_most(2 << 24):
        (found,) = files.read(str(tmp_path / "w.npz"))
    assert found.csr.nnz == 0


def test_memory_is_refused_before_it_is_taken(tmp_path, monkeypatch):
    archive(tmp_path / "w.npz", np.zeros((1 << 11, 1 << 10), np.float32))
    np.save(tmp_path / "w.npy", np.zeros((1 << 11, 1 << 10), np.float32))
    (tmp_path / "small").mkdir()
    written = write_all(tmp_path / "small")
    monkeypatch.setattr(formats, "free_memory", lambda: 10)
    assert layer.load(["64x64@0.5"])  # a few bytes are taken whatever is said
    monkeypatch.setattr(formats, "NEVER_REFUSED", 0)
    sizes = ("46340x46340@0.5", "8192x8192@0.5")
    for text in (str(tmp_path / "w.npz"), str(tmp_path / "w.npy"), *sizes, *written.values()):
        with at_most(1 << 20), pytest.raises(MatrixError, match=r"needs [\d,]+ bytes of memory, and 10 are free"):
            layer.load([text])


def test_an_array_of_many_pieces_is_the_same_matrix(monkeypatch):
    monkeypatch.setattr(files, "_PIECE", 7)
    for dense in (matrix(), np.asfortranarray(matrix()), matrix().astype(np.float64), matrix() != 0):
        found = files.from_array("w", dense)
        assert np.array_equal(found.to_dense(), dense)
        assert found.offsets[-1] == found.nnz == found.indices.size


def test_a_header_of_gigabytes_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("w.npy", b"\x93NUMPY\x02\x00" + (1 << 24).to_bytes(4, "little") + bytes(1 << 24))
    with at_most(1 << 22), pytest.raises(MatrixError, match="no valid array header"):
        files.read(str(tmp_path / "w.npz"))


FORGED = "w\x1b]0;title\x07\nError: forged\u202e"


@pytest.mark.parametrize("kind", ["npz", "safetensors", "index"])
def test_names_in_files_reach_no_terminal_as_they_are(tmp_path, kind):
    """A terminal acts upon them: a title of another's, a line that looks like one of ours."""
    named = {FORGED: matrix(), f"{FORGED}2": matrix()}
    if kind == "npz":
        np.savez(path := tmp_path / "w.npz", **named)
    elif kind == "safetensors":
        numpy_io = pytest.importorskip("safetensors.numpy")
        numpy_io.save_file(named, path := tmp_path / "w.safetensors")
    else:
        path = tmp_path / "w.index.json"
        path.write_text(json.dumps({"weight_map": {"w": FORGED}}))
    with pytest.raises(MatrixError) as caught:
        files.read(str(path))
    assert "title" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", [b"w\xff\xfe.npy", b"<img src=x>.npy", b"w\nx\x1b[31m.npy"])
def test_a_file_of_any_name_is_recorded(cache_dir, tmp_path, name):
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    np.save(path, matrix())
    answer = nnzbench.best(path, 4, device="cpu", kernels="sputnik", out=tmp_path / "out")
    assert answer.widths[0].entries
    str(answer).encode("utf-8")
    (row, *_) = read_records(tmp_path / "out" / "cpu" / "mine" / "records.csv")
    assert row.m == M
    assert row.source.isprintable()


@pytest.mark.parametrize(
    ("does", "sentence"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"ended without an answer \(status -11\)"),
        ("time.sleep(60)", r"ended without an answer \(no answer within 1 s\)"),
        ("return bytearray(20 << 30)", "is not a state dict that loads"),
        ('print(\'{"names": ["w"]}\'); return {}', "holds no array"),
        ("raise RuntimeError('a\\nb')", r"\(a b\)"),
    ],
)
def test_a_loader_that_crashes_is_a_sentence(tmp_path, monkeypatch, does, sentence):
    path = fake_torch(tmp_path, monkeypatch, does)
    monkeypatch.setattr(checkpoints, "LONGEST_S", 1.0 if "sleep" in does else 60.0)
    with pytest.raises(MatrixError, match=sentence):
        files.read(str(path))


@pytest.mark.skipif(not has_torch(), reason="PyTorch is not installed")
def test_indices_of_a_sparse_tensor_that_lead_out_of_it_are_refused(tmp_path):
    import torch

    far = torch.tensor([[0, 10**9], [0, 1]])
    made = torch.sparse_coo_tensor(far, torch.tensor([1.0, 2.0]), (4, 4), check_invariants=False)
    torch.save({"w": made}, tmp_path / "w.pt")
    with pytest.raises(MatrixError, match=r"w\.pt"):
        files.read(str(tmp_path / "w.pt"))
