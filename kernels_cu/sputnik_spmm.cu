// C = A B (+ bias, ReLU): A sparse (m x k, CSR), B and C dense row-major (k x n, m x n), fp32 accumulation.
//
// The row-splitting SpMM of "Sparse GPU Kernels for Deep Learning" (Gale et al., SC 2020), section V:
//   V-A   hierarchical 1-D tiling: a block computes BLOCK_ITEMS_Y one-row tiles of BLOCK_ITEMS_X columns
//   V-B1  subwarp tiling: BLOCK_WIDTH threads share a row; a warp holds 32 / BLOCK_WIDTH rows
//   V-B2  reverse offset memory alignment: a row's first address is moved back to a VECTOR_A boundary, the entries of
//         the row before it are masked in the first tile
//   V-C   row swizzle: `rows` lists the rows by falling length, so that heavy blocks start first and the rows of one
//         warp have equal lengths; the identity order switches it off
//   V-D1  index pre-scaling: an index is multiplied by n once, when it is staged; switched off, every lane multiplies
//         it again at each use, in 32 bits
//   V-D2  residue handling: a short last tile is filled up with zeros to a multiple of 4 and processed by unrolled
//         groups of 4 without bounds checks, loads before arithmetic; the loads are predicated, because ptxas lets each
//         branch between loads wait for the load before it
//   V-D3  mixed precision: fp16 values in and out, 16-bit indices, fp32 arithmetic
//
// Who computes what: threadIdx.y is the row within the block, threadIdx.x the lane within the subwarp. Lane t owns
// VECTOR_B columns of the tile from t * VECTOR_B on, and again every BLOCK_WIDTH * VECTOR_B columns. Per step a subwarp
// copies BLOCK_ITEMS_K (value, offset) entries to shared memory; each lane then reads them back four at a time (the
// same word for all lanes) and multiplies with its own columns of B.
//
// Masked entries have value 0 and the index of another entry of the same row: rows of B that no nonzero of the row
// refers to are never read, so their Inf and NaN can't leak.
//
// Transposed product (section IX): for C = W^T B with W in CSR, the host caches the structure of W^T once per topology
// and the position in W of each of its entries; GATHER reads values through those positions, so that new values of W
// need no rearranging.
//
// Differences from the paper: a row's number, start and end come in one 16-byte record instead of three dependent
// loads; 16-bit indices are widened and pre-scaled while staging; PREFETCH (not in the paper) loads the next tile of A
// before the current one is multiplied.
//
// Buffers
//   rows       int4[rows of all blocks]: row, first entry, end of entries, steps of its warp; in processing order. The
//              steps are the tiles of A that the warp's row with most of them has: all rows of a warp take as many, so
//              that barriers are of whole warps (naming the lanes of one row costs three slow instructions a barrier).
//              Slots behind the last row: row -1, no entries, steps alike
//   values     nnz values, padded with readable entries to a multiple of VECTOR_A (the padding is never used)
//   indices    nnz column indices, padded alike
//   positions  int[nnz], padded alike: where an entry's value is in `values`, only with GATHER
//   b, c       k x n and m x n; n and both addresses multiples of VECTOR_B elements
//   bias       float[m], only with BIAS; arguments that a switch leaves unused may be any pointer
// Launch: block (BLOCK_WIDTH, BLOCK_ITEMS_Y); grid (ceil(n / BLOCK_ITEMS_X), ceil(m / BLOCK_ITEMS_Y)), with the axes
// exchanged under ROWS_FASTEST.
//
// Defines
//   BLOCK_ITEMS_Y   rows per block; BLOCK_WIDTH * BLOCK_ITEMS_Y a multiple of 32, at most 1024
//   BLOCK_ITEMS_X   columns per tile; a multiple of BLOCK_WIDTH * VECTOR_B
//   BLOCK_ITEMS_K   entries staged per step; a multiple of 4, VECTOR_A and ITEMS_AHEAD
//   BLOCK_WIDTH     threads per row: 1, 2, 4, 8, 16 or 32
//   VECTOR_A        elements per load of values and of indices: 1, 2, 4 (8 in fp16)
//   VECTOR_B        elements per access to B and C: 1, 2, 4 (8 in fp16)
//   ITEMS_AHEAD     entries whose B loads are issued before their arithmetic; a multiple of 4. The rest of a row takes a
//                   round trip to memory for every ITEMS_AHEAD entries, so 32 suit short rows and 16 many warps
//   PRESCALE        1: indices are multiplied by n when they are staged; 0: at every use
//   OFFSET64        0: index * n in 32 bits, needs k * n < 2^31; 1: in 64 bits, for larger B, only without PRESCALE
//   RESIDUE_UNROLL  entries of the last tile whose B loads are issued together: ITEMS_AHEAD, or 4 as in the paper; 0: it
//                   is a rolled loop over single entries
//   PREFETCH        1: next tile of A into registers during arithmetic
//   ROWS_FASTEST    1: consecutive blocks take consecutive rows of one column tile; 0: column tiles of the same rows
//   BIAS, RELU      1: fused epilogue
//   GATHER          1: values are read through `positions`
//   F16, INDEX16    1: 16-bit values, 16-bit indices (k <= 65536)
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kRows = BLOCK_ITEMS_Y;
constexpr int kItemsX = BLOCK_ITEMS_X;
constexpr int kItemsK = BLOCK_ITEMS_K;
constexpr int kWidth = BLOCK_WIDTH;
constexpr int kVectorA = VECTOR_A;
constexpr int kVectorB = VECTOR_B;
constexpr int kAhead = ITEMS_AHEAD;

