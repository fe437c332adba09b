// C = A B, fp32: A sparse (m x k, CSR), B (k x n) and C (m x n) dense, row-major.
//
// The row-split kernel of MergeSpMM ("Design Principles for Sparse Matrix Multiplication on the GPU", Yang, Buluc and
// Owens, Euro-Par 2018, section 4.1; details that the paper leaves open follow the authors' repository owensgroup/
// merge-spmm as read at da5c55a, nothing of it is copied).
//
// Who computes what: a warp computes one row of C over a slab of 32 columns, lane t column t of it, so that a row of B
// is one 128-byte access; four warps of a block take four consecutive rows. The warp takes the row's nonzeros in batches
// of 32: lane t loads the t-th column and value, and multiplies the column by n at once. Every lane then gets all 32 by
// shuffles, first issuing the loads and products of the whole batch, each into its own register, then adding them up:
// that is the kernel's instruction-level parallelism. Lanes past the row's end stand for column 0 and value 0, and their
// rounds are executed like the others: a row of 33 nonzeros costs 64 rounds, and an Inf or NaN in row 0 of B reaches
// every row whose length is no multiple of 32 (so it does in the original).
//
// Buffers
//   offsets  int[m + 1]; indices int[nnz], values float[nnz]
//   b, c     k x n and m x n; k * n below 2^31, as offsets into B are of 32 bits
// Launch: block 128; grid (ceil(m / 4), ceil(n / 32)).
//
// Defines
//   PITCH  n where it is known to the compiler, a multiple of 32 (the authors' special case, for 64 columns); 0: n at
//          run time, and lanes past the last column read the last one and store nothing
#include "nnz.cuh"

constexpr int kPitch = PITCH;
constexpr int kBatch = 32;
constexpr int kRows = 4;

static_assert(kPitch >= 0 && kPitch % 32 == 0, "PITCH must be a multiple of 32, or 0");

extern "C" __global__ void __launch_bounds__(32 * kRows)
    merge_spmm_rows(int m, int columns, const int* __restrict__ offsets, const int* __restrict__ indices,
                    const float* __restrict__ values, const float* __restrict__ b, float* __restrict__ c) {
    const int n = kPitch > 0 ? kPitch : columns;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / 32;
    const int column = static_cast<int>(blockIdx.y) * 32 + lane;
    if (row >= m) return;  // a whole warp
    const float* const from = b + (kPitch > 0 || column < n ? column : n - 1);

    float sum = 0.0f;
    const int end = nnz::ldg(offsets + row + 1);
    for (int start = nnz::ldg(offsets + row); start < end; start += kBatch) {
        int offset = 0;
        float value = 0.0f;
        if (start + lane < end) {
            offset = nnz::ldg(indices + start + lane) * n;
            value = nnz::ldg(values + start + lane);
        }
        float products[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int at = __shfl_sync(0xffffffffu, offset, i);
            products[i] = __shfl_sync(0xffffffffu, value, i) * nnz::ldg(from + at);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) sum += products[i];
    }
    if (kPitch > 0 || column < n) c[static_cast<long long>(row) * n + column] = sum;
}
