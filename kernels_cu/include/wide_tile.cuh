// The product of a 2:4 tile by four warps together (wgmma), sm_90a only: B is read from shared memory by the tensor cores
// themselves. Each warp holds 16 of 64 rows, its fragments as in `tensor_core.cuh`. The CPU build computes a warp's rows when
// the product is issued.
//
//   multiply_wide<N, Pair>(c, a, b, block_bytes, selected)  issues c += a b for the warp's 16x32 tile a and a 32xN tile b, N = 64
//                      or 128. b: 32 rows of 128 bytes from a multiple of 1024 bytes on, the 16-byte pieces of row r at
//                      piece ^ (r % 8); columns 64 to 127 block_bytes on. c, a and `selected` as for multiply_tile
//   wide_begin()       before the first of a group of products, when c, a and b are ready
//   wide_commit()      closes the group
//   wide_wait<Left>()  waits until at most `Left` groups are on their way: their c must not be read nor their a written before
#pragma once

#include "tensor_core.cuh"

namespace nnz {

#ifdef NNZ_CPU

inline void wide_begin() {}
inline void wide_commit() {}
template <int Left>
void wide_wait() {}

template <int N, int Pair>
void multiply_wide(float (&c)[N / 8][4], const unsigned (&a)[4], SharedAt b, int block_bytes, unsigned selected) {
    const int lane = nnz_cpu::lane(), row = lane % 32;
    for (int j = 0; j < N / 8; ++j) {
        const int piece = (j % 8 ^ row % 8) << 4;
        unsigned fragment[4];
        load_matrices(b + j / 8 * block_bytes + 128 * row + piece, fragment);
        multiply_tile<Pair>(c[j], a, fragment, selected);
    }
}

#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)

#if BF16
#define NNZ_WIDE_TYPE "bf16"
#else
#define NNZ_WIDE_TYPE "f16"
#endif

// What other instructions wrote to b becomes visible to the tensor cores, too.
__device__ __forceinline__ void wide_begin() {
    asm volatile("fence.proxy.async.shared::cta;\nwgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wide_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int Left>
__device__ __forceinline__ void wide_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

template <int N, int Pair>
__device__ __forceinline__ void multiply_wide(float (&c)[N / 8][4], const unsigned (&a)[4], SharedAt b, int block_bytes,
                                              unsigned selected) {
    static_assert(N == 64 || N == 128, "one or two blocks of 64 columns");
    // start, distance of blocks of 64 columns and of groups of eight rows, all in 16 bytes; 128-byte swizzle
    const unsigned long long descriptor = (b >> 4 & 0x3fff) | static_cast<unsigned long long>(block_bytes >> 4) << 16 |
                                          64ull << 32 | 1ull << 62;
    if constexpr (N == 64) {
        asm volatile(
            "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32." NNZ_WIDE_TYPE "." NNZ_WIDE_TYPE
            " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "{%32, %33, %34, %35}, %36, %37, %38, 1, 1, 1, 1;"
            : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
              "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
              "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
              "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
              "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
              "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
              "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
              "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(selected), "n"(Pair));
    } else {
        asm volatile(
            "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32." NNZ_WIDE_TYPE "." NNZ_WIDE_TYPE
            " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "{%64, %65, %66, %67}, %68, %69, %70, 1, 1, 1, 1;"
            : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
              "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
              "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
              "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
              "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
              "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
              "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
              "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]),
              "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3]),
              "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]),
              "+f"(c[10][0]), "+f"(c[10][1]), "+f"(c[10][2]), "+f"(c[10][3]),
              "+f"(c[11][0]), "+f"(c[11][1]), "+f"(c[11][2]), "+f"(c[11][3]),
              "+f"(c[12][0]), "+f"(c[12][1]), "+f"(c[12][2]), "+f"(c[12][3]),
              "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]),
              "+f"(c[14][0]), "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]),
              "+f"(c[15][0]), "+f"(c[15][1]), "+f"(c[15][2]), "+f"(c[15][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(selected), "n"(Pair));
    }
}

#endif

}  // namespace nnz
