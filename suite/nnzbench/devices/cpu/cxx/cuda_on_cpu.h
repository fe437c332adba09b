// The CUDA C++ that kernels use, for a C++20 compiler. Included before the .cu file, so that standard headers are read
// before the language's keywords become macros. Architecture-dependent code takes its sm_80 path, and where that needs
// inline PTX its NNZ_CPU path.
#pragma once

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define NNZ_CPU 1
#define __CUDA_ARCH__ 800

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#ifdef NNZ_CPU_ASAN
#define __shared__ static  // one OS thread, and AddressSanitizer guards no thread-local variable
#else
#define __shared__ static thread_local
#endif
#define alignas(bytes) __attribute__((aligned(bytes)))  // the keyword may not follow `static`, which __shared__ is here
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __assume(condition) ((void)0)

// ---- vector types, aligned as on the device ----------------------------------------------------------------------

#define NNZ_VECTORS(T, name, align2, align4)                           \
    struct name##1 { T x; };                                           \
    struct __align__(align2) name##2 { T x, y; };                      \
    struct name##3 { T x, y, z; };                                     \
    struct __align__(align4) name##4 { T x, y, z, w; };                \
    inline name##1 make_##name##1(T x) { return {x}; }                 \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
NNZ_VECTORS(signed char, char, 2, 4)
NNZ_VECTORS(unsigned char, uchar, 2, 4)
NNZ_VECTORS(short, short, 4, 8)
NNZ_VECTORS(unsigned short, ushort, 4, 8)
NNZ_VECTORS(int, int, 8, 16)
NNZ_VECTORS(unsigned, uint, 8, 16)
NNZ_VECTORS(float, float, 8, 16)
NNZ_VECTORS(double, double, 16, 16)
NNZ_VECTORS(long long, longlong, 16, 16)
NNZ_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef NNZ_VECTORS

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

// ---- who and where -----------------------------------------------------------------------------------------------

#define threadIdx (nnz_cpu::self().thread)
#define blockIdx (nnz_cpu::self().block->index)
#define blockDim (nnz_cpu::self().block->size)
#define gridDim (nnz_cpu::self().block->grid)
#define warpSize 32

// ---- barriers and fences -----------------------------------------------------------------------------------------

inline void __syncthreads(NNZ_CALLER) { nnz_cpu::barrier({file, line}, false); }
inline int __syncthreads_count(int predicate, NNZ_CALLER) {
    return nnz_cpu::barrier({file, line}, predicate != 0).count;
}
inline int __syncthreads_or(int predicate, NNZ_CALLER) {
    return nnz_cpu::barrier({file, line}, predicate != 0).count > 0;
}
inline int __syncthreads_and(int predicate, NNZ_CALLER) {
    const auto result = nnz_cpu::barrier({file, line}, predicate != 0);
    return result.count == result.live;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, NNZ_CALLER) {
    nnz_cpu::warp_op({"__syncwarp", nnz_cpu::Op::sync, mask, 0, 0, {file, line}});
}
inline void __threadfence() { nnz_cpu::full_fence(); }
inline void __threadfence_block() { nnz_cpu::full_fence(); }
inline void __threadfence_system() { nnz_cpu::full_fence(); }
inline void __nanosleep(unsigned) { nnz_cpu::yield(); }
[[noreturn]] inline void __trap(NNZ_CALLER) { nnz_cpu::fail("%s:%d: __trap", file, line); }
inline long long clock64() { return nnz_cpu::nanoseconds(); }

// ---- warp operations ---------------------------------------------------------------------------------------------

// Lanes of the warp that have not left the kernel. Lanes diverge freely here, so it says nothing of convergence.
inline unsigned __activemask() { return nnz_cpu::live_lanes(); }

