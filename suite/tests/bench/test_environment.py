"""The snapshot's keys and forms, what NVML adds, and what must never be in it."""

import json
import os
import platform
import re
import socket
import subprocess
from types import SimpleNamespace

import pytest
from fake_gpu import open_fake

from nnzbench.bench import session as environment
from nnzbench.bench.session import overrides, settings, snapshot
from nnzbench.core.gpus import Peaks

TEXTS = "schema recorded_at late_starts"
TABLES = "gpu peaks software packages overrides host source"
GPU = {
    str: "name slug compute_capability driver",
    int: "sms l2_bytes memory_bytes shared_optin_bytes sm_clock_max_mhz sm_clock_application_mhz memory_clock_max_mhz "
    "memory_clock_application_mhz compute_processes",
    float: "power_limit_w power_limit_default_w",
    bool: "persistence ecc mig",
    list: "throttle_reasons",
}


def types(found):
    return {name: type(value) for name, value in found.items()}


def h200():
    return open_fake(
        MaxClockInfo=lambda handle, kind: {1: 1980, 2: 3201}[kind],
        ApplicationsClock=lambda handle, kind: {1: 1755, 2: 2619}[kind],
        PowerManagementLimit=700_000,
        PowerManagementDefaultLimit=650_500,
        PersistenceMode=1,
        EccMode=[1, 0],  # now, and after the next reset
        MigMode=[0, 1],
        ComputeRunningProcesses=["one"],
        CurrentClocksEventReasons=4,
    )


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)


@pytest.mark.parametrize("device", [None, "gpu"])
def test_sections_and_the_form_of_every_key(device):
    taken = snapshot(h200() if device else None)
    assert types(taken) == {**dict.fromkeys(TEXTS.split(), str), **dict.fromkeys(TABLES.split(), dict)}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]+", key) for key in keys(taken))
    assert json.loads(json.dumps(taken)) == taken
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", taken["recorded_at"])


def test_the_gpu_and_its_settings():
    gpu = snapshot(h200())["gpu"]
    assert types(gpu) == {name: kind for kind, names in GPU.items() for name in names.split()}
    assert gpu["slug"] == "nvidia-h200"
    assert gpu["compute_capability"] == "9.0"
    clocks = {"sm_clock_max_mhz": 1980, "memory_clock_max_mhz": 3201}
    clocks |= {"sm_clock_application_mhz": 1755, "memory_clock_application_mhz": 2619}
    told = {"power_limit_w": 700.0, "power_limit_default_w": 650.5, "ecc": True, "mig": False, "persistence": True}
    assert gpu == gpu | clocks | told | {"compute_processes": 1}
    assert gpu["driver"] == "580.65.06"
    assert gpu["throttle_reasons"] == ["sw_power_cap"]


def test_settings_that_nvml_does_not_tell_are_none():
    known = settings(open_fake().clocks)
    assert known.pop("driver") == "580.65.06"
    assert known.pop("throttle_reasons") == []
    assert set(known.values()) == {None}


def test_without_a_gpu_the_snapshot_says_why():
    assert snapshot(None)["gpu"] == {"missing": "no device was opened"}
    assert snapshot(SimpleNamespace(name="cpu"))["gpu"] == {"missing": "the cpu device is not a GPU"}


def test_peaks_and_the_software_of_a_run_are_kept_with_it():
    assert snapshot(None, Peaks(copy_gbs=4300.0))["peaks"]["copy_gbs"] == 4300.0
    assert set(snapshot(None)["peaks"].values()) == {None}
    software = snapshot(h200())["software"]
    assert (software["device_library"], software["cuda_runtime"]) == ("fake 1.0", "13.0")
    assert {"cublas", "cusparse", "cusparselt", "cudnn", "nvrtc", "python"} <= software.keys()


def test_only_overrides_that_are_set_are_told_and_paths_are_not():
    environ = {
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUDA_VISIBLE_DEVICES": "GPU-8f1b2c3d-1111-2222-3333-444455556666",
        "PYCUDA_DEFAULT_NVCC_FLAGS": "-I/opt/someone/include",
        "HOME": "/opt/someone",
    }
    assert overrides(environ) == {
        "nvidia_tf32_override": "0",
        "cuda_visible_devices": "set",
        "pycuda_default_nvcc_flags": "set",
    }


def test_nothing_identifies_the_machine_or_its_user(monkeypatch):
    """Their own names may be words that stand there anyway, such as `gpu` and `linux`, or not be known at all."""
    user, host = "somebody-known", "machine-known"
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME", "HOSTNAME", "HOST"):
        monkeypatch.setenv(name, host if "HOST" in name else user)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", host, "6.1", "#1", "x86_64")))
    for module, name in ((platform, "node"), (socket, "gethostname"), (socket, "getfqdn")):
        monkeypatch.setattr(module, name, lambda: host)
    text = json.dumps(snapshot(h200()))
    assert h200().facts.pci_bus_id not in text
    assert not re.search(r"GPU-[0-9a-f]{8}", text)
    assert not re.search(r'"/\w', text)  # an absolute path
    assert user not in text
    assert host not in text


def repository(folder, monkeypatch, ignored=False):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook's: they would lead to the repository that it is of
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def git(*arguments):
        names = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)

    module = folder / "suite" / "environment.py"
    module.parent.mkdir()
    module.write_text("1\n")
    git("init", "-q")
    if not ignored:
        git("add", "suite")
    (folder / "README.md").write_text("1\n")
    git("add", "README.md")
    git("commit", "-q", "-m", "first")
    monkeypatch.setattr(environment, "__file__", str(module))
    return module


def test_the_commit_and_whether_the_code_was_changed(tmp_path, monkeypatch):
    module = repository(tmp_path, monkeypatch)
    source = environment.source()
    assert re.fullmatch(r"[0-9a-f]{40}", source["commit"])
    assert source["dirty"] is False
    (tmp_path / "README.md").write_text("2\n")  # reports and prose change while measuring
    assert environment.source()["dirty"] is False
    module.write_text("2\n")
    assert environment.source()["dirty"] is True


def test_an_installed_copy_inside_another_repository_has_no_commit(tmp_path, monkeypatch):
    repository(tmp_path, monkeypatch, ignored=True)
    assert environment.source() == {"commit": None, "dirty": None}


def test_no_repository_or_no_git_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    assert environment.source() == {"commit": None, "dirty": None}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.source() == {"commit": None, "dirty": None}


def test_a_copy_without_its_repository_can_name_its_commit(monkeypatch):
    monkeypatch.setenv("NNZBENCH_COMMIT", "0123abc")
    assert environment.snapshot(None)["source"] == {"commit": "0123abc", "dirty": False}
