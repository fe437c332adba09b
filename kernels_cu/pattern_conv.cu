// A convolution by 3x3 filters that patterns have pruned (Niu et al.: PatDNN, ASPLOS 2020), the paper's storage and code
// generation on CUDA:
//
//   y[n][f][i][j] = sum over the kernels (f, c) that are left, over the 4 taps (r, s) of their pattern, of
//                   w[f][c][tap] * x[n][c][i * S + r - pad][j * S + s - pad]
//
// x and y are NCHW, fp32 or fp16 (F16); sums are fp32. A kernel is all 4 weights of one of a layer's few patterns. Each
// pattern has code of its own, made from its mask at compile time: no tap is looked up, and none is tested.
//
// Storage is the paper's FKW (section 5.3): filters in the order of `order`, kernels of a filter by pattern, then by input
// channel; `index` holds a kernel's channel, `weights` its 4 weights, `starts` the paper's offset and stride arrays added
// up. Input is tiled, so a filter has such lists for each chunk of CHANNELS input channels.
//
// What the paper adds step by step is switched by defines:
//   SORTED 0  kernels by channel, each with its pattern's number beside the channel, tested kernel by kernel ("No-opt")
//   SORTED 1  filter kernel reorder: a loop for each pattern, without a test (section 5.2)
//   REUSE 1   load redundancy elimination (section 5.4) within a kernel: a lane computes ROWS outputs below one another and
//             loads an input once for all of them and all taps. With 0 every tap of every output loads its own, as the
//             addresses are hidden from the compiler, which would else share them
//   FILTERS 2 the same between filters: two filters are a warp's; kernels of one pattern and channel in both load once.
//             A pattern has then three lists: of kernels in both filters (two slots each), in the first, in the second
//
// Who computes what
//   grid    x: tiles of images, y: groups of filters by WARPS
//   block   stages a chunk of its tile's input, padding included, in shared memory; then the next
//   warp    the same tile of outputs of its FILTERS filters
//   lane    ROWS outputs below one another; LANES lanes side by side, 32 / LANES such rows of lanes
//
// Defines
//   PATTERNS  1 to 16 patterns of the layer. MASKS_A, MASKS_B, MASKS_C hold six of their masks each, 9 bits for one, the
//             first in the lowest; of a mask bit 3 r + s is tap (r, s), and 4 are set
//   LANES     32, 16 or 8              ROWS      1 to 16
//   WARPS     1 to 32                  FILTERS   1 or 2 (2: SORTED)
//   CHANNELS  of a chunk, at most 4095 STAGES    1 or 2 chunks in shared memory
//   STRIDE    1 or 2                   PIECE     elements of a copy: 16 bytes at most; divides the image's width and
//                                                LANES * STRIDE, unless a tile is as wide as the image
//   PITCH     elements of a staged row, a multiple of PIECE      LEFT   of them before the tile's first column that is
//                                                                       no padding: a multiple of PIECE, at least PAD
//   PAD       0 or 1                   SORTED, REUSE, F16; INDEX16 is 1: a channel has 2 bytes
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kCount = PATTERNS;
constexpr int kLanes = LANES;
constexpr int kRows = ROWS;
constexpr int kWarps = WARPS;
constexpr int kFilters = FILTERS;
constexpr int kChannels = CHANNELS;
constexpr int kStages = STAGES;
constexpr int kStride = STRIDE;
constexpr int kPiece = PIECE;
constexpr int kPitch = PITCH;
constexpr int kLeft = LEFT;
constexpr int kPad = PAD;
constexpr bool kSorted = SORTED;
constexpr bool kReuse = REUSE;

constexpr int kThreads = 32 * kWarps;
constexpr int kInputRows = (32 / kLanes * kRows - 1) * kStride + 3;  // staged for a tile
constexpr int kColumns = (kLanes - 1) * kStride + 3 + kLeft - kPad;  // of which a lane reads
constexpr int kRowPieces = (kColumns + kPiece - 1) / kPiece;
constexpr int kPieces = kInputRows * kRowPieces;
constexpr int kAtOnce =
    kThreads > kPieces ? kThreads / kPieces : 1;  // channels that a block's threads copy side by side
