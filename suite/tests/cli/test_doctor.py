import importlib.metadata
import json
from types import SimpleNamespace

import pytest
from commands import invoke
from fakes import FakeDevice

from nnzbench.cli import doctor
from nnzbench.core.host import VisibleGpu
from nnzbench.core.plan import Unsupported
from nnzbench.kernels.vendor import cudnn
from nnzbench.kernels.vendor import cusparselt as vendor_cusparselt


@pytest.fixture
def one_gpu(monkeypatch):
    opened = []

    def open_device(name):
        if name == "pycuda":
            raise Unsupported("pycuda is not installed")
        if name == "cpu":
            raise OSError("the compiler crashed")
        opened.append(FakeDevice())
        return opened[-1]

    monkeypatch.setattr(doctor, "open_device", open_device)
    monkeypatch.setattr(doctor, "visible_gpus", lambda: [VisibleGpu("GPU-0", (9, 0), 1 << 36, 13010)])
    return opened


def test_every_device_is_opened_closed_and_explained(one_gpu):
    found = {finding.name: finding for finding in doctor.examine()}
    assert found["device cupy"].ok
    assert "fake-gpu" in found["device cupy"].detail
    assert (found["device pycuda"].ok, found["device pycuda"].detail) == (False, "pycuda is not installed")
    assert found["device cpu"].detail == "OSError: the compiler crashed"
    assert [device.closed for device in one_gpu] == [True, True]  # cupy and cuda-core


def test_a_missing_package_says_what_brings_it(one_gpu, monkeypatch):
    def version(name):
        if name == "pycuda" or name.startswith("cupy"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    details = [finding.detail for finding in doctor.examine()]
    assert "not installed; pip install 'nnzbench[pycuda]'" in details
    assert "not installed; pip install 'nnzbench[cuda13]'" in details


def test_without_a_gpu_that_comes_first_and_nothing_is_advised_that_needs_one(monkeypatch):
    monkeypatch.setattr(doctor, "visible_gpus", list)
    text = invoke("doctor").output
    assert text.splitlines()[0].split()[:2] == ["no", "GPU"]
    assert not any(word in text for word in ("pycuda", "cuda12", "cuda13", "cuSPARSELt", "nvcc"))
    assert "device cpu" in text


def test_data_is_counted(one_gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("NNZBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    found = {finding.name: finding for finding in doctor.examine()}
    assert not found["DLMC matrices"].ok
    assert "0 of " in found["DLMC matrices"].detail
    assert not found["real weights"].ok
    (tmp_path / "real_weights.npz").touch()
    assert {f.name: f.ok for f in doctor.examine()}["real weights"]


def test_the_command_prints_text_or_json(one_gpu):
    text = invoke("doctor")
    assert text.exit_code == 0
    assert "pycuda is not installed" in text.output
    marks = [line[:3] for line in text.output.splitlines()[:-1]]
    assert marks == sorted(marks)  # what is missing first
    found = json.loads(invoke("doctor", "--json").output)
    assert {"name", "purpose", "ok", "detail"} == set(found[0])


def test_vendor_libraries_are_loaded_for_their_versions(one_gpu, monkeypatch):
    def absent():
        raise Unsupported("cusparselt can't be loaded (no such file)")

    frontend = SimpleNamespace(backend_version_string=lambda: "9.28.0", __version__="1.32.0")
    monkeypatch.setattr(cudnn, "load_frontend", lambda: frontend)
    monkeypatch.setattr(vendor_cusparselt, "library_version", absent)
    found = {finding.name: finding for finding in doctor.examine()}
    assert (found["cuDNN"].ok, found["cuDNN"].detail) == (True, "9.28.0, frontend 1.32.0")
    assert (found["cuSPARSELt"].ok, found["cuSPARSELt"].detail) == (False, "cusparselt can't be loaded (no such file)")
