// C = A B, fp16 in and out, fp32 sums on tensor cores, as SpInfer does it (Fan et al., "SpInfer: Leveraging Low-Level Sparsity for
// Efficient Large Language Model Inference on GPUs", EuroSys 2025). A: m x k as bitmaps of 8x8 elements in the order in which
// tensor cores use them; B: k x n and C: m x n, dense, column-major.
//
// A's nonzeros stay packed in shared memory, and each lane expands its own fragments from there: the bits below its own two of
// a bitmap, counted, tell where its values lie. Tensor cores multiply the zeros too, so an Inf or NaN of B reaches whole columns.
//
// Who computes what
//   grid    x: tiles of kColumns columns, y: blocks of 64 rows, S times for S parts of k (column_major.cuh)
//   block   4 warps. Step by step over tiles of 64 columns of A: the next tile's bitmaps and values travel to the one place for
//           them, whose contents are registers by then, and its part of B to the other of two stages, while the tensor cores
//           work; then, between two barriers, all warps expand
//   warp    16 rows x kColumns columns as 16x8 tiles of sums; a step's 16x64 strip of A is 16 registers a lane
//   lane    of each bitmap bits 2 l and 2 l + 1, its two neighbouring elements of a register of `mma.m16n8k16`
//
// TCA-BME (host: `nnzbench.kernels.tensor.spinfer`), tile after tile, rows of tiles first: of each tile 4 strips of 16 rows; of
// each strip 4 groups of 16 columns; of each group the bitmaps of 8x8 elements left top, left bottom, right top, right bottom;
// bit 8 r + c for row r and column c. `values`: of each tile in the order of the bits, filled up to eight. `offsets`: where each
// tile's values start, in eights, and where the last one's end. `strips`: of each tile the values before each of its strips.
//
// The paper's code reserves room for 2,304 values a tile, and overruns it below about 44 % zeros; here the room is `value_bytes`,
// of the fullest tile.
//
// Defines
//   COLUMNS   columns per block: 8, 16, 32 or 64
#include "column_major.cuh"

constexpr int kColumns = COLUMNS;
constexpr int kTileM = 64;
constexpr int kTileN = kColumns < 16 ? 16 : kColumns;  // a load of fragments is of 16 columns
constexpr int kThreads = 128;
constexpr int kColumnTiles = kColumns / 8;
constexpr int kFragmentsB = kTileN / 16;
constexpr int kSteps = kTileK / 16;
constexpr int kStripMaps = 4 * kSteps;
constexpr int kMapBytes = 4 * kStripMaps * 8;
constexpr int kStageBytes = kTileN * kTileRowBytes;

static_assert(kColumns == 8 || kColumns == 16 || kColumns == 32 || kColumns == 64, "8 to 64 columns");

using Map = unsigned long long;

// Where a tile's values and those of the warp's strip lie, looked up early.
struct Place {
    long long tile;
    int begin, end, strip;

    __device__ __forceinline__ Place(const int* __restrict__ offsets, const int* __restrict__ strips, long long at)
        : tile(at),
          begin(nnz::ldg(offsets + at)),
          end(nnz::ldg(offsets + at + 1)),
          strip(nnz::ldg(strips + 4 * at + threadIdx.x / 32)) {}
};

__device__ __forceinline__ void copy_packed(char* to, const uint4* __restrict__ maps, const uint4* __restrict__ values,
                                            const Place& place) {
    constexpr int kPieces = kMapBytes / 16;
    const int thread = threadIdx.x;
    if (thread < kPieces) nnz::cp_async16(to + thread * 16, maps + place.tile * kPieces + thread);
#pragma unroll 1
    for (int i = thread; i < place.end - place.begin; i += kThreads) {
        nnz::cp_async16(to + kMapBytes + i * 16, values + place.begin + i);
    }
}

using Strip = unsigned[kSteps][4];

