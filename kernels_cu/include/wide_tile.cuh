// The product of a 2:4 tile by four warps together (wgmma), sm_90a only: B is read from shared memory by the tensor cores
// themselves. Each warp holds 16 of 64 rows, its fragments as in `tensor_core.cuh`. The CPU build computes a warp's rows when
// the product is issued.
//
//   multiply_wide<N, Pair>(c, a, b, block_bytes, selected)  issues c += a b for the warp's 16x32 tile a and a 32xN tile b, N =
//                      32, 64 or 128. b: 32 rows of 2 N bytes, 128 at most, from a multiple of 1024 bytes on or a whole
//                      number of such tiles behind one; columns 64 to 127 are a tile of their own, block_bytes on. Pieces of
//                      16 bytes are exchanged as `wide_piece` tells. c, a and `selected` as for multiply_tile; Pair -1: of a
//                      dense 16x16 tile as for multiply_dense and a 16xN tile
//   wide_piece<N>(row, piece)  where a row has the piece: the bits of its number that tell it from other rows of the same banks
//                      are flipped in the number of the piece
//   wide_ready()       by each thread, before products of what others copied to shared memory
//   wide_begin()       before the first of a group of products, when c and a are ready
//   wide_commit()      closes the group
//   wide_wait<Left>()  waits until at most `Left` groups are on their way: their c must not be read nor their a written before
#pragma once

#include "tensor_core.cuh"

namespace nnz {

template <int N>
__device__ __forceinline__ int wide_piece(int row, int piece) {
    return piece ^ (N >= 64 ? row & 7 : row / (64 / N) & (N / 8 - 1));
}

#ifdef NNZ_CPU

inline void wide_ready() {}
inline void wide_begin() {}
inline void wide_commit() {}
template <int Left>
void wide_wait() {}

template <int N, int Pair>
void multiply_wide(float (&c)[N / 8][4], const unsigned (&a)[4], SharedAt b, int block_bytes, unsigned selected) {
    const int row = nnz_cpu::lane() & (Pair < 0 ? 15 : 31);
    for (int j = 0; j < N / 8; ++j) {
        unsigned fragment[4];
        const int piece = wide_piece<N>(row, j % 8);
        load_matrices(b + j / 8 * block_bytes + (N < 64 ? 2 * N : 128) * row + 16 * piece, fragment);
        Pair < 0 ? multiply_dense(c[j], a, fragment[0], fragment[1])
                 : multiply_tile<Pair & 1>(c[j], a, fragment, selected);
    }
}

#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define NNZ_SUMS(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define NNZ_SUMS_4(j) NNZ_SUMS(j), NNZ_SUMS(j + 1), NNZ_SUMS(j + 2), NNZ_SUMS(j + 3)
// The instruction for so many columns, and the texts of its sums and of what follows them in `operands` and `selection`
#define NNZ_ISSUE(shape, sums, operands, ...)                                                                   \
    asm volatile("wgmma.mma_async" shape ".f32." NNZ_HALF "." NNZ_HALF " {" sums "}, " operands ", 1, 1, 1, 1;" \
                 : __VA_ARGS__                                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(selected), "n"(Pair))
#define NNZ_WIDE(columns, sums, operands, selection, ...)                           \
    if constexpr (Pair < 0)                                                         \
        NNZ_ISSUE(".sync.aligned.m64n" columns "k16", sums, operands, __VA_ARGS__); \
    else                                                                            \
        NNZ_ISSUE(".sp.sync.aligned.m64n" columns "k32", sums, operands selection, __VA_ARGS__)
#define NNZ_TEXT_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NNZ_TEXT_64 NNZ_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NNZ_TEXT_128                                                                   \
    NNZ_TEXT_64                                                                        \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

__device__ __forceinline__ void wide_ready() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void wide_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wide_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int Left>
__device__ __forceinline__ void wide_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

template <int N, int Pair>
__device__ __forceinline__ void multiply_wide(float (&c)[N / 8][4], const unsigned (&a)[4], SharedAt b, int block_bytes,
                                              unsigned selected) {
    static_assert(N == 32 || N == 64 || N == 128, "up to two blocks of 64 columns");
    // Of b, in units of 16 bytes: its start, how far blocks of 64 columns and groups of eight rows are apart, and how pieces
    // are exchanged.
    constexpr unsigned long long kRows = N < 64 ? N : 64;
    constexpr unsigned long long kExchange = N >= 64 ? 1 : 2;
    const unsigned long long apart = static_cast<unsigned long long>(block_bytes >> 4);
    const unsigned long long descriptor = (b >> 4 & 0x3fff) | apart << 16 | kRows << 32 | kExchange << 62;
    if constexpr (N == 32) {
        NNZ_WIDE("32", NNZ_TEXT_32, "{%16, %17, %18, %19}, %20", ", %21, %22", NNZ_SUMS_4(0));
    } else if constexpr (N == 64) {
        NNZ_WIDE("64", NNZ_TEXT_64, "{%32, %33, %34, %35}, %36", ", %37, %38", NNZ_SUMS_4(0), NNZ_SUMS_4(4));
    } else {
        NNZ_WIDE("128", NNZ_TEXT_128, "{%64, %65, %66, %67}, %68", ", %69, %70", NNZ_SUMS_4(0), NNZ_SUMS_4(4),
                 NNZ_SUMS_4(8), NNZ_SUMS_4(12));
    }
}

#endif

}  // namespace nnz
