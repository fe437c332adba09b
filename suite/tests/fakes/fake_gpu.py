"""A GPU that is a dictionary: device memory, streams and events in Python, and dense libraries over them."""

from __future__ import annotations

import contextlib
import ctypes
from enum import IntEnum
from types import SimpleNamespace

import ml_dtypes
import numpy as np

from nnzbench.core.plan import Resources
from nnzbench.devices.gpu import Built, GpuDevice
from nnzbench.devices.gpu_backend import GpuFacts
from nnzbench.devices.nvml import Clocks

FACTS = GpuFacts(
    name="NVIDIA H200",
    compute_capability=(9, 0),
    sms=4,
    l2_bytes=1 << 20,
    memory_bytes=1 << 30,
    shared_optin_bytes=227 * 1024,
    pci_bus_id="0000:1B:00.0",
    library="fake 1.0",
    runtime="13.0",
)


class FakeDriverError(Exception):
    pass


class FakeMemory:
    def __init__(self, backend, size):
        self.backend, self.pointer = backend, backend.next_pointer
        backend.next_pointer += (size // 256 + 2) * 256
        large = size > 1 << 20  # a workspace, the L2 flush: zeros, which take no memory or time before they are touched
        backend.memory[self.pointer] = memoryview(np.zeros(size, np.uint8)) if large else bytearray(b"\xcd" * size)
        self.size = 0 if size <= backend.leftover_bytes else size  # what the driver sees of it
        backend.leftover_bytes -= size - self.size
        backend.held_bytes += self.size
        backend.most_bytes = max(backend.most_bytes, backend.held_bytes)

    def __del__(self):
        self.backend.memory.pop(self.pointer, None)
        self.backend.held_bytes -= self.size


class FakeBackend:
    """Launches call `kernels[entry](backend, grid, block, args, shared_bytes)` at once; everything is kept in `log`."""

    name = "cupy"
    attributes = False
    stream = 77
    errors = (FakeDriverError,)

    def __init__(self, kernels=None, facts=FACTS):
        self.kernels = {"delay": lambda *call: None, **(kernels or {})}
        self.facts = facts
        self.memory = {}
        self.next_pointer = 1 << 20
        self.held_bytes = self.most_bytes = 0  # live, and the most since the last release: what a pool holds
        self.other_bytes = 500 << 20  # of other programs and of libraries
        self.leftover_bytes = 0  # of larger pieces that were freed in part: serves smaller ones
        self.log = []
        self.now_ms = 0.0
        """When the GPU will be through with what is enqueued."""
        self.host_ms = 0.0
        """The host's time, which passes where a test moves it: nothing starts before it is enqueued."""
        self.fail_at = None  # name of the call that fails
        self.message = "an illegal memory access was encountered"
        self.capturing = False

    def _step(self, what, *details):
        self.log.append((what, *details))
        if self.fail_at == what:
            raise FakeDriverError(self.message)

    def array(self, pointer, dtype, count):
        return np.frombuffer(self.memory[int(pointer)], dtype, count)

    def allocate(self, size):
        self._step("allocate", size)
        return FakeMemory(self, size)

    def pointer(self, memory):
        return memory.pointer

    def used_bytes(self):
        return self.other_bytes + self.most_bytes

    def release(self):
        self.most_bytes = self.held_bytes

    @contextlib.contextmanager
    def separate(self):
        self._step("separate")
        before, self.leftover_bytes = self.leftover_bytes, 0
        yield
        self.leftover_bytes = before

    def upload(self, pointer, array):
        self._step("upload", array.nbytes)
        assert array.flags.c_contiguous
        self.memory[pointer][: array.nbytes] = array.tobytes()

    def download(self, pointer, array):
        self._step("download", array.nbytes)
        array.flat = np.frombuffer(bytes(self.memory[pointer]), array.dtype, array.size)

    def copy(self, target, source, size):
        self._step("copy", size)
        self.memory[target][:size] = self.memory[source][:size]

    def fill(self, pointer, byte, size):
        self._step("fill", byte, size)
        if size < 1 << 20:  # an output, not the L2 flush
            self.memory[pointer][:size] = bytes([byte]) * size
        self.work(0.05)

    def work(self, ms):
        self.now_ms = max(self.now_ms, self.host_ms) + ms

    def load(self, cubin):
        self._step("load", cubin)
        return "module"

    def launcher(self, module, launch):
        entry = launch.entry
        self._step("function", entry, launch.shared_bytes, launch.limit)

        def enqueue(stream=self.stream):
            self._step("launch", entry, stream)
            self.work(0.01)
            if not self.capturing:
                self.kernels[entry](self, launch.grid, launch.block, launch.args, launch.shared_bytes)

        return enqueue

    def synchronise(self):
        self._step("synchronise")
        self.host_ms = max(self.host_ms, self.now_ms)

    def event(self):
        return SimpleNamespace(at=None)

    def record(self, event):
        self._step("record")
        self.work(0.0)
        event.at = self.now_ms

    def reached(self, event):
        return self.host_ms > event.at

    def elapsed_ms(self, start, stop):
        self._step("elapsed")
        return stop.at - start.at

    def capture(self, body):
        self._step("capture")
        self.capturing, before = True, len(self.log)
        try:
            body()
        finally:
            self.capturing = False
        launches = sum(step[0] == "launch" for step in self.log[before:])

        def replay():
            self._step("replay", launches)
            self.work(0.01 * launches)

        return replay

    def close(self):
        self._step("close")


def fake_build(plan, arch):
    """Every entry uses 1 KB of static shared memory."""
    used = {launch.entry: Resources(registers=32, shared_bytes=1024) for launch in plan.launches}
    return Built(f"{plan.variant}:{arch}".encode(), used, 12.5)


class FakeNvmlError(Exception):
    pass


def fake_nvml(**answers):
    """A pynvml that answers only what is given, as `nvmlDeviceGet<name>`; the rest raises."""

    def missing(*_):
        raise FakeNvmlError("Not Supported")

    nvml = SimpleNamespace(
        NVMLError=FakeNvmlError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlSystemGetDriverVersion=lambda: "580.65.06",
        nvmlClocksEventReasonGpuIdle=1,
        nvmlClocksThrottleReasonGpuIdle=1,
        nvmlClocksThrottleReasonSwPowerCap=4,
        nvmlClocksEventReasonSwPowerCap=4,
        nvmlClocksThrottleReasonHwThermalSlowdown=64,
        nvmlClocksThrottleReasonNone=0,
        nvmlClocksThrottleReasonAll=69,
        nvmlDeviceGetCurrentClocksEventReasons=missing,
    )
    for name, answer in answers.items():
        reply = answer if callable(answer) else lambda handle, *_, value=answer: value
        setattr(nvml, f"nvmlDeviceGet{name}", reply)
    return nvml


def open_fake(kernels=None, facts=FACTS, **answers):
    backend = FakeBackend(kernels, facts)
    return GpuDevice(backend, fake_build, Clocks(fake_nvml(**answers), "handle"))


# ---------------------------------------------------------------- vendor libraries, as their documentation has them

TYPES = {0: np.float32, 2: np.float16, 14: np.uint16, 3: np.int8, 10: np.int32, 28: np.uint8}


def host_scalar(address, kind):
    """Alpha or beta of a result of that type: integers for integers, else floats."""
    number = ctypes.c_int32 if kind == 10 else ctypes.c_float
    return number.from_address(address).value


def load_values(backend, pointer, kind, count):
    raw = backend.array(pointer, TYPES[kind], count)
    if kind == 28:
        return raw.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return (raw.astype(np.uint32) << 16).view(np.float32) if kind == 14 else raw.astype(np.float32)


def store_values(backend, pointer, kind, values):
    if kind == 14:
        values = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    backend.array(pointer, TYPES[kind], values.size)[:] = values.astype(TYPES[kind]).ravel()


def column_major(backend, pointer, kind, rows, columns, leading):
    assert leading >= max(1, rows), "the leading dimension of a column-major matrix is at least its rows"
    return load_values(backend, pointer, kind, leading * columns).reshape(columns, leading).T[:rows]


class FakeCublas:
    ComputeType = IntEnum("ComputeType", {"COMPUTE_32F": 68, "COMPUTE_32F_FAST_TF32": 77, "COMPUTE_32I": 72})
    Operation = IntEnum("Operation", {"N": 0, "T": 1})
    GemmAlgo = IntEnum("GemmAlgo", {"DFALT": -1})

    class cuBLASError(Exception):  # noqa: N801 - the library's own name
        pass

    def __init__(self, backend):
        self.backend, self.calls, self.fail = backend, [], None

    def create(self):
        self.calls.append("create")
        return 5

    def destroy(self, handle):
        self.calls.append("destroy")

    def set_stream(self, handle, stream):
        assert stream == self.backend.stream
        self.calls.append("set_stream")

    def set_workspace(self, handle, pointer, size):
        assert len(self.backend.memory[pointer]) == size
        self.calls.append("set_workspace")

    def gemm_ex(self, handle, ta, tb, m, n, k, alpha, a, akind, lda, b, bkind, ldb, beta, c, ckind, ldc, compute, algo):
        if self.fail:
            raise self.cuBLASError(self.fail)
        self.calls.append(("gemm", compute))
        a_ = column_major(self.backend, a, akind, *((m, k) if ta == 0 else (k, m)), lda)
        b_ = column_major(self.backend, b, bkind, *((k, n) if tb == 0 else (n, k)), ldb)
        assert (host_scalar(alpha, ckind), ldc) == (1, max(1, m))
        result = (a_ if ta == 0 else a_.T) @ (b_ if tb == 0 else b_.T)
        if host_scalar(beta, ckind):
            result = result + column_major(self.backend, c, ckind, m, n, ldc)
        store_values(self.backend, c, ckind, result.T)

    def sgeam(self, handle, ta, tb, m, n, alpha, a, lda, beta, b, ldb, c, ldc):
        assert (ta, tb, host_scalar(alpha, 0), host_scalar(beta, 0), b, ldb, ldc) == (1, 0, 1, 0, c, m, m)
        store_values(self.backend, c, 0, column_major(self.backend, a, 0, n, m, lda))


class Handles:
    """What a library has handed out and not taken back, by handle."""

    def __init__(self, first):
        self.live, self.next = {}, first

    def _new(self, value):
        self.next += 1
        self.live[self.next] = value
        return self.next

    def destroy(self, handle):
        del self.live[handle]


class FakeCublasLt(Handles):
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4")]
    )

    MatmulDescAttribute = IntEnum("MatmulDescAttribute", {"TRANSA": 3, "TRANSB": 4})
    MatmulPreferenceAttribute = IntEnum("MatmulPreferenceAttribute", {"MAX_WORKSPACE_BYTES": 1})

    def __init__(self, backend, proposals=3):
        super().__init__(100)
        self.backend, self.proposals = backend, proposals
        self.run_with = []

    def create(self):
        return self._new("handle")

    def matmul_desc_create(self, compute, scale):
        assert scale == (10 if compute == 72 else 0)
        return self._new({"compute": compute, 3: 0, 4: 0})

    def matmul_desc_set_attribute(self, desc, attribute, buffer, size):
        assert size == 4
        self.live[desc][attribute] = (ctypes.c_int32).from_address(buffer).value

    def matrix_layout_create(self, kind, rows, columns, leading):
        return self._new((kind, rows, columns, leading))

    def matmul_preference_create(self):
        return self._new({})

    def matmul_preference_set_attribute(self, preference, attribute, buffer, size):
        assert size == 8
        self.live[preference][attribute] = (ctypes.c_uint64).from_address(buffer).value

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = Handles.destroy

    def matmul_algo_get_heuristic(self, handle, desc, a, b, c, d, preference, most, results, found):
        assert self.live[preference][1] == 32 << 20
        count = min(most, self.proposals)
        size = self.matmul_heuristic_result_dtype.itemsize
        table = np.frombuffer((ctypes.c_char * (size * most)).from_address(results), self.matmul_heuristic_result_dtype)
        for i in range(count):
            table[i]["algo"]["data_"][:] = 1000 + i
        (ctypes.c_int32).from_address(found).value = count

    def matmul(self, handle, desc, alpha, a, al, b, bl, beta, c, cl, d, dl, algo, workspace, size, stream):
        assert stream == self.backend.stream
        assert len(self.backend.memory[workspace]) == size
        operation = self.live[desc]
        self.run_with.append((operation["compute"], (ctypes.c_uint64).from_address(algo).value))
        (akind, *ashape), (bkind, *bshape), (kind, rows, columns, ld) = (self.live[x] for x in (al, bl, dl))
        a_ = column_major(self.backend, a, akind, *ashape)
        b_ = column_major(self.backend, b, bkind, *bshape)
        result = (a_.T if operation[3] else a_) @ (b_.T if operation[4] else b_)
        assert result.shape == (rows, columns)
        assert ld == max(1, rows)
        assert (host_scalar(alpha, kind), host_scalar(beta, kind)) == (1 / 64**2 if akind == 28 else 1, 0)
        store_values(self.backend, d, kind, result.T * host_scalar(alpha, kind))
