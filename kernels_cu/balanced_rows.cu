// Y = W X for a balanced W (m x k; ranges of `width` columns, each row of each with KEEP entries) and 1 to 16 columns of X.
//
// Such a product moves every weight once and does little with it, so its time is the time to stream W. Each SM runs one or
// two persistent blocks that load X once, and keep a queue of copies in flight per warp while they work.
//
// Who computes what
//   grid    one block takes a run of neighbouring items, whatever their number; under SPLIT, PASSES blocks take the same
//           items, each one pass of them
//   pass    GROUP ranges of all rows; X of a pass lies in shared memory, and PASSES of them cover the ranges
//   item    RUNS strands, walked by one warp; a block's warps take its items in turn
//   strand  32 / GROUP = kSub times ROWS neighbouring rows; its stream gives each lane KEEP * ROWS entries without a gap
//   lane    one range of ROWS rows at a time: KEEP multiply-adds each, then the lanes of a row add up through shuffles
//
// Element i of range g lies in slot i * GROUP + g of shared memory: with slots of 4 bytes and 32 ranges lane g only reads
// bank g, and wider slots are read by so many lanes at a time that cover all banks once, whatever the positions.
//
// What the host packs (`nnzbench.kernels.balanced_pack`), per pass and strand: packs of 32 lanes x 4 entries, values and
// positions apart, so that a warp reads 512 (fp16: 256) neighbouring bytes of values and 128 (256) of positions.
//
// Between passes the sums rest in `partial`, where the very thread that wrote one reads it again. SPLIT leaves them there
// for the last of the blocks that share items: each block then stages only its part of X, and once.
//
// Defines
//   KEEP, ROWS, RUNS    entries per range and row; rows per strand and lane; strands per item. 4 divides KEEP * ROWS
//   GROUP, PASSES       ranges of a pass: 1 to 32, a power of two; passes
//   COLUMNS             columns of X, rounded up to 1, 2, 4, 8 or 16
//   WIDTH               columns of W in a range
//   SPLIT               1: the passes of an item are done by different blocks
//   X_FIRST             1: X is requested before the weights (bulk copies, which take no issue slots, always go first)
//   EXACT               1: COLUMNS is n, and with one column 4 divides k and width: X is read in wide words
//   WARPS, BLOCKS       warps per block; blocks per SM
//   CHUNK, STAGES       packs per copy; copies in flight per warp (STAGING 0 has one)
//   STAGING             0: registers; 1: asynchronous copies, each lane its own; 2: Hopper's bulk engine (sm_90 on)
//   F16, POSITION16     values and X in fp16; positions of two bytes instead of one
#include "bulk_copy.cuh"
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

// The chunks of a warp in the order it uses them: passes, items, chunks.
struct Cursor {
    int pass;
    int item;
    int chunk;

    __device__ __forceinline__ void advance(int first, int last) {
        if (++chunk < kChunks) return;
        chunk = 0;
        item += kWarps;
        if (item < last) return;
        item = first;
        pass += kParts;
    }

    __device__ __forceinline__ int packs() const {
        return kItemPacks % kChunk == 0 ? kChunk : min(kChunk, kItemPacks - chunk * kChunk);
    }
};

// The weights of one warp: a chunk to use now, others on their way.
struct Feed {
    const Value* values;
    const Position* positions;
    int strands;  // of a pass, as stored
    int first, last;
    Cursor ahead;
#if STAGING == 0
    Values now_values[kChunk], next_values[kChunk];
    PositionWord now_positions[kChunk], next_positions[kChunk];
#else
    unsigned char* ring;
    int stage;
#if STAGING == 2
    nnz::Barrier* full;
    unsigned parity;
#endif
#endif

