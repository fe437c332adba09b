// C = A B, fp32: A sparse (m x k), B (k x n) and C (m x n) dense, row-major, n = 32 or 128.
//
// The SpMM of ASpT ("Adaptive Sparse Tiling for Sparse Matrix Multiplication", Hong et al., PPoPP 2019). Constants and
// what the kernels do follow the authors' artifact (LucasWilkinson/ASpT-mirror, read at 076b1a1; nothing is copied): A is
// cut into panels of 128 rows; in each, columns with at least 16 nonzeros are gathered into dense tiles of TILE columns,
// whose rows of B a block keeps in shared memory; what is left over stays in CSR (the remainder). The host orders each
// row's nonzeros by tile, the remainder last, and picks the launches (nnzbench/kernels/aspt.py).
//
// Launches
//   aspt_plain      instead of all others where rows are few and even: a warp per row over all of it
//   aspt_remainder  a warp per row over its remainder, and the store of C's row; where `split` is not 0,
//                   of a remainder of 512 or more only what is left behind whole runs of 512
//   aspt_long       those runs: a block of 8 warps each, 64 nonzeros a warp, added up in shared memory, then to C
//   aspt_tiles      a block of 32 warps per tile: copy the tile's rows of B, barrier; warp w adds the tile's part of rows
//                   w, w + 32, w + 64 and w + 96 of the panel to C
//
// Who computes what: lane t of a warp owns column t of a block's columns, and t + 32 where it has 64 of them (n = 128;
// blockIdx.z is the half). A batch of 32 nonzeros is loaded by a lane each and handed round by shuffles, unrolled by 8,
// then 4, 2 and 1.
//
// Differences from the original: the launches follow each other, where it has them on two or three streams at once; so the
// remainder can store its rows and run first, and C need not be cleared beforehand (the original adds all parts to a C
// that is cleared outside its timing). Rows behind the last are skipped instead of padded.
//
// Buffers
//   begins   int[...]: where row r's part j begins, at panels[p] * 128 + (r % 128) * (T + 1) + j for a panel p of T tiles;
//            part T is the remainder, and what follows any part's begin is its end
//   panels   int[panels + 1]: sums of (T + 1) over the panels before
//   indices, values  one per nonzero, ordered by row and part
//   tiles    int2[tiles]: panel and number within it. slots  int[tiles x TILE]: the columns of a tile, -1 for none; a
//            column c can only be in slot c % TILE
//   chunks   int2[...]: row and first nonzero of a run of 512
//   b, c     k * n below 2^31: offsets into B are of 32 bits
// Launch: plain, remainder: block 128, grid (ceil(m / 4), 1, n / (32 LANE_COLUMNS)); long: block 256, grid (chunks, 1,
// same); tiles: block 1024, grid (tiles, 1, same).
//
// Defines
//   TILE          columns of a tile, a power of two: 256 for n = 32, 128 for n = 128
//   LANE_COLUMNS  columns of C a lane has: 1 for n = 32, 2 for n = 128; TILE x LANE_COLUMNS x 128 bytes are shared
#include "nnz.cuh"

#include "aspt_tiles.cuh"

constexpr int kColumns = LANE_COLUMNS;
constexpr int kChunk = 512;

static_assert(kTile * kColumns * 128 <= 48 * 1024, "a tile of B must fit into static shared memory");

struct Sum {
    float at[kColumns] = {};
};

template <typename Rows>
struct Product {
    Rows rows;
    Sum sum = {};
    int held = 0;
    float value = 0.0f;

    __device__ __forceinline__ void start(int column, float own) {
        held = rows.refer(column);
        value = own;
    }

    template <int Count>
    __device__ __forceinline__ void group(int at) {
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            const float* const row = rows.row(__shfl_sync(kAll, held, at + i));
            const float factor = __shfl_sync(kAll, value, at + i);
#pragma unroll
            for (int j = 0; j < kColumns; ++j) sum.at[j] += factor * row[32 * j];
        }
    }

    __device__ __forceinline__ void done(int, bool) {}
};

// The products of a range of nonzeros with the lane's columns of B.
template <typename Rows>
__device__ __forceinline__ Sum multiply(const Parts& parts, const Range& range, const Rows& rows) {
    Product<Rows> product{rows};
    for_batches<8>(parts, range, product);
    return product.sum;
}

