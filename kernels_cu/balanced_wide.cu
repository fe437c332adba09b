// Y = W X for a balanced W (m x k) and many columns of X: a convolution's product, for one.
//
// As every row has the same number of nonzeros in every panel of BLOCK_K columns of W (one or several balance ranges), the
// warps of a block finish each panel of X together, whatever the pattern: trip counts are constants, and no row needs a
// pointer or a count.
//
// Who computes what
//   grid    x: tiles of kBlockN columns, y: groups of kBlockM rows
//   block   walks k in panels: BLOCK_K rows of X and its rows' nonzeros there, copied STAGES - 1 panels ahead of use
//   warp    ROW_STEPS x kSub rows for the whole walk; 32 / LANES = kSub of them side by side
//   lane    VEC neighbouring columns of each row
//
// A unit is two nonzeros as {byte offset of the X row in the panel, value bits} pairs: one 128-bit read, the same for all
// lanes of a row, feeds 2 * VEC multiply-adds. Rows are filled up to whole units, and the last panel up to UNITS, with pairs
// that point to a row of zeros, never to data, so an Inf or NaN in a row of X that is not used can't leak.
//
// Defines
//   LANES     lanes per row: 8, 16 or 32      VEC         columns per lane: 2 or 4
//   WARPS     warps per block                 ROW_STEPS   rows per lane
//   BLOCK_K   rows of X per panel             UNITS       units per row and panel
//   STAGES    panels in shared memory         FILL        elements per copy of X: 8, 4, 2 or 1; n is a multiple of it
//   F16       values, X and Y in fp16, sums in fp32
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kLanes = LANES;
constexpr int kVec = VEC;
constexpr int kWarps = WARPS;
constexpr int kRowSteps = ROW_STEPS;
constexpr int kBlockK = BLOCK_K;
constexpr int kUnits = UNITS;
constexpr int kStages = STAGES;
constexpr int kFill = FILL;

constexpr int kSub = 32 / kLanes;
constexpr int kBlockN = kLanes * kVec;
constexpr int kBlockM = kWarps * kRowSteps * kSub;
constexpr int kThreads = kWarps * 32;
constexpr int kElement = sizeof(Value);
constexpr int kZeroRow = kBlockK * kBlockN;  // where padding points, in elements from the panel's start
constexpr int kPanelBytes = (kBlockK + 1) * kBlockN * kElement;
constexpr int kBlockUnits = kBlockM * kUnits;
constexpr int kStageBytes = kPanelBytes + kBlockUnits * 16;

static_assert(kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES must divide a warp into 1, 2 or 4 rows");
static_assert(kVec == 2 || kVec == 4, "VEC must be a vector width");
static_assert(kBlockN % kFill == 0, "FILL must divide the tile width");
static_assert(kStages >= 2, "a panel is copied while another is used");

using Columns = Pack<Value, kVec>;

// Copies a panel of X; outside the matrix it is filled with zeros. All rows but the last panel's lie inside.
__device__ __forceinline__ void copy_x(Value* panel, const Value* __restrict__ x, int first_row, int k, int n, int n0) {
    constexpr int kPieces = kBlockN / kFill;
#pragma unroll 4
    for (int i = threadIdx.x; i < kBlockK * kPieces; i += kThreads) {
        const int row = i / kPieces;
        const int column = i % kPieces * kFill;
        const bool inside = first_row + row < k && n0 + column < n;
        const Value* from = inside ? x + static_cast<long long>(first_row + row) * n + n0 + column : x;
        if constexpr (kFill * kElement >= 4) {
            nnz::cp_async_bytes<kFill * kElement>(panel + row * kBlockN + column, from, inside);
        } else {  // too small for an asynchronous copy
            panel[row * kBlockN + column] = inside ? nnz::ldg(from) : narrow(0.0f);
        }
    }
}

__device__ __forceinline__ void copy_units(uint4* to, const uint4* __restrict__ from) {
#pragma unroll 4
    for (int i = threadIdx.x; i < kBlockUnits; i += kThreads) nnz::cp_async16(to + i, from + i);
}

__device__ __forceinline__ void use_pair(float* acc, unsigned offset, unsigned bits, const unsigned char* panel) {
    Columns in;
    in.word = *reinterpret_cast<const Word<Value, kVec>*>(panel + offset);
#pragma unroll
    for (int v = 0; v < kVec; ++v) acc[v] = nnz::fma_rn(__uint_as_float(bits), widen(in.at[v]), acc[v]);
}

// units: (row groups, panels, kBlockM rows, UNITS). x: (k, n), y: (m, n), row-major.
extern "C" __global__ void __launch_bounds__(kThreads)
    balanced_wide(int m, int k, int n, int panels, const uint4* __restrict__ units, const Value* __restrict__ x,
                  Value* __restrict__ y) {
    DYN_SHARED(unsigned char, shared);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int sub = lane / kLanes;
    const int column = lane % kLanes * kVec;
    const int n0 = blockIdx.x * kBlockN;
    units += static_cast<long long>(blockIdx.y) * panels * kBlockUnits;

    const auto fill = [&](int panel) {
        if (panel < panels) {
            unsigned char* stage = shared + panel % kStages * kStageBytes;
            copy_x(reinterpret_cast<Value*>(stage), x, panel * kBlockK, k, n, n0);
            copy_units(reinterpret_cast<uint4*>(stage + kPanelBytes),
                       units + static_cast<long long>(panel) * kBlockUnits);
        }
        nnz::cp_async_commit();
    };
    for (int i = threadIdx.x; i < kStages * kBlockN; i += kThreads) {
        reinterpret_cast<Value*>(shared + i / kBlockN * kStageBytes)[kZeroRow + i % kBlockN] = narrow(0.0f);
    }
    for (int panel = 0; panel < kStages - 1; ++panel) fill(panel);

    float acc[kRowSteps][kVec] = {};
    for (int panel = 0; panel < panels; ++panel) {
        nnz::cp_async_wait<kStages - 2>();
        __syncthreads();  // this panel has landed for all, and nobody reads the one before any more
        fill(panel + kStages - 1);
        const unsigned char* stage = shared + panel % kStages * kStageBytes;
        const unsigned char* columns = stage + column * kElement;
        const uint4* unit =
            reinterpret_cast<const uint4*>(stage + kPanelBytes) + (warp * kRowSteps * kSub + sub) * kUnits;
#pragma unroll
        for (int step = 0; step < kRowSteps; ++step) {
#pragma unroll 4
            for (int i = 0; i < kUnits; ++i) {
                const uint4 pairs = unit[step * kSub * kUnits + i];
                use_pair(acc[step], pairs.x, pairs.y, columns);
                use_pair(acc[step], pairs.z, pairs.w, columns);
            }
        }
    }

#pragma unroll
    for (int step = 0; step < kRowSteps; ++step) {
        const int row = blockIdx.y * kBlockM + (warp * kRowSteps + step) * kSub + sub;
        if (row >= m) continue;
        Value* to = y + static_cast<long long>(row) * n + n0 + column;
        if constexpr (kFill % kVec == 0) {
            if (n0 + column >= n) continue;
            Columns out;
#pragma unroll
            for (int v = 0; v < kVec; ++v) out.at[v] = narrow(acc[step][v]);
            store<kVec>(to, out);
        } else {
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                if (n0 + column + v < n) to[v] = narrow(acc[step][v]);
            }
        }
    }
}
