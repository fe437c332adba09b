// y = W x for an x that is mostly zeros and a W of few different values, as EIE has it (Han et al., ISCA 2016, sections III
// and IV): W lies by columns, and only the columns of nonzero inputs are read.
//
// The paper's processing elements hold interleaved rows and take one nonzero input after another from a queue that all of
// them get. Here a slice of SLICE neighbouring rows takes an element's place, so that a column's entries in it are
// neighbours in memory and lie in rows of their own: lanes add them to the slice's sums without meeting. A warp's queue is
// the mask of the nonzero inputs among 32 columns, whose lowest bit it takes until none is left. Warps of a block share a
// slice, each with sums of its own in shared memory; parts of the columns are different blocks', and the last
// of a slice's blocks to arrive adds up their sums. All orders are fixed, so results repeat to the bit.
//
// An entry takes two bytes, row in the slice (12 bits) above an index into a codebook of 16 values; EIE's one byte has a
// run of zeros in the row's place, which lanes side by side could not read without adding up.
//
// Who computes what
//   grid    x: slices of SLICE rows, y: parts of 32 * WARPS * GROUPS columns
//   warp    GROUPS times 32 neighbouring columns of the part
//   lane    of a column in turn every 32nd entry; brings one input, and where its column begins
//
// Defines
//   SLICE   rows, 32 to 4096, a multiple of 32      WARPS   1 to 32; WARPS * SLICE sums fit shared memory
//   GROUPS  of 32 columns by a warp, at least 1     F16     1: x and y in fp16; sums in fp32
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kSlice = SLICE;
constexpr int kWarps = WARPS;
constexpr int kGroups = GROUPS;
constexpr int kThreads = 32 * kWarps;
constexpr int kAhead = 8;  // columns whose first entries are on their way at once
constexpr unsigned kAll = 0xffffffffu;

static_assert(kSlice >= 32 && kSlice <= 4096 && kSlice % 32 == 0, "SLICE rows must have a number of 12 bits");
static_assert(kWarps >= 1 && kWarps <= 32, "a block has 1 to 32 warps");
static_assert(kGroups >= 1, "a warp has columns");

// starts    (slices, k + 1): first entry of each column in the slice, and the end
// partial   (parts, m)
// arrived   (slices), of a slice's blocks, 0 between launches
extern "C" __global__ void __launch_bounds__(kThreads)
    eie_columns(int m, int k, const unsigned short* __restrict__ entries, const int* __restrict__ starts,
                const float* __restrict__ codebook, const Value* __restrict__ x, float* partial, int* arrived,
                Value* __restrict__ y) {
    DYN_SHARED(float, sums);  // kWarps * kSlice
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* const own = sums + warp * kSlice;
    for (int row = lane; row < kSlice; row += 32) own[row] = 0.0f;
    const float value = nnz::ldg(codebook + lane % 16);
    const int* const from_slice = starts + static_cast<long long>(blockIdx.x) * (k + 1);
    const int first = (static_cast<int>(blockIdx.y) * kWarps + warp) * kGroups * 32;
    __syncwarp();

#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) {
        const int column = first + 32 * group + lane;
        const float input = column < k ? widen(nnz::ldg(x + column)) : 0.0f;
        const int begins = nnz::ldg(from_slice + min(column, k));
        const int ends = nnz::ldg(from_slice + min(column + 1, k));
        unsigned queue = __ballot_sync(kAll, input != 0.0f);
        while (queue != 0) {
            float by[kAhead];
            int at[kAhead], end[kAhead], entry[kAhead];
#pragma unroll
            for (int a = 0; a < kAhead; ++a) {
                const int next = max(__ffs(static_cast<int>(queue)) - 1, 0);
                by[a] = __shfl_sync(kAll, input, next);
                at[a] = __shfl_sync(kAll, begins, next) + lane;
                end[a] = __shfl_sync(kAll, ends, next);
                if (queue == 0) end[a] = 0;
                queue &= queue - 1;
                entry[a] = at[a] < end[a] ? nnz::ldg(entries + at[a]) : 0;
            }
#pragma unroll
            for (int a = 0; a < kAhead; ++a) {
                while (at[a] - lane < end[a]) {
                    const float weight = __shfl_sync(kAll, value, entry[a] & 15);
                    const int row = entry[a] >> 4;
                    if (at[a] < end[a]) own[row] = nnz::fma_rn(weight, by[a], own[row]);
                    at[a] += 32;
                    if (at[a] < end[a]) entry[a] = nnz::ldg(entries + at[a]);
                }
                __syncwarp();  // the next column may have the same rows
            }
        }
    }
    __syncthreads();
    const int begin = static_cast<int>(blockIdx.x) * kSlice;
    const int rows = min(kSlice, m - begin);
    const int parts = static_cast<int>(gridDim.y);
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += kThreads) {
        float sum = 0.0f;
        for (int other = 0; other < kWarps; ++other) sum += sums[other * kSlice + row];
        partial[static_cast<long long>(blockIdx.y) * m + begin + row] = sum;
    }
    __threadfence();
    __syncthreads();  // sums are read above and overwritten below
    int* const last = reinterpret_cast<int*>(sums);
    if (threadIdx.x == 0) {
        *last = atomicAdd(arrived + blockIdx.x, 1) == parts - 1;
        if (*last) atomicExch(arrived + blockIdx.x, 0);  // for the next launch
        __threadfence();
    }
    __syncthreads();
    if (!*last) return;
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += kThreads) {
        float sum = 0.0f;
#pragma unroll 8
        for (int part = 0; part < parts; ++part)
            sum += __ldcg(partial + static_cast<long long>(part) * m + begin + row);
        y[begin + row] = narrow(sum);
    }
}
