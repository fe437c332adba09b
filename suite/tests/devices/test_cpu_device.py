import contextlib
import errno
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nnzbench.bench.trial import failure
from nnzbench.core.paths import CannotWrite
from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.devices import cpu_device, open_device
from nnzbench.devices.build.cache import CompileError
from nnzbench.devices.cpu import build as cpu_build
from nnzbench.devices.cpu_device import CpuDevice, LaunchError, SanitizerError
from nnzbench.kernel import source_text

pytestmark = pytest.mark.usefixtures("cache_dir")

X = np.arange(256, dtype=np.float32)
X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="what an x86 processor signals")

# Lines are counted from the first line of `body`, which is line 3 of the source.
HEAD = '#include "nnz.cuh"\nextern "C" __global__ void kernel(const float* x, float* y, int n) {\n'


def plan(body, threads=64, blocks=1, shared=0, args=("x", "y", 256)):
    launch = Launch("kernel", (blocks, 1, 1), (threads, 1, 1), args, shared)
    return Plan("toy", "cuda", f"{HEAD}{body}\n}}\n", {}, {"x": X, "y": np.zeros(256, np.float32)}, "y", (launch,))


def execute(one, build="plain", order="forward"):
    prepared = CpuDevice(build, order).prepare(one)
    prepared.poison()
    prepared.run()
    return prepared.read()


def refused(one, build="plain", kind=LaunchError):
    with pytest.raises(LaunchError) as caught:
        execute(one, build)
    assert type(caught.value) is kind
    return str(caught.value)


# ---- sanitizers ------------------------------------------------------------------------------------------


ACCESSES = [
    ("const int i = threadIdx.x;\ny[i] = x[i + 193];",
     "heap-buffer-overflow: read of size 4 at generated.cu:4, 0 bytes to the right of buffer 'x' of 1024 bytes"),
    ("__shared__ float s[64];\ns[threadIdx.x + 1] = 1;\ny[threadIdx.x] = s[threadIdx.x];", "generated.cu:4"),
    ("DYN_SHARED(float, s);\ns[threadIdx.x + 1] = 1;\ny[threadIdx.x] = s[threadIdx.x];", "generated.cu:4"),
    ("y[threadIdx.x] =\n\nreinterpret_cast<const float4*>(x + threadIdx.x)->x;", "generated.cu:5"),
]  # fmt: skip
FAR = [
    ("y[threadIdx.x + (1 << 28)] = 1;", "SEGV: write at generated.cu:3"),
    ("const int i = threadIdx.x;\ny[i] = x[i + (1LL << 40)];", "SEGV: read at generated.cu:4"),
    ("*(volatile float*)0x123456789abcdef0LL = 1;", "SEGV: access at generated.cu:3"),
]
"""Crashes, whose reports tell no size of the access."""


@pytest.mark.parametrize(
    ("body", "build", "told"),
    [
        *((body, "asan", told) for body, told in ACCESSES),
        *((body, build, told) for body, told in FAR for build in ("asan", "tsan")),
        ("y[threadIdx.x] = n / (n - 256);", "ubsan", "division by zero"),
    ],
)
def test_bad_accesses_and_undefined_arithmetic_are_found(body, build, told):
    found = refused(plan(body, shared=256), build, SanitizerError)
    assert found == told if told.startswith(("SEGV", "heap")) else told in found


STACK = """==9==ERROR: AddressSanitizer: stack-overflow on address 0x7f1b2410b220 (pc 0x5578 T0)
    #0 0x5578cf8932ba in kernel /tmp/generated.cu:2
    #1 0x5578cf893689 in nnz_cpu::Call<&kernel>::run(void**) /tmp/runtime.h:158

SUMMARY: AddressSanitizer: stack-overflow /tmp/generated.cu:2 in kernel
"""
OWN = """ThreadSanitizer: CHECK failed: sanitizer_allocator_secondary.h:199 "((nearest_chunk))" (0x7, 0xc) (tid=9)
    #0 __tsan::CheckUnwind() ../../../../src/libsanitizer/tsan/tsan_rtl.cpp:353 (libtsan.so.2+0x89ac4)
    #1 kernel /tmp/generated.cu:27 (66e3+0x5468)

"""
"""Of a write far off, which hit what the sanitizer itself keeps beside a large buffer."""


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (STACK, "stack-overflow: at generated.cu:2"),
        (STACK.split("    #0")[0], "stack-overflow: no .cu line known"),
        (OWN, "the sanitizer's own data are broken, as after a write far from every buffer: at generated.cu:27"),
    ],
)
def test_crashes_that_are_no_access_are_found_and_others_tell_their_first_words(report, told):
    assert cpu_device.first_finding(report) == told
    assert cpu_device.first_words(f"nnz-buffer 0x7fcda7b67000 c\n{report}").startswith(report.split("\n")[0])