static_assert(kWidth > 0 && 32 % kWidth == 0, "BLOCK_WIDTH must divide a warp");
static_assert(kWidth * kRows % 32 == 0 && kWidth * kRows <= 1024, "a block must be whole warps, at most 1024 threads");
static_assert(kItemsX % (kWidth * kVectorB) == 0, "BLOCK_ITEMS_X must be a multiple of BLOCK_WIDTH * VECTOR_B");
static_assert(kItemsK % kAhead == 0 && kAhead % 4 == 0, "BLOCK_ITEMS_K must be a multiple of ITEMS_AHEAD, that of 4");
static_assert(kItemsK % kVectorA == 0, "BLOCK_ITEMS_K must be a multiple of VECTOR_A");
static_assert(sizeof(Value) * kVectorA <= 16 && sizeof(Value) * kVectorB <= 16, "an access is at most 16 bytes");
static_assert(RESIDUE_UNROLL % 4 == 0 && RESIDUE_UNROLL <= kAhead, "RESIDUE_UNROLL must be a multiple of 4");
static_assert(!(PRESCALE && OFFSET64), "staged offsets are of 32 bits");

constexpr int kGroups = kItemsX / (kWidth * kVectorB);  // column groups per lane
constexpr int kLoadsA = (kItemsK + kWidth * kVectorA - 1) / (kWidth * kVectorA);  // vector loads per lane and tile
constexpr int kRegistersB = kAhead * kGroups * kVectorB * static_cast<int>(sizeof(Value)) / 4;  // of a batch, per lane
// Where a batch is small, ptxas saves registers that nobody needs by taking it apart, load by load; told to leave room
// for 16 warps, it uses as many as there are. Large batches stay whole by themselves, with fewer registers.
constexpr int kBlocks = kRegistersB < 64 && kWidth * kRows <= 512 ? 512 / (kWidth * kRows) : 0;
constexpr int kVectorStage = kVectorA < 4 ? kVectorA : 4;  // elements per store to shared memory
constexpr int kStride = kItemsK + 4;  // subwarps of a warp read different banks

// One tile of a row on its way to shared memory, in registers.
struct TileA {
    Pack<Value, kVectorA> values[kLoadsA];
    Pack<Index, kVectorA> indices[kLoadsA];
};

// A in device memory.
struct MatrixA {
    const Value* __restrict__ values;
    const Index* __restrict__ indices;
    const int* __restrict__ positions;
};

