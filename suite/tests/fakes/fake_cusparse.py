"""cuSPARSE as its documentation has it, over the memory of `fake_gpu` and computing in NumPy and SciPy."""

from __future__ import annotations

import ctypes
import itertools
from enum import IntEnum
from types import SimpleNamespace

import numpy as np
from fake_gpu import Handles, host_scalar, load_values, store_values
from scipy import sparse


class FakeCusparse(Handles):
    SpMMAlg = IntEnum("SpMMAlg", {
        "DEFAULT": 0, "COO_ALG1": 1, "COO_ALG2": 2, "COO_ALG3": 3, "COO_ALG4": 5, "CSR_ALG1": 4, "CSR_ALG2": 6,
        "CSR_ALG3": 12, "BLOCKED_ELL_ALG1": 13, "BSR_ALG1": 14,
    })  # fmt: skip
    SpMVAlg = IntEnum("SpMVAlg", {
        "DEFAULT": 0, "COO_ALG1": 1, "COO_ALG2": 4, "CSR_ALG1": 2, "CSR_ALG2": 3, "SELL_ALG1": 5,
    })  # fmt: skip
    SDDMMAlg = IntEnum("SDDMMAlg", {"DEFAULT": 0})
    Order = IntEnum("Order", {"COL": 1, "ROW": 2})
    IndexType = IntEnum("IndexType", {"INDEX_32I": 2})
    IndexBase = IntEnum("IndexBase", {"ZERO": 0})
    Operation = IntEnum("Operation", {"NON_TRANSPOSE": 0, "TRANSPOSE": 1})

    class cuSPARSEError(Exception):  # noqa: N801 - the library's own name
        pass

    def __init__(self, backend):
        super().__init__(500)
        self.backend, self.calls = backend, []
        self.refused = None  # value of an algorithm that is not supported

    def create(self):
        return self._new("handle")

    destroy_sp_mat = destroy_dn_mat = destroy_dn_vec = Handles.destroy

    def get_property(self, part):
        return (12, 7, 2)[part]

    def set_stream(self, handle, stream):
        assert stream == self.backend.stream

    def _indices(self, pointer, count):
        return self.backend.array(pointer, np.int32, count)

    def _sparse(self, kind, matrix, **more):
        return self._new(SimpleNamespace(kind=kind, matrix=matrix, **more))

    def create_csr(self, rows, columns, nnz, offsets, indices, values, offset_type, index_type, base, kind):
        assert (offset_type, index_type, base) == (2, 2, 0)
        offsets, indices = self._indices(offsets, rows + 1), self._indices(indices, nnz)
        data = load_values(self.backend, values, kind, nnz)
        matrix = sparse.csr_array((data, indices, offsets), shape=(rows, columns))
        return self._sparse("CSR", matrix, values=values, dtype=kind)

    def create_coo(self, rows, columns, nnz, row_indices, indices, values, index_type, base, kind):
        assert (index_type, base) == (2, 0)
        place = (self._indices(row_indices, nnz), self._indices(indices, nnz))
        assert (np.diff(place[0]) >= 0).all(), "COO is sorted by row"
        matrix = sparse.coo_array((load_values(self.backend, values, kind, nnz), place), shape=(rows, columns))
        return self._sparse("COO", matrix.tocsr())

    def create_sliced_ell(self, rows, columns, nnz, size, slice_rows, offsets, indices, values, *types):
        assert types[:3] == (2, 2, 0)
        offsets = self._indices(offsets, -(-rows // slice_rows) + 1)
        assert offsets[-1] == size
        indices, data = self._indices(indices, size), load_values(self.backend, values, types[3], size)
        dense = np.zeros((rows, columns), np.float32)
        for part, (start, stop) in enumerate(itertools.pairwise(offsets)):
            for place in range(start, stop):
                row = part * slice_rows + (place - start) % slice_rows
                if indices[place] >= 0:
                    dense[row, indices[place]] += data[place]
        assert np.count_nonzero(indices >= 0) == nnz
        return self._sparse("SELL", sparse.csr_array(dense))

    def create_bsr(self, rows, columns, blocks, height, width, offsets, indices, values, *types):
        assert types[:3] == (2, 2, 0)
        assert types[4] == 2, "blocks are row-major"
        offsets, indices = self._indices(offsets, rows + 1), self._indices(indices, blocks)
        data = load_values(self.backend, values, types[3], blocks * height * width).reshape(blocks, height, width)
        matrix = sparse.bsr_array((data, indices, offsets), shape=(rows * height, columns * width))
        return self._sparse("BSR", matrix.tocsr())

    def create_blocked_ell(self, rows, columns, block, width, indices, values, index_type, base, kind):
        assert (index_type, base) == (2, 0)
        slots = width // block
        indices = self._indices(indices, rows // block * slots).reshape(rows // block, slots)
        data = load_values(self.backend, values, kind, rows * width).reshape(rows, width)
        dense = np.zeros((rows, columns), np.float32)
        for i, row in enumerate(indices):
            for slot, column in enumerate(row):
                part = data[i * block : (i + 1) * block, slot * block : (slot + 1) * block]
                if column < 0:
                    assert not part.any()
                else:
                    dense[i * block : (i + 1) * block, column * block : (column + 1) * block] = part
        return self._sparse("BLOCKED_ELL", sparse.csr_array(dense))

    def create_dn_mat(self, rows, columns, leading, pointer, kind, order):
        assert leading == max(1, rows if order == 1 else columns)
        return self._new((rows, columns, pointer, kind, order))

    def create_dn_vec(self, size, pointer, kind):
        return self._new((size, pointer, kind))

    def _dense(self, descriptor):
        rows, columns, pointer, kind, order = self.live[descriptor]
        values = load_values(self.backend, pointer, kind, rows * columns)
        return values.reshape(columns, rows).T if order == 1 else values.reshape(rows, columns)

    def _call(self, step, arguments, workspace=None):
        alpha, beta, algorithm = arguments[-7], arguments[-4], arguments[-1]
        self.calls.append((step, algorithm))
        assert (host_scalar(alpha, 0), host_scalar(beta, 0)) == (1, 0)
        assert workspace is None or len(self.backend.memory[workspace]) == 4096

    def sp_mm_buffer_size(self, *arguments):
        self._call("size", arguments)
        return 4096

    def sp_mm_preprocess(self, *arguments):
        self._call("preprocess", arguments[:-1], arguments[-1])

    sp_mv_buffer_size, sp_mv_preprocess, sddmm_preprocess = sp_mm_buffer_size, sp_mm_preprocess, sp_mm_preprocess

    def sddmm_buffer_size(self, *arguments):
        ctypes.c_size_t.from_address(arguments[-1]).value = self.sp_mm_buffer_size(*arguments[:-1])

    def _refuse(self, algorithm):
        if algorithm == self.refused:
            raise self.cuSPARSEError("CUSPARSE_STATUS_NOT_SUPPORTED (10): operation not supported")

    def sp_mm(self, handle, op_a, op_b, alpha, a, b, beta, c, compute, algorithm, workspace):
        self._call("run", (alpha, a, b, beta, c, compute, algorithm), workspace)
        self._refuse(algorithm)
        assert compute == 0
        name = self.SpMMAlg(algorithm).name
        assert name == "DEFAULT" or name.startswith(self.live[a].kind)
        result = self.live[a].matrix @ self._dense(b)
        rows, columns, pointer, kind, order = self.live[c]
        assert result.shape == (rows, columns)
        store_values(self.backend, pointer, kind, result.T if order == 1 else result)

    def sp_mv(self, handle, op_a, alpha, a, x, beta, y, compute, algorithm, workspace):
        self._call("run", (alpha, a, x, beta, y, compute, algorithm), workspace)
        name = self.SpMVAlg(algorithm).name
        assert name == "DEFAULT" or name.startswith(self.live[a].kind)
        size, pointer, kind = self.live[x]
        result = self.live[a].matrix @ load_values(self.backend, pointer, kind, size)
        size, pointer, kind = self.live[y]
        assert result.shape == (size,)
        store_values(self.backend, pointer, kind, result)

    def sddmm(self, handle, op_a, op_b, alpha, a, b, beta, c, compute, algorithm, workspace):
        self._call("run", (alpha, a, b, beta, c, compute, algorithm), workspace)
        right = self._dense(b)
        product = self._dense(a) @ (right.T if op_b == 1 else right)
        target = self.live[c]
        rows = np.repeat(np.arange(target.matrix.shape[0]), np.diff(target.matrix.indptr))
        store_values(self.backend, target.values, target.dtype, product[rows, target.matrix.indices])

    def constrained_gemm_buffer_size(self, *arguments):
        return self.sp_mm_buffer_size(*arguments, None)

    def constrained_gemm(self, handle, op_a, op_b, alpha, a, b, beta, c, compute, workspace):
        assert (op_a, op_b, self.live[a][4], self.live[b][4]) == (0, 0, 1, 1), "column-major, as it is"
        self.sddmm(handle, op_a, op_b, alpha, a, b, beta, c, compute, None, workspace)