constexpr int kPlane = kInputRows * kPitch;
constexpr int kLists = kSorted ? kCount * (kFilters == 2 ? 3 : 1) : 1;
constexpr int kPatternShift = 12;  // of an index that is not SORTED: above it is the pattern

static_assert(kCount >= 1 && kCount <= 16, "PATTERNS must be 1 to 16");
static_assert(kLanes == 32 || kLanes == 16 || kLanes == 8, "LANES must divide a warp into 1, 2 or 4 rows of lanes");
static_assert(kRows >= 1 && kRows <= 16, "ROWS sums must fit the registers");
static_assert(kWarps >= 1 && kWarps <= 32, "a block has 1 to 32 warps");
static_assert(kFilters == 1 || (kFilters == 2 && kSorted), "FILTERS is 1, or 2 of SORTED kernels");
static_assert(kChannels >= 1 && kChannels < 1 << kPatternShift, "CHANNELS must fit an index beside a pattern");
static_assert(kStages == 1 || kStages == 2, "STAGES must be 1 or 2");
static_assert(kPitch % kPiece == 0 && kPitch >= kRowPieces * kPiece, "PITCH must hold a row in whole pieces");
static_assert(kLeft % kPiece == 0 && kLeft >= kPad, "LEFT must hold the padding in whole pieces");

using Weights = Pack<Value, 4>;

// Copies a chunk's part of the input to `to`, zeros where it lies outside the image.
__device__ __forceinline__ void stage(Value* to, const Value* image, int count, int top, int left, int height,
                                      int width) {
#pragma unroll 1
    for (int p = static_cast<int>(threadIdx.x); p < kAtOnce * kPieces; p += kThreads) {
        const int first = p / kPieces;
        const int row = p % kPieces / kRowPieces;
        const int column = p % kRowPieces * kPiece;
        const int iy = top + row;
        const int ix = left + column;
        const bool keep = iy >= 0 && iy < height && ix >= 0 && ix < width;
        const long long plane = static_cast<long long>(height) * width;
        const Value* from = keep ? image + first * plane + static_cast<long long>(iy) * width + ix : image;
        const long long step = keep ? kAtOnce * plane : 0;
        Value* into = to + first * kPlane + row * kPitch + column;
#pragma unroll 4
        for (int c = first; c < count; c += kAtOnce) {
            if constexpr (kPiece * sizeof(Value) == 2) {
                *into = keep ? *from : narrow(0.0f);
            } else {
                nnz::cp_async_bytes<kPiece* static_cast<int>(sizeof(Value))>(into, from, keep);
            }
            from += step;
            into += kAtOnce * kPlane;
        }
    }
}

__device__ constexpr int mask_of(int pattern) {
    return static_cast<int>((pattern < 6 ? MASKS_A : pattern < 12 ? MASKS_B : MASKS_C) >> pattern % 6 * 9 & 511);
}

__device__ constexpr bool has(int mask, int r, int s) { return mask >> (3 * r + s) & 1; }

// Number of the tap (r, s) among those of the mask, which is the place of its weight.
__device__ __forceinline__ int place(int mask, int r, int s) { return __popc(mask & ((1 << (3 * r + s)) - 1)); }