namespace nnz_cpu {

template <typename T>
uint64_t to_bits(const T& value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "warp operations exchange up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <typename T>
T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
T shuffle(const char* name, unsigned mask, const T& value, int source_lane, Site site) {
    return from_bits<T>(warp_op({name, Op::shuffle, mask, to_bits(value), source_lane, site}));
}

inline uint32_t reduce(const char* name, Op op, unsigned mask, uint32_t value, Site site) {
    return static_cast<uint32_t>(warp_op({name, op, mask, value, 0, site}));
}

}  // namespace nnz_cpu

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, NNZ_CALLER) {
    const int segment = nnz_cpu::lane() & ~(width - 1);
    return nnz_cpu::shuffle("__shfl_sync", mask, value, segment | (source & (width - 1)), {file, line});
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, NNZ_CALLER) {
    const int lane = nnz_cpu::lane(), source = lane - static_cast<int>(delta);
    return nnz_cpu::shuffle("__shfl_up_sync", mask, value, source < (lane & ~(width - 1)) ? lane : source,
                            {file, line});
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, NNZ_CALLER) {
    const int lane = nnz_cpu::lane(), source = lane + static_cast<int>(delta);
    return nnz_cpu::shuffle("__shfl_down_sync", mask, value, source > (lane | (width - 1)) ? lane : source,
                            {file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, NNZ_CALLER) {
    const int lane = nnz_cpu::lane(), source = lane ^ lane_mask;
    return nnz_cpu::shuffle("__shfl_xor_sync", mask, value, source > (lane | (width - 1)) ? lane : source,
                            {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, NNZ_CALLER) {
    return nnz_cpu::reduce("__ballot_sync", nnz_cpu::Op::ballot, mask, predicate != 0, {file, line});
}
inline int __any_sync(unsigned mask, int predicate, NNZ_CALLER) {
    return nnz_cpu::reduce("__any_sync", nnz_cpu::Op::bit_or, mask, predicate != 0, {file, line});
}
inline int __all_sync(unsigned mask, int predicate, NNZ_CALLER) {
    return nnz_cpu::reduce("__all_sync", nnz_cpu::Op::bit_and, mask, predicate != 0, {file, line});
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, NNZ_CALLER) {
    const nnz_cpu::WarpCall call{"__match_any_sync", nnz_cpu::Op::match, mask, nnz_cpu::to_bits(value), 0,
                                 {file, line}};
    return static_cast<unsigned>(nnz_cpu::warp_op(call));
}

#define NNZ_REDUCE(name, T, op)                                                                         \
    inline T name(unsigned mask, T value, NNZ_CALLER) {                                                 \
        return static_cast<T>(                                                                          \
            nnz_cpu::reduce(#name, nnz_cpu::Op::op, mask, static_cast<uint32_t>(value), {file, line})); \
    }
NNZ_REDUCE(__reduce_add_sync, int, add)
NNZ_REDUCE(__reduce_add_sync, unsigned, add)
NNZ_REDUCE(__reduce_min_sync, int, min_int)
NNZ_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
NNZ_REDUCE(__reduce_max_sync, int, max_int)
NNZ_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
NNZ_REDUCE(__reduce_and_sync, unsigned, bit_and)
NNZ_REDUCE(__reduce_or_sync, unsigned, bit_or)
NNZ_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef NNZ_REDUCE

// ---- loads, stores, atomics --------------------------------------------------------------------------------------

#define NNZ_LOAD(name)                   \
    template <typename T>                \
    __forceinline__ T name(const T* p) { \
        return *p;                       \
    }
#define NNZ_STORE(name)                                              \
    template <typename T>                                            \
    __forceinline__ void name(T* p, std::type_identity_t<T> value) { \
        *p = value;                                                  \
    }
NNZ_LOAD(__ldg)
NNZ_LOAD(__ldca)
NNZ_LOAD(__ldcg)
NNZ_LOAD(__ldcs)
NNZ_LOAD(__ldlu)
NNZ_STORE(__stwb)
NNZ_STORE(__stcg)
NNZ_STORE(__stcs)
NNZ_STORE(__stwt)
#undef NNZ_LOAD
#undef NNZ_STORE

inline size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }

namespace nnz_cpu {

// Relaxed, as on the device; returns the old value.
template <typename T, typename Change>
T update(T* p, Change change) {
    T old, changed;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        changed = change(old);
    } while (!__atomic_compare_exchange(p, &old, &changed, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

}  // namespace nnz_cpu

#define NNZ_ATOMIC(name, expression)                                       \
    template <typename T>                                                  \
    T name(T* p, std::type_identity_t<T> value) {                          \
        return nnz_cpu::update(p, [&](T old) -> T { return expression; }); \
    }
NNZ_ATOMIC(atomicAdd, old + value)
NNZ_ATOMIC(atomicSub, old - value)
NNZ_ATOMIC(atomicExch, value)
NNZ_ATOMIC(atomicMin, value < old ? value : old)
NNZ_ATOMIC(atomicMax, value > old ? value : old)
NNZ_ATOMIC(atomicAnd, old& value)
NNZ_ATOMIC(atomicOr, old | value)
NNZ_ATOMIC(atomicXor, old ^ value)
NNZ_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
NNZ_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef NNZ_ATOMIC

template <typename T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
    return nnz_cpu::update(p, [&](T old) -> T { return old == expected ? desired : old; });
}

// ---- arithmetic --------------------------------------------------------------------------------------------------

// Mixed arguments follow C's usual conversions, as the device's overloads do.
template <typename A, typename B>
    requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
__forceinline__ auto min(A a, B b) {
    using T = decltype(a + b);
    if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(fmin(static_cast<T>(a), static_cast<T>(b)));
    else
        return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
    requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
__forceinline__ auto max(A a, B b) {
    using T = decltype(a + b);
    if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(fmax(static_cast<T>(a), static_cast<T>(b)));
    else
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

__forceinline__ float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
__forceinline__ float __fadd_rn(float a, float b) { return a + b; }
__forceinline__ float __fsub_rn(float a, float b) { return a - b; }
__forceinline__ float __fmul_rn(float a, float b) { return a * b; }
__forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
__forceinline__ float __fdividef(float a, float b) { return a / b; }
__forceinline__ float __frcp_rn(float a) { return 1.0f / a; }
__forceinline__ float __fsqrt_rn(float a) { return sqrtf(a); }
__forceinline__ float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
__forceinline__ float rsqrtf(float a) { return 1.0f / sqrtf(a); }
__forceinline__ float __saturatef(float a) { return fminf(fmaxf(a, 0.0f), 1.0f); }
__forceinline__ float __expf(float a) { return expf(a); }
__forceinline__ float __logf(float a) { return logf(a); }
__forceinline__ float __log2f(float a) { return log2f(a); }
__forceinline__ float __powf(float a, float b) { return powf(a, b); }

__forceinline__ int __float_as_int(float a) { return nnz_cpu::from_bits<int>(nnz_cpu::to_bits(a)); }
__forceinline__ unsigned __float_as_uint(float a) { return nnz_cpu::from_bits<unsigned>(nnz_cpu::to_bits(a)); }
__forceinline__ float __int_as_float(int a) { return nnz_cpu::from_bits<float>(nnz_cpu::to_bits(a)); }
__forceinline__ float __uint_as_float(unsigned a) { return nnz_cpu::from_bits<float>(nnz_cpu::to_bits(a)); }
__forceinline__ int __float2int_rn(float a) { return static_cast<int>(rintf(a)); }
__forceinline__ int __float2int_rz(float a) { return static_cast<int>(a); }
__forceinline__ float __int2float_rn(int a) { return static_cast<float>(a); }

__forceinline__ int __popc(unsigned a) { return __builtin_popcount(a); }
__forceinline__ int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
__forceinline__ int __ffs(int a) { return __builtin_ffs(a); }
__forceinline__ int __clz(int a) { return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a)); }
__forceinline__ int __mul24(int a, int b) { return a * b; }
__forceinline__ int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
__forceinline__ unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned __brev(unsigned a) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (a >> i & 1u) << (31 - i);
    return reversed;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> (4 * i);
        unsigned byte = bytes >> (8 * (pick & 7)) & 0xff;
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;  // replicate the sign
        result |= byte << (8 * i);
    }
    return result;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xff) * (b >> i & 0xff);
    return sum;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

#include "cuda_fp16.h"
