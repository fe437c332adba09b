// D = (A B^T) at the nonzeros of a sparse pattern, fp32. A: m x k and B: n x k, dense, row-major; D: the values in CSR
// order.
//
// A kernel that gathers rows of B from L1 or L2 moves 4 bytes per product through them. This one streams B through a ring
// of chunks in shared memory past rows of A that stay in registers, so that a product costs 4 bytes of shared-memory reads
// without conflicts, and B is read once per block. Several rows advance side by side in a warp, as in `ring_spmm.cu`, and
// need not use a chunk in the step in which it lands: the last WINDOW chunks stay, which lets the host give all of them
// near-equal work in every step.
//
// Who computes what
//   grid    x: groups of rows, y: parts of the columns of the pattern (rows of B), z: slices of kSlice along k
//   block   WARPS warps. Step s has chunks s - WINDOW + 1 to s of BLOCK_K rows of B; AHEAD more are on their way
//   warp    ROW_STEPS sets of kSub = 32 / LANES rows; the rows of a set advance side by side
//   lane    VEC columns of A and B as float4 pieces, LANES * 4 columns apart: a quarter warp then reads 128 neighbouring
//           bytes of B in one wavefront. Where a quarter warp holds several rows, each takes its pieces in another order
//           (`twist`), so that they still read different banks. The lanes of a row add up 4 or 8 sums at a time, giving
//           half of those left to the other lane at every step, and store them together
// With several slices each writes its part of the sums, and `ring_sddmm_sum` adds them in order.
//
// What the host packs (`nnzbench.kernels.ring.sddmm`): each warp's units in the order it meets them: step, row set, unit,
// row of the set. A unit is the byte offsets in the ring of four rows of B, and as many positions in D. A row with less to
// do gets offsets that point behind the ring, and positions of -1: such sums are never stored, nor mixed with others. A row
// may appear several times, with different nonzeros.
//
// Defines
//   LANES      lanes per row: 4, 8, 16 or 32       VEC        floats per lane, a multiple of 4 (LANES * VEC = a slice)
//   WARPS      warps per block                     ROW_STEPS  row sets per warp, 1 to 4
//   BLOCK_K    rows of B per chunk                 WINDOW     chunks that can be used in a step
//   AHEAD      chunks in flight                    STAGES     chunks in the ring: at least WINDOW + AHEAD, or all of a part
//   DRIFT      1: warps wait for chunks, not for each other (sm_80 on), and STAGES may be more than WINDOW + AHEAD, by the
//              steps that they may drift apart; 0: the block steps together
//   FILL       elements per copy of B: 4, 2 or 1; k is a multiple of it
//   SUM_STRANDS  threads that share the sum over slices, a power of two up to 32
#include "async_barrier.cuh"
#include "nnz.cuh"
#include "reduce.cuh"
#include "ring_lanes.cuh"

constexpr int kUnit = 4;  // nonzeros of a row in a unit
constexpr int kSlice = kLanes * kVec;
constexpr int kBatch = kPieces >= 4 ? 2 : kPieces == 2 ? 4 : 8;  // nonzeros whose loads are issued together
constexpr int kStrands = SUM_STRANDS;
constexpr int kSumThreads = 256;
constexpr int kSums = kSumThreads / kStrands;  // per block

static_assert(kStrands >= 1 && kStrands <= 32 && kSumThreads % kStrands == 0, "SUM_STRANDS must divide a block");

__device__ __forceinline__ float dot(float sum, const float* a, float4 b) {
    sum = nnz::fma_rn(a[0], b.x, sum);
    sum = nnz::fma_rn(a[1], b.y, sum);
    sum = nnz::fma_rn(a[2], b.z, sum);
    return nnz::fma_rn(a[3], b.w, sum);
}

// `Units` units of the lane's row; `positions` are those of the first.
template <int Units>
__device__ __forceinline__ void use_units(const float (&a)[kVec], const uint4 (&units)[Units],
                                          const int* __restrict__ positions, const LaneBases& lane,
                                          float* __restrict__ d) {
    constexpr int kCount = Units * kUnit;
    constexpr int kLoads = kCount < kBatch ? kCount : kBatch;
    constexpr int kSharing = kCount < kLanes ? kLanes / kCount : 1;  // lanes that end up with the same sum
    constexpr int kKept = kCount < kLanes ? 1 : kCount / kLanes;
    const int first = static_cast<int>(threadIdx.x) % kLanes / kSharing * kKept;
    int at[kKept];
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
        at[i] = nnz::ldg(positions + (first + i) / kUnit * (kSub * kUnit) + (first + i) % kUnit);
    }
    unsigned offsets[kCount];
