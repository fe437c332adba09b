import json
import os
import subprocess
import sys
import threading

import pytest

from nnzbench.core import paths
from nnzbench.core.architectures import compiled_architectures
from nnzbench.core.plan import Unsupported
from nnzbench.devices.build import toolchain
from nnzbench.devices.build.cache import CompileError, Job, build

try:
    toolchain.nvrtc_version()
except Unsupported as reason:
    pytest.skip(str(reason), allow_module_level=True)


def compile_cuda(source, defines, arch):
    return build(Job("cuda", source, arch, defines).program())


REVERSE = """\
extern "C" __global__ void __launch_bounds__(64) reverse(float* x) {
    __shared__ float s[COUNT];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[COUNT - 1 - threadIdx.x];
}
"""
SPILL = """\
extern "C" __global__ void __launch_bounds__(1024) spill(float* x) {
    float v[200];
    for (int i = 0; i < 200; ++i) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 200; ++i) x[i * 1024 + threadIdx.x] = v[199 - i] * v[i];
}
"""


@pytest.mark.parametrize("arch", [*compiled_architectures(), "sm_90a"])
def test_compiles_for_every_architecture_without_a_gpu(arch):
    if arch == "sm_70" and toolchain.nvrtc_version()[0] >= 13:
        with pytest.raises(Unsupported, match="cuda12"):
            compile_cuda(REVERSE, {"COUNT": 64}, arch)
        return
    made = compile_cuda(REVERSE, {"COUNT": 64}, arch)
    used = made.resources["reverse"]
    assert used.shared_bytes == 256
    assert 4 <= used.registers <= 32
    assert used.spill_bytes == 0
    assert used.code_bytes > 0
    assert made.compile_ms > 0
    assert not made.cached
    assert f"for '{arch}'" in made.log
    assert toolchain.code_bytes(made.path.read_bytes()) == {"reverse": used.code_bytes}


def test_spills_are_counted():
    assert compile_cuda(SPILL, {}, "sm_80").resources["spill"].spill_bytes > 100


def test_shared_headers_and_half_precision_are_found():
    source = (
        '#include "nnz.cuh"\n#include <cuda_fp16.h>\n'
        'extern "C" __global__ void twice(__half2* x) { x[0] = __hadd2(x[0], nnz::ldg(x + 1)); }\n'
    )
    assert compile_cuda(source, {}, "sm_80").resources["twice"].registers > 0


def test_a_hit_keeps_the_original_time_and_resources():
    first = compile_cuda(REVERSE, {"COUNT": 64}, "sm_80")
    second = compile_cuda(REVERSE, {"COUNT": 64}, "sm_80")
    assert (first.cached, second.cached) == (False, True)
    assert (second.path, second.resources, second.compile_ms) == (first.path, first.resources, first.compile_ms)


def test_every_input_is_in_the_key(tmp_path, monkeypatch):
    kernels = tmp_path / "kernels_cu"
    (kernels / "include").mkdir(parents=True)
    (kernels / "include" / "nnz.cuh").write_text("#define COUNT 64\n")
    (kernels / "k.cu").write_text('#include "nnz.cuh"\n' + REVERSE)
    monkeypatch.setattr(paths, "kernels_cu", lambda: kernels)
    seen = {compile_cuda("k.cu", {}, "sm_80").path, compile_cuda("k.cu", {}, "sm_86").path}
    seen.add(compile_cuda("k.cu", {"OTHER": 1}, "sm_80").path)
    (kernels / "include" / "nnz.cuh").write_text("#define COUNT 32\n")
    changed = compile_cuda("k.cu", {}, "sm_80")
    assert changed.resources["reverse"].shared_bytes == 128
    seen.add(changed.path)
    (kernels / "k.cu").write_text('#include "nnz.cuh"\n\n' + REVERSE)
    seen.add(compile_cuda("k.cu", {}, "sm_80").path)
    monkeypatch.setattr(toolchain, "compiler_id", lambda language: f"another {language}")
    seen.add(compile_cuda("k.cu", {}, "sm_80").path)
    assert len(seen) == 6


