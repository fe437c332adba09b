"""cuSPARSELt as its documentation has it, over the memory of `fake_gpu` and computing in NumPy."""

from __future__ import annotations

import ctypes
from enum import IntEnum

import numpy as np
from fake_gpu import Handles, host_scalar, load_values, store_values

COMPRESSED, BUFFER, WORKSPACE = 64, 32, 1024


class FakeCusparseLt(Handles):
    ComputeType = IntEnum("ComputeType", {"COMPUTE_32F": 2, "COMPUTE_32I": 0})
    MatmulAlg = IntEnum("MatmulAlg", {"DEFAULT": 0})
    Sparsity = IntEnum("Sparsity", {"SPARSITY_50_PERCENT": 0})

    class cuSPARSELtError(Exception):  # noqa: N801 - the library's own name
        pass

    def __init__(self, backend):
        super().__init__(900)
        self.backend, self.calls = backend, []
        self.compressed = []  # what was compressed; its place, from 1, lies in the compressed memory
        self.fails_check = False

    def init(self):
        return self._new("handle")

    mat_descriptor_destroy = matmul_descriptor_destroy = Handles.destroy
    matmul_alg_selection_destroy = matmul_plan_destroy = Handles.destroy

    def dense_descriptor_init(self, handle, rows, columns, leading, alignment, kind, order):
        assert (leading, order, alignment) == (columns, 2, 16)
        return self._new((rows, columns, kind))

    def structured_descriptor_init(self, handle, rows, columns, leading, alignment, kind, order, sparsity):
        assert sparsity == 0
        if columns % (16 if kind else 8):
            raise self.cuSPARSELtError("CUSPARSE_STATUS_NOT_SUPPORTED (10): operation not supported")
        return self.dense_descriptor_init(handle, rows, columns, leading, alignment, kind, order)

    def matmul_descriptor_init(self, handle, op_a, op_b, a, b, c, d, compute):
        integers = self.live[c][2] == 10
        assert (op_a, c, compute) == (0, d, 0 if integers else 2)
        if integers and not op_b:
            raise self.cuSPARSELtError("CUSPARSE_STATUS_NOT_SUPPORTED (10): operation not supported")
        return self._new((op_b, *(self.live[x] for x in (a, b, c))))

    def matmul_alg_selection_init(self, handle, matmul, algorithm):
        assert algorithm == 0
        return self._new("algorithm")

    def matmul_plan_init(self, handle, matmul, algorithm):
        assert self.live[algorithm] == "algorithm"
        return self._new(self.live[matmul])

    def matmul_get_workspace(self, handle, plan):
        return WORKSPACE

    def _load(self, pointer, shape):
        rows, columns, kind = shape
        return load_values(self.backend, pointer, kind, rows * columns).reshape(rows, columns)

    def sp_mma_prune_check(self, handle, matmul, pointer, valid, stream):
        assert stream == self.backend.stream
        dense = self._load(pointer, self.live[matmul][1])
        keep, group = (2, 4) if self.live[matmul][1][2] else (1, 2)
        over = (np.count_nonzero(dense.reshape(-1, group), axis=1) > keep).any()
        if over or self.fails_check:  # as version 0.8 does: nothing is written where all is well
            self.backend.array(valid, np.int32, 1)[0] = 1

    def sp_mma_compressed_size(self, handle, plan):
        return COMPRESSED, BUFFER

    def sp_mma_compress(self, handle, plan, dense, compressed, buffer, stream):
        assert len(self.backend.memory[compressed]) == COMPRESSED
        assert len(self.backend.memory[buffer]) == BUFFER
        self.compressed.append(self._load(dense, self.live[plan][1]).copy())
        self.backend.array(compressed, np.uint64, 1)[0] = len(self.compressed)  # moves with a copy of the memory

    def _run(self, plan, alpha, a, b, beta, c, d, workspace, streams, count):
        assert c == d
        assert ctypes.c_uint64.from_address(streams).value == self.backend.stream
        assert len(self.backend.memory[workspace]) >= WORKSPACE
        op_b, a_shape, b_shape, c_shape = self.live[plan]
        scale = host_scalar(alpha, 0)
        assert (scale, host_scalar(beta, 0), count) == (1 / 64**2 if a_shape[2] == 28 else 1, 0, 1)
        right = self._load(b, b_shape)
        weights = self.compressed[int(self.backend.array(a, np.uint64, 1)[0]) - 1]
        result = scale * (weights @ (right.T if op_b else right))
        assert result.shape == c_shape[:2]
        store_values(self.backend, d, c_shape[2], result)

    def matmul(self, handle, plan, *arguments):
        self.calls.append("run")
        self._run(plan, *arguments)

    def matmul_search(self, handle, plan, *arguments):
        self.calls.append("search")
        self._run(plan, *arguments)