// The calling lane's fragments of its warp's strip, whose values start at `values`.
__device__ __forceinline__ void expand(Strip& a, const Map* maps, const nnz::Half* values) {
    const int bit = threadIdx.x % 32 * 2;
    const Map below = (Map{1} << bit) - 1;
#pragma unroll
    for (int i = 0; i < kStripMaps; ++i) {
        const Map map = maps[i];
        const unsigned own = static_cast<unsigned>(map >> bit) & 3u;
        const nnz::Half* const at = values + __popcll(map & below);
        unsigned low = 0, high = 0;
        if (own & 1u) low = at[0];
        if (own & 2u) high = at[own & 1u];
        a[i / 4][i % 4] = low | high << 16;
        values += __popcll(map);
    }
}

using Sums = float[kColumnTiles][4];

// `b_at`: where the calling lane's row of B's fragments lies at step 0.
__device__ __forceinline__ void multiply(Sums& sums, const Strip& a, nnz::SharedAt b_at) {
    unsigned b[2][kFragmentsB][4];
    const auto load = [&](int step) {
#pragma unroll
        for (int j = 0; j < kFragmentsB; ++j) {
            nnz::load_rows(nnz::flip(b_at + j * 16 * kTileRowBytes, step << 5), b[step % 2][j]);
        }
    };
    load(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        if (step + 1 < kSteps) load(step + 1);
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
            const unsigned (&now)[4] = b[step % 2][j / 2];
            nnz::multiply_dense(sums[j], a[step], now[j % 2 * 2], now[j % 2 * 2 + 1]);
        }
    }
}

// value_bytes: room for a tile's values, a multiple of 128. b: (n, k). out: (n, m), or (S, n, m) for parts = S > 1.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    spinfer(int m, int n, int k, int parts, int value_bytes, const int* __restrict__ offsets,
            const int* __restrict__ strips, const uint4* __restrict__ maps, const uint4* __restrict__ values,
            const nnz::Half* __restrict__ b, nnz::Half* __restrict__ out) {
    DYN_SHARED(char, unaligned);
    char* const shared = aligned_rows(unaligned);
    const SplitPart own = split_part(k, parts);
    const int tiles = k / kTileK;
    const int first_column = blockIdx.x * kColumns;
    const nnz::Half* const own_b = b + static_cast<long long>(first_column) * k;
    const nnz::SharedAt stages_at = nnz::shared_at(shared) + (kMapBytes + value_bytes);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Map* const own_maps = reinterpret_cast<const Map*>(shared) + warp * kStripMaps;
    const nnz::Half* const all_values = reinterpret_cast<const nnz::Half*>(shared + kMapBytes);
    // Matrices of a fragment of B: eight columns, the next eight of k, then the same of the next eight columns.
    const nnz::SharedAt b_at = stages_at + swizzled_at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const auto look_up = [&](int tile) {
        return Place(offsets, strips, static_cast<long long>(own.row_block) * tiles + min(tile, tiles - 1));
    };

    Strip a;
    Place place = look_up(own.first);
    copy_packed(shared, maps, values, place);
    nnz::cp_async_commit();
    ColumnCopy<kColumns, kThreads> columns(own_b + own.first * kTileK, k);
    columns.next(stages_at);
    nnz::cp_async_commit();
    int strip = place.strip;
    place = look_up(own.first + 1);
    nnz::cp_async_wait<1>();
    __syncthreads();
    expand(a, own_maps, all_values + strip);
    nnz::cp_async_wait<0>();
    __syncthreads();

    Sums sums = {};
#pragma unroll 1
    for (int i = 0; i < own.count; ++i) {
        const bool more = i + 1 < own.count;
        if (more) {
            copy_packed(shared, maps, values, place);
            nnz::cp_async_commit();
            columns.next(stages_at + (i + 1) % 2 * kStageBytes);
            nnz::cp_async_commit();
            strip = place.strip;
            place = look_up(own.first + i + 2);
        }
        multiply(sums, a, b_at + i % 2 * kStageBytes);
        if (more) {
            nnz::cp_async_wait<1>();
            __syncthreads();
            expand(a, own_maps, all_values + strip);
            nnz::cp_async_wait<0>();
        }
        __syncthreads();
    }

    float* const tile = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) keep_sums<kTileM>(tile, sums[j], warp * 16, j * 8);
    __syncthreads();
    nnz::Half* const to = out + (static_cast<long long>(own.part) * n + first_column) * m + own.row_block * kTileM;
    store_sums<kTileM, kColumns>(tile, to, m);
}
