// The neighbouring columns of B and C that one lane owns, as one vector register.
#pragma once

namespace nnz {

template <int Vec>
struct Columns;
template <>
struct Columns<1> {
    using type = float;
};
template <>
struct Columns<2> {
    using type = float2;
};
template <>
struct Columns<4> {
    using type = float4;
};

// acc += a * b, element by element.
__device__ __forceinline__ void multiply_add(float* acc, float a, float b) { acc[0] = fma_rn(a, b, acc[0]); }
__device__ __forceinline__ void multiply_add(float* acc, float a, float2 b) {
    acc[0] = fma_rn(a, b.x, acc[0]);
    acc[1] = fma_rn(a, b.y, acc[1]);
}
__device__ __forceinline__ void multiply_add(float* acc, float a, float4 b) {
    acc[0] = fma_rn(a, b.x, acc[0]);
    acc[1] = fma_rn(a, b.y, acc[1]);
    acc[2] = fma_rn(a, b.z, acc[2]);
    acc[3] = fma_rn(a, b.w, acc[3]);
}

}  // namespace nnz
