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
// What the host packs (`nnzbench.kernels.balanced`), per pass and strand: packs of 32 lanes x 4 entries, values and
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
#include "balanced_rows_shape.cuh"
#include "balanced_rows_weights.cuh"
#include "balanced_rows_x.cuh"
#include "nnz.cuh"
#include "reduce.cuh"

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

            const int index = nnz::reduce_each<kGroup / 2, kSums>(sums, lane);
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
