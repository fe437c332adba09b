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

#ifdef NNZ_CPU

// Loads what no thread writes during the launch, at this place in the program: of a batch of such loads all are on their
// way before the first is used, even where the use depends on a condition. (A compiler moves ordinary loads to their uses.)
template <typename Vector>
__device__ __forceinline__ Vector load_here(const Vector* p) {
    return ldg(p);
}

// Hides from the compiler how a pointer was computed, so that it stays in its register instead of being computed again.
template <typename T>
__device__ __forceinline__ void keep_in_register(T*&) {}

#else

__device__ __forceinline__ float load_here(const float* p) {
    float v;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}
__device__ __forceinline__ float2 load_here(const float2* p) {
    float2 v;
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}
__device__ __forceinline__ float4 load_here(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

template <typename T>
__device__ __forceinline__ void keep_in_register(T*& p) {
    asm volatile("" : "+l"(p));
}

#endif

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
