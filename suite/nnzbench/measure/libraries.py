"""Opens vendors' libraries before anything is timed: each takes about a second at its first use in a process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

import numpy as np

from nnzbench.devices import DeviceLost
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import VendorKernel, candidates, kernels
from nnzbench.matrices.formats import CSR
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import ConvShape, DType, Problem

SIDE = 64
"""Of the product's square operands."""
CONVOLUTION = ConvShape(1, 16, 8, 8, 16, 3, 3, 1, 1)


def open_libraries(device: GpuDevice, names: Iterable[str]) -> None:
    """Has each of these kernels that is a library's run one small product or convolution.

    What one of them can't do is left for the first problem to say. Raises `DeviceLost`.
    """
    known = kernels()
    for name in names:
        kernel = known.get(name)
        if not isinstance(kernel, VendorKernel):
            continue
        for problem, operands in _small():
            if problem.op in kernel.ops and problem.dtype in kernel.dtypes:
                try:
                    for candidate in islice(candidates(kernel, problem, operands, device, untuned=True), 1):
                        candidate.prepare().close()
                except DeviceLost:
                    raise
                except Exception:  # whatever it is, it is met again where it becomes a row
                    continue
    with suppress(RuntimeError):
        device.release()


def _small() -> Iterator[tuple[Problem, Operands]]:
    """A product in two dtypes, every second weight zero as sparse tensor cores want it, and a convolution."""
    matrix = CSR.from_dense(np.tile(np.array([1, 0], np.float32), (SIDE, SIDE // 2)))
    product = Operands(matrix, {"b": np.ones((SIDE, SIDE), np.float32)}, matrix.pattern_hash())
    dtypes: tuple[DType, ...] = ("f32", "f16")
    for dtype in dtypes:
        yield Problem("start", "product", "spmm", SIDE, SIDE, SIDE, 0.5, "", dtype), product.cast(dtype)
    conv = CONVOLUTION
    m, k, n = conv.filters, conv.channels * conv.r * conv.s, conv.batch * conv.out_height * conv.out_width
    filters = CSR.from_dense(np.ones((m, k), np.float32))
    image = np.ones((conv.batch, conv.channels, conv.height, conv.width), np.float32)
    yield (
        Problem("start", "convolution", "conv2d", m, k, n, 0.0, "", "f32", conv=conv),
        Operands(filters, {"x": image}, filters.pattern_hash()),
    )
