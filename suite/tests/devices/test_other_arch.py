"""Another architecture's plans on the device at hand, on a GPU that is a dictionary and on the processor."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from fake_gpu import FakeBackend

from nnzbench.bench.session import snapshot
from nnzbench.bench.sweep import Choice
from nnzbench.cli.compile import programs
from nnzbench.cli.run import command
from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.data.problems.experiment import Experiment
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.build import toolchain
from nnzbench.devices.build.cache import Compiled, Job, build
from nnzbench.devices.build.pool import compile_many
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.other_arch import OtherArch, checking
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.record import read_records

SOURCE = """
extern "C" __global__ void path(int* y) {
#if __CUDA_ARCH__ >= 900
    y[0] = 900;
#else
    y[0] = __CUDA_ARCH__;
#endif
}
"""


def path_plan(shared_bytes=0, features=""):
    launch = Launch("path", (1, 1, 1), (1, 1, 1), ("y",), shared_bytes)
    return Plan("p", "cuda", SOURCE, {}, {"y": np.zeros(1, np.int32)}, "y", (launch,), features=features)


@pytest.fixture
def gpu(cache_dir):
    try:
        toolchain.nvrtc_version()
    except Unsupported as reason:
        pytest.skip(str(reason))
    backend = FakeBackend()
    backend.kernels["path"] = lambda fake, grid, block, args, shared: fake.array(args[0], np.int32, 1).fill(1)
    return GpuDevice(backend)


def test_a_gpu_runs_an_older_architectures_code_and_times_nothing(gpu):
    device = checking(gpu, "sm_75")
    assert isinstance(device, OtherArch)
    assert (device.arch, device.link, device.gpu, device.name) == ("sm_75", "sm_90", "nvidia-h200", "cupy")
    assert device.timer is None
    prepared = device.prepare(path_plan())
    prepared.run()
    assert prepared.read()[0] == 1
    assert prepared.resources is not None
    assert prepared.resources.code_bytes > 0
    with pytest.raises(Unsupported, match="path needs 66000 bytes of shared memory per block, sm_75 has 65536"):
        device.prepare(path_plan(66000))
    with pytest.raises(Unsupported, match="p uses instructions of sm_75a alone"):
        device.prepare(path_plan(features="a"))
    taken = snapshot(device)
    assert (taken["gpu"]["slug"], taken["gpu"]["runs_code_of"]) == ("nvidia-h200", "sm_75")


def test_programs_take_the_older_path_and_are_linked_for_the_gpu(gpu):
    made = {}
    for arch, link in (("sm_75", "sm_90"), ("sm_80", "sm_90"), ("sm_90", "")):
        _, made[arch] = next(compile_many([Job("cuda", SOURCE, arch, link=link)], workers=1))
    for arch, one in made.items():
        assert isinstance(one, Compiled), arch
        image = one.path.read_bytes()
        assert image[:5] == b"\x7fELF\x02"
        assert (int.from_bytes(image[0x30:0x34], "little") & 0xFF) == 90  # e_flags of a cubin: the real target
        assert "path" in one.resources
    assert len({one.path for one in made.values()}) == 3


def test_ptx_of_an_older_target_is_assembled_for_the_gpu(gpu):
    text = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry old() { ret; }\n"
    (_, made), (_, native) = compile_many([Job("ptx", text, "sm_75", link="sm_90"), Job("ptx", text, "sm_75")])
    assert isinstance(made, Compiled)
    assert isinstance(native, Compiled)
    assert made.path != native.path


def test_what_can_not_stand_in_is_told_in_one_sentence(gpu):
    for arch, reason in (
        ("sm_100", "code of sm_100 does not run on sm_90"),
        ("sm_90", "that is what this GPU is"),
        ("sm_90a", "without the suffix"),
        ("sm_20", "not in the table"),
    ):
        with pytest.raises(Unsupported, match=reason):
            checking(gpu, arch)


def test_the_processor_takes_another_architectures_plans():
    device = checking(CpuDevice(order="random:7"), "sm_75")
    assert (device.arch, device.name, device.timer) == ("sm_75", "cpu", None)


class Small(Experiment):
    def problems(self, real=None):
        return [Problem("small", "p37", "spmm", 9, 16, 37, 0.5, "uniform:1")]


def test_run_writes_a_folder_of_its_own_and_leaves_libraries_out(tmp_path, monkeypatch):
    monkeypatch.setattr("nnzbench.bench.sweep.QUICK_CANDIDATES", 1)  # each is a program to build
    monkeypatch.setitem(EXPERIMENTS, "small", Small("small", "", "", "", dict.fromkeys(("row_stream", "cublas"), ())))
    arguments = ["small", "--device", "cpu", "--as", "sm_75", "--out", str(tmp_path), "--quick"]
    try:
        CpuDevice()
    except Unsupported as reason:
        pytest.skip(str(reason))
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert "cublas" not in result.output
    folder = tmp_path / "cpu" / "small" / "as-sm_75"
    rows = read_records(folder / "records.csv")
    told = {(row.arch, row.policy, row.median_us, row.kernel, row.status) for row in rows}
    assert told == {("sm_75", "check", None, "row_stream", "ok")}
    assert json.loads((folder / "environment.json").read_text())["schema"]


def test_ptx_made_elsewhere_stands_in_for_a_compiler_that_dropped_the_architecture(gpu, tmp_path, monkeypatch):
    if not toolchain.knows("sm_70"):
        pytest.skip("this NVRTC does not make the PTX either")
    known = {"small": Small("small", "", "", "", dict.fromkeys(("sputnik", "cublas"), ()))}
    monkeypatch.setitem(EXPERIMENTS, "small", known["small"])
    folder = tmp_path / "ptx"
    asked = ["small", "--target-arch", "sm_70", "--candidates", "1", "--ptx", str(folder)]
    made = CliRunner().invoke(command, asked)
    assert made.exit_code == 0, made.output
    assert "1 programs made, 0 there before, 0 failed" in made.output
    assert "0 programs made, 1 there before, 0 failed" in CliRunner().invoke(command, asked).output
    (ptx,) = folder.glob("*.ptx")
    assert b".target sm_70" in ptx.read_bytes()

    monkeypatch.setattr(toolchain, "supported_arches", lambda: ("sm_75", "sm_80", "sm_90"))
    with pytest.raises(Unsupported, match=r"dropped sm_70|does not compile for sm_70"):
        checking(gpu, "sm_70")
    monkeypatch.setenv("NNZBENCH_PTX", str(folder))
    device = checking(gpu, "sm_70")
    (job,) = programs(known.values(), kernels(), Choice(candidates=1), "sm_70", device.link)
    compiled = build(job.program())
    assert compiled.path.read_bytes()[:5] == b"\x7fELF\x02"
    assert snapshot(device)["software"]["nvrtc"] == ".".join(map(str, toolchain.nvrtc_version()))
    with pytest.raises(Unsupported, match=r"\$NNZBENCH_PTX has no PTX of plan.cu as it is now"):
        device.prepare(path_plan())


def test_making_ptx_needs_an_architecture():
    refused = CliRunner().invoke(command, ["sparsert_table1", "--ptx", "folder"])
    assert refused.exit_code == 2
    assert "name it with --target-arch" in refused.output


def test_run_refuses_times_and_libraries_under_another_architecture():
    refused = CliRunner().invoke(command, ["sparsert_table1", "--as", "sm_75", "--policy", "hot"])
    assert refused.exit_code == 2
    assert "--target-arch sm_75 checks and times nothing" in refused.output
    library = CliRunner().invoke(command, ["sparsert_table1", "--as", "sm_75", "--kernel", "cublas"])
    assert "no kernel chosen runs on any problem chosen" in str(library.exception)
