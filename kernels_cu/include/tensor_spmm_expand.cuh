// What `tensor_spmm.cu` multiplies: a lane's sums, its registers of a step of A, and how those are taken from its queue.
#pragma once

#include "tensor_core.cuh"
#include "tensor_spmm_shape.cuh"

using Sums = float[kTiles][kColumns][4];
using Registers = unsigned[kTiles][4];

#if HALVES || BITMAP

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

#if BITMAP

// The registers of a step, in the order of their bits: those of rows g before those of rows g + 8.
template <int Bit>
__device__ __forceinline__ void expand(unsigned bits, nnz::SharedAt& at, Registers& a) {
    static_assert(Bit == 0, "each step has a word of its own");
    a[0][0] = expand_one<0>(bits, at);
    a[0][2] = expand_one<4>(bits, at);
    a[1][0] = expand_one<8>(bits, at);
    a[1][2] = expand_one<12>(bits, at);
    a[0][1] = expand_one<16>(bits, at);
    a[0][3] = expand_one<20>(bits, at);
    a[1][1] = expand_one<24>(bits, at);
    a[1][3] = expand_one<28>(bits, at);
}

#else

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

#endif

// What a lane knows of a step before it takes: the bits of its registers, and what the products select.
struct Step {
    unsigned bits, selected;
};

#if BITMAP

// A lane's bitmap of a step has its eight groups of four columns in four bits each, at most two of them set: group 4 q + t of row
// 8 h + g of tile i in bits 16 h + 8 i + 4 q on. Where the first of the two lies is 2 bits of what the products select, where
// the second does the next 2; one that is not there is said to lie in place 0 or 3. A product takes this of group t' from
// lane 2 i + q of the quad, in bits 16 h + 4 t': the quad's lanes exchange halves, then quarters.
__device__ __forceinline__ Step step_of(unsigned map, int lane) {
    constexpr unsigned kFirst = 0x11111111u;  // of each group
    const unsigned second = map >> 1, third = map >> 2, fourth = map >> 3;
    const unsigned lower = map | second, both = map & second, behind = third & lower;
    Step step;
    step.bits = ((lower | third) & kFirst) | ((fourth | behind | both) & kFirst) << 1;
#ifndef NNZ_CPU
    asm("" : "+r"(step.bits));  // or the compiler tests what they are made of, one by one
#endif
    unsigned places = (~map & second & kFirst) | (~lower & third & kFirst) << 1;
    places |= (~behind & kFirst) << 2 | (~both & kFirst) << 3;
    const unsigned far = __shfl_xor_sync(0xffffffffu, places, 2);
    places = __byte_perm(places, far, lane & 2 ? 0x3715 : 0x6240);
    const unsigned near = __shfl_xor_sync(0xffffffffu, places, 1);
    step.selected = lane & 1 ? (places & 0xf0f0f0f0u) | (near >> 4 & 0x0f0f0f0fu)
                             : (places & 0x0f0f0f0fu) | (near << 4 & 0xf0f0f0f0u);
    return step;
}

#endif