#pragma unroll
    for (int unit = 0; unit < Units; ++unit) {
        offsets[unit * kUnit] = units[unit].x;
        offsets[unit * kUnit + 1] = units[unit].y;
        offsets[unit * kUnit + 2] = units[unit].z;
        offsets[unit * kUnit + 3] = units[unit].w;
    }
    float sums[kCount] = {};
#pragma unroll
    for (int i = 0; i < kCount; i += kLoads) {
        float4 b[kLoads][kPieces];
#pragma unroll
        for (int j = 0; j < kLoads; ++j) {
#pragma unroll
            for (int piece = 0; piece < kPieces; ++piece) {
                b[j][piece] = *reinterpret_cast<const float4*>(lane.at(piece) + offsets[i + j]);
            }
        }
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
            for (int j = 0; j < kLoads; ++j) sums[i + j] = dot(sums[i + j], a + piece * 4, b[j][piece]);
        }
    }
    nnz::reduce_each<kLanes / 2, kCount>(sums, static_cast<int>(threadIdx.x));
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
        if (threadIdx.x % kSharing == 0 && at[i] >= 0) d[at[i]] = sums[i];
    }
}

// A warp's units one after another, read two ahead of their use.
struct UnitStream {
    const uint4* offsets;  // the next unit of the lane's row that is not used yet
    const int* positions;
    uint4 first;
    uint4 second;

    __device__ __forceinline__ void start() {
        first = nnz::ldg(offsets);
        second = nnz::ldg(offsets + kSub);
    }
    __device__ __forceinline__ void use(const float (&a)[kVec], int left, const LaneBases& lane,
                                        float* __restrict__ d) {
#pragma unroll 1  // a handful of trips: unrolling further costs more in set-up than it saves
        for (; left >= 2; left -= 2) {
            const uint4 units[2] = {first, second};
            const int* const those = positions;
            offsets += 2 * kSub;
            positions += 2 * kSub * kUnit;
            start();
            use_units<2>(a, units, those, lane, d);
        }
        if (left > 0) {
            const uint4 units[1] = {first};
            const int* const those = positions;
            offsets += kSub;
            positions += kSub * kUnit;
            first = second;
            second = nnz::ldg(offsets + kSub);
            use_units<1>(a, units, those, lane, d);
        }
    }
};

// The lane's part of a row of A, zeros where there is no row and beyond k.
__device__ __forceinline__ void load_row(float (&a)[kVec], const float* __restrict__ from, int row, int k, int column,
                                         int twist) {
    const float* const start = from + static_cast<long long>(row < 0 ? 0 : row) * k;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
        const int at = column + (piece ^ twist) * kLanes * 4;
        if constexpr (kFill == 4) {
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row >= 0 && at < k) v = nnz::ldg(reinterpret_cast<const float4*>(start + at));
            a[piece * 4] = v.x;
            a[piece * 4 + 1] = v.y;
            a[piece * 4 + 2] = v.z;
            a[piece * 4 + 3] = v.w;
        } else {
#pragma unroll
            for (int v = 0; v < 4; ++v) a[piece * 4 + v] = row >= 0 && at + v < k ? nnz::ldg(start + at + v) : 0.0f;
        }
    }
}

// n, k: rows and columns of B. part: columns of the pattern per part, chunks: of BLOCK_K rows of B in a part. starts:
// (parts, groups, WARPS) first unit of each warp. trips: (parts, groups, WARPS, chunks + 1), units of each row set in each
// step, a byte each; the step behind the last has none. row_ids: (parts, groups, WARPS, ROW_STEPS, kSub), -1 where there is
// no row. d: (slices, count). Without a least number of blocks per multiprocessor ptxas saves registers by making each load
// wait for the one before.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    ring_sddmm(int n, int k, int part, int chunks, int count, const int* __restrict__ starts,
               const unsigned* __restrict__ trips, const int* __restrict__ row_ids, const uint4* __restrict__ offsets,
               const int* __restrict__ positions, const float* __restrict__ a, const float* __restrict__ b,
               float* __restrict__ d) {
    DYN_SHARED(float, ring);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int sub = lane / kLanes;
    const int twist = sub % kTwists;
    const int own = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x) * kWarps + warp;
    const int column0 = static_cast<int>(blockIdx.z) * kSlice;
    const int row0 = static_cast<int>(blockIdx.y) * part;
    const int start = nnz::ldg(starts + own);

    nnz::ChunkCopier<int, kThreads, kBlockK, kSlice, kFill> copier(ring, b + static_cast<long long>(row0) * k,
                                                                   part < n - row0 ? part : n - row0, k, column0);
    nnz::RingPlace<kStages> in;  // of the next chunk to copy