def test_errors_name_file_and_line(tmp_path, monkeypatch):
    (tmp_path / "broken.cu").write_text("\n\n__global__ void k() { nothing(); }\n")
    monkeypatch.setattr(paths, "kernels_cu", lambda: tmp_path)
    with pytest.raises(CompileError, match=r'^broken\.cu\(3\): error: identifier "nothing" is undefined$') as caught:
        compile_cuda("broken.cu", {}, "sm_80")
    assert "1 error detected" in caught.value.log
    with pytest.raises(CompileError, match=r"no kernel file 'absent\.cu'"):
        compile_cuda("absent.cu", {}, "sm_80")
    with pytest.raises(CompileError, match="no kernel file"):
        compile_cuda("../broken.cu", {}, "sm_80")


def test_failures_are_cached_with_their_log(monkeypatch):
    with pytest.raises(CompileError) as first:
        compile_cuda("oops\n", {}, "sm_80")
    monkeypatch.setattr(toolchain, "compile_text", lambda *_: pytest.fail("compiled again"))
    with pytest.raises(CompileError) as second:
        compile_cuda("oops\n", {}, "sm_80")
    assert (str(first.value), first.value.log) == (str(second.value), second.value.log)


@pytest.mark.parametrize("damage", ["cut cubin", "lost cubin", "cut json", "other json", "old json"])
def test_a_damaged_entry_is_compiled_again(damage, cache):
    made = compile_cuda(REVERSE, {"COUNT": 64}, "sm_80")
    good = made.path.read_bytes()
    description = made.path.with_suffix(".json")
    if damage == "cut cubin":
        made.path.write_bytes(good[:-7])
    elif damage == "lost cubin":
        made.path.unlink()
    elif damage == "cut json":
        description.write_bytes(description.read_bytes()[:40])
    elif damage == "other json":
        description.write_text("[]")
    else:
        entry = json.loads(description.read_text())
        entry["resources"]["reverse"]["gone"] = 1
        description.write_text(json.dumps(entry))
    again = compile_cuda(REVERSE, {"COUNT": 64}, "sm_80")
    assert not again.cached
    assert again.path.read_bytes() == good
    assert compile_cuda(REVERSE, {"COUNT": 64}, "sm_80").cached


def test_concurrent_writers_and_readers_never_see_half_an_entry(cache):
    wrong: list[str] = []

    def work():
        for count in (32, 64):
            made = compile_cuda(REVERSE, {"COUNT": count}, "sm_80")
            if made.resources["reverse"].shared_bytes != 4 * count or made.path.read_bytes()[:4] != b"\x7fELF":
                wrong.append(str(made))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(list(cache.glob("*.json"))) == 2
    assert not list(cache.glob(".partial-*"))


def test_bad_architectures_are_unsupported():
    for arch in ("sm_20", "compute_80", "90", "sm_90; rm"):
        with pytest.raises(Unsupported):
            compile_cuda(REVERSE, {"COUNT": 64}, arch)


def test_cuda_13_names_the_way_out_for_sm_70(monkeypatch):
    monkeypatch.setattr(toolchain, "nvrtc_version", lambda: (13, 0))
    monkeypatch.setattr(toolchain, "supported_arches", lambda: ("sm_75",))
    with pytest.raises(Unsupported, match="CUDA 13 dropped sm_70: install the cuda12 extra"):
        compile_cuda(REVERSE, {"COUNT": 64}, "sm_70")


def test_without_cuda_bindings_the_reason_names_the_extra():
    code = """
import sys
sys.modules["cuda"] = None
from nnzbench.devices.build.cache import Job, build
from nnzbench.kernel import Unsupported
try:
    build(Job("cuda", "int x;\\n", "sm_80").program())
except Unsupported as reason:
    print(reason)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "pip install 'nnzbench[compile]'" in result.stdout


def test_a_file_that_is_no_cubin_is_refused():
    with pytest.raises(ValueError, match="not an ELF64"):
        toolchain.code_bytes(b"MZ" + bytes(100))
    with pytest.raises(ValueError, match="cut off"):
        toolchain.code_bytes(b"\x7fELF\x02" + b"\xff" * 60)


def test_headers_that_a_program_reads_are_found_through_others():
    headers = {"a.cuh": '#include "b.cuh"\n', "b.cuh": '#include "a.cuh"\n', "c.cuh": ""}
    assert list(toolchain.included('  #  include "a.cuh"\n#include <cuda_fp16.h>\n// "c.cuh"\n', headers)) == [
        "a.cuh",
        "b.cuh",
    ]
    assert toolchain.included('#include "c.cuh"\n', headers) == {"c.cuh": ""}
