// C = A B, fp16 in and out, fp32 sums on sparse tensor cores, as VENOM does it (Castro et al., "VENOM: A Vectorized N:M Format
// for Unleashing the Power of Sparse Tensor Cores", SC 2023, arXiv 2310.02065). A: m x k, of every V rows by M columns four
// columns and in each of their rows two weights (V:2:M); B: k x n and C: m x n, dense, row-major.
//
// What is chosen of A's columns is 2:4, whatever M: the rows of B that V rows of A need are gathered by their numbers and
// multiplied as if there were no others. Weights that are zero, in the format or to fill it up, are multiplied, so an Inf or
// NaN of B reaches all V rows that its row was chosen for, and no others.
//
// Who computes what
//   grid    x: tiles of COLUMNS columns, y: blocks of V rows
//   block   step by step over 32 chosen columns, eight groups of M: STAGES stages in shared memory, each of A's part, the
//           gathered rows of B, and the numbers of the rows for the step STAGES - 1 later, so that no copy waits for a number
//   warp    WARP_ROWS rows x WARP_COLUMNS columns as 16x8 tiles of sums
//   lane    16 bytes of each tile of A by one load, in the order of `mma.sp`, and of B what `ldmatrix` gives it; at the end
//           sums go as fp16 through shared memory, so that rows of C are stored in whole pieces
//
// Buffers (host: `nnzbench.kernels.tensor.venom`), of `steps` steps, ceil(k / M) groups filled up to whole eights
//   chosen    (m / V blocks, steps, 32) the row of B of each chosen column, ascending; -1 for none, of which zeros are multiplied
//   weights   (blocks, steps, V / 32, 72) pieces of 16 bytes, of 32 rows: for each lane its registers of the first 16x32 tile,
//             then of the second; then a word for each lane of which weights they are, those of lanes 4 g, 4 g + 1 the
//             first tile's (tensor_core.cuh: `multiply_tile<0>`), of the others the second's
// Launch: block 32 * (ROWS / WARP_ROWS) * (COLUMNS / WARP_COLUMNS), shared memory: `VenomTiling.shared_bytes`.
//
// Of the authors' code (2023) are the choices that the paper leaves open: a block's rows are the V of the pattern, K isn't split.
//
// Defines
//   ROWS          V, the rows that share their columns and are a block's: 32, 64 or 128
//   COLUMNS       columns per block: WARP_COLUMNS times a power of two
//   WARP_ROWS     32 or 64, a divisor of ROWS
//   WARP_COLUMNS  8, 16, 32 or 64
//   STAGES        2 or more
//   FILL          halves that a copy of B brings: 1, 2, 4 or 8, a divisor of n
#include "nnz.cuh"
#include "tensor_core.cuh"

constexpr int kRows = ROWS;
constexpr int kColumns = COLUMNS;
constexpr int kWarpRows = WARP_ROWS;
constexpr int kWarpColumns = WARP_COLUMNS;
constexpr int kStages = STAGES;
constexpr int kFill = FILL;
constexpr int kAcross = kColumns / kWarpColumns;  // warps side by side
constexpr int kThreads = 32 * (kRows / kWarpRows) * kAcross;
constexpr int kPairs = kWarpRows / 32;  // two tiles each, which share a register of places
constexpr int kColumnTiles = kWarpColumns / 8;
constexpr int kStep = 32;
constexpr int kPieces = kColumns / 8;  // of 16 bytes, in a row of B's part
constexpr int kWeightPieces = 72;  // of 32 rows and a step
constexpr int kBytesA = kRows / 32 * kWeightPieces * 16;
constexpr int kBytesB = kStep * kPieces * 16;
constexpr int kStageBytes = kBytesA + kBytesB + kStep * 4;
constexpr int kOutRow = kColumns + 8;  // halves, so that eight rows of sums are in different banks

static_assert(kRows == 32 || kRows == 64 || kRows == 128, "V rows");
static_assert((kWarpRows == 32 || kWarpRows == 64) && kRows % kWarpRows == 0, "whole pairs of tiles");
static_assert(kWarpColumns >= 8 && kWarpColumns <= 64 && (kWarpColumns & (kWarpColumns - 1)) == 0, "a power of two");
static_assert(kColumns % kWarpColumns == 0 && (kAcross & (kAcross - 1)) == 0 && kStages >= 2, "whole warps");
static_assert(kFill == 1 || kFill == 2 || kFill == 4 || kFill == 8, "a divisor of n");

// Where a piece of a row of B's part lies: eight rows of one piece in different banks.
__device__ __forceinline__ int piece_at(int row, int piece) {
    constexpr int kSpread = kPieces < 8 ? kPieces : 8;
    return (row * kPieces + (piece ^ row * kSpread / 8 % kSpread)) * 16;
}

// Asks for eight neighbours of B's row `row` from `column` on; zeros behind the edge and for no row.
__device__ __forceinline__ void request(char* to, const nnz::Half* __restrict__ b, int row, int column, int n) {
    const nnz::Half* const from = b + static_cast<long long>(row) * n + column;
#pragma unroll
    for (int part = 0; part < 8; part += kFill) {
        const bool inside = row >= 0 && column + part < n;
        if constexpr (kFill == 1) {
            reinterpret_cast<nnz::Half*>(to)[part] = inside ? nnz::ldg(from + part) : nnz::Half{0};
        } else {
            nnz::cp_async_bytes<2 * kFill>(to + 2 * part, inside ? from + part : b, inside);
        }
    }
}

