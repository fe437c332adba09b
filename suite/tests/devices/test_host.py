"""Which GPUs the CUDA driver shows, asked without a GPU library; what memory is free."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest

from nnzbench.core import host

FAKE_DRIVER = """
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDeviceGetCount(int* count) { *count = 2; return 0; }
extern "C" int cuDeviceGet(int* device, int index) { *device = index; return 0; }
extern "C" int cuDriverGetVersion(int* version) { *version = 13010; return 0; }
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute - 67 + device;
    return 0;
}
extern "C" int cuDeviceTotalMem_v2(unsigned long* bytes, int device) { *bytes = 1ul << (36 + device); return 0; }
extern "C" int cuDeviceGetUuid_v2(unsigned char* bytes, int device) {
    for (int i = 0; i < 16; ++i) bytes[i] = 16 * device + i;
    return 0;
}
"""


def test_gpus_are_named_as_cuda_visible_devices_takes_them(monkeypatch, tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("a C++ compiler builds the stand-in for the driver")
    (tmp_path / "driver.cpp").write_text(FAKE_DRIVER)
    library = tmp_path / "libcuda.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "driver.cpp"], check=True)
    driver = ctypes.CDLL(str(library))
    monkeypatch.setattr(host.ctypes, "CDLL", lambda name: driver)
    assert host.visible_gpus() == [
        host.VisibleGpu("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", (8, 9), 1 << 36, 13010),
        host.VisibleGpu("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", (9, 10), 1 << 37, 13010),
    ]


def test_without_a_driver_there_is_none(monkeypatch):
    def none(name):
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(host.ctypes, "CDLL", none)
    assert host.visible_gpus() == []


def test_a_containers_cache_of_files_is_free(monkeypatch, tmp_path):
    files = {
        "meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n",
        "memory.max": "1000000\n",
        "memory.current": "990000\n",
        "memory.stat": "anon 90000\ninactive_file 800000\nactive_file 100000\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(host, "Path", lambda name: tmp_path / "meminfo" if name == "/proc/meminfo" else tmp_path)
    assert host.free_memory() == 810_000
    (tmp_path / "memory.max").write_text("max\n")
    assert host.free_memory() == 8000 << 10
    (tmp_path / "meminfo").unlink()
    assert host.free_memory() is None
