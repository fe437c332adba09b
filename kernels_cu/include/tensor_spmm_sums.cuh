// What `tensor_spmm.cu` does with sums: sums that are not finite once more, nonzero by nonzero, storing, and adding slices.
#pragma once

#include "reduce.cuh"
#include "tensor_core.cuh"
#include "tensor_spmm_shape.cuh"

// Where element (row, column) of a dense m x n matrix lies: of B and C.
__device__ __forceinline__ long long dense_at(long long row, long long column, int m, int n) {
#if TOKENS
    return column * m + row;
#else
    return row * n + column;
#endif
}

#if TF32
__device__ __forceinline__ Element narrow(float x) { return x; }

__device__ __forceinline__ float widen(Element x) { return x; }
#else
__device__ __forceinline__ Element narrow(float x) { return nnz::narrow_half(x); }

__device__ __forceinline__ float widen(Element x) { return nnz::widen_half(x); }
#endif

// An element of a queue.
__device__ __forceinline__ float value_at(const char* at) {
#if TF32
    return *reinterpret_cast<const float*>(at);
#elif FP8
    return nnz::widen_half(static_cast<nnz::Half>(nnz::from_e4m3(static_cast<unsigned char>(*at))));
#else
    return nnz::widen_half(*reinterpret_cast<const nnz::Half*>(at));
#endif
}

// The packed format read plainly, element by element: `use` gets column and value of each one of row `row` of a strip in
// panels first to last - 1, also of the zeros beside others in a register. `plain`: chunks of columns as they come.
template <typename Use>
__device__ __forceinline__ void for_each_element(const uint4* stream, const int* offsets, const int* panel_chunks,
                                                 int first, int last, int plain, int row, Use use) {
    for (int panel = first; panel < last; ++panel) {
        for (int chunk = panel_chunks[panel]; chunk < panel_chunks[panel + 1]; ++chunk) {
            const char* const packed = reinterpret_cast<const char*>(stream + offsets[chunk]);
            const auto words = reinterpret_cast<const unsigned*>(packed);
            const int in_panel = chunk - panel_chunks[panel];
            const bool gathered = in_panel >= min(kPanelChunks, plain - panel * kPanelChunks);
            const int steps = gathered ? static_cast<int>(words[kHeadBytes / 4]) : kSteps;
            const auto columns = reinterpret_cast<const nnz::Half*>(packed + kHeadBytes + 16);
            const unsigned* const selections = words + kHeadBytes / 4 + (gathered ? 4 + 16 * steps : 0);
#pragma unroll 1
            for (int t = 0; t < 4; ++t) {
                const int lane = row % 8 * 4 + t;
                const char* next = packed + reinterpret_cast<const nnz::Half*>(packed + kStartsAt)[lane];
#pragma unroll 1
                for (int i = 0; i < 8 * steps; ++i) {  // the lane's registers, four of them of the tile, two of the row
                    const int step = i / 8, half = (BITMAP ? i / 4 : i) % 2;
                    const int tile = (BITMAP ? i / 2 : i / 4) % 2, q = (BITMAP ? i : i / 2) % 2;
                    const auto give = [&](int at, const char* value) {
                        if (tile != row / 16 || half != row / 8 % 2) return;
                        const int k = gathered ? columns[step * 32 + at] : in_panel * kChunkK + step * kStepK + at;
                        use(panel * kPanelK + k, value_at(value));
                    };
#if BITMAP
                    const unsigned map = selections[step * 32 + lane] >> (16 * half + 8 * tile + 4 * q);
                    for (int place = 0; place < 4; ++place) {
                        if ((map >> place & 1u) == 0) continue;
                        give(16 * q + 4 * t + place, next);
                        next += kEntryBytes;
                    }
#else
                    const int bit = i * (kStepBits / 8);
                    const unsigned set = words[TF32 ? bit / 32 * 32 + lane : lane * kMapWords + bit / 32] >> bit % 32;
                    const unsigned selected =
                        TF32 || PAIRS ? 0 : selections[step * 32 + row % 8 * 4 + 2 * tile + q] >> (16 * half + 4 * t);
                    for (int h = 0; h < (TF32 ? 1 : 2); ++h) {
                        if ((set >> (HALVES ? h : 0) & 1u) == 0) continue;
                        const int among = PAIRS ? 2 * t + h : 4 * t + (selected >> 2 * h & 3);
                        give(TF32 ? 2 * t + q : kStepK / 2 * q + among, next + (HALVES ? 0 : kEntryBytes / 2 * h));
                        if (HALVES) next += kEntryBytes;
                    }
                    if (!HALVES && (set & 1u) != 0) next += kEntryBytes;
#endif
                }
            }
        }
    }
}

// The sum of row `row` of a strip and column `column` over those panels, of A's nonzeros alone: a zero that A stores counts
// as absent here too, also where B has an Inf.
__device__ __noinline__ float exact_sum(const uint4* stream, const int* offsets, const int* panel_chunks, int first,
                                        int last, int plain, int row, const Element* b, int rows, int n, int column) {
    float sum = 0.0f;
    for_each_element(stream, offsets, panel_chunks, first, last, plain, row, [&](int k, float value) {
        if (value != 0.0f) sum += value * widen(b[dense_at(k, column, rows, n)]);
    });
    return sum;
}