// Loads the entries [at, at + kItemsK) of the row [first, end). Entries outside the row get value 0 and the index of an
// entry inside. Vectors past the end are replaced by the row's last one, so nothing beyond its padding is read.
__device__ __forceinline__ TileA load_tile(const MatrixA& a, int at, int first, int end, int lane) {
    TileA tile;
    const bool masked = at < first || at + kItemsK > end;
    const int last = (end - 1) & ~(kVectorA - 1);
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
        const int wanted = at + (i * kWidth + lane) * kVectorA;
        const int from = wanted < last ? wanted : last;
        tile.indices[i] = load<kVectorA>(a.indices + from);
        if constexpr (GATHER) {
            const Pack<int, kVectorA> positions = load<kVectorA>(a.positions + from);
#pragma unroll
            for (int j = 0; j < kVectorA; ++j) tile.values[i].at[j] = nnz::ldg(a.values + positions.at[j]);
        } else {
            tile.values[i] = load<kVectorA>(a.values + from);
        }
        if (masked) {
            Index inside = tile.indices[i].at[0];
#pragma unroll
            for (int j = 1; j < kVectorA; ++j) {
                if (from + j == first) inside = tile.indices[i].at[j];
            }
#pragma unroll
            for (int j = 0; j < kVectorA; ++j) {
                if (wanted + j < first || wanted + j >= end) {
                    tile.values[i].at[j] = narrow(0.0f);
                    tile.indices[i].at[j] = inside;
                }
            }
        }
    }
    return tile;
}

__device__ __forceinline__ void store_tile(const TileA& tile, float* __restrict__ s_values, int* __restrict__ s_offsets,
                                           int n, int lane) {
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
        const int to = (i * kWidth + lane) * kVectorA;
        if (kItemsK % (kWidth * kVectorA) != 0 && to >= kItemsK) continue;
        const Floats<kVectorA> values = widen(tile.values[i]);
#pragma unroll
        for (int j = 0; j < kVectorA; j += kVectorStage) {
            Pack<float, kVectorStage> value;
            Pack<int, kVectorStage> offset;
#pragma unroll
            for (int v = 0; v < kVectorStage; ++v) {
                const int index = tile.indices[i].at[j + v];
                value.at[v] = values.at[j + v];
                offset.at[v] = PRESCALE ? index * n : index;
            }
            store<kVectorStage>(s_values + to + j, value);
            store<kVectorStage>(s_offsets + to + j, offset);
        }
    }
}

struct Accumulators {
    float at[kGroups][kVectorB];
};

// Where the lane's column groups start in the first row of B. A group past column n points to the lane's first one: it
// is multiplied like the others and never stored.
struct Columns {
    const Value* at[kGroups];
};

#if OFFSET64
using Offset = long long;
#else
using Offset = int;
#endif

// Where the row of B starts that a staged index, pre-scaled or not, refers to. Unscaled it is one 32-bit multiply-add
// more per entry and lane.
__device__ __forceinline__ Offset row_of_b(int staged, int n) {
    if constexpr (PRESCALE) return staged;
    const Offset row = static_cast<Offset>(staged) * n;
    if constexpr (OFFSET64) return row;
    return opaque(static_cast<int>(row));  // or the compiler would multiply in 64 bits
}

// The lane's columns of one row of B, where `keep`.
__device__ __forceinline__ void load_b(Pack<Value, kVectorB> (&fragment)[kGroups], const Columns& columns, int staged,
                                       int n, bool keep) {
    const Offset row = row_of_b(staged, n);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) load_if<kVectorB>(keep, columns.at[g] + row, fragment[g]);
}

__device__ __forceinline__ void multiply(Accumulators& sum, float value,
                                         const Pack<Value, kVectorB> (&fragment)[kGroups]) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
        const Floats<kVectorB> b = widen(fragment[g]);
#pragma unroll
        for (int j = 0; j < kVectorB; ++j) sum.at[g][j] += value * b.at[j];
    }
}

