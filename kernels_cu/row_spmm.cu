// C = A B, fp32. A: m x k, sparse, packed by the host; B: k x n and C: m x n, dense, row-major.
//
// Streams rows of A as packed {index, value} words, with the fewest dependent loads between launch and store: made for
// products so small that latency, not bandwidth, is the cost. Long rows are split over the warps of a block.
//
// Who computes what
//   grid    x: groups of ROWS rows, y: tiles of kBlockN = LANES * VEC columns
//   block   LANES x ROWS x PARTS threads; the PARTS thread groups of a row share its nonzeros equally and add up in
//           shared memory, in a fixed order
//   lane    VEC columns of one row: neighbouring ones where ADJACENT, else LANES apart (for n that is no multiple of VEC)
//
// What the host packs (`nnzbench.kernels.row_stream`): rows in order of falling length, so that the rows of a block are
// alike; each row's nonzeros as {column, value bits} pairs, filled to a multiple of four with pairs of column -1, which load
// nothing: an Inf or NaN in a row of B that is not used can't leak. Two pairs are one 128-bit load, the same for all lanes.
//
// Defines
//   LANES     8, 16 or 32                       VEC      columns per lane: 1, 2 or 4
//   ROWS      rows per block                    PARTS    thread groups per row; more than one needs LANES = 32
//   UNROLL    pairs in flight per lane: 4, 8 or 16
//   ADJACENT  1: VEC neighbouring columns, n must be a multiple of VEC; 0: columns LANES apart, any n
#include "nnz.cuh"
#include "vector_columns.cuh"

constexpr int kLanes = LANES;
constexpr int kVec = VEC;
constexpr int kRows = ROWS;
constexpr int kParts = PARTS;
constexpr int kUnroll = UNROLL;
constexpr bool kAdjacent = ADJACENT;

constexpr int kBlockN = kLanes * kVec;
constexpr int kThreads = kLanes * kRows * kParts;

static_assert(kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES must divide a warp");
static_assert(kVec == 1 || kVec == 2 || kVec == 4, "VEC must be a vector width");
static_assert(kUnroll == 4 || kUnroll == 8 || kUnroll == 16, "UNROLL counts pairs, four to a packed group");
static_assert(kParts == 1 || kLanes == 32, "the parts of a row are whole warps");
static_assert(kThreads <= 1024, "a block holds at most 1024 threads");

using Vector = nnz::Columns<kVec>::type;

struct Tile {
    const float* b;  // the lane's first column in row 0 of B
    int n;
    int columns;  // columns from the lane's first to the matrix's edge

    __device__ __forceinline__ void multiply_add(float* acc, int index, unsigned value) const {
        const float* row = b + static_cast<long long>(index) * n;
        if constexpr (kAdjacent) {
            if (columns > 0) nnz::multiply_add(acc, __uint_as_float(value), nnz::ldg(reinterpret_cast<const Vector*>(row)));
        } else {
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                if (v * kLanes < columns) {
                    acc[v] = nnz::fma_rn(__uint_as_float(value), nnz::ldg(row + v * kLanes), acc[v]);
                }
            }
        }
    }
};

// spans: {first 128-bit word, words} of each row slot; row_ids: the slot's row, -1 behind the last.
// words: two {column, value bits} pairs each.
extern "C" __global__ void __launch_bounds__(kThreads, kThreads <= 256 ? 2 : 1)
    row_spmm(int n, const int2* __restrict__ spans, const int* __restrict__ row_ids, const uint4* __restrict__ words,
             const float* __restrict__ b, float* __restrict__ c) {
    const int lane = threadIdx.x % kLanes;
    const int row_slot = threadIdx.x / kLanes % kRows;
    const int part = threadIdx.x / (kLanes * kRows);
    const int slot = blockIdx.x * kRows + row_slot;
    const int column = blockIdx.y * kBlockN + (kAdjacent ? lane * kVec : lane);
    const Tile tile{b + column, n, n - column};

    const int2 span = nnz::ldg(spans + slot);
    const int row = nnz::ldg(row_ids + slot);
    const int groups = span.y / 2;  // of four pairs
    const int begin = groups * part / kParts * 2;
    const int end = groups * (part + 1) / kParts * 2;
    const uint4* word = words + span.x + begin;
    int left = end - begin;
    float acc[kVec] = {};

    constexpr int kBatch = kUnroll / 2;
    // Padding stands in the last group only, so the batches before it load without a test.
    for (; left > kBatch; left -= kBatch, word += kBatch) {
        uint4 batch[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) batch[i] = nnz::ldg(word + i);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            tile.multiply_add(acc, batch[i].x, batch[i].y);
            tile.multiply_add(acc, batch[i].z, batch[i].w);
        }
    }
    for (; left > 0; left -= 2, word += 2) {
        const uint4 low = nnz::ldg(word);
        const uint4 high = nnz::ldg(word + 1);
        tile.multiply_add(acc, low.x, low.y);
        if (static_cast<int>(low.z) >= 0) tile.multiply_add(acc, low.z, low.w);
        if (static_cast<int>(high.x) >= 0) tile.multiply_add(acc, high.x, high.y);
        if (static_cast<int>(high.z) >= 0) tile.multiply_add(acc, high.z, high.w);
    }

    if constexpr (kParts > 1) {
        __shared__ float partial[kParts][kRows][kVec][kLanes];
#pragma unroll
        for (int v = 0; v < kVec; ++v) partial[part][row_slot][v][lane] = acc[v];
        __syncthreads();
        if (part > 0) return;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
            acc[v] = partial[0][row_slot][v][lane];
#pragma unroll
            for (int other = 1; other < kParts; ++other) acc[v] += partial[other][row_slot][v][lane];
        }
    }
    if (row < 0) return;
    float* out = c + static_cast<long long>(row) * n + column;
    if constexpr (kAdjacent) {
        if (tile.columns > 0) {
            Vector value;
#pragma unroll
            for (int v = 0; v < kVec; ++v) reinterpret_cast<float*>(&value)[v] = acc[v];
            *reinterpret_cast<Vector*>(out) = value;
        }
    } else {
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
            if (v * kLanes < tile.columns) out[v * kLanes] = acc[v];
        }
    }
}
