// What the defines of `balanced_rows.cu` make of types and sizes.
#pragma once

#include "nnz.cuh"
#include "pack.cuh"

constexpr int kKeep = KEEP;
constexpr int kRows = ROWS;
constexpr int kRuns = RUNS;
constexpr int kGroup = GROUP;
constexpr int kPasses = PASSES;
constexpr int kColumns = COLUMNS;
constexpr bool kExact = EXACT;
constexpr int kWarps = WARPS;
constexpr int kChunk = CHUNK;
constexpr int kStages = STAGES;
constexpr int kStaging = STAGING;
constexpr int kWidth = WIDTH;
constexpr bool kSplit = SPLIT;
constexpr bool kXFirst = X_FIRST;

#if POSITION16
using Position = unsigned short;
#else
using Position = unsigned char;
#endif
using Values = Pack<Value, 4>;
using PositionWord = Word<Position, 4>;

#if F16 && COLUMNS > 1
using Element = Value;
#else
using Element = float;  // a lone fp16 column too: narrow, two lanes would meet in every bank
#endif
constexpr int kElement = sizeof(Element);
constexpr int kSlotColumns = kColumns * kElement > 16 ? 16 / kElement : kColumns;
constexpr int kSlotBytes = kSlotColumns * kElement;
constexpr int kPlanes = kColumns / kSlotColumns;
constexpr int kStride = kGroup * kSlotBytes;  // from an element of a range to the next
constexpr int kPlaneBytes = kWidth * kStride;
constexpr int kXBytes = (kPlanes * kPlaneBytes + 127) / 128 * 128;
using Slot = Pack<Element, kSlotColumns>;

constexpr int kSub = 32 / kGroup;
constexpr int kPacks = kKeep * kRows / 4;  // of a strand
constexpr int kItemPacks = kPacks * kRuns;
constexpr int kItemRows = kRows * kRuns;
constexpr int kChunks = (kItemPacks + kChunk - 1) / kChunk;
constexpr int kThreads = kWarps * 32;
constexpr int kParts = kSplit ? kPasses : 1;
constexpr int kAlong = kColumns == 1 && kExact ? 4 : 1;  // neighbouring elements that a thread loads of X
constexpr bool kCopied = kExact && kSlotBytes == 16;  // a slot is a piece of X as it is
constexpr int kXSteps = ((kWidth + kAlong - 1) / kAlong * kGroup + kThreads - 1) / kThreads;
constexpr int kXUnrolled = kXFirst && kAlong > 1 ? kXSteps : 4;
constexpr int kValueBytes = kChunk * 32 * static_cast<int>(sizeof(Values));
constexpr int kPositionBytes = kChunk * 32 * static_cast<int>(sizeof(PositionWord));
constexpr int kStageBytes = kValueBytes + kPositionBytes;

static_assert(kKeep * kRows % 4 == 0, "a strand's entries must fill packs of four");
static_assert(kGroup <= 32 && (kGroup & (kGroup - 1)) == 0, "GROUP must divide a warp");
static_assert(kColumns <= 16 && (kColumns & (kColumns - 1)) == 0, "COLUMNS must be 1, 2, 4, 8 or 16");
static_assert((kItemRows & (kItemRows - 1)) == 0, "the reduction halves the rows of an item");
static_assert(kStaging != 0 || kStages == 1, "registers hold one chunk ahead");
