// C = A B, fp16 in and out, fp32 sums on tensor cores, as Flash-LLM does it (Xia et al., "Flash-LLM: Enabling Cost-Effective and
// Highly-Efficient Large Generative Model Inference with Unstructured Sparsity", VLDB 2024): load as sparse, compute as dense.
// A: m x k in tiles of 128 x 64; B: k x n and C: m x n, dense, column-major.
//
// A's nonzeros travel as 32-bit words through registers to a dense tile in shared memory that was cleared before, from which
// tensor cores are fed as in a dense product. Tensor cores multiply the zeros too, so an Inf or NaN of B reaches whole columns.
//
// Who computes what
//   grid    x: tiles of kColumns columns, y: blocks of kTileM rows, S times for S parts of k (column_major.cuh)
//   block   4 warps. Step by step over tiles of 64 columns of A, with two stages in shared memory: while one is multiplied, the
//           other's part of A is cleared and its words travel to registers, 32 a thread and 128 rows, and its part of B to
//           shared memory. After the products the words are scattered, between two barriers
//   warp    64 rows x kWarpColumns columns as 16x8 tiles of sums; fragments of a step of 16 columns of A are loaded one ahead
//   lane    the elements of a tile that `mma.m16n8k16` gives it
//
// Tiled-CSL (host: `nnzbench.kernels.tensor.flash_llm`): tile after tile, rows of tiles first, the words of each: the value in the
// low half, its place in the cleared tile in the high one, so that a store needs no arithmetic. Element (r, c) has place
// 64 r + (c XOR 8 (r % 8)). `offsets` tells where each tile's words start, in units of four; an empty tile ends it, because
// places are looked up two tiles ahead. A tile has 4,096 words at most, since no more fit in the registers.
//
// Defines
//   COLUMNS   columns per block: 8, 16, 32 (256 rows), 64 or 128 (128 rows)
#include "column_major.cuh"

constexpr int kColumns = COLUMNS;
constexpr int kTileM = kColumns <= 32 ? 256 : 128;
constexpr int kTileN = kColumns < 16 ? 16 : kColumns;  // a load of fragments is of 16 columns
constexpr int kThreads = 128;
constexpr int kAcross = kColumns <= 32 ? 1 : 2;  // warps side by side
constexpr int kWarpM = 64;
constexpr int kWarpColumns = kColumns / kAcross;
constexpr int kRowTiles = kWarpM / 16;
constexpr int kColumnTiles = kWarpColumns / 8;
constexpr int kFragmentsB = (kColumnTiles + 1) / 2;
constexpr int kSteps = kTileK / 16;
constexpr int kParts = kTileM / 128;  // tiles of A in a block's rows
constexpr int kHeld = 8;  // groups of four words that a thread holds of a tile
constexpr int kBytesA = kTileM * kTileRowBytes;
constexpr int kStageBytes = kBytesA + kTileN * kTileRowBytes;

static_assert(kColumns == 8 || kColumns == 16 || kColumns == 32 || kColumns == 64 || kColumns == 128,
              "8 to 128 columns");

// The words of a block's tiles of A at one step, on their way.
struct Words {
    uint4 held[kParts][kHeld];
    int count[kParts];  // groups of four in the tile
    int most;  // of the counts: past it no thread holds any
};

// Where the words of a block's tiles of A start, looked up early, tile after tile along K.
struct Places {
    const int* at[kParts];
    int begin[kParts], end[kParts];

    __device__ __forceinline__ Places(const int* __restrict__ offsets, int row_block, int tiles, int first) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            at[part] = offsets + static_cast<long long>(row_block * kParts + part) * tiles + first;
            end[part] = nnz::ldg(at[part]);
        }
        next();
    }

    __device__ __forceinline__ void next() {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            begin[part] = end[part];
            end[part] = nnz::ldg(++at[part]);
        }
    }
};

// Calls `use(part, i)` for the groups of four words that the calling thread holds. The sparser the matrix, the sooner it ends.
template <typename Use>
__device__ __forceinline__ void each_group(const Words& words, Use use) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int group = i * kThreads + static_cast<int>(threadIdx.x);
        if (group >= words.most) break;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            if (kParts == 1 || group < words.count[part]) use(part, i);
        }
    }
}

// `stream`: the calling thread's first word of all.
__device__ __forceinline__ void load_words(Words& words, const uint4* __restrict__ stream, const Places& places) {
    const uint4* from[kParts];
    words.most = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        from[part] = stream + places.begin[part];
        words.count[part] = places.end[part] - places.begin[part];
        words.most = max(words.most, words.count[part]);
    }
    each_group(words, [&](int part, int i) { words.held[part][i] = nnz::ldg(from[part] + i * kThreads); });
}