MIRROR = "__shared__ float s[64];\nconst int t = threadIdx.x;\ns[t] = x[t];\n{barrier}\ny[t] = s[63 - t];"


def test_missing_barrier_is_a_race_and_a_wrong_result():
    expected, faulty = X[63::-1], plan(MIRROR.format(barrier=""))
    race = refused(faulty, "tsan", SanitizerError)
    assert race.startswith("data race")
    assert "generated.cu:5" in race
    assert "generated.cu:7" in race
    results = [execute(faulty, order=order)[:64] for order in ("forward", "backward", "random:1")]
    assert any(not np.array_equal(result, expected) for result in results)


def test_barrier_orders_threads():
    right = plan(MIRROR.format(barrier="__syncthreads();"))
    for build, order in (("plain", "forward"), ("plain", "backward"), ("plain", "random:1"), ("tsan", "forward")):
        np.testing.assert_array_equal(execute(right, build, order)[:64], X[63::-1])


def test_blocks_writing_one_place_are_a_race():
    race = plan("y[threadIdx.x] = blockIdx.x;", threads=1, blocks=2)
    assert "generated.cu:3" in refused(race, "tsan", SanitizerError)


def test_warps_that_share_only_half_a_mask_are_not_ordered():
    body = "__shared__ float s[32];\nconst int t = threadIdx.x;\ns[t] = x[t];\n__syncwarp({mask});\ny[t] = s[31 - t];"
    half = body.replace("{mask}", "t < 16 ? 0xffffu : 0xffff0000u")
    assert "generated.cu:7" in refused(plan(half, threads=32), "tsan", SanitizerError)
    assert execute(plan(body.replace("{mask}", "0xffffffffu"), threads=32), "tsan")[0] == 31


# ---- rules that hardware leaves undefined ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if (threadIdx.x < 32)\n    __syncthreads();\nelse\n    __syncthreads();",
         "generated.cu:6: __syncthreads in divergent code: thread (32,0,0) of block (0,0,0) is here "
         "while thread (0,0,0) of block (0,0,0) waits at generated.cu:4"),
        ("if (threadIdx.x < 8) return;\nif (threadIdx.x < 40) __syncthreads();\nelse __syncwarp();",
         "generated.cu:4: deadlock in block (0,0,0): threads 0-7 have left the kernel; "
         "threads 8-39 wait in __syncthreads at generated.cu:4; "
         "threads 40-63 wait in __syncwarp (mask 0xffffffff) at generated.cu:5"),
        ("y[0] = __shfl_sync(0xffu, x[0], 3);", "called by lane 8, which its mask 0x000000ff leaves out"),
        ("if (threadIdx.x < 8) y[0] = __shfl_sync(0xffu, x[0], 9);", "reads lane 9, which takes no part"),
        ("if (threadIdx.x != 3) y[0] = __shfl_sync(~0u, x[0], 3);", "reads lane 3, which has left the kernel"),
        ("if (threadIdx.x < 9) __syncwarp(); else __any_sync(~0u, 1);", "__any_sync in lane 9 meets __syncwarp"),
        ("y[threadIdx.x + (1 << 30)] = 1;", "crashed with SIGSEGV: an access out of bounds"),
        pytest.param("volatile int zero = 0;\ny[0] = 7 / zero;", "crashed with SIGFPE: an integer divided", marks=X86),
        pytest.param("__builtin_trap();", "crashed with SIGILL", marks=X86),
        ('int end(int) __asm__("raise");\nend(9);', "crashed with SIGKILL: ended from outside"),
    ],
)  # fmt: skip
def test_a_broken_rule_says_who_is_where_and_a_crash_its_signal(body, told):
    found = refused(plan(body))
    assert told in found
    assert found == told or "crashed" in found or found.startswith("generated.cu:3: ")


def test_forgotten_wait_for_a_copy_shows():
    body = "DYN_SHARED(float, s);\nconst int t = threadIdx.x;\nnnz::cp_async_bytes<4>(s + t, x + t, true);\n"
    body += "nnz::cp_async_commit();\n{}y[t] = s[t];"
    assert np.isnan(execute(plan(body.format(""), shared=256))[:64]).all()
    np.testing.assert_array_equal(execute(plan(body.format("nnz::cp_async_wait<0>();"), shared=256))[:64], X[:64])