    __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }

    // The first pack of the chunk to be requested.
    __device__ __forceinline__ long long pack() const {
        return (static_cast<long long>(ahead.pass) * strands + static_cast<long long>(ahead.item) * kRuns) * kPacks +
               ahead.chunk * kChunk;
    }

    __device__ __forceinline__ void request() {
        if (ahead.pass < kPasses) {
            const long long at = pack() * 128;
            const int packs = ahead.packs();
#if STAGING == 2
            if (lane() == 0) {
                unsigned char* to = ring + stage * kStageBytes;
                nnz::barrier_arrive_expect(full + stage, packs * (kStageBytes / kChunk));
                nnz::bulk_copy(to, values + at, packs * (kValueBytes / kChunk), full + stage);
                nnz::bulk_copy(to + kValueBytes, positions + at, packs * (kPositionBytes / kChunk), full + stage);
            }
#else
            const Value* from = values + at + lane() * 4;
            const Position* where = positions + at + lane() * 4;
#pragma unroll
            for (int u = 0; u < kChunk; ++u) {
                if (u >= packs) break;
#if STAGING == 1
                unsigned char* to = ring + stage * kStageBytes;
                void* value = to + (u * 32 + lane()) * sizeof(Values);
                void* position = to + kValueBytes + (u * 32 + lane()) * sizeof(PositionWord);
                nnz::cp_async_bytes<sizeof(Values)>(value, from + u * 128, true);
                nnz::cp_async_bytes<sizeof(PositionWord)>(position, where + u * 128, true);
#else
                next_values[u].word = nnz::ld_stream(reinterpret_cast<const Word<Value, 4>*>(from + u * 128));
                next_positions[u] = nnz::ld_stream(reinterpret_cast<const PositionWord*>(where + u * 128));
#endif
            }
#endif
            ahead.advance(first, last);
        }
#if STAGING == 1
        nnz::cp_async_commit();
#endif
    }

    // Requests the first chunks. `scratch` is the warp's ring.
    __device__ __forceinline__ void start(unsigned char* scratch, int pass) {
        ahead = {first < last ? pass : kPasses, first, 0};
#if STAGING == 0
        request();
#else
        ring = scratch;
        for (stage = 0; stage < kStages; ++stage) request();
        stage = 0;
#if STAGING == 2
        parity = 0;
#endif
#endif
    }

    // Waits until the next chunk is there.
    __device__ __forceinline__ void wait() {
#if STAGING == 2
        nnz::barrier_wait(full + stage, parity);
#elif STAGING == 1
        nnz::cp_async_wait<kStages - 1>();
#else
#pragma unroll
        for (int u = 0; u < kChunk; ++u) {
            now_values[u] = next_values[u];
            now_positions[u] = next_positions[u];
        }
        request();
#endif
    }

    __device__ __forceinline__ Values value(int u) const {
#if STAGING == 0
        return now_values[u];
#else
        Values pack;
        const unsigned char* from = ring + stage * kStageBytes + (u * 32 + lane()) * sizeof(Values);
        pack.word = *reinterpret_cast<const Word<Value, 4>*>(from);
        return pack;
#endif
    }

    __device__ __forceinline__ PositionWord position(int u) const {
#if STAGING == 0
        return now_positions[u];
#else
        const unsigned char* from = ring + stage * kStageBytes + kValueBytes + (u * 32 + lane()) * sizeof(PositionWord);
        return *reinterpret_cast<const PositionWord*>(from);
#endif
    }

    // Gives the chunk back, to be filled with one that lies STAGES ahead.
    __device__ __forceinline__ void release() {
#if STAGING != 0
        if constexpr (kStaging == 2) __syncwarp();  // all lanes have read it; copies by a lane wait only for that lane
        request();
        if (++stage == kStages) {
            stage = 0;
#if STAGING == 2
            parity ^= 1;
#endif
        }
#endif
    }
};

// Byte offset of an entry's element in the pass's X, for range 0: kStride times position E of the word.
template <int E>
__device__ __forceinline__ unsigned element(PositionWord word) {
    constexpr int kBits = 8 * sizeof(Position);
    constexpr unsigned kMask = ((1u << kBits) - 1) * kStride;
#if POSITION16
    const unsigned bits = static_cast<unsigned>(E < 2 ? word.x : word.y);
    constexpr int kAt = E % 2 * kBits;
#else
    const unsigned bits = static_cast<unsigned>(word);
    constexpr int kAt = E * kBits;
#endif
    // one shift brings the position in place, times kStride, which is a power of two
    constexpr int kLeft = kStride >= 1 << kAt ? kStride >> kAt : 1;
    constexpr int kRight = kStride >= 1 << kAt ? 1 : (1 << kAt) / kStride;
    return bits / kRight * kLeft & kMask;
}

