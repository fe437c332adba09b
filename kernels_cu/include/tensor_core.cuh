// What a warp does with tensor cores: fragments in and out of shared memory, and the products of a dense and of a 2:4 tile.
// sm_80 and later; the CPU build has the same calls and computes what the instructions are specified to (PTX ISA, "Matrix
// fragments for mma.m16n8k16" and "for sparse mma.m16n8k32"), so that a wrong fragment gives a wrong result there too. Below
// g = lane / 4 and t = lane % 4. What a lane holds of a dense product:
//
//                 a, 16 x 16: columns 2t, 2t + 1 | 2t + 8, 2t + 9      b, 16 x 8, column g: rows 2t, 2t + 1     b0
//     row g                   a[0]               | a[2]                                     2t + 8, 2t + 9      b1
//     row g + 8               a[1]               | a[3]                c, 16 x 8: as the first two columns of a, in four floats
//
//   SharedAt                     an address in shared memory as one register: `shared_at(p)`, `at + bytes`, and flip(at, bits)
//   kept(at)                     `at`, kept in its register: on sm_90 the compiler would rather ask for the block's rank in
//                                its cluster, which is part of it, in every loop again; of a number: as it is computed here,
//                                not folded into what is computed from it
//   load_at<T>(at)               a T of 2, 4, 8 or 16 bytes from there; Words<N>: so many words
//   copy_to(at, src)             cp.async of 16 bytes, aligned on both sides
//   zeros_to(at)                 the same of zeros, which reads nothing
//   store_at(at, half)           a store of 2 bytes there
//   take_if<Bit>(bits, at, word) where bit `Bit` of `bits` is set: the 32-bit word at `at`, and `at` to the next one; else
//                                nothing. Predicated, never a branch
//   take_if<Bit, Half>(bits, at, word)  the same with the 16-bit number at `at`, as the lower half of `word`
//   both_halves(low, high)       a word of two halves; narrow_pair(low, high): of two floats
//   load_matrices(at, r)         four matrices of 8x8 halves, transposed: lane l tells where row l % 8 of matrix l / 8 lies
//                                (16 bytes, aligned), and holds of each matrix elements (2t, g) and (2t + 1, g)
//   load_rows(at, r)             the same matrices as they lie: elements (g, 2t) and (g, 2t + 1)
//   store_matrices(base, at, r)  the other way round: lane l tells how far behind `base`, in shared memory, row l % 8 of matrix
//                                l / 8 goes, and gives elements (2t, g) and (2t + 1, g)
//   multiply_dense(c, a, b0, b1) c += a b for a 16x16 tile a and a 16x8 tile b
//   multiply_tf32(c, a, b0, b1)  c += a b for a 16x8 tile a and an 8x8 tile b of fp32 numbers, whose lower 13 bits don't count.
//                                a: elements (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4); b0: (t, g), b1: (t + 4, g)
//   multiply_tile<Pair>(c, a, b, selected)  c += a b for a 16x32 tile a, of which two of any four neighbours in a row count,
//                                and a 32x8 tile b. a: of the eight groups of four of a row the two halves that count, of
//                                group t of row g, of row g + 8, of group t + 4 of row g, of row g + 8; b as load_matrices
//                                holds rows 8 i to 8 i + 7 in b[i]; c[0], c[1] are (g, 2t) and (g, 2t + 1), c[2] and c[3] the
//                                same of row g + 8. `selected` of lanes with t = 2 Pair and 2 Pair + 1 tells which count: of
//                                group j of row g bits 4 (j % 4) to 4 (j % 4) + 3 in lane t = 2 Pair + j / 4, the place of the
//                                first in the lower two; of row g + 8 the same bits sixteen higher. Places ascend
//   multiply_half_tile<Lane>(c, a0, a1, b0, b1, selected)  the same for a 16x16 tile a and a 16x8 tile b, a0 and a1 of groups t
//                                alone; `selected` of lanes with t = Lane alone
//   from_e4m3(two)               two e4m3 numbers as a word of two fp16 ones: exact, NaN too
//   Half                         storage of an element: fp16, or bf16 under BF16; widen_half, narrow_half
#pragma once

