// out = in turned, elements of 16 or 32 bits: what a kernel whose operands lie the other way needs before and after it.
//
// Who computes what: a block of 32 x 8 threads takes a tile of 32 x 32 through shared memory, so that loads and stores are
// both of neighbours; a row of the tile is one element longer, so that a column's elements lie in different banks.
//
// Buffers: in rows x columns, out columns x rows, both row-major. Launch: grid (ceil(columns / 32), ceil(rows / 32)).
#include "nnz.cuh"

constexpr int kTile = 32;
constexpr int kRows = 8;  // of a tile at once

template <class T>
__device__ __forceinline__ void turn(int rows, int columns, const T* __restrict__ in, T* __restrict__ out) {
    __shared__ T tile[kTile][kTile + 1];
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile;
#pragma unroll
    for (int i = y; i < kTile; i += kRows) {
        if (row + i < rows && column + x < columns) {
            tile[i][x] = nnz::ldg(in + static_cast<long long>(row + i) * columns + column + x);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = y; i < kTile; i += kRows) {
        if (row + x < rows && column + i < columns) {
            out[static_cast<long long>(column + i) * rows + row + x] = tile[x][i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(kTile* kRows)
    turn_16(int rows, int columns, const unsigned short* __restrict__ in, unsigned short* __restrict__ out) {
    turn(rows, columns, in, out);
}

extern "C" __global__ void __launch_bounds__(kTile* kRows)
    turn_32(int rows, int columns, const unsigned* __restrict__ in, unsigned* __restrict__ out) {
    turn(rows, columns, in, out);
}