template <int E>
__device__ __forceinline__ void use_entry(float* acc, const Values& values, PositionWord positions, unsigned range,
                                          const unsigned char* x) {
    const float value = widen(values.at[E]);
    const unsigned char* slot = x + (element<E>(positions) | range);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
        Slot in;
        in.word = *reinterpret_cast<const Word<Element, kSlotColumns>*>(slot + plane * kPlaneBytes);
#pragma unroll
        for (int c = 0; c < kSlotColumns; ++c) {
            float& sum = acc[plane * kSlotColumns + c];
            sum = nnz::fma_rn(value, widen(in.at[c]), sum);
        }
    }
}

// X of one pass to shared memory, rearranged. Lanes take neighbouring ranges, so that they write to different banks; blocks
// begin at different places, so that they do not all ask L2 for the same line at once.
struct Loader {
    unsigned char* slots;
    const Value* x;
    int k, n, ranges;
#if X_FIRST
    Pack<Value, kAlong> held[kXSteps];
#endif

    __device__ __forceinline__ int group() const { return threadIdx.x % kGroup; }

    // The first of the kAlong elements that step `step` of this thread handles; kWidth or more: none.
    __device__ __forceinline__ int first(int step) const {
        constexpr int kTurns = (kWidth + kAlong - 1) / kAlong;
        const int at = static_cast<int>(threadIdx.x) / kGroup + step * (kThreads / kGroup);
        const int turned = at + static_cast<int>(blockIdx.x) * 8 % kTurns;
        return at >= kTurns ? kWidth : (turned >= kTurns ? turned - kTurns : turned) * kAlong;
    }

    __device__ __forceinline__ bool inside(int range, int i) const {  // with kAlong > 1 all of its elements or none
        return range < ranges && i < kWidth && range * kWidth + i < k;
    }

    __device__ __forceinline__ const Value* source(int range, int i) const {
        return x + static_cast<long long>(range * kWidth + i) * n;
    }

    // Starts the loading: copies, or loads to registers where those are few.
    __device__ __forceinline__ void request(int pass) {
        if constexpr (kCopied) {
            // 8 ranges, their planes, then neighbouring elements: whole lines of X, and different banks
            constexpr int kLow = kGroup < 8 ? kGroup : 8;
            constexpr int kNear = kLow * kPlanes < 32 ? 32 / (kLow * kPlanes) : 1;
            constexpr int kHigh = kGroup / kLow;
            constexpr int kTurns = (kWidth + kNear - 1) / kNear;
            const int turn = static_cast<int>(blockIdx.x) * 8 % kTurns;
#pragma unroll 4
            for (int e = threadIdx.x; e < kTurns * kNear * kGroup * kPlanes; e += kThreads) {
                const int plane = e / kLow % kPlanes;
                const int near = e / (kLow * kPlanes) % kNear;
                const int rest = e / (kLow * kPlanes * kNear);
                const int slot = e % kLow + rest % kHigh * kLow;
                const int turned = rest / kHigh + turn;
                const int i = (turned >= kTurns ? turned - kTurns : turned) * kNear + near;
                if (kWidth % kNear != 0 && i >= kWidth) continue;
                const int range = pass * kGroup + slot;
                const bool keep = inside(range, i);
                nnz::cp_async16(slots + plane * kPlaneBytes + i * kStride + slot * kSlotBytes,
                                keep ? source(range, i) + plane * kSlotColumns : x, keep);
            }
            nnz::cp_async_commit();
        }
#if X_FIRST
        if constexpr (kAlong > 1) {
#pragma unroll
            for (int step = 0; step < kXSteps; ++step) {
                const int i = first(step);
                held[step] = Pack<Value, kAlong>{};
                if (inside(pass * kGroup + group(), i)) held[step] = load<kAlong>(source(pass * kGroup + group(), i));
            }
        }
#endif
    }

