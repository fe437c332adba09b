// C = A B, fp32. A: m x k, sparse, packed by the host; B: k x n and C: m x n, dense, row-major.
//
// Streams B through a ring of chunks in shared memory past rows of C that stay in registers. Two things
// keep the shared-memory port free for it. Several rows advance side by side in a warp, so that one load of packed nonzeros
// serves them all and reading A costs a tenth of the port instead of a fifth. And a row need not use a chunk in the step in
// which it lands: the last WINDOW chunks stay, which lets the host schedule take near-equal work for every row and warp in
// every step, with next to no padding.
//
// Who computes what
//   grid    x: groups of rows, y: tiles of kBlockN columns
//   block   WARPS / KSPLIT warps own the group's rows; KSPLIT of them share each row's nonzeros and add up at the end.
//           Step s has chunks s - WINDOW to s - 1 of BLOCK_K rows of B, with AHEAD more on their way; step 0 starts as
//           soon as the first FIRST rows are there
//   warp    ROW_STEPS sets of kSub = 32 / LANES rows; the rows of a set advance side by side
//   lane    VEC columns of one row as 16-byte pieces, LANES * 16 bytes apart: a quarter warp then reads 128 neighbouring
//           bytes of B in one wavefront. Where a quarter warp holds several rows, each takes its pieces in another order
//           (`twist`), so that as many as a lane has pieces still read different banks
//
// What the host packs (`nnzbench.kernels.ring.spmm`): each warp's units in the order it meets them: step, row set, unit, row of
// the set. A unit is 16 bytes: two nonzeros as 32-bit pairs {byte offset of the B row in the ring, value}. Rows with less to
// do get pairs that point to a row of zeros behind the ring, never to data, so an Inf or NaN in a row of B that is not used
// can't leak.
//
// Defines
//   LANES      lanes per row: 2, 4, 8, 16 or 32    VEC        columns per lane, whole pieces (LANES * VEC = tile width)
//   WARPS      warps per block                     ROW_STEPS  row sets per warp, 1 to 4
//   BLOCK_K    rows of B per chunk                 WINDOW     chunks that can be used in a step
//   AHEAD      chunks in flight                    STAGES     chunks in the ring: WINDOW + AHEAD, or all of B
//   FIRST      rows of B that step 0 waits for     KSPLIT     warps that share a row
//   READ_AHEAD units that a warp reads before their use, 2 or 4: uneven rows leave a warp alone with its latency
//   FILL       elements per access to B and C in memory, at most 4; n is a multiple of it
#include "nnz.cuh"
#include "pack.cuh"
#include "ring_lanes.cuh"

constexpr int kFirst = FIRST;
constexpr int kSplit = KSPLIT;
constexpr bool kFar = READ_AHEAD == 4;
constexpr int kBlockN = kLanes * kVec;
constexpr int kRowWarps = kWarps / kSplit;
constexpr int kRowRegisters = (kRowSteps * kSub + 31) / 32;
constexpr int kRingValues = kStages * kBlockK * kBlockN;

static_assert(kFirst > 0 && kFirst < kBlockK, "step 0 uses a part of the first chunk");
static_assert(kWarps % kSplit == 0, "each row has KSPLIT warps");
static_assert(READ_AHEAD == 2 || READ_AHEAD == 4, "units are used in pairs");

// Keeps an address in shared memory in its register: on sm_90 the compiler would rather ask for the block's rank in its
// cluster, which is part of it, in every loop again.
__device__ __forceinline__ const char* keep_shared(const char* p) {
#ifndef NNZ_CPU
    asm("" : "+l"(p));
    __builtin_assume(__isShared(p));  // what hiding its origin hid too
#endif
    return p;
}

__device__ __forceinline__ void use_unit(float (&acc)[kVec], uint4 unit, const LaneBases& lane) {
    const unsigned offsets[2] = {unit.x, unit.z};
    const float values[2] = {__uint_as_float(unit.y), __uint_as_float(unit.w)};
    Pack<float, kPiece> b[2][kPieces];
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
        const char* base = lane.at(piece);
#pragma unroll
        for (int i = 0; i < 2; ++i) b[i][piece].word = *reinterpret_cast<const int4*>(base + offsets[i]);
    }
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int v = 0; v < kPiece; ++v) {
                float& sum = acc[piece * kPiece + v];
                sum = nnz::fma_rn(values[i], b[i][piece].at[v], sum);
            }
        }
    }
}

// Reads a warp's units one after another, READ_AHEAD of them before their use. Units have names because ptxas spills more
// registers where they are an array, though all its indices are constants.
struct UnitStream {
    const uint4* base;  // the first unit of the lane's row
    int at;  // that of `first`, in units
    uint4 first;
    uint4 second;
    uint4 third;  // this and the fourth under kFar
    uint4 fourth;

    __device__ __forceinline__ uint4 load(int unit) const { return nnz::ldg(base + unit); }
    __device__ __forceinline__ void start() {
        first = load(at);
        second = load(at + kSub);
        if constexpr (kFar) {
            third = load(at + 2 * kSub);
            fourth = load(at + 3 * kSub);
        }
    }
    template <int By>  // 1 or 2
    __device__ __forceinline__ void advance() {
        at += By * kSub;
        if constexpr (kFar) {
            first = By == 1 ? second : third;
            second = By == 1 ? third : fourth;
            third = By == 1 ? fourth : load(at + 2 * kSub);
            fourth = load(at + 3 * kSub);
        } else {
            first = By == 1 ? second : load(at);
            second = load(at + kSub);
        }
    }
};