// Where the lane's first column is in a row of B or C.
__device__ __forceinline__ int own_column() {
    return static_cast<int>(blockIdx.z) * 32 * kColumns + static_cast<int>(threadIdx.x) % 32;
}

__device__ __forceinline__ void store(const Sum& sum, float* c, int row, int n) {
    float* const to = c + static_cast<long long>(row) * n + own_column();
#pragma unroll
    for (int j = 0; j < kColumns; ++j) to[32 * j] = sum.at[j];
}

__device__ __forceinline__ void add(const Sum& sum, float* c, int row, int n) {
    float* const to = c + static_cast<long long>(row) * n + own_column();
#pragma unroll
    for (int j = 0; j < kColumns; ++j) atomicAdd(to + 32 * j, sum.at[j]);
}

extern "C" __global__ void __launch_bounds__(128)
    aspt_plain(int m, int n, const int* __restrict__ begins, const int* __restrict__ panels,
               const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ b,
               float* __restrict__ c) {
    const int row = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
    if (row >= m) return;
    const Range range = remainder_of({begins, panels, indices, values}, row);
    const float* const from = b + own_column();
    Sum sum;
    int at = range.begin;
#pragma unroll 1
    for (; at + 2 <= range.end; at += 2) {
        const float* const one = from + nnz::ldg(indices + at) * n;
        const float* const two = from + nnz::ldg(indices + at + 1) * n;
        const float value = nnz::ldg(values + at), next = nnz::ldg(values + at + 1);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
            sum.at[j] += value * nnz::ldg(one + 32 * j) + next * nnz::ldg(two + 32 * j);
        }
    }
    if (at < range.end) {
        const float* const one = from + nnz::ldg(indices + at) * n;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sum.at[j] += nnz::ldg(values + at) * nnz::ldg(one + 32 * j);
    }
    store(sum, c, row, n);
}

extern "C" __global__ void __launch_bounds__(128)
    aspt_remainder(int m, int n, int split, const int* __restrict__ begins, const int* __restrict__ panels,
                   const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ b,
                   float* __restrict__ c) {
    const int row = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
    if (row >= m) return;
    const Parts parts{begins, panels, indices, values};
    Range range = remainder_of(parts, row);
    if (split != 0) range.begin += (range.end - range.begin) / kChunk * kChunk;
    store(multiply(parts, range, GlobalRows{b + own_column(), n}), c, row, n);
}

extern "C" __global__ void __launch_bounds__(256)
    aspt_long(int n, const int2* __restrict__ chunks, const int* __restrict__ begins, const int* __restrict__ panels,
              const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ b,
              float* __restrict__ c) {
    __shared__ float partial[8][32 * kColumns];
    const int2 chunk = nnz::ldg(chunks + blockIdx.x);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int begin = chunk.y + warp * (kChunk / 8);
    const Parts parts{begins, panels, indices, values};
    Sum sum = multiply(parts, Range{begin, begin + kChunk / 8}, GlobalRows{b + own_column(), n});
#pragma unroll
    for (int j = 0; j < kColumns; ++j) partial[warp][lane + 32 * j] = sum.at[j];
    __syncthreads();
    if (warp != 0) return;
    for (int i = 1; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sum.at[j] += partial[i][lane + 32 * j];
    }
    add(sum, c, chunk.x, n);
}

extern "C" __global__ void __launch_bounds__(1024)
    aspt_tiles(int m, int n, const int2* __restrict__ tiles, const int* __restrict__ slots,
               const int* __restrict__ begins, const int* __restrict__ panels, const int* __restrict__ indices,
               const float* __restrict__ values, const float* __restrict__ b, float* __restrict__ c) {
    __shared__ float held[kTile][32 * kColumns];
    const int2 tile = nnz::ldg(tiles + blockIdx.x);
    const Parts parts{begins, panels, indices, values};
    load_tile<kColumns>(held, slots + static_cast<int>(blockIdx.x) * kTile, b + own_column(), n);
    __syncthreads();

    const TileRows<kColumns> own{held[0] + static_cast<int>(threadIdx.x) % 32};
    for (int i = static_cast<int>(threadIdx.x) / 32; i < kPanel; i += 32) {
        const int row = tile.x * kPanel + i;
        if (row >= m) break;
        add(multiply(parts, part_of(parts, row, tile.y), own), c, row, n);
    }
}