    // Ends it. `Later`: groups of copies that were requested since. A barrier must follow.
    template <int Later>
    __device__ __forceinline__ void land(int pass) {
        if constexpr (kCopied) {
            nnz::cp_async_wait<Later>();
            return;
        }
        const int range = pass * kGroup + group();
#pragma unroll kXUnrolled
        for (int step = 0; step < kXSteps; ++step) {
            const int i = first(step);
            if (i >= kWidth) continue;
            unsigned char* slot = slots + i * kStride + group() * kSlotBytes;
            if constexpr (kAlong > 1) {
                Pack<Value, kAlong> in{};
#if X_FIRST
                in = held[step];
#else
                if (inside(range, i)) in = load<kAlong>(source(range, i));
#endif
#pragma unroll
                for (int a = 0; a < kAlong; ++a) *reinterpret_cast<float*>(slot + a * kStride) = widen(in.at[a]);
            } else {
                put(slot, range, i);
            }
        }
    }

    // One element of every column.
    __device__ __forceinline__ void put(unsigned char* slot, int range, int i) const {
        const bool in_x = inside(range, i);
        const Value* from = source(range, i);
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
            Pack<Value, kSlotColumns> in{};
            if (kExact && in_x) {
                in = load<kSlotColumns>(from + plane * kSlotColumns);
            } else {
#pragma unroll
                for (int c = 0; c < kSlotColumns; ++c) {
                    const int column = plane * kSlotColumns + c;
                    in.at[c] = in_x && column < n ? nnz::ldg(from + column) : narrow(0.0f);
                }
            }
            if constexpr (sizeof(Element) == sizeof(Value)) {
                store<kSlotColumns>(reinterpret_cast<Value*>(slot + plane * kPlaneBytes), in);
            } else {
                *reinterpret_cast<float*>(slot) = widen(in.at[0]);
            }
        }
    }
};

// Adds up the Count sums of the kGroup lanes that share a row. Afterwards a lane holds the max(1, Count / kGroup) totals
// from `index` on; where Count < kGroup several lanes hold the same one. Each step halves what is left to exchange.
template <int Count, int Distance>
__device__ __forceinline__ void reduce(float* sums, int lane, int& index) {
    if constexpr (Distance > 0) {
        if constexpr (Count > 1) {
            constexpr int kHalf = Count / 2;
            const bool upper = lane & Distance;
#pragma unroll
            for (int i = 0; i < kHalf; ++i) {
                const float sent = upper ? sums[i] : sums[i + kHalf];
                const float kept = upper ? sums[i + kHalf] : sums[i];
                sums[i] = kept + __shfl_xor_sync(0xffffffffu, sent, Distance);
            }
            index += upper ? kHalf : 0;
            reduce<kHalf, Distance / 2>(sums, lane, index);
        } else {
            sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], Distance);
            reduce<1, Distance / 2>(sums, lane, index);
        }
    }
}

// Parts of the ranges summed by different blocks: the warp that is last to write its part of some items adds all parts.
// Parts are added in their order, so that the result does not depend on who is last.
__device__ __forceinline__ void combine(int first, int end, int m, int n, const float* partial, int* arrived,
                                        Value* __restrict__ y) {
    const int lane = threadIdx.x % 32;
    __threadfence();
    __syncwarp();
    int earlier = 0;
    if (lane == 0) earlier = atomicAdd(arrived, 1);
    earlier = __shfl_sync(0xffffffffu, earlier, 0);
    if (earlier != kPasses - 1) return;
    if (lane == 0) atomicExch(arrived, 0);  // for the next launch
    __threadfence();
    constexpr int kRowsOfItem = kItemRows * kSub;
    const int items = (end - first + kWarps - 1) / kWarps;
#pragma unroll 4
    for (int e = lane; e < items * kRowsOfItem * kColumns; e += 32) {
        const int item = first + e / (kRowsOfItem * kColumns) * kWarps;
        const int row = item * kRowsOfItem + e / kColumns % kRowsOfItem;
        const int column = e % kColumns;
        if (row >= m || column >= n) continue;
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < kPasses; ++part) {
            sum += __ldcg(partial + (static_cast<long long>(part) * m + row) * kColumns + column);
        }
        y[static_cast<long long>(row) * n + column] = narrow(sum);
    }
}