// Adds one kernel of the pattern to the sums of kShared filters, whose weights differ. `at`: the lane's first input.
template <int kMask, int kShared>
__device__ __forceinline__ void multiply(const Value* staged, int at, const Weights (&w)[kShared],
                                         float (*sum)[kRows]) {
    Floats<4> wide[kShared];
#pragma unroll
    for (int u = 0; u < kShared; ++u) wide[u] = widen(w[u]);
    if constexpr (kReuse) {
        constexpr int kReach = (kRows - 1) * kStride + 3;
#pragma unroll
        for (int s = 0; s < 3; ++s) {
#pragma unroll
            for (int i = 0; i < kReach; ++i) {
                bool needed = false;
#pragma unroll
                for (int r = 0; r < 3; ++r) {
                    const int j = i - r;
                    needed |= has(kMask, r, s) && j >= 0 && j % kStride == 0 && j / kStride < kRows;
                }
                if (!needed) continue;
                const float x = widen(staged[at + i * kPitch + s]);
#pragma unroll
                for (int r = 0; r < 3; ++r) {
                    const int j = i - r;
                    if (!has(kMask, r, s) || j < 0 || j % kStride != 0 || j / kStride >= kRows) continue;
#pragma unroll
                    for (int u = 0; u < kShared; ++u) {
                        float& one = sum[u][j / kStride];
                        one = nnz::fma_rn(wide[u].at[place(kMask, r, s)], x, one);
                    }
                }
            }
        }
    } else {
#pragma unroll
        for (int r = 0; r < 3; ++r) {
#pragma unroll
            for (int s = 0; s < 3; ++s) {
                if (!has(kMask, r, s)) continue;
#pragma unroll
                for (int u = 0; u < kShared; ++u) {
                    const int tap = opaque(at + r * kPitch + s);
#pragma unroll
                    for (int j = 0; j < kRows; ++j) {
                        const float x = widen(staged[tap + j * kStride * kPitch]);
                        sum[u][j] = nnz::fma_rn(wide[u].at[place(kMask, r, s)], x, sum[u][j]);
                    }
                }
            }
        }
    }
}

// What a warp reads next of its kernels: requested a kernel ahead, through all lists of a chunk.
struct Ahead {
    const Index* index;
    const Value* weights;
    int channel;
    Weights w[kFilters];

    __device__ __forceinline__ void request(int slot) {
        channel = nnz::ldg(index + slot);
#pragma unroll
        for (int u = 0; u < kFilters; ++u) w[u] = load<4>(weights + 4 * static_cast<long long>(slot + u));
    }
};

template <int kPattern, int kShared>
__device__ __forceinline__ void list(const Value* staged, int lane, int from, int to, Ahead& ahead,
                                     float (*sum)[kRows]) {
#pragma unroll 1
    for (int slot = from; slot < to; slot += kShared) {
        const int at = lane + ahead.channel * kPlane;
        Weights w[kShared];
#pragma unroll
        for (int u = 0; u < kShared; ++u) w[u] = ahead.w[u];
        ahead.request(slot + kShared);
        multiply<mask_of(kPattern), kShared>(staged, at, w, sum);
    }
}

template <int kPattern>
__device__ __forceinline__ void patterns(const Value* staged, int lane, const int* starts, Ahead& ahead,
                                         float (*sum)[kRows]) {
    if constexpr (kPattern < kCount) {
        if constexpr (kFilters == 2) {
            const int* const own = starts + 3 * kPattern;
            const int first = nnz::ldg(own + 1), second = nnz::ldg(own + 2);
            list<kPattern, 2>(staged, lane, nnz::ldg(own), first, ahead, sum);
            list<kPattern, 1>(staged, lane, first, second, ahead, sum);
            list<kPattern, 1>(staged, lane, second, nnz::ldg(own + 3), ahead, sum + kFilters - 1);
        } else {
            list<kPattern, 1>(staged, lane, nnz::ldg(starts + kPattern), nnz::ldg(starts + kPattern + 1), ahead, sum);
        }
        patterns<kPattern + 1>(staged, lane, starts, ahead, sum);
    }
}

// The pattern from kFirst on that has the number, found by halving.
template <int kFirst, int kLast>
__device__ __forceinline__ void choose(int number, const Value* staged, int at, const Weights (&w)[kFilters],
                                       float (*sum)[kRows]) {
    if constexpr (kFirst + 1 == kLast) {
        multiply<mask_of(kFirst), kFilters>(staged, at, w, sum);
    } else if (number < (kFirst + kLast) / 2) {
        choose<kFirst, (kFirst + kLast) / 2>(number, staged, at, w, sum);
    } else {
        choose<(kFirst + kLast) / 2, kLast>(number, staged, at, w, sum);
    }
}