// Multiplies `items` staged entries, all kItemsK of them where kFull: kBatch at a time (a loop that is not unrolled, so
// that no more are in flight), first the loads of B, then arithmetic. Entries count in groups of 4.
template <bool kFull, int kBatch>
__device__ __forceinline__ void multiply_tile(Accumulators& sum, const float* __restrict__ s_values,
                                              const int* __restrict__ s_offsets, const Columns& columns, int items,
                                              int n) {
#pragma unroll 1
    for (int k = 0; k < (kFull ? kItemsK : items); k += kBatch) {
        Pack<Value, kVectorB> b[kBatch][kGroups];
#pragma unroll
        for (int i = 0; i < kBatch; i += 4) {
            const bool keep = kFull || k + i < items;
            const int4 offsets = *reinterpret_cast<const int4*>(s_offsets + k + i);
            load_b(b[i], columns, offsets.x, n, keep);
            load_b(b[i + 1], columns, offsets.y, n, keep);
            load_b(b[i + 2], columns, offsets.z, n, keep);
            load_b(b[i + 3], columns, offsets.w, n, keep);
        }
#pragma unroll
        for (int i = 0; i < kBatch; i += 4) {
            if (kFull || k + i < items) {
                const float4 values = *reinterpret_cast<const float4*>(s_values + k + i);
                multiply(sum, values.x, b[i]);
                multiply(sum, values.y, b[i + 1]);
                multiply(sum, values.z, b[i + 2]);
                multiply(sum, values.w, b[i + 3]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(kWidth* kRows, kBlocks)
    sputnik_spmm(int n, const int4* __restrict__ rows, const Value* __restrict__ values,
                 const Index* __restrict__ indices, const int* __restrict__ positions, const Value* __restrict__ b,
                 Value* __restrict__ c, const float* __restrict__ bias) {
    __shared__ __align__(16) float shared_values[kRows][kStride];
    __shared__ __align__(16) int shared_offsets[kRows][kStride];

    const int row_block = static_cast<int>(ROWS_FASTEST ? blockIdx.x : blockIdx.y);
    const int column_block = static_cast<int>(ROWS_FASTEST ? blockIdx.y : blockIdx.x);
    const int4 record = nnz::ldg(rows + row_block * kRows + static_cast<int>(threadIdx.y));
    const int row = record.x, first = record.y, end = record.z;
    const int lane = opaque(static_cast<int>(threadIdx.x));
    float* const s_values = shared_values[threadIdx.y];
    int* const s_offsets = shared_offsets[threadIdx.y];

    const int first_column = opaque(column_block * kItemsX + lane * kVectorB);
    Columns columns;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
        const int at = first_column + g * kWidth * kVectorB;
        columns.at[g] = opaque(b + (at < n ? at : first_column));
    }

    const MatrixA a{values, indices, positions};
    Accumulators sum{};
    TileA tile;
    bool more = first < end;  // `tile` holds entries to be staged
    int at = more ? first & ~(kVectorA - 1) : end;
    if (more) tile = load_tile(a, at, first, end, lane);
    for (int steps = record.w; steps > 0; --steps) {
        if (more) store_tile(tile, s_values, s_offsets, n, lane);
        __syncwarp();
        if (steps == 1) break;  // the last tile of every row is staged now, that of a shorter row since earlier steps
        more = at + kItemsK < end;
        if (more) {
            at += kItemsK;
            if (PREFETCH) tile = load_tile(a, at, first, end, lane);
            if (first_column < n) multiply_tile<true, kAhead>(sum, s_values, s_offsets, columns, kItemsK, n);
        }
        __syncwarp();
        if (!PREFETCH && more) tile = load_tile(a, at, first, end, lane);
    }
    if (row < 0 || first_column >= n) return;
    const int residue = end - at;
    if constexpr (RESIDUE_UNROLL > 0) {
        multiply_tile<false, RESIDUE_UNROLL>(sum, s_values, s_offsets, columns, residue, n);
    } else {
#pragma unroll 1
        for (int i = 0; i < residue; ++i) {
            Pack<Value, kVectorB> fragment[kGroups];
            load_b(fragment, columns, s_offsets[i], n, true);
            multiply(sum, s_values[i], fragment);
        }
    }

    float shift = 0.0f;
    if constexpr (BIAS) shift = nnz::ldg(bias + row);
    Value* const out = c + static_cast<long long>(row) * n + first_column;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
        if (g > 0 && first_column + g * kWidth * kVectorB >= n) break;
        Pack<Value, kVectorB> result;
#pragma unroll
        for (int j = 0; j < kVectorB; ++j) {
            const float x = BIAS ? sum.at[g][j] + shift : sum.at[g][j];
            result.at[j] = narrow(RELU && !(x > 0.0f) ? (x != x ? x : 0.0f) : x);
        }
        store<kVectorB>(out + g * kWidth * kVectorB, result);
    }
}