def test_shared_memory_starts_as_nan_in_every_block():
    body = (
        "__shared__ float s[64];\nDYN_SHARED(float, d);\nconst int t = threadIdx.x;\n"
        "y[blockIdx.x * 64 + t] = isnan(s[t]) && isnan(d[t]);\ns[t] = d[t] = 1;"
    )
    np.testing.assert_array_equal(execute(plan(body, blocks=4, shared=256)), np.ones(256))


# ---- failures are exceptions -----------------------------------------------------------------------------


def test_endless_loop(monkeypatch):
    monkeypatch.setattr("nnzbench.devices.cpu_device._TIME_LIMIT_S", 1)
    assert "did not end within 1 s" in refused(plan("while (*(volatile const float*)x == 0) {}"))


def test_a_hung_kernel_is_ended_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device = CpuDevice()
    prepared = device.prepare(plan("volatile int go = 1;\nwhile (go) {}"))
    assert list(tmp_path.iterdir())

    def run():
        with contextlib.suppress(LaunchError, OSError):
            prepared.run()

    waiting = threading.Thread(target=run)
    waiting.start()
    while waiting.is_alive() and not cpu_device._running:
        time.sleep(0.01)
    (child,) = cpu_device._running
    assert child.poll() is None
    device.abandon()
    waiting.join()
    assert child.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_no_compile_error(tmp_path, monkeypatch):
    fake = tmp_path / "c++"
    fake.write_text('#!/bin/sh\ncase "$*" in *-o*) echo "as: No space left on device" >&2; exit 1;; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(CannotWrite, match="No space left on device") as caught:
        CpuDevice().prepare(plan("y[threadIdx.x] = 1;"))
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("which", ["programs", "temporary files", "a file"])
def test_what_can_not_be_written_is_told_as_the_machines_fault(tmp_path, monkeypatch, which):
    """A candidate has no part in it, and no row: a later run has it anew."""
    (tmp_path / "file").touch()
    if which == "programs":
        monkeypatch.setattr(cpu_build, "programs", lambda: tmp_path / "file" / "programs")
    elif which == "temporary files":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    else:
        monkeypatch.setattr(cpu_device, "_bytes", lambda array: Path("/dev/full").write_bytes(bytes(1 << 20)))
    with pytest.raises(CannotWrite) as caught:
        CpuDevice().prepare(plan("y[threadIdx.x] = 1;"))
    with pytest.raises(CannotWrite):
        failure(caught.value)


def test_program_that_does_not_compile():
    with pytest.raises(CompileError, match=r"generated\.cu:4:\d+: error: .*nothing.* was not declared") as caught:
        execute(plan("int i = 0;\ny[i] = nothing;"))
    assert "nothing" in caught.value.log
    with pytest.raises(CompileError, match=r"no kernel file 'absent\.cu'"):
        execute(Plan("toy", "cuda", "absent.cu", {}, {"y": X}, "y", ()))


def test_a_compile_error_names_the_users_file_and_its_line(tmp_path):
    file = tmp_path / "mine.cu"
    file.write_text("// one\nint two = nothing;\n")
    with pytest.raises(CompileError, match=r"mine\.cu:2:\d+: error: "):
        execute(Plan("toy", "cuda", source_text(file), {}, {"y": X}, "y", ()))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("x", "z", 256), "kernel: argument 'z' names no buffer (there are x, y)"),
        (("x", "y"), "kernel takes 3 arguments, the launch gives 2"),
        (("x", "y", 1.0), "argument 2 of kernel is an int, the launch gives a float"),
        (("x", 1, 256), "argument 1 of kernel is a buffer, the launch gives an int"),
        (("x", "y", 2**31), "kernel: argument 2147483648 does not fit into int32"),
    ],
)
def test_arguments_that_do_not_fit(args, message):
    with pytest.raises(LaunchError) as caught:
        CpuDevice().prepare(plan("y[threadIdx.x] = n;", args=args))
    assert str(caught.value) == message


def test_launches_no_gpu_takes():
    body = "y[threadIdx.x] = n;"
    with pytest.raises(LaunchError, match="block of"):
        CpuDevice().prepare(plan(body, threads=1025))
    with pytest.raises(LaunchError, match="grid of"):
        CpuDevice().prepare(plan(body, blocks=-1))
    with pytest.raises(Unsupported, match="shared memory"):
        CpuDevice().prepare(plan(body, shared=300_000))


