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

    @property
    def T(self):  # noqa: N802 (PyTorch's name)
        return Tensor(self.torch, self.array.T)

    def contiguous(self):
        return Tensor(self.torch, np.ascontiguousarray(self.array))

    def to_sparse_csr(self):
        return self.to_sparse_bsr((1, 1))

    def to_sparse_bsr(self, blocksize):
        (m, k), (r, c) = self.array.shape, blocksize
        assert (m % r, k % c) == (0, 0), "PyTorch refuses blocks that don't fit"
        blocks = self.array.reshape(m // r, r, k // c, c).swapaxes(1, 2)
        return Sparse(self.torch, blocks.any(axis=(2, 3)), blocks)


class Sparse:
    """A matrix of blocks (of one weight each in CSR) of which those at `places` are held."""

    def __init__(self, torch, places, blocks):
        self.torch, self.places, self.held = torch, places, Tensor(torch, blocks[places])

    def clone(self):
        dense = np.zeros((*self.places.shape, *self.held.array.shape[1:]), self.held.array.dtype)
        dense[self.places] = self.held.array
        return Sparse(self.torch, self.places, dense)

    def crow_indices(self):
        return Tensor(self.torch, np.concatenate([[0], self.places.sum(axis=1).cumsum()]))

    def col_indices(self):
        return Tensor(self.torch, self.places.nonzero()[1])

    def values(self):
        return self.held

    def times(self, b):
        """The product with (k, n): block by block, as they are held."""
        r, c = self.held.array.shape[1:]
        rows, columns = self.places.nonzero()
        result = np.zeros((len(self.places), r, b.shape[1]), np.float32)
        products = self.held.array.astype(np.float32) @ b.astype(np.float32).reshape(-1, c, b.shape[1])[columns]
        np.add.at(result, rows, products)
        return result.reshape(-1, b.shape[1])


class FakeTorch(ModuleType):
    """Of the GPU of a `FakeBackend`, or with none. Work on another stream than that device's is in no graph of it."""

    float32, float16 = np.float32, np.float16
    bfloat16 = np.float32  # what a host has of it

    def __init__(self, backend=None):
        super().__init__("torch")
        self.backend, self.stream, self.recorded = backend, None, []
        self.nn = SimpleNamespace(functional=SimpleNamespace(linear=self.linear))
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

    def linear(self, x, weight):
        """Over a sparse weight."""
        result = np.empty((len(x.array), len(weight.places) * weight.held.array.shape[1]), x.array.dtype)
        self.enqueue(lambda: np.copyto(result, weight.times(x.array.T).T, casting="same_kind"))
        return Tensor(self, result)
