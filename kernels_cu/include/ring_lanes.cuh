// What `ring_spmm.cu` and `ring_sddmm.cu` share, whose headers explain the defines: their compile-time shape, where a lane has its
// pieces of a row of B in the ring, and that ring of chunks in shared memory. A tile of neighbouring columns of a dense row-major
// matrix passes through it, some rows (a chunk) at a time, copied asynchronously by all threads of the block.
#pragma once

#include "nnz.cuh"

constexpr int kLanes = LANES;
constexpr int kVec = VEC;
constexpr int kWarps = WARPS;
constexpr int kRowSteps = ROW_STEPS;
constexpr int kBlockK = BLOCK_K;
constexpr int kWindow = WINDOW;
constexpr int kAhead = AHEAD;
constexpr int kStages = STAGES;
constexpr int kFill = FILL;

constexpr int kPiece = 4;  // columns, 16 bytes
constexpr int kPieces = kVec / kPiece;
constexpr int kPieceBytes = kLanes * 16;
constexpr int kSub = 32 / kLanes;
constexpr int kQuarterRows = kLanes >= 8 ? 1 : 8 / kLanes;  // rows per quarter warp
constexpr int kTwists = kQuarterRows < kPieces ? kQuarterRows : kPieces;
constexpr int kThreads = kWarps * 32;

static_assert(kLanes == 2 || kLanes == 4 || kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES must divide a warp");
static_assert(kVec % kPiece == 0 && kPieces > 0 && kPieces % kTwists == 0, "a lane reads whole groups of whole pieces");
static_assert(kPiece % kFill == 0, "FILL must divide a piece");
static_assert(kWindow >= 1 && kAhead >= 1 && kAhead <= kStages, "a chunk is copied while others are used");
static_assert(kRowSteps >= 1 && kRowSteps <= 4, "a word holds the trips of four row sets");

// Where each piece of a lane lies: the twist permutes the pieces of a group of kTwists.
struct LaneBases {
    const char* of[kTwists];

    __device__ __forceinline__ const char* at(int piece) const {
        return of[piece % kTwists] + piece / kTwists * kTwists * kPieceBytes;
    }
};

namespace nnz {

// A place in a ring that goes on chunk by chunk.
template <int Stages>
struct RingStage {
    int stage = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == Stages) stage = 0;
    }
};

// The same; `phase` tells whether it has gone round an odd number of times.
template <int Stages>
struct RingPlace {
    int stage = 0;
    unsigned phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == Stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// Copies chunk after chunk of Rows rows of Width floats, Fill of them a copy. Each thread keeps one column and
// strides over the rows, so that the addresses only advance. Zeros stand for rows behind the last and for columns beyond
// the matrix. Index is the kernel's type of a thread's number, int or unsigned, so that the two share their quotients.
template <typename Index, int Threads, int Rows, int Width, int Fill>
struct ChunkCopier {
    static constexpr int kCopies = Width / Fill;
    static constexpr int kRowsAtOnce = Threads / kCopies;
    static_assert(Width % Fill == 0, "copies divide the tile width");
    static_assert(Threads % kCopies == 0, "every thread copies one column of a chunk");

    const float* src;
    float* dst;  // in the first stage
    long long stride;  // of src, from one row of the thread to the next
    int left;  // rows of the matrix from the thread's first one on; none where its column is beyond the matrix

    // `from`: the first row of the matrix; `column0`: where the tile starts in its `columns`.
    __device__ __forceinline__ ChunkCopier(float* ring, const float* __restrict__ from, int rows, int columns,
                                           int column0) {
        const int column = static_cast<Index>(threadIdx.x) % kCopies * Fill;
        const int first = static_cast<Index>(threadIdx.x) / kCopies;
        src = from + static_cast<long long>(first) * columns + column0 + column;
        dst = ring + first * Width + column;
        stride = static_cast<long long>(kRowsAtOnce) * columns;
        left = column0 + column < columns ? rows - first : 0;
    }

    // Some rows of the chunk. A copy that keeps nothing reads nothing, so its address may lie beyond the end of the matrix.
    template <int From = 0, int To = Rows>
    __device__ __forceinline__ void copy(int stage) const {
        float* const to = dst + stage * (Rows * Width);
#pragma unroll
        for (int i = From / kRowsAtOnce; i * kRowsAtOnce < To; ++i) {
            const int row = i * kRowsAtOnce + static_cast<Index>(threadIdx.x) / kCopies;
            if (From % kRowsAtOnce != 0 && row < From) continue;
            if (To % kRowsAtOnce != 0 && row >= To) continue;
            const bool inside = i * kRowsAtOnce < left;
            cp_async_bytes<4 * Fill>(to + i * kRowsAtOnce * Width, src + i * stride, inside);
        }
    }

    // To the next chunk of the matrix.
    __device__ __forceinline__ void advance() {
        src += stride / kRowsAtOnce * Rows;
        left -= Rows;
    }
};

}  // namespace nnz