using Sums = float[2 * kPairs][kColumnTiles][4];

// One step. `a_at` is where the warp's part of A begins, `b_at` the calling lane's row of B at the warp's first piece.
__device__ __forceinline__ void multiply(Sums& sums, nnz::SharedAt a_at, nnz::SharedAt b_at) {
    const int lane = threadIdx.x % 32;
    uint4 a[2 * kPairs];
    unsigned places[kPairs];
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
        const nnz::SharedAt from = a_at + pair * kWeightPieces * 16;
        a[2 * pair] = nnz::load_at<uint4>(from + lane * 16);
        a[2 * pair + 1] = nnz::load_at<uint4>(from + (32 + lane) * 16);
        places[pair] = nnz::load_at<unsigned>(from + (1024 + lane * 4));
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
        unsigned b[4];
        nnz::load_matrices(nnz::flip(b_at, j << 4), b);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
            const uint4 x = a[2 * pair], y = a[2 * pair + 1];
            const unsigned first[4] = {x.x, x.y, x.z, x.w}, second[4] = {y.x, y.y, y.z, y.w};
            nnz::multiply_tile<0>(sums[2 * pair][j], first, b, places[pair]);
            nnz::multiply_tile<1>(sums[2 * pair + 1][j], second, b, places[pair]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    venom(int m, int n, int steps, const int* __restrict__ chosen, const uint4* __restrict__ weights,
          const nnz::Half* __restrict__ b, nnz::Half* __restrict__ c) {
    DYN_SHARED(char, unaligned);
    char* const shared = unaligned + (128 - static_cast<int>(__cvta_generic_to_shared(unaligned) % 128)) % 128;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int first_row = blockIdx.y * kRows, first_column = blockIdx.x * kColumns;
    const int* const own_chosen = chosen + static_cast<long long>(blockIdx.y) * steps * kStep;
    const uint4* const own_weights = weights + static_cast<long long>(blockIdx.y) * steps * (kBytesA / 16);

    // Asks for a step's parts and the numbers for the step kStages - 1 later, whose own `rows` are there.
    const auto copy = [&](int step, const int* rows) {
        if (step < steps) {
            char* const stage = shared + step % kStages * kStageBytes;
            const uint4* const from = own_weights + static_cast<long long>(step) * (kBytesA / 16);
            for (int i = thread; i < kBytesA / 16; i += kThreads) nnz::cp_async16(stage + i * 16, from + i);
#pragma unroll
            for (int i = thread; i < kStep * kPieces; i += kThreads) {
                const int row = i / kPieces, piece = i % kPieces;
                request(stage + kBytesA + piece_at(row, piece), b, rows[row], first_column + 8 * piece, n);
            }
            const int later = step + kStages - 1;
            if (thread < kStep / 4 && later < steps) {
                nnz::cp_async16(stage + kBytesA + kBytesB + thread * 16, own_chosen + later * kStep + thread * 4);
            }
        }
        nnz::cp_async_commit();
    };
#pragma unroll 1
    for (int step = 0; step < kStages - 1; ++step) copy(step, own_chosen + step * kStep);

    const int warp_row = warp / kAcross * kWarpRows, warp_column = warp % kAcross * kWarpColumns;
    const nnz::SharedAt stages = nnz::kept(nnz::shared_at(shared));
    const int a_at = warp_row / 32 * kWeightPieces * 16, b_at = kBytesA + piece_at(lane, warp_column / 8);
    Sums sums = {};
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        nnz::cp_async_wait<kStages - 2>();
        __syncthreads();
        copy(step + kStages - 1, reinterpret_cast<const int*>(shared + stage + kBytesA + kBytesB));
        multiply(sums, stages + (stage + a_at), stages + (stage + b_at));
        stage = stage + kStageBytes == kStages * kStageBytes ? 0 : stage + kStageBytes;
    }
    nnz::cp_async_wait<0>();
    __syncthreads();

    nnz::Half* const tile = reinterpret_cast<nnz::Half*>(shared);
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
            nnz::Half* const at = tile + (warp_row + i * 16 + lane / 4) * kOutRow + warp_column + j * 8 + lane % 4 * 2;
            *reinterpret_cast<unsigned*>(at) = nnz::narrow_pair(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<unsigned*>(at + 8 * kOutRow) = nnz::narrow_pair(sums[i][j][2], sums[i][j][3]);
        }
    }
    __syncthreads();
    for (int i = thread; i < kRows * kPieces; i += kThreads) {
        const int row = first_row + i / kPieces, column = first_column + i % kPieces * 8;
        if (row >= m) break;
        const nnz::Half* const from = tile + i / kPieces * kOutRow + i % kPieces * 8;
        nnz::Half* const to = c + static_cast<long long>(row) * n + column;
        if (kFill == 8 && column < n) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        for (int part = 0; kFill < 8 && part < 8 && column + part < n; ++part) to[part] = from[part];
    }
}
