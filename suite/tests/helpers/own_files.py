"""One small matrix in every format that is read, for tests of files and of what is asked about them."""

import importlib.util
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import io, sparse

M, K = 12, 20


def matrix() -> np.ndarray:
    """(M, K) float32 with three of ten weights kept, one empty row and one full one."""
    rng = np.random.default_rng(5)
    dense = (rng.random((M, K)) < 0.3) * rng.standard_normal((M, K))
    dense[3], dense[7] = 0, rng.standard_normal(K)
    return dense.astype(np.float32)


def smtx(dense: np.ndarray) -> str:
    """The pattern as DLMC writes it."""
    csr = sparse.csr_array(dense)
    lines = (f"{M}, {K}, {csr.nnz}", " ".join(map(str, csr.indptr)), " ".join(map(str, csr.indices)))
    return "\n".join(lines) + "\n"


def write_all(folder: Path, safetensors: bool = False, torch: bool = False) -> dict[str, str]:
    """Writes every format into the folder; the argument of `nnzbench best` for each, by a name of the format."""
    dense = matrix()
    (folder / "w.smtx").write_text(smtx(dense))
    io.mmwrite(folder / "w.mtx", sparse.coo_array(dense))
    io.mmwrite(folder / "pattern.mtx", sparse.coo_array(dense), field="pattern")
    np.save(folder / "w.npy", dense)
    np.savez(folder / "dense.npz", w=dense, bias=np.zeros(3))
    np.savez_compressed(folder / "packed.npz", w=dense, other=np.ones((2, 2)))
    for kind in ("csr", "csc", "coo"):
        sparse.save_npz(folder / f"{kind}.npz", getattr(sparse, f"{kind}_array")(dense))
    plain = ("w.smtx", "w.mtx", "pattern.mtx", "w.npy", "dense.npz", "csr.npz", "csc.npz", "coo.npz")
    found = {name: str(folder / name) for name in plain}
    found["packed.npz::w"] = f"{folder / 'packed.npz'}::w"
    if safetensors:
        from safetensors.numpy import save_file

        tensors = {"layer.weight": dense, "other.weight": dense[:4].copy(), "bias": np.zeros(3, np.float32)}
        save_file(tensors, folder / "w.safetensors")
        found["w.safetensors"] = f"{folder / 'w.safetensors'}::layer.weight"
    if torch:
        from torch import from_numpy, save

        save({"layer.weight": from_numpy(dense), "other.weight": from_numpy(dense[:4].copy())}, folder / "w.pt")
        found["w.pt"] = f"{folder / 'w.pt'}::layer.weight"
    return found


def has_safetensors() -> bool:
    """Whether the library is installed."""
    return importlib.util.find_spec("safetensors") is not None


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


TORCH = """
import os, signal, time
import numpy as np

class Tensor:
    is_sparse = False

    def __init__(self, values, shape=(3, 4), dtype="float32"):
        self.array = np.array(list(values), dtype).reshape(shape)
        self.shape, self.dtype = shape, f"torch.{dtype}"

    dim = lambda self: self.array.ndim
    numel = lambda self: self.array.size
    element_size = lambda self: self.array.itemsize
    detach = lambda self: self
    numpy = lambda self: self.array

def load(*words, **more):
    BODY
"""


def fake_torch(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """A `w.pt` whose loader runs `body`, in a package that stands for PyTorch in every process started from here."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH.replace("BODY", body))
    monkeypatch.syspath_prepend(str(folder))
    for name in [one for one in sys.modules if one.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    with zipfile.ZipFile(folder / "w.pt", "w") as packed:
        packed.writestr("w/data.pkl", b"")
    return folder / "w.pt"
