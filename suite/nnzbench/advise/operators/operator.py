"""`Operator`: C = A B with A packed, on a caller's arrays and stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench.advise.operators import arrays
from nnzbench.advise.operators.archive import Packed
from nnzbench.advise.operators.arrays import OperatorError
from nnzbench.advise.operators.tokens import BIAS
from nnzbench.core.plan import Array, Plan, Unsupported, from_bf16
from nnzbench.data.problems.buffers import stored
from nnzbench.data.problems.operands import round_to, storage_dtype
from nnzbench.devices import Device
from nnzbench.devices.carried import Carried
from nnzbench.devices.gpu import GpuDevice


class Operator:
    """Multiplies by one pruned matrix A (m, k): `operator(b)` is A b for b (k, n), row-major, of the operator's type.

    One for `tokens` takes b (n, k) and gives b A^T (n, m), as a linear layer does; where `fewer` says so, b may have
    fewer rows. Where `adds_bias` says so, a `bias` of m numbers is added to each row in the same launches.

    On a GPU, b is a PyTorch tensor, a CuPy array, or anything with `__cuda_array_interface__` or DLPack, and the result
    is of the same library; nothing is copied, synchronised or, with `out`, allocated, so that a CUDA graph can capture
    the call. Work goes to the stream that is current in b's library, or to `stream`. Workspace is the operator's own:
    calls on two streams must not overlap. On the processor (`device="cpu"`) b and the result are NumPy arrays.

    Raises `OperatorError` for an array that does not fit.
    """

    def __init__(self, packed: Packed, device: Device) -> None:
        facts = self.facts = packed.saved.facts
        """Sizes, kernel, variant, architecture, the error of its check, and the memory it takes."""
        self.packed, self.device = packed, device
        self.fewer = bool(packed.rows_at)
        """Whether b may have fewer rows of tokens than n."""
        every = packed.plan.launches if packed.plan else [step.launch for step in packed.steps]
        self.adds_bias = any(BIAS in one.args for one in every)
        """Whether it takes a bias."""
        self._carried: Carried | None = None
        if isinstance(device, GpuDevice):
            if not packed.cubins:
                raise OperatorError("this operator was saved on the processor and holds no program for a GPU")
            if facts.arch != device.arch:
                raise OperatorError(f"this operator is compiled for {facts.arch}, this GPU is {device.arch}")
            launches = [(step.program, step.launch) for step in packed.steps]
            try:
                callers = (facts.input, facts.output, BIAS)
                self._carried = Carried(device, packed.cubins, launches, packed.buffers, callers, packed.rows_at)
            except Unsupported as error:
                raise OperatorError(str(error)) from error
        elif packed.plan is None:
            raise OperatorError(f"this operator holds programs for {facts.arch} alone: it needs such a GPU")

    def __repr__(self) -> str:
        """Sizes, type, kernel and where it runs."""
        one = self.facts
        sizes = f"({one.m}, {one.k}) by {one.shapes()[0]} in {one.dtype}"
        return f"<nnzbench.Operator {sizes}: {one.kernel} on {self.device.gpu}, {one.weights_bytes} bytes>"

    def __call__(self, b: Any, out: Any = None, stream: int | None = None, bias: Any = None) -> Any:
        """A b, into `out` where given. `stream` is the handle of a CUDA stream."""
        if bias is not None and not self.adds_bias:
            raise OperatorError(f"{self.facts.kernel} adds no bias to this product: add it to the result")
        if self._carried is not None:
            return self._on_gpu(self._carried, b, out, stream, bias)
        if self.packed.plan is None:
            raise OperatorError("this operator is closed: its weights have left the GPU")
        if stream is not None:
            raise OperatorError("the processor has no streams: give none")
        return self._on_processor(self.packed.plan, b, out, bias)

    def _on_gpu(self, carried: Carried, b: Any, out: Any, stream: int | None, bias: Any) -> Any:
        facts, number = self.facts, carried.number
        given = arrays.view(b, "b")
        rows = self._rows(given.shape)
        taken, gives = facts.shapes(rows)
        arrays.require(given, "b", taken, facts.dtype, number)
        result = given.empty(gives) if out is None else out
        written = arrays.view(result, "out")
        arrays.require(written, "out", gives, facts.dtype, number)
        pointers = {facts.input: given.pointer, facts.output: written.pointer, BIAS: 0}
        if bias is not None:
            shift = arrays.view(bias, BIAS)
            arrays.require(shift, BIAS, (facts.m,), facts.dtype, number)
            pointers[BIAS] = shift.pointer
        carried.run(pointers, given.stream if stream is None else stream, rows)
        return result

    def _rows(self, shape: tuple[int, ...]) -> int:
        """Of tokens: those of `shape` where they may be fewer than n, else n."""
        rows = shape[0] if self.fewer and shape else 0
        return rows if 0 < rows < self.facts.n else self.facts.n

    def _on_processor(self, plan: Plan, b: Any, out: Any, bias: Any) -> Array:
        facts = self.facts
        kind = storage_dtype(facts.dtype)
        rows = self._rows(getattr(b, "shape", ()))
        taken, gives = facts.shapes(rows)
        for array, what, shape in ((b, "b", taken), (out, "out", gives), (bias, BIAS, (facts.m,))):
            if array is None and what != "b":
                continue
            if not isinstance(array, np.ndarray):
                raise OperatorError(f"{what}: a {type(array).__name__} is no NumPy array, which the processor takes")
            rows_first = bool(array.flags.c_contiguous)
            found = arrays.View(0, array.shape, str(array.dtype), rows_first, None, 0, np.empty, array)
            arrays.require(found, what, shape, str(kind), 0)
        bf16 = facts.dtype == "bf16"
        given, empty = stored(round_to(b, facts.dtype), bf16), np.zeros(gives, np.uint16 if bf16 else kind)
        shift = np.zeros(facts.m, kind) if bias is None else round_to(bias, facts.dtype)
        buffers = {**plan.buffers, facts.input: given, facts.output: empty, BIAS: stored(shift, bf16)}
        plan = with_rows(plan, self.packed.rows_at, rows)
        prepared = self.device.prepare(replace(plan, buffers=buffers, unpermute=None))
        try:
            prepared.run()
            result = prepared.read()
        finally:
            prepared.close()
        if bf16:
            result = from_bf16(result)
        if out is None:
            return result
        out[...] = result
        return np.asarray(out)

    def save(self, folder: str | Path) -> None:
        """Writes the weights and what was chosen for them, for `nnzbench.load` on the same architecture."""
        self.packed.saved.save(Path(folder))

    def close(self) -> None:
        """Frees the device memory, once the GPU is idle."""
        if self._carried is not None:
            self._carried.close()
            self._carried = None


def with_rows(plan: Plan, at: tuple[tuple[int, int], ...], rows: int) -> Plan:
    """The plan for so many rows of tokens, which its launches are told `at` these arguments."""
    launches = list(plan.launches)
    for launch, place in at:
        args = launches[launch].args
        launches[launch] = replace(launches[launch], args=(*args[:place], rows, *args[place + 1 :]))
    return replace(plan, launches=tuple(launches))
