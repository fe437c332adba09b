// Y = W X for a balanced W (m x k; ranges of `width` columns, each row of each with KEEP entries) and 1 to 16 columns of X.
//
// Such a product moves every weight once and does little with it, so its time is the time to stream W. Each SM runs one or
// two persistent blocks that load X once, and keep a queue of copies in flight per warp while they work.
//
// Who computes what
//   grid    one block takes a run of neighbouring items, whatever their number
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
// Between passes the sums rest in `partial`, where the very thread that wrote one reads it again.
//
// Defines
//   KEEP, ROWS, RUNS    entries per range and row; rows per strand and lane; strands per item. 4 divides KEEP * ROWS
//   GROUP, PASSES       ranges of a pass: 1 to 32, a power of two; passes
//   COLUMNS             columns of X, rounded up to 1, 2, 4, 8 or 16
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
using Slot = Pack<Element, kSlotColumns>;

constexpr int kSub = 32 / kGroup;
constexpr int kPacks = kKeep * kRows / 4;  // of a strand
constexpr int kItemPacks = kPacks * kRuns;
constexpr int kItemRows = kRows * kRuns;
constexpr int kChunks = (kItemPacks + kChunk - 1) / kChunk;
constexpr int kThreads = kWarps * 32;
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
        ++pass;
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
    __device__ __forceinline__ void start(unsigned char* scratch) {
        ahead = {first < last ? 0 : kPasses, first, 0};
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
                                          const unsigned char* x, int plane_bytes) {
    const float value = widen(values.at[E]);
    const unsigned char* slot = x + (element<E>(positions) | range);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
        Slot in;
        in.word = *reinterpret_cast<const Word<Element, kSlotColumns>*>(slot + plane * plane_bytes);
#pragma unroll
        for (int c = 0; c < kSlotColumns; ++c) {
            float& sum = acc[plane * kSlotColumns + c];
            sum = nnz::fma_rn(value, widen(in.at[c]), sum);
        }
    }
}

// X of one pass to shared memory, rearranged. Lanes take neighbouring ranges, so that they write to different banks.
__device__ __forceinline__ void load_x(unsigned char* slots, const Value* __restrict__ x, int pass, int k, int n,
                                       int width, int ranges, int plane_bytes) {
    const int group = threadIdx.x % kGroup;
    const int range = pass * kGroup + group;
    constexpr int kAlong = kColumns == 1 && kExact ? 4 : 1;
#pragma unroll 4
    for (int i = threadIdx.x / kGroup * kAlong; i < width; i += kThreads / kGroup * kAlong) {
        const int row = range * width + i;
        const bool inside = range < ranges && row < k;  // with kAlong > 1 all of its rows or none
        const Value* from = x + static_cast<long long>(row) * n;
        unsigned char* slot = slots + i * kStride + group * kSlotBytes;
        if constexpr (kAlong > 1) {
            Pack<Value, kAlong> in{};
            if (inside) in = load<kAlong>(from);
#pragma unroll
            for (int a = 0; a < kAlong; ++a) {
                *reinterpret_cast<float*>(slot + a * kStride) = inside ? widen(in.at[a]) : 0.0f;
            }
        } else {
#pragma unroll
            for (int plane = 0; plane < kPlanes; ++plane) {
                Pack<Value, kSlotColumns> in;
                if (kExact && inside) {
                    in = load<kSlotColumns>(from + plane * kSlotColumns);
                } else {
#pragma unroll
                    for (int c = 0; c < kSlotColumns; ++c) {
                        const int column = plane * kSlotColumns + c;
                        in.at[c] = inside && column < n ? nnz::ldg(from + column) : narrow(0.0f);
                    }
                }
                if constexpr (sizeof(Element) == sizeof(Value)) {
                    store<kSlotColumns>(reinterpret_cast<Value*>(slot + plane * plane_bytes), in);
                } else {
                    *reinterpret_cast<float*>(slot) = widen(in.at[0]);
                }
            }
        }
    }
}

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

// items: of a pass. strands: of a pass as stored, at least items * RUNS. x: (k, n), y: (m, n), row-major.
// partial: (m, COLUMNS), used where PASSES > 1.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    balanced_rows(int m, int k, int n, int width, int ranges, int items, int strands, const Value* __restrict__ values,
                  const Position* __restrict__ positions, const Value* __restrict__ x, float* partial,
                  Value* __restrict__ y) {
    DYN_SHARED(unsigned char, shared);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int plane_bytes = width * kStride;
    const int x_bytes = (kPlanes * plane_bytes + 127) / 128 * 128;
    const int share = items / static_cast<int>(gridDim.x), rest = items % static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x);
    const int begin = block * share + min(block, rest);
    const int end = begin + share + (block < rest);

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
    feed.start(shared + x_bytes + warp * kStages * kStageBytes);

    constexpr int kUnrolled = kItemRows == 1 ? 1 : kChunks;  // several rows share chunks: which, must be a constant
    constexpr int kSums = kItemRows * kColumns;
    constexpr int kHeld = kSums > kGroup ? kSums / kGroup : 1;
    constexpr int kSharers = kSums < kGroup ? kGroup / kSums : 1;  // lanes that hold the same total
    const unsigned range = lane % kGroup * kSlotBytes;
    for (int pass = 0; pass < kPasses; ++pass) {
        if (pass > 0) __syncthreads();
        load_x(shared, x, pass, k, n, width, ranges, plane_bytes);
        __syncthreads();

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
                    use_entry<0>(row(0), value, position, range, shared, plane_bytes);
                    use_entry<1>(row(1), value, position, range, shared, plane_bytes);
                    use_entry<2>(row(2), value, position, range, shared, plane_bytes);
                    use_entry<3>(row(3), value, position, range, shared, plane_bytes);
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