#include "async_barrier.cuh"

#include <cuda_fp16.h>

namespace nnz {

using Half = unsigned short;

template <int N>
struct alignas(4 * N) Words {
    unsigned word[N];
};

#if BF16
#define NNZ_HALF "bf16"

__device__ __forceinline__ float widen_half(Half x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }

// To the nearest, ties to even; a NaN stays one.
__device__ __forceinline__ Half narrow_half(float x) {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Half>(bits >> 16 | 0x40u);
    return static_cast<Half>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#else
#define NNZ_HALF "f16"

__device__ __forceinline__ float widen_half(Half x) { return __half2float(__ushort_as_half(x)); }

__device__ __forceinline__ Half narrow_half(float x) { return __half_as_ushort(__float2half_rn(x)); }

#endif

__device__ __forceinline__ unsigned from_e4m3(unsigned two) {
#if !defined(NNZ_CPU) && __CUDA_ARCH__ >= 890
    unsigned halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(two)));
    return halves;
#else
    // with the exponent's bias of fp16 in place of e4m3's the same bits are 256 times too small
    const unsigned upper = (two & 0xffu) << 8 | (two & 0xff00u) << 16;
    const unsigned small = (upper & 0x80008000u) | (upper >> 1 & 0x3f803f80u);
    const auto larger = [](unsigned half) {
        return static_cast<unsigned>(narrow_half(256.0f * widen_half(static_cast<Half>(half))));
    };
    const unsigned nan = ((two & 0x7fu) == 0x7fu ? 0x7fffu : 0u) | ((two & 0x7f00u) == 0x7f00u ? 0x7fff0000u : 0u);
    return larger(small & 0xffffu) | larger(small >> 16) << 16 | nan;
#endif
}

#ifdef NNZ_CPU

using SharedAt = const char*;

inline SharedAt shared_at(const void* p) { return static_cast<const char*>(p); }

template <typename T>
T kept(T x) {
    return x;
}

inline SharedAt flip(SharedAt at, int bits) {
    return reinterpret_cast<SharedAt>(reinterpret_cast<uintptr_t>(at) ^ static_cast<uintptr_t>(bits));
}

inline void copy_to(SharedAt at, const void* src) { cp_async16(const_cast<char*>(at), src); }

inline void zeros_to(SharedAt at) { cp_async16(const_cast<char*>(at), at, false); }

template <typename T>
T load_at(SharedAt at) {
    return *reinterpret_cast<const T*>(at);
}

inline void store_at(SharedAt at, Half half) { *reinterpret_cast<Half*>(const_cast<char*>(at)) = half; }

template <int Bit, typename T = unsigned>
void take_if(unsigned bits, SharedAt& at, unsigned& word) {
    if ((bits >> Bit & 1u) == 0) return;
    word = load_at<T>(at);
    at += sizeof(T);
}

// What each lane of the warp gives. Lanes meet twice: here, when all have given theirs, and when all have read the others'.
template <typename T>
const T* of_warp(const T& own) {
    __shared__ T all[32][32];
    T* const warp = all[nnz_cpu::self().index / 32];
    warp[nnz_cpu::lane()] = own;
    __syncwarp();
    return warp;
}

inline const SharedAt* rows_of_warp(SharedAt at) {
    if (reinterpret_cast<uintptr_t>(at) % 16) nnz_cpu::fail("a row of a matrix is not aligned to 16 bytes");
    return of_warp(at);
}

