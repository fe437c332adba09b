// What `tensor_spmm.cu` multiplies: a lane's sums, its registers of a step of A, and how those are taken from its queue.
#pragma once

#include "tensor_core.cuh"
#include "tensor_spmm_shape.cuh"

using Sums = float[kTiles][kColumns][4];
using Registers = unsigned[kTiles][4];

#if HALVES

// Register j of a step, by bits Bit and Bit + 1.
template <int Bit>
__device__ __forceinline__ unsigned expand_one(unsigned bits, nnz::SharedAt& at) {
    unsigned low = 0, high = 0;
    nnz::take_half_if<Bit>(bits, at, low);
    nnz::take_half_if<Bit + 1>(bits, at, high);
    return nnz::both_halves(low, high);
}

#else

// Register j of a step, by bit Bit.
template <int Bit>
__device__ __forceinline__ unsigned expand_one(unsigned bits, nnz::SharedAt& at) {
    unsigned word = 0;
#if FP8
    nnz::take_half_if<Bit>(bits, at, word);
    return nnz::from_e4m3(word);
#else
    nnz::take_if<Bit>(bits, at, word);
    return word;
#endif
}

#endif

// The registers of a step, whose first bit is Bit.
template <int Bit>
__device__ __forceinline__ void expand(unsigned bits, nnz::SharedAt& at, Registers& a) {
    constexpr int kBits = kStepBits / 8;  // of a register
    a[0][0] = expand_one<Bit>(bits, at);
    a[0][1] = expand_one<Bit + kBits>(bits, at);
    a[0][2] = expand_one<Bit + 2 * kBits>(bits, at);
    a[0][3] = expand_one<Bit + 3 * kBits>(bits, at);
    a[1][0] = expand_one<Bit + 4 * kBits>(bits, at);
    a[1][1] = expand_one<Bit + 5 * kBits>(bits, at);
    a[1][2] = expand_one<Bit + 6 * kBits>(bits, at);
    a[1][3] = expand_one<Bit + 7 * kBits>(bits, at);
}
