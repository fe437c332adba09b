// Numbers of many lanes added up.
//
//   nnz::reduce<Operation, Width>(x)   of `Width` neighbouring lanes, 32 if not told, by `nnz::Sum` or `nnz::Maximum`; all
//                                      of them get it, and all of the warp call
//   nnz::reduce_each<Offset, Count>(sums, lane)   of Count sums each one's total over 2 * Offset neighbouring lanes. A lane
//                                      then has max(1, Count / (2 * Offset)) of them, from the returned number on
//   nnz::finite(x)                     whether x is neither NaN nor an infinity, whatever the compiler assumes of numbers
#pragma once

namespace nnz {

struct Maximum {
    static __device__ __forceinline__ float of(float a, float b) {
        return a > b || a != a ? a : b;  // keeps NaN
    }
};

struct Sum {
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};

template <typename Operation, int Width = 32>
__device__ __forceinline__ float reduce(float x) {
#pragma unroll
    for (int offset = Width / 2; offset > 0; offset /= 2) {
        x = Operation::of(x, __shfl_xor_sync(0xffffffffu, x, offset, Width));
    }
    return x;
}

// At every step a lane passes on the half of its sums that it does not keep; when one is left, lanes add up the same one.
template <int Offset, int Count, int Width = 32>
__device__ __forceinline__ int reduce_each(float* sums, int lane) {
    if constexpr (Offset == 0) {
        return 0;
    } else if constexpr (Count > 1) {
        const bool upper = (lane & Offset) != 0;
#pragma unroll
        for (int i = 0; i < Count / 2; ++i) {
            const float kept = upper ? sums[i + Count / 2] : sums[i];
            const float sent = upper ? sums[i] : sums[i + Count / 2];
            sums[i] = kept + __shfl_xor_sync(0xffffffffu, sent, Offset, Width);
        }
        return (upper ? Count / 2 : 0) + reduce_each<Offset / 2, Count / 2, Width>(sums, lane);
    } else {
        sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], Offset, Width);
        return reduce_each<Offset / 2, 1, Width>(sums, lane);
    }
}

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

}  // namespace nnz