inline void load_matrices(SharedAt at, unsigned (&r)[4]) {
    const SharedAt* const warp = rows_of_warp(at);
    const int lane = nnz_cpu::lane(), group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
        const auto element = [&](int row) { return load_at<Half>(warp[8 * i + row] + 2 * group); };
        r[i] = element(pair) | static_cast<unsigned>(element(pair + 1)) << 16;
    }
    __syncwarp();
}

inline void load_rows(SharedAt at, unsigned (&r)[4]) {
    const SharedAt* const warp = rows_of_warp(at);
    const int lane = nnz_cpu::lane(), group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) r[i] = load_at<unsigned>(warp[8 * i + group] + 2 * pair);
    __syncwarp();
}

struct TileSide {
    unsigned a[4] = {}, b[4] = {}, selected = 0;
};

// Adds to each of a lane's four sums `Count` products: `product(row, lower, column, i)` is the i-th of the first of the four
// lanes that hold the sum's row, be it the lower one, and of the first that hold its column.
template <int Count, typename Product>
void multiply_of_warp(float (&c)[4], const TileSide& own, Product product) {
    const TileSide* const warp = of_warp(own);
    const int group = nnz_cpu::lane() / 4, pair = nnz_cpu::lane() % 4 * 2;
    for (int i = 0; i < 4; ++i) {
        double sum = c[i];
        for (int k = 0; k < Count; ++k) sum += product(warp + group * 4, i / 2, warp + (pair + i % 2) * 4, k);
        c[i] = static_cast<float>(sum);
    }
    __syncwarp();
}

inline double half_of(unsigned word, int upper) { return widen_half(static_cast<Half>(word >> 16 * upper)); }

inline double row_of_b(const TileSide* column, int k) { return half_of(column[k % 8 / 2].b[k / 8], k % 2); }

inline void multiply_dense(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply_of_warp<16>(c, {{a[0], a[1], a[2], a[3]}, {b0, b1}}, [](auto* row, int lower, auto* column, int k) {
        return half_of(row[k % 8 / 2].a[k / 8 * 2 + lower], k % 2) * row_of_b(column, k);
    });
}

inline void multiply_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply_of_warp<8>(c, {{a[0], a[1], a[2], a[3]}, {b0, b1}}, [](auto* row, int lower, auto* column, int k) {
        const auto number = [](unsigned bits) { return static_cast<double>(__uint_as_float(bits & 0xffffe000u)); };
        return number(row[k % 4].a[k / 4 * 2 + lower]) * number(column[k % 4].b[k / 4]);
    });
}

template <int Pair>
void multiply_tile(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned selected) {
    const TileSide own{{a[0], a[1], a[2], a[3]}, {b[0], b[1], b[2], b[3]}, selected};
    multiply_of_warp<16>(c, own, [](auto* row, int lower, auto* column, int i) {
        const int j = i / 2;
        const unsigned places = row[2 * Pair + j / 4].selected >> (4 * (j % 4) + 16 * lower);
        const unsigned first = places & 3, second = places >> 2 & 3;
        if (first >= second) nnz_cpu::fail("places %u and %u of a 2:4 group do not ascend", first, second);
        const int k = 4 * j + static_cast<int>(i % 2 ? second : first);
        return half_of(row[j % 4].a[j / 4 * 2 + lower], i % 2) * row_of_b(column, k);
    });
}

template <int Lane>
void multiply_half_tile(float (&c)[4], unsigned a0, unsigned a1, unsigned b0, unsigned b1, unsigned selected) {
    const unsigned first = __shfl_sync(0xffffffffu, selected, nnz_cpu::lane() / 4 * 4 + Lane);
    // groups t + 4 are zeros wherever they are said to be
    const unsigned both = nnz_cpu::lane() % 4 == 0 ? first : 0xeeeeeeeeu;
    const unsigned a[4] = {a0, a1, 0, 0}, b[4] = {b0, b1, 0, 0};
    multiply_tile<0>(c, a, b, both);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

#define NNZ_TYPES ".f32." NNZ_HALF "." NNZ_HALF ".f32 "

using SharedAt = unsigned;

__device__ __forceinline__ SharedAt shared_at(const void* p) { return shared_address(p); }

__device__ __forceinline__ SharedAt kept(SharedAt at) {
    asm("" : "+r"(at));
    return at;
}

__device__ __forceinline__ SharedAt flip(SharedAt at, int bits) { return at ^ static_cast<unsigned>(bits); }

__device__ __forceinline__ void copy_to(SharedAt at, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(src) : "memory");
}