def test_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unsupported, match=r"install g\+\+"):
        open_device("cpu")
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(Unsupported, match="no-such-compiler"):
        open_device("cpu")


def test_unknown_build_and_order():
    with pytest.raises(Unsupported, match="unknown build"):
        CpuDevice("msan")
    for order in ("sideways", "random", "random:x", "forward:3"):
        with pytest.raises(Unsupported, match="unknown order"):
            CpuDevice(order=order)


def test_ptx_needs_its_cuda_text():
    launches = plan("y[threadIdx.x] = n;").launches
    buffers = {"x": X, "y": np.zeros(256, np.float32)}
    with pytest.raises(Unsupported, match="without the equivalent CUDA"):
        CpuDevice().prepare(Plan("generated", "ptx", ".version 6.0\n", {}, buffers, "y", launches))
    same = plan("y[threadIdx.x] = n;").source
    result = execute(Plan("generated", "ptx", ".version 6.0\n", {}, buffers, "y", launches, cpu_source=same))
    np.testing.assert_array_equal(result[:64], np.full(64, 256))


def test_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device = CpuDevice()
    prepared, other = device.prepare(plan("y[threadIdx.x] = n;")), device.prepare(plan("y[threadIdx.x] = n;"))
    assert [path.name.startswith("nnzbench-cpu-") for path in tmp_path.iterdir()] == [True, True]
    prepared.close()
    assert len(list(tmp_path.iterdir())) == 1
    device.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        prepared.read()
    with pytest.raises(FileNotFoundError):
        other.read()


def test_files_of_a_killed_run_are_removed_by_the_next_and_those_of_a_living_one_are_not(tmp_path):
    makes = (
        "from nnzbench.core.paths import scratch\nwith scratch('nnzbench-cpu-') as made:\n print(made, flush=True)\n"
    )
    old = time.time() - 3600

    def started(then):
        command = [sys.executable, "-c", makes + then]
        child = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=-1, stdin=-1, text=True)
        folder = Path(child.stdout.readline().strip())
        with contextlib.suppress(FileNotFoundError):
            os.utime(folder, (old, old))
        return child, folder

    living, kept = started(" input()")
    killed, left = started(" input()")
    killed.kill()
    killed.wait()
    elsewhere = tmp_path / "nnzbench-cpu-link"
    elsewhere.symlink_to(tmp_path.parent)
    last, mine = started("")
    assert last.wait() == 0
    assert (kept.exists(), left.exists(), mine.exists(), elsewhere.is_symlink()) == (True, False, False, True)
    living.communicate("\n")
    assert [path.name for path in tmp_path.iterdir()] == ["nnzbench-cpu-link"]


def test_kernels_can_print(capsys):
    execute(plan('if (threadIdx.x == 7) printf("x is %g\\n", x[7]);'))
    assert capsys.readouterr().out == "x is 7\n"


def test_program_is_built_once(tmp_path, programs, monkeypatch):
    CpuDevice().prepare(plan("y[threadIdx.x] = n;"))
    for path in programs.iterdir():  # the runtime, in a folder where nobody else puts anything
        if path.suffix != ".lock" and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    there = set(tmp_path.iterdir())
    monkeypatch.setattr(cpu_build, "programs", lambda: tmp_path)
    one = plan("y[threadIdx.x] = n - 1;")
    first = CpuDevice().prepare(one)
    made = set(tmp_path.iterdir())
    assert made > there
    second = CpuDevice(order="backward").prepare(one)
    assert set(tmp_path.iterdir()) == made
    assert first.compile_ms == second.compile_ms > 0


@pytest.mark.parametrize("ending", ["", ".json"])
@pytest.mark.parametrize(
    "damage", [lambda old: old[:300], lambda old: old[:-1] + b"x", None], ids=("cut", "bit", "gone")
)
def test_a_damaged_program_is_built_again(tmp_path, programs, monkeypatch, damage, ending):
    monkeypatch.setattr(cpu_build, "programs", lambda: tmp_path)
    command = cpu_build.compiler()

    def built():
        made = cpu_build._cached([*command, "-x", "c++", "-c", "-"], ["damaged"], command, "int one() { return 1; }")
        return made.path, made.path.read_bytes()

    path, whole = built()
    entry = path.with_suffix(ending) if ending else path
    if damage is None:
        entry.unlink()
    else:
        entry.write_bytes(damage(entry.read_bytes()))
    assert built() == (path, whole)
    assert cpu_build._whole(path, path.with_suffix(".json"))