// `tile`: the cleared one.
__device__ __forceinline__ void scatter(nnz::SharedAt tile, const Words& words) {
    each_group(words, [&](int part, int i) {
        const auto put = [&](unsigned word) {
            const int place = static_cast<int>(nnz::kept(word >> 16));  // so that doubling it is part of an addition
            nnz::store_at(tile + (place * 2 + part * (128 * kTileRowBytes)), static_cast<nnz::Half>(word));
        };
        const uint4 four = words.held[part][i];
        put(four.x);
        put(four.y);
        put(four.z);
        put(four.w);
    });
}

__device__ __forceinline__ void clear(nnz::SharedAt tile) {
    const nnz::SharedAt own = tile + static_cast<int>(threadIdx.x) * 16;
#pragma unroll
    for (int i = 0; i < kBytesA / 16 / kThreads; ++i) nnz::zeros_to(own + i * kThreads * 16);
}

using Sums = float[kRowTiles][kColumnTiles][4];

struct Fragments {
    unsigned a[kRowTiles][4], b[kFragmentsB][4];

    // Of step `step`; `a_at` and `b_at` are where the calling lane's row lies at step 0.
    __device__ __forceinline__ void load(nnz::SharedAt a_at, nnz::SharedAt b_at, int step) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) nnz::load_rows(nnz::flip(a_at + i * 16 * kTileRowBytes, step << 5), a[i]);
#pragma unroll
        for (int j = 0; j < kFragmentsB; ++j) nnz::load_rows(nnz::flip(b_at + j * 16 * kTileRowBytes, step << 5), b[j]);
    }
};

__device__ __forceinline__ void multiply(Sums& sums, nnz::SharedAt a_at, nnz::SharedAt b_at) {
    Fragments held[2];
    held[0].load(a_at, b_at, 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        if (step + 1 < kSteps) held[(step + 1) % 2].load(a_at, b_at, step + 1);
        const Fragments& now = held[step % 2];
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
            for (int j = 0; j < kColumnTiles; ++j) {
                nnz::multiply_dense(sums[i][j], now.a[i], now.b[j / 2][j % 2 * 2], now.b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

// offsets: (m / 128) (k / 64) + 2. b: (n, k). out: (n, m), or (S, n, m) for parts = S > 1.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    flash_llm(int m, int n, int k, int parts, const int* __restrict__ offsets, const uint4* __restrict__ stream,
              const nnz::Half* __restrict__ b, nnz::Half* __restrict__ out) {
    DYN_SHARED(char, unaligned);
    char* const shared = aligned_rows(unaligned);
    const SplitPart own = split_part(k, parts);
    const int tiles = k / kTileK;
    const int first_column = blockIdx.x * kColumns;
    const nnz::Half* const own_b = b + static_cast<long long>(first_column) * k;

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / kAcross * kWarpM, warp_column = warp % kAcross * kWarpColumns;
    const nnz::SharedAt stages = nnz::kept(nnz::shared_at(shared));
    // Matrices of a fragment of A: rows 0 to 7 and 8 to 15, then the next eight columns; of B: the next eight of k first.
    const nnz::SharedAt a_at = nnz::kept(stages + swizzled_at(warp_row + lane % 16, lane / 16));
    const nnz::SharedAt b_at =
        nnz::kept(stages + kBytesA + swizzled_at(warp_column + lane / 16 * 8 + lane % 8, lane / 8 % 2));

    const uint4* const own_stream = stream + threadIdx.x;
    ColumnCopy<kColumns, kThreads> columns(own_b + own.first * kTileK, k);
    Words words;
    Places places(offsets, own.row_block, tiles, own.first);
    clear(stages);
    nnz::cp_async_commit();
    load_words(words, own_stream, places);
    columns.next(stages + kBytesA);
    nnz::cp_async_commit();
    places.next();
    nnz::cp_async_wait<1>();
    __syncthreads();
    scatter(stages, words);
    nnz::cp_async_wait<0>();
    __syncthreads();

    Sums sums = {};
#pragma unroll 1
    for (int i = 0; i < own.count; ++i) {
        const int stage = i % 2 * kStageBytes;
        const int next = kStageBytes - stage;
        const bool more = i + 1 < own.count;
        if (more) {
            clear(stages + next);
            nnz::cp_async_commit();
            load_words(words, own_stream, places);
            places.next();
            columns.next(stages + (next + kBytesA));
            nnz::cp_async_commit();
        }
        multiply(sums, a_at + stage, b_at + stage);
        if (more) {
            nnz::cp_async_wait<1>();
            __syncthreads();
            scatter(stages + next, words);
            nnz::cp_async_wait<0>();
        }
        __syncthreads();
    }

    float* const tile = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
            keep_sums<kTileM>(tile, sums[i][j], warp_row + i * 16, warp_column + j * 8);
        }
    }
    __syncthreads();
    nnz::Half* const to = out + (static_cast<long long>(own.part) * n + first_column) * m + own.row_block * kTileM;
    store_sums<kTileM, kColumns>(tile, to, m);
}