__device__ __forceinline__ void zeros_to(SharedAt at) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 0;" ::"r"(at), "l"(0ull) : "memory");
}

template <typename T>
__device__ __forceinline__ T load_at(SharedAt at) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one load");
    T value;
    [[maybe_unused]] const auto word = reinterpret_cast<unsigned*>(&value);
    if constexpr (sizeof(T) == 2) {
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(at));
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word[0]) : "r"(at));
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(word[0]), "=r"(word[1]) : "r"(at));
    } else {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(at));
    }
    return value;
}

__device__ __forceinline__ void store_at(SharedAt at, Half half) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(half) : "memory");
}

// The bit itself moves the address to a register of its own: a load that has not yet read its address would hold up what
// adds to that register.
template <int Bit, typename T = unsigned>
__device__ __forceinline__ void take_if(unsigned bits, SharedAt& at, unsigned& word) {
    constexpr int kShift = Bit - (sizeof(T) == 4 ? 2 : 1);
    const unsigned bit = bits & 1u << Bit;
    if constexpr (sizeof(T) == 4) {
        asm volatile("{\n.reg .pred set;\nsetp.ne.b32 set, %1, 0;\n@set ld.shared.b32 %0, [%2];\n}"
                     : "+r"(word)
                     : "r"(bit), "r"(at));
    } else {
        asm volatile("{\n.reg .pred set;\nsetp.ne.b32 set, %1, 0;\n@set ld.shared.u16 %0, [%2];\n}"
                     : "+r"(word)
                     : "r"(bit), "r"(at));
    }
    at += kShift <= 0 ? bit << (kShift < 0 ? -kShift : 0) : bit >> (kShift > 0 ? kShift : 0);
}

__device__ __forceinline__ void load_matrices(SharedAt at, unsigned (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

__device__ __forceinline__ void load_rows(SharedAt at, unsigned (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void multiply_dense(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col" NNZ_TYPES "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int Pair>
__device__ __forceinline__ void multiply_tile(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[4],
                                              unsigned selected) {
    asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col" NNZ_TYPES
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(selected),
          "n"(Pair));
}

template <int Lane>
__device__ __forceinline__ void multiply_half_tile(float (&c)[4], unsigned a0, unsigned a1, unsigned b0, unsigned b1,
                                                   unsigned selected) {
    asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col" NNZ_TYPES
        "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"(b1), "r"(selected), "n"(Lane));
}

#endif

__device__ __forceinline__ unsigned both_halves(unsigned low, unsigned high) { return low + high * 65536u; }

__device__ __forceinline__ unsigned narrow_pair(float low, float high) {
    return both_halves(narrow_half(low), narrow_half(high));
}

__device__ __forceinline__ void store_matrices(char* base, int at, const unsigned (&r)[4]) {
#if !defined(NNZ_CPU) && __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(shared_at(base) + at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#else
    const int row = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned low = __shfl_sync(0xffffffffu, r[i], 8 * pair + row / 2);
        const unsigned high = __shfl_sync(0xffffffffu, r[i], 8 * pair + 4 + row / 2);
        const int to = __shfl_sync(0xffffffffu, at, 8 * i + row) + 4 * pair;
        *reinterpret_cast<unsigned*>(base + to) = __byte_perm(low, high, row % 2 == 0 ? 0x5410 : 0x7632);
    }
#endif
}

}  // namespace nnz
