// Softmax over the nonzeros of every row of a CSR matrix: y[p] = exp(x[p] - max) / sum of exp(x[q] - max), p and q the
// entries of one row. fp32 arithmetic. Entries that are not stored count as minus infinity, as in sparse attention
// ("Sparse GPU Kernels for Deep Learning", Gale et al., SC 2020, section VII-C).
//
// Who computes what: threadIdx.y is the row within the block, BLOCK_WIDTH lanes share it; lane t takes entries t,
// t + BLOCK_WIDTH, ... A lane keeps its first ITEMS entries in registers between the passes (maximum, sum, result) and
// reads the rest again, so that any row length works and usual ones are read once.
//
// A row with NaN or plus infinity, or of minus infinities only, gives NaN, as the dense definition does.
//
// Buffers
//   rows    int4[m]: row, first entry, end of entries, 0; longest rows first
//   x, y    nnz values
// Launch: block (BLOCK_WIDTH, BLOCK_ROWS); grid ceil(m / BLOCK_ROWS).
//
// Defines
//   BLOCK_WIDTH  threads per row: 4, 8, 16 or 32; with BLOCK_ROWS whole warps
//   BLOCK_ROWS   rows per block
//   ITEMS        entries a lane keeps in registers
//   F16          1: 16-bit values
#include "nnz.cuh"
#include "pack.cuh"
#include "reduce.cuh"

constexpr int kWidth = BLOCK_WIDTH;
constexpr int kRows = BLOCK_ROWS;
constexpr int kItems = ITEMS;

static_assert(kWidth >= 4 && 32 % kWidth == 0, "BLOCK_WIDTH must divide a warp");
static_assert(kWidth * kRows % 32 == 0 && kWidth * kRows <= 1024, "a block must be whole warps, at most 1024 threads");
static_assert(kItems >= 1, "a lane keeps at least one entry");

extern "C" __global__ void __launch_bounds__(kWidth* kRows)
    sparse_softmax(int m, const int4* __restrict__ rows, const Value* __restrict__ x, Value* __restrict__ y) {
    // Every lane stays to the end, so that shuffles are of whole warps: a subwarp without a row has an empty one.
    const int slot = static_cast<int>(blockIdx.x) * kRows + static_cast<int>(threadIdx.y);
    const int4 record = slot < m ? nnz::ldg(rows + slot) : make_int4(0, 0, 0, 0);
    const int begin = record.y + static_cast<int>(threadIdx.x), end = record.z;
    const int rest = begin + kItems * kWidth;
    const float lowest = -__int_as_float(0x7f800000);

    float kept[kItems];
    float top = lowest;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int at = begin + i * kWidth;
        kept[i] = at < end ? widen(nnz::ldg(x + at)) : lowest;
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) top = nnz::Maximum::of(top, kept[i]);
    for (int at = rest; at < end; at += kWidth) top = nnz::Maximum::of(top, widen(nnz::ldg(x + at)));
    top = nnz::reduce<nnz::Maximum, kWidth>(top);

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        if (begin + i * kWidth < end) {
            kept[i] = expf(kept[i] - top);
            sum += kept[i];
        }
    }
    for (int at = rest; at < end; at += kWidth) sum += expf(widen(nnz::ldg(x + at)) - top);
    sum = nnz::reduce<nnz::Sum, kWidth>(sum);

    const float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int at = begin + i * kWidth;
        if (at < end) y[at] = narrow(kept[i] * scale);
    }
    for (int at = rest; at < end; at += kWidth) y[at] = narrow(expf(widen(nnz::ldg(x + at)) - top) * scale);
}