__device__ __forceinline__ void use_units(float (&acc)[kVec], int left, UnitStream& units, const LaneBases& lane) {
#pragma unroll 1  // a handful of trips: unrolling further costs more in set-up than it saves
    for (; left >= 2; left -= 2) {
        const uint4 unit0 = units.first;
        const uint4 unit1 = units.second;
        units.advance<2>();
        use_unit(acc, unit0, lane);
        use_unit(acc, unit1, lane);
    }
    if (left > 0) {
        const uint4 unit0 = units.first;
        units.advance<1>();
        use_unit(acc, unit0, lane);
    }
}

__device__ __forceinline__ void store_rows(const float (&acc)[kRowSteps][kVec], const int (&rows)[kRowRegisters],
                                           float* __restrict__ c, int n, int column, int sub) {
    const int twist = sub % kTwists;
#pragma unroll
    for (int set = 0; set < kRowSteps; ++set) {
        const int row = __shfl_sync(0xffffffffu, rows[set * kSub / 32], set * kSub % 32 + sub);
        if (row < 0) continue;
        float* out = c + static_cast<long long>(row) * n;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            const int at = column + (piece ^ twist) * kLanes * kPiece;
#pragma unroll
            for (int v = 0; v < kPiece; v += kFill) {
                Pack<float, kFill> values;
#pragma unroll
                for (int i = 0; i < kFill; ++i) values.at[i] = acc[set][piece * kPiece + v + i];
                if (at + v < n) store<kFill>(out + at + v, values);
            }
        }
    }
}

// steps: chunks of B, and one. starts: (groups, WARPS) first unit of each warp. trips: (groups, WARPS, steps + 1), units of
// each row set in each step, a byte each; the step behind the last has none. row_ids: (groups, kRowWarps, ROW_STEPS, kSub), -1 where there is
// no row. Without a least number of blocks per multiprocessor ptxas saves registers by making each load wait for the one
// before.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    ring_spmm(int k, int n, int steps, const int* __restrict__ starts, const unsigned* __restrict__ trips,
              const int* __restrict__ row_ids, const uint4* __restrict__ stream, const float* __restrict__ b,
              float* __restrict__ c) {
    DYN_SHARED(float, ring);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int sub = lane / kLanes;
    const int twist = sub % kTwists;
    const int n0 = blockIdx.y * kBlockN;
    trips += (blockIdx.x * kWarps + warp) * (steps + 1);

    for (int i = threadIdx.x; i < kBlockN; i += kThreads) ring[kRingValues + i] = 0.0f;

    nnz::ChunkCopier<unsigned, kThreads, kBlockK, kBlockN, kFill> copier(ring, b, k, n, n0);
    nnz::RingStage<kStages> in;  // of the next chunk to copy
    copier.copy<0, kFirst>(in.stage);
    nnz::cp_async_commit();
    copier.copy<kFirst, kBlockK>(in.stage);
    for (int chunk = 1; chunk < kAhead; ++chunk) {
        nnz::cp_async_commit();
        copier.advance();
        in.advance();
        if (chunk < steps - 1) copier.copy(in.stage);
    }
    nnz::cp_async_commit();

    // Behind the copies, since this waits for where the stream starts.
    UnitStream units{stream + starts[blockIdx.x * kWarps + warp] + sub, 0, {}, {}, {}, {}};
    units.start();
    // Read now, since nothing would hide the wait at the end, and one per lane, to save registers.
    int rows[kRowRegisters];
    row_ids += (blockIdx.x * kRowWarps + warp % kRowWarps) * kRowSteps * kSub;
#pragma unroll
    for (int i = 0; i < kRowRegisters; ++i) {
        rows[i] = i * 32 + lane < kRowSteps * kSub ? nnz::ldg(row_ids + i * 32 + lane) : -1;
    }

    LaneBases bases;
#pragma unroll
    for (int i = 0; i < kTwists; ++i) {
        const char* const base = reinterpret_cast<const char*>(ring) + (i ^ twist) * kPieceBytes;
        bases.of[i] = keep_shared(base + lane % kLanes * 16);
    }
    float acc[kRowSteps][kVec] = {};
    unsigned next_sets = nnz::ldg(trips);
    for (int step = 0; step < steps; ++step) {
        const unsigned sets = next_sets;
        next_sets = nnz::ldg(trips + step + 1);
        if (step == 0) {
            nnz::cp_async_wait<kAhead>();
        } else {
            nnz::cp_async_wait<kAhead - 1>();
        }
        __syncthreads();  // this step's chunk has landed for all, and nobody reads the one that left the window
#pragma unroll
        for (int set = 0; set < kRowSteps; ++set) use_units(acc[set], sets >> (set * 8) & 0xff, units, bases);
        if (step == 0) continue;
        // Last in the step, where warps that are done early have time; at its start all would wait for their copies.
        copier.advance();
        in.advance();
        if (step + kAhead < steps) copier.copy(in.stage);
        nnz::cp_async_commit();
    }

    if constexpr (kSplit > 1) {
        float* const sums = reinterpret_cast<float*>(ring) + (warp % kRowWarps * 32 + lane);
        constexpr int kPart = kRowWarps * 32;
        constexpr int kValues = kRowSteps * kVec;
        const int part = warp / kRowWarps;
        __syncthreads();  // nobody reads the ring any more
        if (part > 0) {
#pragma unroll
            for (int i = 0; i < kValues; ++i) sums[((part - 1) * kValues + i) * kPart] = acc[i / kVec][i % kVec];
        }
        __syncthreads();
        if (part > 0) return;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
            for (int other = 0; other < kSplit - 1; ++other)
                acc[i / kVec][i % kVec] += sums[(other * kValues + i) * kPart];
        }
    }
    store_rows(acc, rows, c, n, n0 + lane % kLanes * kPiece, sub);
}