#if DRIFT
    nnz::RingPlace<kStages> now;  // of the chunk that lands in this step
    nnz::RingPlace<kStages> out;  // of the chunk that leaves the window after it
    __shared__ nnz::Barrier full[kStages];  // a chunk has landed
    __shared__ nnz::Barrier empty[kStages];  // every warp has left it
    if (threadIdx.x < kStages) {
        nnz::barrier_init(&full[threadIdx.x], kThreads);
        nnz::barrier_init(&empty[threadIdx.x], kWarps);
    }
    __syncthreads();
#endif
    for (int chunk = 0; chunk < kAhead; ++chunk) {
        if (chunk < chunks) {
            copier.copy(in.stage);
            copier.advance();
        }
#if DRIFT
        if (chunk < chunks) nnz::barrier_arrive_after_copies(&full[in.stage]);
#else
        nnz::cp_async_commit();
#endif
        in.advance();
    }

    // Behind the copies, since all of this waits for memory.
    trips += static_cast<long long>(own) * (chunks + 1);
    unsigned next_sets = nnz::ldg(trips);
    float rows[kRowSteps][kVec];
#pragma unroll
    for (int set = 0; set < kRowSteps; ++set) {
        const int row = nnz::ldg(row_ids + (own * kRowSteps + set) * kSub + sub);
        load_row(rows[set], a, row, k, column0 + lane % kLanes * 4, twist);
    }
    UnitStream units{offsets + start + sub, positions + (static_cast<long long>(start) + sub) * kUnit};
    units.start();
    d += static_cast<long long>(blockIdx.z) * count;

    LaneBases bases;
#pragma unroll
    for (int i = 0; i < kTwists; ++i) {
        bases.of[i] = reinterpret_cast<const char*>(ring) + (i ^ twist) * kPieceBytes + lane % kLanes * 16;
    }
    for (int step = 0; step < chunks; ++step) {
        const unsigned sets = next_sets;
        next_sets = nnz::ldg(trips + step + 1);
#if DRIFT
        nnz::barrier_wait(&full[now.stage], now.phase);
        now.advance();
#else
        nnz::cp_async_wait<kAhead - 1>();
        __syncthreads();  // this step's chunk has landed for all, and nobody reads the one that left the window
#endif
#pragma unroll
        for (int set = 0; set < kRowSteps; ++set) units.use(rows[set], sets >> (set * 8) & 0xff, bases, d);
        // Copies go last in the step, where warps that are done early have time for them.
#if DRIFT
        __syncwarp();
        if (step + 1 >= kWindow) {
            if (lane == 0) nnz::barrier_arrive(&empty[out.stage]);
            out.advance();
        }
        if (step + kAhead < chunks) {
            if (step + kAhead >= kStages) nnz::barrier_wait(&empty[in.stage], in.phase ^ 1);
            copier.copy(in.stage);
            copier.advance();
            nnz::barrier_arrive_after_copies(&full[in.stage]);
        }
#else
        if (step + kAhead < chunks) {
            copier.copy(in.stage);
            copier.advance();
        }
        nnz::cp_async_commit();
#endif
        in.advance();
    }
}

// d (count,): the sums over the parts (slices, count). SUM_STRANDS threads share a sum, which are added in order.
extern "C" __global__ void __launch_bounds__(kSumThreads)
    ring_sddmm_sum(int count, int slices, const float* __restrict__ parts, float* __restrict__ d) {
    __shared__ float sums[kSumThreads];
    const int strand = static_cast<int>(threadIdx.x) / kSums;
    const int i = static_cast<int>(blockIdx.x) * kSums + static_cast<int>(threadIdx.x) % kSums;
    float sum = 0.0f;
    if (i < count) {
#pragma unroll 8
        for (int slice = strand; slice < slices; slice += kStrands) {
            sum += nnz::ldg(parts + static_cast<long long>(slice) * count + i);
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (strand > 0 || i >= count) return;
#pragma unroll
    for (int other = 1; other < kStrands; ++other) sum += sums[other * kSums + threadIdx.x];
    d[i] = sum;
}
