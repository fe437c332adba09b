// Values of the kernel's element type, moved several at a time.
//
//   Value             float, or __half under F16; widen(Value) -> float, narrow(float) -> Value
//   Index             int, or unsigned short under INDEX16
//   widen(pack)       all elements of a Pack as Floats<N>; two halves in one register need no shifts
//   Pack<T, N>        N elements that travel as one word of at most 16 bytes (two words at 32)
//   load<N>(p)        a Pack through the read-only path; p aligned to the pack
//   load_if(keep, p, pack)  the same into `pack` where `keep`; a predicated instruction, never a branch
//   load_here<N>(p)   the same as `load`, at this place in the program
//   store<N>(p, pack)
//   opaque(p)         p, a pointer or an int, with its origin hidden from the compiler
#pragma once

#if F16
#include <cuda_fp16.h>
using Value = __half;
#else
using Value = float;
#endif
#if INDEX16
using Index = unsigned short;
#else
using Index = int;
#endif

struct TwoWords {
    int4 low, high;
};

template <int Bytes>
__device__ auto word_of() {
    if constexpr (Bytes == 2) return static_cast<unsigned short>(0);
    if constexpr (Bytes == 4) return 0;
    if constexpr (Bytes == 8) return int2{};
    if constexpr (Bytes == 16) return int4{};
    if constexpr (Bytes == 32) return TwoWords{};
}

template <typename T, int N>
using Word = decltype(word_of<static_cast<int>(sizeof(T)) * N>());

template <typename T, int N>
union Pack {
    Word<T, N> word;
    T at[N];
};

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load(const T* p) {
    Pack<T, N> pack;
    if constexpr (sizeof(T) * N == 32) {  // 8 indices of 4 bytes beside 8 values of 2
        pack.word.low = nnz::ldg(reinterpret_cast<const int4*>(p));
        pack.word.high = nnz::ldg(reinterpret_cast<const int4*>(p) + 1);
    } else {
        pack.word = nnz::ldg(reinterpret_cast<const Word<T, N>*>(p));
    }
    return pack;
}

// `load_if`: branches between the loads of a batch make each wait for the one before; predicates do not. `load_here`: of what no
// thread writes during the launch; of a batch of such loads all are on their way before the first is used, even where the use
// depends on a condition. (A compiler moves ordinary loads to their uses.)
#ifndef NNZ_CPU
// Of a type of word: how it is loaded, the texts of its parts and of the two operands behind them, and its parts.
#define NNZ_LOADS(Type, how, parts, next, last, ...)                                                           \
    __device__ __forceinline__ void load_word_if(bool keep, const void* p, Type& w) {                          \
        asm("{\n.reg .pred k;\nsetp.ne.s32 k, " next ", 0;\n@k ld.global.nc." how " " parts ", [" last "];\n}" \
            : __VA_ARGS__                                                                                      \
            : "r"(static_cast<int>(keep)), "l"(p));                                                            \
    }                                                                                                          \
    __device__ __forceinline__ void load_word_here(const void* p, Type& w) {                                   \
        asm volatile("ld.global.nc." how " " parts ", [" next "];" : __VA_ARGS__ : "l"(p));                    \
    }
NNZ_LOADS(unsigned short, "u16", "%0", "%1", "%2", "=h"(w))
NNZ_LOADS(int, "s32", "%0", "%1", "%2", "=r"(w))
NNZ_LOADS(int2, "v2.s32", "{%0, %1}", "%2", "%3", "=r"(w.x), "=r"(w.y))
NNZ_LOADS(int4, "v4.s32", "{%0, %1, %2, %3}", "%4", "%5", "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w))
#endif

template <int N, typename T>
__device__ __forceinline__ void load_if(bool keep, const T* p, Pack<T, N>& pack) {
#ifdef NNZ_CPU
    if (keep) pack = load<N>(p);
#else
    load_word_if(keep, p, pack.word);
#endif
}

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_here(const T* p) {
#ifdef NNZ_CPU
    return load<N>(p);
#else
    Pack<T, N> pack;
    load_word_here(p, pack.word);
    return pack;
#endif
}

template <int N, typename T>
__device__ __forceinline__ void store(T* p, const Pack<T, N>& pack) {
    *reinterpret_cast<Word<T, N>*>(p) = pack.word;
}

__device__ __forceinline__ float widen(float x) { return x; }

__device__ __forceinline__ Value narrow(float x) {
#if F16
    return __float2half_rn(x);
#else
    return x;
#endif
}

#if F16
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
#endif

template <int N>
struct Floats {
    float at[N];
};

template <int N>
__device__ __forceinline__ Floats<N> widen(const Pack<Value, N>& pack) {
    Floats<N> wide;
#if F16
    if constexpr (N > 1) {
        union {
            Word<Value, N> word;
            __half2 pairs[N / 2];
        } held;
        held.word = pack.word;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float2 two = __half22float2(held.pairs[i]);
            wide.at[2 * i] = two.x;
            wide.at[2 * i + 1] = two.y;
        }
        return wide;
    }
#endif
#pragma unroll
    for (int i = 0; i < N; ++i) wide.at[i] = widen(pack.at[i]);
    return wide;
}

// Keeps the address of `opaque(base) + offset` one multiply-add: without it the compiler takes a known base apart and
// spends three instructions per access. Keeps a number in its register: the compiler would rather read the special register
// it came from again, which takes as long as thirty instructions.
template <typename T>
__device__ __forceinline__ T opaque(T x) {
#ifndef NNZ_CPU
    if constexpr (sizeof(T) == 8)
        asm("" : "+l"(x));
    else
        asm("" : "+r"(x));
#endif
    return x;
}