// order    filter of each place, -1 behind the last; FILTERS places are a group, a warp's
// starts   (groups, chunks, kLists) first slots, and the end
// index    channel in its chunk of each slot, and the pattern above it where not SORTED; FILTERS more behind the last
// weights  4 of each slot
extern "C" __global__ void __launch_bounds__(kThreads)
    pattern_conv(const Value* __restrict__ x, const int* __restrict__ order, const int* __restrict__ starts,
                 const Index* __restrict__ index, const Value* __restrict__ weights, Value* __restrict__ y,
                 int channels, int height, int width, int filters, int out_h, int out_w, int groups, int chunks,
                 int across, int down) {
    DYN_SHARED(Value, staged);  // kStages * kChannels * kPlane
    const int tile = static_cast<int>(blockIdx.x);
    const int image = tile / (across * down);
    const int x0 = tile % across * kLanes;
    const int y0 = tile / across % down * (32 / kLanes * kRows);
    const int group = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int lx = lane % kLanes;
    const int ly = lane / kLanes * kRows;
    const int own = ly * kStride * kPitch + lx * kStride + kLeft - kPad;
    const long long plane = static_cast<long long>(height) * width;
    const Value* const from = x + static_cast<long long>(image) * channels * plane;

    const auto bring = [&](int chunk) {
        const int first = chunk * kChannels;
        stage(staged + chunk % kStages * kChannels * kPlane, from + first * plane, min(kChannels, channels - first),
              y0 * kStride - kPad, x0 * kStride - kLeft, height, width);
    };

    float sum[kFilters][kRows];
#pragma unroll
    for (int u = 0; u < kFilters; ++u) {
#pragma unroll
        for (int j = 0; j < kRows; ++j) sum[u][j] = 0.0f;
    }
    bring(0);
    nnz::cp_async_commit();
    for (int chunk = 0; chunk < chunks; ++chunk) {
        if (kStages == 2) {
            if (chunk + 1 < chunks) bring(chunk + 1);
            nnz::cp_async_commit();
        }
        nnz::cp_async_wait<kStages - 1>();
        __syncthreads();
        if (group < groups) {
            const Value* const here = staged + chunk % kStages * kChannels * kPlane;
            const int* const lists = starts + (static_cast<long long>(group) * chunks + chunk) * kLists;
            Ahead ahead;
            ahead.index = index;
            ahead.weights = weights;
            const int begin = nnz::ldg(lists);
            ahead.request(begin);
            if constexpr (kSorted) {
                patterns<0>(here, own, lists, ahead, sum);
            } else {
                const int end = nnz::ldg(lists + 1);
#pragma unroll 1
                for (int slot = begin; slot < end; ++slot) {
                    const int word = ahead.channel;
                    Weights w[kFilters];
#pragma unroll
                    for (int u = 0; u < kFilters; ++u) w[u] = ahead.w[u];
                    ahead.request(slot + 1);
                    choose<0, kCount>(word >> kPatternShift, here, own + (word & ((1 << kPatternShift) - 1)) * kPlane,
                                      w, sum);
                }
            }
        }
        if (chunk + 1 == chunks) break;
        __syncthreads();
        if (kStages == 1) {
            bring(chunk + 1);
            nnz::cp_async_commit();
        }
    }
    if (group >= groups || x0 + lx >= out_w) return;
#pragma unroll
    for (int u = 0; u < kFilters; ++u) {
        const int filter = order[group * kFilters + u];
        if (filter < 0) continue;
        Value* const to = y + (static_cast<long long>(image) * filters + filter) * out_h * out_w + x0 + lx;
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
            const int row = y0 + ly + j;
            if (row < out_h) to[static_cast<long long>(row) * out_w] = narrow(sum[u][j]);
        }
    }
}
