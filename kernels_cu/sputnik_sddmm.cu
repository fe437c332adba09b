// D = (A B^T) at the nonzeros of a sparse pattern: A (m x k) and B (n x k) dense row-major, D nnz values in CSR order,
// fp32 accumulation. The values of the pattern are not used.
//
// The SDDMM of "Sparse GPU Kernels for Deep Learning" (Gale et al., SC 2020), section VI:
//   VI-A  1-D strips of consecutive nonzeros of one row, one per subwarp of BLOCK_WIDTH threads; the threads share out
//         the dot products' length, each holds partial sums of every output of the strip, and shuffles add them up
//   VI-B  vector loads of both dense operands along k; scalar accesses to the sparse ones. Without vectors (VECTOR 1) 32
//         lanes share a strip, so that a load is still of 32 neighbours of one row
//
// Who computes what: threadIdx.y is the strip within the block, threadIdx.x the lane. Lane t takes elements
// [t * VECTOR, + VECTOR) of every BLOCK_WIDTH * VECTOR along k: it loads its part of the row of A once and multiplies
// it with the same part of each of the strip's rows of B. The reduction halves the outputs a lane cares for at every
// step instead of reducing each output fully, and leaves STRIP / BLOCK_WIDTH finished outputs in each lane.
//
// Outputs past the end of a short strip repeat its last nonzero in groups of 8 and are not stored, so no row of B is
// read that the strip does not refer to. Lanes past the end of k multiply zeros with the first elements of those rows.
//
// Differences from the paper: the host lists the strips, so no block starts without work (the paper starts as many as a
// full row would need). Longest first is the paper's load balancing, a list in row order switches it off; a list by
// columns lets the strips that run at the same time read the same rows of B, from L1.
//
// Buffers
//   strips   int4[count]: row, first entry, end of entries (at most STRIP on), 0
//   indices  nnz column indices
//   a, b     m x k and n x k; k and both addresses multiples of VECTOR elements
//   d        nnz values
// Launch: block (BLOCK_WIDTH, BLOCK_STRIPS); grid ceil(count / BLOCK_STRIPS).
//
// Defines
//   BLOCK_WIDTH   threads per strip: 4, 8, 16 or 32; with BLOCK_STRIPS whole warps
//   BLOCK_STRIPS  strips per block
//   STRIP         outputs per strip: a multiple of 4 and a power of two not below BLOCK_WIDTH, at most 64
//   VECTOR        elements per load along k: 1, 2, 4 (8 in fp16)
//   F16, INDEX16  1: 16-bit dense operands and result, 16-bit indices
#include "nnz.cuh"
#include "pack.cuh"
#include "reduce.cuh"

constexpr int kWidth = BLOCK_WIDTH;
constexpr int kStrips = BLOCK_STRIPS;
constexpr int kStrip = STRIP;
constexpr int kVector = VECTOR;

static_assert(kWidth >= 4 && 32 % kWidth == 0, "BLOCK_WIDTH must divide a warp");
static_assert(kWidth * kStrips % 32 == 0 && kWidth * kStrips <= 1024,
              "a block must be whole warps, at most 1024 threads");
static_assert(kStrip % kWidth == 0 && kStrip <= 64, "STRIP must be a multiple of BLOCK_WIDTH, at most 64");
static_assert((kStrip & (kStrip - 1)) == 0 && kStrip >= 4, "STRIP must be a power of two");
static_assert(sizeof(Value) * kVector <= 16, "a load is at most 16 bytes");

constexpr int kAhead = kStrip < 8 ? kStrip : 8;  // rows of B whose loads are issued before their arithmetic
constexpr int kStride = kStrip + 4;  // subwarps of a warp read different banks

// A lane's part of one row of B; in bytes the address is a single 32 x 32 + 64 bit multiply-add.
__device__ __forceinline__ Pack<Value, kVector> load_row(const Value* part, int row, int row_bytes) {
    const char* const address = reinterpret_cast<const char*>(part) + static_cast<long long>(row) * row_bytes;
    return load<kVector>(reinterpret_cast<const Value*>(address));
}

// Adds the products of one part of the row of A with the same part of `items` rows of B, kAhead rows at a time: first
// their loads, then arithmetic.
__device__ __forceinline__ void multiply(float (&sums)[kStrip], const Pack<Value, kVector>& left, const Value* part,
                                         const int* __restrict__ columns, int items, int row_bytes) {
    const Floats<kVector> a = widen(left);
#pragma unroll
    for (int i = 0; i < kStrip; i += kAhead) {
        if (i >= items) break;
        Pack<Value, kVector> right[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; j += 4) {
            const int4 rows = *reinterpret_cast<const int4*>(columns + i + j);
            right[j] = load_row(part, rows.x, row_bytes);
            right[j + 1] = load_row(part, rows.y, row_bytes);
            right[j + 2] = load_row(part, rows.z, row_bytes);
            right[j + 3] = load_row(part, rows.w, row_bytes);
        }
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
            const Floats<kVector> b = widen(right[j]);
#pragma unroll
            for (int v = 0; v < kVector; ++v) sums[i + j] += a.at[v] * b.at[v];
        }
    }
}

// The lane's part of the row of A at `at`; past its end zeros, and `at` moves to where loads from B are allowed.
__device__ __forceinline__ Pack<Value, kVector> load_left(const Value* row, int& at, int k) {
    const bool inside = at < k;
    at = inside ? at : 0;
    Pack<Value, kVector> left = load<kVector>(row + at);
#pragma unroll
    for (int v = 0; v < kVector; ++v) left.at[v] = inside ? left.at[v] : narrow(0.0f);
    return left;
}

// With a least number of blocks per multiprocessor ptxas leaves the batches of kAhead loads whole, at 14 registers more;
// without it only half of each is in flight.
extern "C" __global__ void __launch_bounds__(kWidth* kStrips, 1)
    sputnik_sddmm(int count, int k, const int4* __restrict__ strips, const Index* __restrict__ indices,
                  const Value* __restrict__ a, const Value* __restrict__ b, Value* __restrict__ d) {
    __shared__ __align__(16) int shared_columns[kStrips][kStride];

    // Every lane stays to the end, so that barriers and shuffles are of whole warps: a subwarp without a strip repeats
    // the last one and stores nothing.
    const int slot = static_cast<int>(blockIdx.x) * kStrips + static_cast<int>(threadIdx.y);
    const int lane = static_cast<int>(threadIdx.x);
    const int4 strip = nnz::ldg(strips + (slot < count ? slot : count - 1));
    const int row = strip.x, first = strip.y, items = strip.z - strip.y;
    int* const columns = shared_columns[threadIdx.y];
#pragma unroll
    for (int i = 0; i < kStrip; i += kWidth) {
        const int item = i + lane < items ? i + lane : items - 1;
        columns[i + lane] = nnz::ldg(indices + first + item);
    }
    __syncwarp();

    const Value* const row_a = a + static_cast<long long>(row) * k;
    const int row_bytes = k * static_cast<int>(sizeof(Value));
    float sums[kStrip] = {};
    for (int step = 0; step < k; step += kWidth * kVector) {
        int at = step + lane * kVector;
        const Pack<Value, kVector> left = load_left(row_a, at, k);
        const Value* const part = opaque(b + at);
        multiply(sums, left, part, columns, items, row_bytes);
    }

    nnz::reduce_each<kWidth / 2, kStrip, kWidth>(sums, static_cast<int>(threadIdx.x));
    constexpr int kPerLane = kStrip / kWidth;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        const int item = lane * kPerLane + i;
        if (slot < count && item < items) d[first + item] = narrow(sums[i]);
    }
}