#if BIAS
// What is added to the two rows that a lane has of a 16x8 tile of sums.
struct Shift {
    float upper = 0.0f, lower = 0.0f;

    __device__ __forceinline__ Shift(const Element* bias, int row, int m) {
        if (bias == nullptr) return;
        if (row < m) upper = widen(bias[row]);
        if (row + 8 < m) lower = widen(bias[row + 8]);
    }

    __device__ __forceinline__ void add_to(float4& sum) const {
        sum.x += upper;
        sum.y += upper;
        sum.z += lower;
        sum.w += lower;
    }
};
#endif

// Adds one to a counter in global memory and tells what it was. What the calling thread's warp wrote before (and its
// __syncwarp) comes before it for whom the counter tells so, and what others wrote before theirs, before what follows.
__device__ __forceinline__ int arrive_in_order(int* counter) {
#ifdef NNZ_CPU
    __threadfence();
    const int before = atomicAdd(counter, 1);
    __threadfence();
#else
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
#endif
    return before;
}

__device__ __forceinline__ void add(float4& sum, const float4& more) {
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
}

#if SPREAD
// How many arrived at a counter in global memory; what they wrote before comes before what follows.
__device__ __forceinline__ int arrivals(const int* counter) {
#ifdef NNZ_CPU
    const int found = __atomic_load_n(counter, __ATOMIC_RELAXED);
    __threadfence();
    return found;
#else
    int found;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
    return found;
#endif
}

// Which parts of a strip's tiles the calling warp adds, a bit each: part p is tiles p, p + parts and so on, and the warp of
// slice p waits a while for the others to leave theirs. A part whose owner waited in vain is left to the last to arrive, so
// nobody depends on blocks that may not be running. `counters` has one counter of each part.
__device__ __forceinline__ unsigned own_parts(int* counters, int slices, int slice, int lane) {
    const int parts = min(slices, kSums);
    int before = -1;
    if (lane < parts && lane != slice) before = arrive_in_order(counters + lane);
    bool found = before == slices - 1;
    if (lane == slice && lane < parts) {
        for (int i = 0; i < kPatience && !found; ++i) found = arrivals(counters + lane) == slices - 1;
        if (!found) found = arrive_in_order(counters + lane) == slices - 1;
    }
    if (found) counters[lane] = 0;
    __syncwarp();
    return __ballot_sync(0xffffffffu, found);
}
#endif

#if TOKENS
// What a lane holds of a 16x8 tile of sums, of an even number of rows; the whole warp calls. Lanes of even rows exchange with
// the next ones, so that eight of them store 16 rows of a column together.
__device__ __forceinline__ void store_tile(Element* c, int m, int n, int row, int column, float4 sum) {
    const bool odd = (threadIdx.x & 4) != 0;
    const unsigned upper = narrow(sum.x) | static_cast<unsigned>(narrow(sum.y)) << 16;
    const unsigned lower = narrow(sum.z) | static_cast<unsigned>(narrow(sum.w)) << 16;
    const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? upper : lower, 4);
    const unsigned first = odd ? other : upper, second = odd ? lower : other;
    const int at = odd ? row + 7 : row;
    Element* const out = c + dense_at(at, column, m, n);
    if (at < m && column < n) *reinterpret_cast<unsigned*>(out) = __byte_perm(first, second, 0x5410);
    if (at < m && column + 1 < n) *reinterpret_cast<unsigned*>(out + m) = __byte_perm(first, second, 0x7632);
}
#else
// Neighbouring elements of a row of C, where they are inside.
__device__ __forceinline__ void store_pair(Element* c, int m, int n, int row, int column, float low, float high) {
    if (row >= m || column >= n) return;
    Element* const out = c + dense_at(row, column, m, n);
#if TF32
    if constexpr (kFill >= 4) {
        *reinterpret_cast<float2*>(out) = make_float2(low, high);
        return;
    }
#else
    if constexpr (kFill >= 2) {
        *reinterpret_cast<unsigned*>(out) = narrow(low) | static_cast<unsigned>(narrow(high)) << 16;
        return;
    }
#endif
    out[0] = narrow(low);
    if (column + 1 < n) out[1] = narrow(high);
}

#if SWIGLU
__device__ __forceinline__ float gated(float gate, float other) { return gate / (1.0f + expf(-gate)) * other; }
#endif

// What a lane holds of a 16x8 tile of sums.
__device__ __forceinline__ void store_tile(Element* c, int m, int n, int row, int column, float4 sum) {
#if SWIGLU
    store_pair(c, m, n, row / 16 * 8 + row % 8, column, gated(sum.x, sum.z), gated(sum.y, sum.w));
#else
    store_pair(c, m, n, row, column, sum.x, sum.y);
    store_pair(c, m, n, row + 8, column, sum.z, sum.w);
#endif
}
#endif
