// The compile-time shape of `ring_spmm.cu` and `ring_sddmm.cu`, whose headers explain the defines, and where a lane has its
// pieces of a row of B in the ring.
#pragma once

#include "chunk_ring.cuh"

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
