// C = A B, fp32: A sparse (m x k, CSR), B (k x n) and C (m x n) dense, row-major.
//
// The merge-based kernel of MergeSpMM ("Design Principles for Sparse Matrix Multiplication on the GPU", Yang, Buluc and
// Owens, Euro-Par 2018, section 4.2; details that the paper leaves open follow the authors' repositories owensgroup/
// merge-spmm and ctcyang/moderngpu as read at da5c55a and 7864935, nothing of them is copied). Nonzeros, not rows, are
// dealt out evenly: a tile is 128 consecutive nonzeros, wherever rows end.
//
// Launches, in order
//   merge_clear      only for a matrix that has empty rows: C = 0 (the original leaves such rows unwritten)
//   merge_partition  limits[t]: the row of nonzero 128 t, found by bisection, with kOpen set where that nonzero is not
//                    its row's first: the row straddles the border. m behind the last nonzero. One thread per border
//   merge_product    a block per tile and slab of 32 columns. The tile's row offsets go to shared memory; thread t holds
//                    nonzero t of the tile and finds its row there. Each warp multiplies its own 32 nonzeros, lane = the
//                    slab's column: 32 products in registers, then a serial sum that is stored at each row's end. The
//                    sum of the row that is open at a warp's end is handed to the next warps, and the tile's own to
//                    `carry`
//   merge_fix_up     adds the tiles' open sums to the rows that they belong to. One warp per border and slab; the first
//                    border of a row walks along its further ones
//
// Differences from the original: any n (there 64 alone is right) and empty rows; the warps' sums are handed on by a walk
// over at most three of them instead of a segmented scan, the tiles' by one launch instead of two, in the same traffic:
// a word per tile and column. Sums are in one order always, so that results repeat to the bit.
//
// Buffers
//   offsets  int[m + 1]; indices int[nnz], values float[nnz]; at least one nonzero
//   limits   int[tiles + 1], tiles = ceil(nnz / 128)
//   carry    float[tiles x n]
//   b, c     k x n and m x n; k * n below 2^31, as offsets into B are of 32 bits
// Launch: clear and partition one thread per element; product block 128, grid (tiles, ceil(n / 32)); fix-up block 128,
// grid (ceil((tiles - 1) / 4), ceil(n / 32)).
#include "nnz.cuh"

constexpr int kTile = 128;
constexpr int kWarps = kTile / 32;
constexpr int kOpen = static_cast<int>(0x80000000u);
constexpr int kRowsHeld = kTile + 2;  // of a tile without empty rows: one per nonzero, and the end of the last

// The last row of [first, last] whose offset is not above `nonzero`; the first one's is not.
__device__ __forceinline__ int row_of(const int* offsets, int first, int last, int nonzero) {
    while (first < last) {
        const int middle = first + (last - first + 1) / 2;
        if (offsets[middle] <= nonzero) {
            first = middle;
        } else {
            last = middle - 1;
        }
    }
    return first;
}

extern "C" __global__ void __launch_bounds__(256) merge_clear(int size, float* __restrict__ c) {
    const int at = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
    if (at < size) c[at] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(64)
    merge_partition(int m, int nonzeros, int tiles, const int* __restrict__ offsets, int* __restrict__ limits) {
    const int border = static_cast<int>(blockIdx.x) * 64 + static_cast<int>(threadIdx.x);
    if (border > tiles) return;
    const int key = border < tiles ? border * kTile : nonzeros;
    const int row = key == nonzeros ? m : row_of(offsets, 0, m - 1, key);
    limits[border] = row | (offsets[row] != key ? kOpen : 0);
}

extern "C" __global__ void __launch_bounds__(kTile)
    merge_product(int n, int nonzeros, const int* __restrict__ offsets, const int* __restrict__ indices,
                  const float* __restrict__ values, const int* __restrict__ limits, const float* __restrict__ b,
                  float* __restrict__ c, float* __restrict__ carry) {
    __shared__ int held[kRowsHeld];
    __shared__ float tails[kWarps][32];
    __shared__ unsigned warp_ends[kWarps];

    const int tile = static_cast<int>(blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32, lane = thread % 32;
    const int column = static_cast<int>(blockIdx.y) * 32 + lane;
    const bool inside = column < n;
    const float* const from = b + (inside ? column : n - 1);
    const int first = nnz::ldg(limits + tile) & ~kOpen;
    const int border = nnz::ldg(limits + tile + 1);
    const int last = (border & kOpen) != 0 ? border & ~kOpen : border - 1;  // the row of the tile's last nonzero
    const int rows = last - first + 1;  // may begin with what empty rows there are in between
    const bool fits = rows < kRowsHeld;

    const int nonzero = tile * kTile + thread;
    int offset = 0;
    float value = 0.0f;
    if (nonzero < nonzeros) {
        offset = nnz::ldg(indices + nonzero) * n;
        value = nnz::ldg(values + nonzero);
    }
    if (fits) {
        for (int i = thread; i <= rows; i += kTile) held[i] = nnz::ldg(offsets + first + i);
    }
    __syncthreads();

    float products[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int at = __shfl_sync(0xffffffffu, offset, i);
        products[i] = __shfl_sync(0xffffffffu, value, i) * nnz::ldg(from + at);
    }

    int row = last;
    bool is_end = false;
    if (nonzero < nonzeros) {
        row = fits ? first + row_of(held, 0, rows - 1, nonzero) : row_of(offsets, first, last, nonzero);
        is_end = (fits ? held[row - first + 1] : nnz::ldg(offsets + row + 1)) == nonzero + 1;
    }
    const unsigned ends = __ballot_sync(0xffffffffu, is_end);

    float sum = 0.0f,
          first_sum = 0.0f;  // of the warp's first row's part: what earlier warps have of it is not known yet
    bool some = false;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        sum += products[i];
        const int ended = __shfl_sync(0xffffffffu, row, i);
        if ((ends >> i & 1u) != 0) {
            if (!some) {
                first_sum = sum;
            } else if (inside) {
                c[static_cast<long long>(ended) * n + column] = sum;
            }
            some = true;
            sum = 0.0f;
        }
    }
    tails[warp][lane] = sum;
    if (lane == 0) warp_ends[warp] = ends;
    const int first_row = __shfl_sync(0xffffffffu, row, ends != 0 ? __ffs(static_cast<int>(ends)) - 1 : 0);
    __syncthreads();

    float before = 0.0f;
    for (int i = warp - 1; i >= 0; --i) {
        before += tails[i][lane];
        if (warp_ends[i] != 0) break;
    }
    if (!inside) return;
    if (ends != 0) c[static_cast<long long>(first_row) * n + column] = before + first_sum;
    if (warp == kWarps - 1) carry[static_cast<long long>(tile) * n + column] = ends != 0 ? sum : before + sum;
}

extern "C" __global__ void __launch_bounds__(128) merge_fix_up(int n, int tiles, const int* __restrict__ limits,
                                                               const float* __restrict__ carry, float* __restrict__ c) {
    int border = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32 + 1;
    const int column = static_cast<int>(blockIdx.y) * 32 + static_cast<int>(threadIdx.x) % 32;
    if (border >= tiles || column >= n) return;
    const int limit = nnz::ldg(limits + border);
    if ((limit & kOpen) == 0 || nnz::ldg(limits + border - 1) == limit) return;
    float sum = 0.0f;
    for (; border < tiles && nnz::ldg(limits + border) == limit; ++border) {
        sum += nnz::ldg(carry + static_cast<long long>(border - 1) * n + column);
    }
    c[static_cast<long long>(limit & ~kOpen) * n + column] += sum;
}
