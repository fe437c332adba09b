"""As much of PyTorch as kernels of a user's file need, over NumPy: streams, and graphs that repeat their work."""

from __future__ import annotations

import contextlib
from types import ModuleType, SimpleNamespace

import numpy as np


class Tensor:
    def __init__(self, torch, array):
        self.torch, self.array = torch, array

    def to(self, kind, copy=False):
        """To a device, or to a type; it shares the memory where it need not copy, as PyTorch's own."""
        kind = self.array.dtype if isinstance(kind, SimpleNamespace) else kind
        return Tensor(self.torch, self.array.astype(kind, copy=copy))

    def copy_(self, other):
        self.torch.enqueue(lambda: np.copyto(self.array, other.array))

    def fill_(self, value):
        self.torch.enqueue(lambda: self.array.fill(value))

    def clone(self):
        return Tensor(self.torch, self.array.copy())

    def float(self):
        return Tensor(self.torch, self.array.astype(np.float32, copy=False))

    def cpu(self):
        return self

    def numpy(self):
        return self.array

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize


class FakeTorch(ModuleType):
    """Of the GPU of a `FakeBackend`, or with none. Work on another stream than that device's is in no graph of it."""

    float32, float16 = np.float32, np.float16
    bfloat16 = np.float32  # what a host has of it

    def __init__(self, backend=None):
        super().__init__("torch")
        self.backend, self.stream, self.recorded = backend, None, []
        self.cuda = SimpleNamespace(
            is_available=lambda: backend is not None,
            ExternalStream=lambda handle, place: handle,
            Stream=lambda: "aside",
            stream=self._on,
            is_current_stream_capturing=lambda: backend.capturing,
        )
        if backend is not None:
            self._capture, backend.capture = backend.capture, self.capture

    def enqueue(self, do):
        if self.backend is None or self.stream != self.backend.stream:
            do()
        elif self.backend.capturing:
            self.recorded.append(do)
        else:
            do()
            self.backend.work(0.01)

    def capture(self, body):
        self.recorded = []
        counted, recorded = self._capture(body), self.recorded

        def replay():
            counted()
            self.backend.work(0.01 * len(recorded))
            for do in recorded:
                do()

        return replay

    @contextlib.contextmanager
    def _on(self, stream):
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def no_grad(self):
        return contextlib.nullcontext()

    def device(self, *which):
        return SimpleNamespace(which=which)

    def from_numpy(self, array):
        return Tensor(self, array)

    def matmul(self, a, b, *, out):
        self.enqueue(lambda: np.copyto(out.array, a.array.astype(np.float32) @ b.array.astype(np.float32)))
