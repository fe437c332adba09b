// What kernels share whose dense operands lie column by column and whose K is split over blocks (Flash-LLM's and SpInfer's):
// tiles of B in shared memory, the way of a block's sums to C or to the parts' partial sums, and adding those.
//
//   split_part(k, parts)      which tiles of kTileK columns of A a block multiplies
//   aligned_rows(p)           the first whole row of a tile behind p: what is added to dynamic shared memory is a row
//   swizzled_at(row, piece)   where the 16-byte piece of a row of 64 halves lies: eight rows of one piece in different banks
//   ColumnCopy<Columns, Threads>(b, k)   brings 64 x Columns tiles of B asynchronously, K along rows of 128 bytes; what does
//                             not change from tile to tile is computed once, since a step's products take little longer
//   store_sums<TileM, Columns>(tile, out, m)   a block's sums in fp16 from `tile` in shared memory, (Columns, TileM + 4)
//   add_parts                 kernel: C = the sum of fp16 partial sums (parts, elements), in the order of parts, added in fp32
//
// A kernel that splits K in S parts of ceil(tiles / S) tiles, the last one of what is left, is launched with S times as many
// blocks along y, part by part; `out` is then (S, n, m), else C itself, (n, m).
#pragma once

#include "nnz.cuh"
#include "tensor_core.cuh"

constexpr int kTileK = 64;
constexpr int kTileRowBytes = 2 * kTileK;

struct SplitPart {
    int row_block, part;
    int first, count;  // tiles of kTileK columns
};

__device__ __forceinline__ SplitPart split_part(int k, int parts) {
    const int row_blocks = gridDim.y / parts, tiles = k / kTileK, each = (tiles + parts - 1) / parts;
    const int part = blockIdx.y / row_blocks, first = part * each;
    return {static_cast<int>(blockIdx.y) % row_blocks, part, first, part + 1 < parts ? each : tiles - first};
}

__device__ __forceinline__ char* aligned_rows(char* p) {
    const int over = static_cast<int>(__cvta_generic_to_shared(p) % kTileRowBytes);
    return p + (kTileRowBytes - over) % kTileRowBytes;
}

__device__ __forceinline__ int swizzled_at(int row, int piece) {
    return row * kTileRowBytes + ((piece ^ row % 8) << 4);
}

// `b` is the first tile's first element. A pass of all threads brings a 16-byte piece each.
template <int Columns, int Threads>
struct ColumnCopy {
    static constexpr int kPassColumns = Threads / 8;  // whose number keeps a piece in its place among the banks
    static_assert(Threads % 64 == 0 && (Columns % kPassColumns == 0 || Columns < kPassColumns), "whole passes, or one");

    int at;
    const nnz::Half* from;
    long long pass;

    __device__ __forceinline__ ColumnCopy(const nnz::Half* b, int k)
        : at(swizzled_at(static_cast<int>(threadIdx.x) / 8, static_cast<int>(threadIdx.x) % 8)),
          from(b + static_cast<long long>(threadIdx.x / 8) * k + threadIdx.x % 8 * 8),
          pass(static_cast<long long>(kPassColumns) * k) {}

    // The next tile along K, to `to`.
    __device__ __forceinline__ void next(nnz::SharedAt to) {
        if (Columns >= kPassColumns || threadIdx.x < Columns * 8) {
#pragma unroll
            for (int i = 0; i < (Columns + kPassColumns - 1) / kPassColumns; ++i) {
                nnz::copy_to(to + (at + i * kPassColumns * kTileRowBytes), from + i * pass);
            }
        }
        from += kTileK;
    }
};

// What a lane holds of a 16x8 tile of sums, to row `row` and column `column` of the block's tile.
template <int TileM>
__device__ __forceinline__ void keep_sums(float* tile, const float (&sums)[4], int row, int column) {
    float* const at = tile + (column + threadIdx.x % 4 * 2) * (TileM + 4) + row + threadIdx.x % 32 / 4;
    at[0] = sums[0];
    at[TileM + 4] = sums[1];
    at[8] = sums[2];
    at[TileM + 4 + 8] = sums[3];
}

// `out` is the tile's first element; a barrier must come before.
template <int TileM, int Columns>
__device__ __forceinline__ void store_sums(const float* tile, nnz::Half* out, int m) {
    constexpr int kPieces = TileM / 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < kPieces * Columns; i += blockDim.x) {
        const int row = i % kPieces * 8, column = i / kPieces;
        const float4* const from = reinterpret_cast<const float4*>(tile + column * (TileM + 4) + row);
        const float4 x = from[0], y = from[1];
        const uint4 halves = make_uint4(nnz::narrow_pair(x.x, x.y), nnz::narrow_pair(x.z, x.w),
                                        nnz::narrow_pair(y.x, y.y), nnz::narrow_pair(y.z, y.w));
        *reinterpret_cast<uint4*>(out + static_cast<long long>(column) * m + row) = halves;
    }
}

__device__ __forceinline__ void add_pair(float& low, float& high, unsigned halves) {
    low += nnz::widen_half(static_cast<nnz::Half>(halves));
    high += nnz::widen_half(static_cast<nnz::Half>(halves >> 16));
}

// Eight consecutive elements a thread, 256 a block; there are a multiple of 256.
extern "C" __global__ void __launch_bounds__(32)
    add_parts(int parts, int elements, const uint4* __restrict__ partial, uint4* __restrict__ c) {
    const int at = blockIdx.x * 32 + threadIdx.x, stride = elements / 8;
    float sums[8] = {};
    for (int part = 0; part < parts; ++part) {
        const uint4 halves = nnz::ldg(partial + static_cast<long long>(part) * stride + at);
        add_pair(sums[0], sums[1], halves.x);
        add_pair(sums[2], sums[3], halves.y);
        add_pair(sums[4], sums[5], halves.z);
        add_pair(sums[6], sums[7], halves.w);
    }
    c[at] = make_uint4(nnz::narrow_pair(sums[0], sums[1]), nnz::narrow_pair(sums[2], sums[3]),
                       nnz::narrow_pair(sums[4], sums[5]), nnz::narrow_pair(sums[6], sums[7]));
}