// items: of a pass. share, rest: items per block, and how many blocks have one more. strands: of a pass as stored, at
// least items * RUNS. x: (k, n), y: (m, n), row-major. partial: (m, COLUMNS) where PASSES > 1, under SPLIT one per part.
// arrived: zeros, one for each warp of the blocks of a part; used under SPLIT.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    balanced_rows(int m, int k, int n, int ranges, int share, int rest, int strands, const Value* __restrict__ values,
                  const Position* __restrict__ positions, const Value* __restrict__ x, float* partial, int* arrived,
                  Value* __restrict__ y) {
    DYN_SHARED(unsigned char, shared);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int block = static_cast<int>(blockIdx.x) / kParts;
    const int first_pass = static_cast<int>(blockIdx.x) % kParts;
    const int begin = block * share + min(block, rest);
    const int end = begin + share + (block < rest);

    Loader in;
    in.slots = shared;
    in.x = x;
    in.k = k;
    in.n = n;
    in.ranges = ranges;
    if constexpr (kXFirst) in.request(first_pass);

    Feed feed;
    feed.values = values;
    feed.positions = positions;
    feed.strands = strands;
    feed.first = begin + warp;
    feed.last = end;
#if STAGING == 2
    __shared__ nnz::Barrier full[kWarps * kStages];  // a chunk has landed
    feed.full = full + warp * kStages;
    if (lane == 0) {
        for (int stage = 0; stage < kStages; ++stage) nnz::barrier_init(feed.full + stage, 1);
        nnz::barrier_init_fence();
    }
    __syncwarp();
#endif
    feed.start(shared + kXBytes + warp * kStages * kStageBytes, first_pass);
    if constexpr (!kXFirst) in.request(first_pass);
    in.land<kXFirst && kStaging == 1 ? kStages : 0>(first_pass);
    __syncthreads();

    constexpr int kUnrolled = kItemRows == 1 ? 1 : kChunks;  // several rows share chunks: which, must be a constant
    constexpr int kSums = kItemRows * kColumns;
    constexpr int kHeld = kSums > kGroup ? kSums / kGroup : 1;
    constexpr int kSharers = kSums < kGroup ? kGroup / kSums : 1;  // lanes that hold the same total
    const unsigned range = lane % kGroup * kSlotBytes;
    for (int pass = first_pass; pass < kPasses; pass += kParts) {
        if (pass > first_pass) {
            __syncthreads();
            in.request(pass);
            in.land<0>(pass);
            __syncthreads();
        }
        for (int item = feed.first; item < end; item += kWarps) {
            float sums[kSums] = {};
#pragma unroll kUnrolled
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                feed.wait();
#pragma unroll
                for (int u = 0; u < kChunk; ++u) {
                    const int pack = chunk * kChunk + u;
                    if (kItemPacks % kChunk != 0 && pack >= kItemPacks) break;
                    const Values value = feed.value(u);
                    const PositionWord position = feed.position(u);
                    const auto row = [&](int e) {
                        return sums + (kItemRows == 1 ? 0 : (4 * pack + e) / kKeep * kColumns);
                    };
                    use_entry<0>(row(0), value, position, range, shared);
                    use_entry<1>(row(1), value, position, range, shared);
                    use_entry<2>(row(2), value, position, range, shared);
                    use_entry<3>(row(3), value, position, range, shared);
                }
                feed.release();
            }

            int index = 0;
            reduce<kSums, kGroup / 2>(sums, lane, index);
            if (lane % kSharers != 0) continue;
            const int sub = lane / kGroup;
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                const int item_row = (index + i) / kColumns;
                const int column = (index + i) % kColumns;
                const int strand = item * kRuns + item_row / kRows;
                const int row = (strand * kSub + sub) * kRows + item_row % kRows;
                if (row >= m || column >= n) continue;
                float sum = sums[i];
                if constexpr (kSplit) {
                    partial[(static_cast<long long>(pass) * m + row) * kColumns + column] = sum;
                } else {
                    if constexpr (kPasses > 1) {
                        float* earlier = partial + static_cast<long long>(row) * kColumns + column;
                        if (pass > 0) sum += *earlier;
                        if (pass < kPasses - 1) *earlier = sum;
                    }
                    if (pass == kPasses - 1) y[static_cast<long long>(row) * n + column] = narrow(sum);
                }
            }
        }
    }
    if constexpr (kSplit) {
        if (feed.first < end) combine(feed.first, end, m, n, partial, arrived + block * kWarps + warp, y);
    }
}
