"""`Operator`: C = A B with A packed, on a caller's arrays and stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench.devices import Device
from nnzbench.devices.carried import Carried
from nnzbench.devices.gpu import GpuDevice
from nnzbench.operators import arrays
from nnzbench.operators.arrays import OperatorError, stored
from nnzbench.operators.packed import Facts, Packed
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.problems.operands import round_to, storage_dtype


class Operator:
    """Multiplies by one pruned matrix A (m, k): `operator(b)` is A b for b (k, n), row-major, of the operator's type.

    On a GPU, b is a PyTorch tensor, a CuPy array, or anything with `__cuda_array_interface__` or DLPack, and the result
    is of the same library; nothing is copied, synchronised or, with `out`, allocated, so that a CUDA graph can capture
    the call. Work goes to the stream that is current in b's library, or to `stream`. Workspace is the operator's own:
    calls on two streams must not overlap. On the processor (`device="cpu"`) b and the result are NumPy arrays.

    Raises `OperatorError` for an array that does not fit.
    """

    def __init__(self, packed: Packed, device: Device) -> None:
        facts = packed.facts
        self.packed, self.device = packed, device
        self._carried: Carried | None = None
        if isinstance(device, GpuDevice):
            if not packed.cubins:
                raise OperatorError("this operator was saved on the processor and holds no program for a GPU")
            if facts.arch != device.arch:
                raise OperatorError(f"this operator is compiled for {facts.arch}, this GPU is {device.arch}")
            launches = [(step.program, step.launch) for step in packed.steps]
            try:
                self._carried = Carried(device, packed.cubins, launches, packed.buffers, (facts.input, facts.output))
            except Unsupported as error:
                raise OperatorError(str(error)) from error
        elif packed.plan is None:
            raise OperatorError(f"this operator holds programs for {facts.arch} alone: it needs such a GPU")

    def __repr__(self) -> str:
        """Sizes, type, kernel and where it runs."""
        one = self.facts
        sizes = f"({one.m}, {one.k}) by ({one.k}, {one.n}) in {one.dtype}"
        return f"<nnzbench.Operator {sizes}: {one.kernel} on {self.device.gpu}, {one.weights_bytes} bytes>"

    @property
    def facts(self) -> Facts:
        """Sizes, kernel, variant, architecture, the error of its check, and the memory it takes."""
        return self.packed.facts

    def __call__(self, b: Any, out: Any = None, stream: int | None = None) -> Any:
        """A b, into `out` (m, n) where given. `stream` is the handle of a CUDA stream."""
        if self._carried is not None:
            return self._on_gpu(self._carried, b, out, stream)
        if self.packed.plan is None:
            raise OperatorError("this operator is closed: its weights have left the GPU")
        if stream is not None:
            raise OperatorError("the processor has no streams: give none")
        return self._on_processor(self.packed.plan, b, out)

    def _on_gpu(self, carried: Carried, b: Any, out: Any, stream: int | None) -> Any:
        facts, number = self.facts, carried.number
        given = arrays.view(b, "b")
        arrays.require(given, "b", (facts.k, facts.n), facts.dtype, number)
        result = given.empty((facts.m, facts.n)) if out is None else out
        written = arrays.view(result, "out")
        arrays.require(written, "out", (facts.m, facts.n), facts.dtype, number)
        pointers = {facts.input: given.pointer, facts.output: written.pointer}
        carried.run(pointers, given.stream if stream is None else stream)
        return result

    def _on_processor(self, plan: Plan, b: Any, out: Any) -> Array:
        facts = self.facts
        kind = storage_dtype(facts.dtype)
        for array, what, shape in ((b, "b", (facts.k, facts.n)), (out, "out", (facts.m, facts.n))):
            if array is None and what == "out":
                continue
            if not isinstance(array, np.ndarray):
                raise OperatorError(f"{what}: a {type(array).__name__} is no NumPy array, which the processor takes")
            if array.shape != shape:
                raise OperatorError(f"{what} must have the shape {shape}, not {array.shape}")
            if array.dtype != kind:
                raise OperatorError(f"{what} must hold {kind.name}, not {array.dtype.name}")
            if not array.flags.c_contiguous:
                raise OperatorError(f"{what} must be row-major without gaps: make a contiguous copy")
        bf16 = facts.dtype == "bf16"
        result = run_on(self.device, plan, facts, stored(round_to(b, facts.dtype), bf16))
        if bf16:
            result = (result.astype(np.uint32) << 16).view(np.float32)
        if out is None:
            return result
        out[...] = result
        return np.asarray(out)

    def save(self, folder: str | Path) -> None:
        """Writes the weights and what was chosen for them, for `nnzbench.load` on the same architecture."""
        if self.packed.saved is None:
            raise OperatorError("this operator came with programs of its own, and is not saved again: make it anew")
        self.packed.saved.save(Path(folder))

    def close(self) -> None:
        """Frees the device memory, once the GPU is idle."""
        if self._carried is not None:
            self._carried.close()
            self._carried = None


def run_on(device: Device, plan: Plan, facts: Facts, b: Array) -> Array:
    """The plan's raw output with another dense operand in the place of its own."""
    kind = np.uint16 if facts.dtype == "bf16" else b.dtype
    buffers = {**plan.buffers, facts.input: b, facts.output: np.zeros((facts.m, facts.n), kind)}
    prepared = device.prepare(replace(plan, buffers=buffers, unpermute=None))
    try:
        prepared.run()
        return prepared.read()
    finally:
        prepared.close()
