// The compile-time shape of `tensor_spmm.cu`, whose header explains the defines, and where a panel of B has what.
#pragma once

#include "wide_tile.cuh"

constexpr int kBlockN = BLOCK_N;
constexpr int kWarps = WARPS;
constexpr int kMapWords = MAP_WORDS;
constexpr int kStages = STAGES;
constexpr int kPanelK = PANEL_K;
constexpr int kPanels = PANELS;
constexpr int kFill = FILL;
#ifndef TOKENS
#define TOKENS 0
#endif
constexpr bool kTokens = TOKENS;
#ifndef PAIRS
#define PAIRS 0
#endif

constexpr int kThreads = 32 * kWarps;
constexpr int kStripM = 32;
constexpr int kTiles = kStripM / 16;
#if TF32
using Element = float;  // of B and C
constexpr int kStepK = 8;
#else
using Element = nnz::Half;
constexpr int kStepK = PAIRS ? 16 : 32;
#endif
#if EARLY
using Product = unsigned;  // of panels and slices, divided before the first chunk is asked for
#else
using Product = long long;
#endif
constexpr bool kOneByOne = HALVES || BITMAP;
constexpr int kEntryBytes = kOneByOne || FP8 ? 2 : 4;  // of lanes' queues
constexpr int kStepBits = kOneByOne ? 16 : 8;  // of a lane
constexpr int kWordSteps = 32 / kStepBits;  // whose bits are one word
constexpr int kSteps = BITMAP ? 4 * kMapWords : kWordSteps * kMapWords;  // in a chunk
constexpr int kChunkK = kStepK * kSteps;
constexpr int kPanelChunks = kPanelK / kChunkK;
constexpr int kColumns = kBlockN / 8;  // tiles of 8 columns
constexpr int kElementBytes = sizeof(Element);
constexpr int kHalves = kElementBytes / 2;  // per element: panels are copied as halves
constexpr int kRowHalves = kBlockN * kHalves;
constexpr int kPieces = kRowHalves / 8;  // of 16 bytes, of a row of B
constexpr int kBases = TF32 && kColumns < 4 ? 2 * kColumns : !TF32 && kColumns < 8 ? kColumns : 8;
constexpr int kRowBytes = kRowHalves < 64 ? 2 * kRowHalves : 128;  // of a row's first 8 pieces at most
constexpr int kBlockBytes = kPanelK * kRowBytes;  // of 8 pieces of all rows of a panel
constexpr int kPanelBytes = kPanelK * 2 * kRowHalves;
constexpr int kAlign = WIDE ? 1024 : 128;
constexpr int kStartsAt = BITMAP ? 0 : 128 * kMapWords;  // in a chunk
constexpr int kHeadBytes = kStartsAt + 64;
[[maybe_unused]] constexpr int kAhead = kColumns < AHEAD ? kColumns : AHEAD;  // fragments of B loaded before their use
constexpr int kSums = kTiles * kColumns;  // 16x8 tiles of sums of a strip
// Of sums to be added that travel together, of so many slices
constexpr int kBatchTiles = kBlockN >= 128 ? 8 : SPREAD && kBlockN < 64 ? 1 : kSums < 4 ? kSums : 4;
constexpr int kBatchSlices = (SPREAD ? kBlockN < 64 : kSums < 4) ? 8 : 4;
#ifdef NNZ_CPU
constexpr int kPatience = 2;  // blocks run one after another
#else
constexpr int kPatience = 64;  // times that the owner of a part looks whether the others have arrived
#endif

static_assert(!FP8 || !(kOneByOne || TF32 || BF16), "two values of FP8 make a register of fp16");
static_assert(!PAIRS || WIDE, "dense tiles are multiplied by four warps together");
static_assert(kBlockN == 8 || kBlockN == 16 || kBlockN == 32 || kBlockN == 64 || kBlockN == 128, "8 to 128 columns");
static_assert(kWarps == 4 || kWarps == 8 || kWarps == 16, "copies of B advance by whole groups of eight rows");
static_assert(kMapWords == 1 || kMapWords == 2 || kMapWords == 4, "a lane reads its bits at once");
static_assert(kPanelK % kChunkK == 0, "a panel is whole chunks");
static_assert(kPanelK * kPieces % kThreads == 0 && kThreads / kPieces % 8 == 0,
              "each thread copies as much of a panel");
static_assert(kStages >= 2 && kStages <= 7, "one is filled while another is used; the host looks up the first eight");
static_assert(kPanels <= kThreads && kWarps * kStages <= kThreads, "each barrier has a thread that starts it");
static_assert(kPanels >= 1, "a panel alone is filled when all have used it");
static_assert(kFill == 1 || kFill == 2 || kFill == 4 || kFill == 8, "copies of 2, 4, 8 or 16 bytes");

// Where the 16-byte piece `piece` of row `row` of a panel lies: eight rows of one piece fall into different banks.
__device__ __forceinline__ int piece_at(int row, int piece) {
    return piece / 8 * kBlockBytes + row * kRowBytes + (nnz::wide_piece<kRowHalves>(row, piece % 8) << 4);
}
