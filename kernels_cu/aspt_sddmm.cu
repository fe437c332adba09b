// D = S .* (X Y^T) at the nonzeros of S, fp32: S sparse (m x k), X (m x n) and Y (k x n) dense, row-major, n = 32 or 128.
//
// The SDDMM of ASpT ("Adaptive Sparse Tiling for Sparse Matrix Multiplication", Hong et al., PPoPP 2019), over the tiles
// of aspt_spmm.cu, which says what they are and where the description comes from. Each result is multiplied by the
// nonzero's value, as there; a pattern has values 1.
//
// Launches
//   aspt_sddmm_plain      instead of both others where rows are few and even: a warp per row, one nonzero at a time
//   aspt_sddmm_remainder  a warp per row over its remainder, four nonzeros at a time
//   aspt_sddmm_tiles      a block of 32 warps per tile keeps the tile's rows of Y in shared memory; warp w takes the tile's
//                         part of rows w, w + 32, w + 64 and w + 96 of the panel, two nonzeros at a time
//
// Who computes what: the lanes of a warp share the dot product; lane t has features t, t + 32, ... of the row of X in
// registers. The sums of four nonzeros are added across the warp together: lanes first swap registers, so that the four
// lanes of a group end with a part of one nonzero each, by exchanges at distance 1, 2 and 3, and then add over the groups:
// 6 shuffles for 4 dot products. Lane j keeps result j of a batch of 32, which is then stored in one access.
//
// Differences from the original: launches follow each other instead of running on two streams; the plain kernel takes
// all features in one block and stores, where the original adds two halves of n = 128 to a cleared D.
//
// Buffers: as in aspt_spmm.cu; x, y and d (one per nonzero, in the order of `indices`). k * n below 2^31.
// Launch: plain, remainder: block 128, grid ceil(m / 4); tiles: block 1024, grid tiles.
//
// Defines
//   TILE           columns of S in a tile, a power of two: 256 for n = 32, 64 for n = 128
//   LANE_FEATURES  n / 32: 1 or 4; TILE x LANE_FEATURES x 128 bytes are shared
#include "nnz.cuh"

#include "aspt_tiles.cuh"

constexpr int kPer = LANE_FEATURES;
constexpr int kFeatures = 32 * kPer;

static_assert(kTile * kFeatures * 4 <= 48 * 1024, "a tile of Y must fit into static shared memory");

struct Features {
    float at[kPer];
};

__device__ __forceinline__ Features load_features(const float* __restrict__ x, int row) {
    Features own;
    const float* const from = x + static_cast<long long>(row) * kFeatures + static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kPer; ++j) own.at[j] = nnz::ldg(from + 32 * j);
    return own;
}

// Swaps neighbours at a distance of Bit where the lane's number has it; selects, where an index made from the lane would
// become a branch for each value it can have.
template <int Bit, int Count>
__device__ __forceinline__ void swap_by_lane(float (&sums)[Count]) {
    if constexpr (Bit < Count) {
        const bool odd = (threadIdx.x & Bit) != 0;
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            if ((i & Bit) != 0) continue;
            const float low = sums[i], high = sums[i + Bit];
            sums[i] = odd ? high : low;
            sums[i + Bit] = odd ? low : high;
        }
    }
}

// Totals over the warp of Count (4, 2 or 1) sums of every lane; lane t gets that of sum t % Count.
template <int Count>
__device__ __forceinline__ float totals(float (&sums)[Count]) {
    swap_by_lane<1>(sums);
    swap_by_lane<2>(sums);  // now sums[d] is that of number (t % Count) ^ d
    float total = sums[0];
#pragma unroll
    for (int distance = 1; distance < Count; ++distance) {
        total += __shfl_xor_sync(kAll, sums[distance], distance);
    }
#pragma unroll
    for (int distance = 16; distance >= Count; distance /= 2) total += __shfl_xor_sync(kAll, total, distance);
    return total;
}

template <typename Rows>
struct Products {
    Rows rows;
    Features own;
    float* d;
    int held = 0;
    float value = 0.0f, kept = 0.0f;

    __device__ __forceinline__ void start(int column, float factor) {
        held = rows.refer(column);
        value = factor;
    }

    template <int Count>
    __device__ __forceinline__ void group(int at) {
        float sums[Count];
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            const float* const row = rows.row(__shfl_sync(kAll, held, at + i));
            sums[i] = own.at[0] * row[0];
#pragma unroll
            for (int j = 1; j < kPer; ++j) sums[i] += own.at[j] * row[32 * j];
        }
        const float total = totals(sums);
        const int lane = static_cast<int>(threadIdx.x) % 32;
        if (lane >= at && lane < at + Count) kept = total;
    }

    __device__ __forceinline__ void done(int nonzero, bool inside) {
        if (inside) d[nonzero] = kept * value;
    }
};

// D at a range of nonzeros of the row of X in `own`, Group of them at a time.
template <int Group, typename Rows>
__device__ __forceinline__ void multiply(const Parts& parts, const Range& range, const Rows& rows, const Features& own,
                                         float* d) {
    Products<Rows> products{rows, own, d};
    for_batches<Group>(parts, range, products);
}

extern "C" __global__ void __launch_bounds__(128)
    aspt_sddmm_plain(int m, const int* __restrict__ begins, const int* __restrict__ panels,
                     const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ x,
                     const float* __restrict__ y, float* __restrict__ d) {
    const int row = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
    if (row >= m) return;
    const Range range = remainder_of({begins, panels, indices, values}, row);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Features own = load_features(x, row);
#pragma unroll 1
    for (int at = range.begin; at < range.end; ++at) {
        const float* const from = y + nnz::ldg(indices + at) * kFeatures + lane;
        float sum[1] = {};
#pragma unroll
        for (int j = 0; j < kPer; ++j) sum[0] += own.at[j] * nnz::ldg(from + 32 * j);
        const float total = totals(sum);
        if (lane == 0) d[at] = total * nnz::ldg(values + at);
    }
}

extern "C" __global__ void __launch_bounds__(128)
    aspt_sddmm_remainder(int m, const int* __restrict__ begins, const int* __restrict__ panels,
                         const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ x,
                         const float* __restrict__ y, float* __restrict__ d) {
    const int row = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
    if (row >= m) return;
    const Parts parts{begins, panels, indices, values};
    const GlobalRows rows{y + static_cast<int>(threadIdx.x) % 32, kFeatures};
    multiply<4>(parts, remainder_of(parts, row), rows, load_features(x, row), d);
}

extern "C" __global__ void __launch_bounds__(1024)
    aspt_sddmm_tiles(int m, const int2* __restrict__ tiles, const int* __restrict__ slots,
                     const int* __restrict__ begins, const int* __restrict__ panels, const int* __restrict__ indices,
                     const float* __restrict__ values, const float* __restrict__ x, const float* __restrict__ y,
                     float* __restrict__ d) {
    __shared__ float held[kTile][kFeatures];
    const int2 tile = nnz::ldg(tiles + blockIdx.x);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Parts parts{begins, panels, indices, values};
    load_tile<kPer>(held, slots + static_cast<int>(blockIdx.x) * kTile, y + lane, kFeatures);
    __syncthreads();

    const TileRows<kPer> rows{held[0] + lane};
    for (int i = static_cast<int>(threadIdx.x) / 32; i < kPanel; i += 32) {
        const int row = tile.x * kPanel + i;
        if (row >= m) break;
        multiply<2>(parts, part_of(parts, row, tile.y), rows, load_features(x, row), d);
    }
}
