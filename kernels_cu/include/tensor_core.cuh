// What a warp does with tensor cores: fragments in and out of shared memory, and the product of a tile. sm_80 and later;
// the CPU build has the same calls and computes what the instructions are specified to (PTX ISA, "Matrix fragments for
// mma.m16n8k16"), so that a wrong fragment gives a wrong result there too.
//
//   SharedAt                     an address in shared memory as one register; `shared_at(p)`, and `at + bytes`
//   kept(at)                     `at`, kept in its register: on sm_90 the compiler would rather ask for the block's rank in
//                                its cluster, which is part of it, in every loop again
//   load_at<T>(at)               a T of 2, 4 or 8 bytes from there
//   copy_to(at, src)             cp.async of 16 bytes, aligned on both sides
//   take_if<Bit>(bits, at, word) where bit `Bit` of `bits` is set: the 32-bit word at `at`, and `at` to the next one; else
//                                nothing. Two predicated instructions, never a branch
//   load_matrices<N>(at, r)      N = 2 or 4 matrices of 8x8 halves, transposed: lane l tells where row l % 8 of matrix l / 8
//                                lies (16 bytes, aligned), and holds of each matrix elements (2t, g) and (2t + 1, g), with
//                                g = lane / 4 and t = lane % 4
//   multiply_tile(c, a, b0, b1)  c += a b for a 16x16 by 16x8 tile in fragments: c[0], c[1] are (g, 2t) and (g, 2t + 1), c[2]
//                                and c[3] the same of row g + 8; a[0] is (g, 2t) and (g, 2t + 1), a[1] the same of row g + 8,
//                                a[2] and a[3] eight columns on; b0 is (2t, g) and (2t + 1, g), b1 eight rows on
//   Half                         storage of an element: fp16, or bf16 under BF16; widen_half, narrow_half
#pragma once

#include "async_barrier.cuh"

#include <cuda_fp16.h>

namespace nnz {

using Half = unsigned short;

#if BF16

__device__ __forceinline__ float widen_half(Half x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }

// To the nearest, ties to even; a NaN stays one.
__device__ __forceinline__ Half narrow_half(float x) {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Half>(bits >> 16 | 0x40u);
    return static_cast<Half>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#else

__device__ __forceinline__ float widen_half(Half x) { return __half2float(__ushort_as_half(x)); }

__device__ __forceinline__ Half narrow_half(float x) { return __half_as_ushort(__float2half_rn(x)); }

#endif

#ifdef NNZ_CPU

using SharedAt = const char*;

inline SharedAt shared_at(const void* p) { return static_cast<const char*>(p); }

inline SharedAt kept(SharedAt at) { return at; }

inline void copy_to(SharedAt at, const void* src) { cp_async16(const_cast<char*>(at), src); }

template <typename T>
T load_at(SharedAt at) {
    return *reinterpret_cast<const T*>(at);
}

template <int Bit>
void take_if(unsigned bits, SharedAt& at, unsigned& word) {
    if ((bits >> Bit & 1u) == 0) return;
    word = load_at<unsigned>(at);
    at += 4;
}

// Lanes meet twice: when all have written their side, and when all have read the others'.
template <int N>
void load_matrices(SharedAt at, unsigned (&r)[N]) {
    __shared__ SharedAt rows[32][32];
    SharedAt* const warp = rows[nnz_cpu::self().index / 32];
    const int lane = nnz_cpu::lane(), group = lane / 4, pair = lane % 4 * 2;
    if (reinterpret_cast<uintptr_t>(at) % 16) nnz_cpu::fail("a row of a matrix is not aligned to 16 bytes");
    warp[lane] = at;
    __syncwarp();
    for (int i = 0; i < N; ++i) {
        const auto element = [&](int row) { return load_at<Half>(warp[8 * i + row] + 2 * group); };
        r[i] = element(pair) | static_cast<unsigned>(element(pair + 1)) << 16;
    }
    __syncwarp();
}

struct TileSide {
    unsigned a[4], b[2];
};

inline void multiply_tile(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    __shared__ TileSide sides[32][32];
    TileSide* const warp = sides[nnz_cpu::self().index / 32];
    const int lane = nnz_cpu::lane(), group = lane / 4, pair = lane % 4 * 2;
    warp[lane] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
        double sum = c[i];
        for (int k = 0; k < 16; ++k) {
            const int quarter = k % 8 / 2, shift = k % 2 * 16;
            const unsigned left = warp[group * 4 + quarter].a[i / 2 + k / 8 * 2] >> shift;
            const unsigned right = warp[(pair + i % 2) * 4 + quarter].b[k / 8] >> shift;
            sum += static_cast<double>(widen_half(static_cast<Half>(left))) * widen_half(static_cast<Half>(right));
        }
        c[i] = static_cast<float>(sum);
    }
    __syncwarp();
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

using SharedAt = unsigned;

__device__ __forceinline__ SharedAt shared_at(const void* p) { return shared_address(p); }

__device__ __forceinline__ SharedAt kept(SharedAt at) {
    asm("" : "+r"(at));
    return at;
}

__device__ __forceinline__ void copy_to(SharedAt at, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(src) : "memory");
}

template <typename T>
__device__ __forceinline__ T load_at(SharedAt at) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "one load of 2, 4 or 8 bytes");
    T value;
    if constexpr (sizeof(T) == 2) {
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(at));
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(at));
    } else {
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(at));
    }
    return value;
}

template <int Bit>
__device__ __forceinline__ void take_if(unsigned bits, SharedAt& at, unsigned& word) {
    asm volatile(
        "{\n.reg .pred set;\n.reg .b32 bit;\nand.b32 bit, %2, %3;\nsetp.ne.b32 set, bit, 0;\n"
        "@set ld.shared.b32 %0, [%1];\n@set add.u32 %1, %1, 4;\n}"
        : "+r"(word), "+r"(at)
        : "r"(bits), "n"(1u << Bit));
}

template <int N>
__device__ __forceinline__ void load_matrices(SharedAt at, unsigned (&r)[N]) {
    static_assert(N == 2 || N == 4, "two or four matrices at a time");
    if constexpr (N == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(at));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at));
    }
}

__device__ __forceinline__ void multiply_tile(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if BF16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
#endif
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

}  // namespace nnz
