// What `tensor_spmm.cu` multiplies: a lane's sums, its registers of a step of A, and how those are taken from its queue.
#pragma once

#include "tensor_core.cuh"
#include "tensor_spmm_shape.cuh"

using Sums = float[kTiles][kColumns][4];
using Registers = unsigned[kTiles][4];

// A register by bit Bit, of one entry or two.
template <int Bit>
__device__ __forceinline__ unsigned expand_one(unsigned bits, nnz::SharedAt& at) {
    unsigned word = 0;
#if HALVES || BITMAP
    unsigned high = 0;
    nnz::take_if<Bit, nnz::Half>(bits, at, word);
    nnz::take_if<Bit + 1, nnz::Half>(bits, at, high);
    return nnz::both_halves(word, high);
#elif FP8
    nnz::take_if<Bit, nnz::Half>(bits, at, word);
    return nnz::from_e4m3(word);
#else
    nnz::take_if<Bit>(bits, at, word);
    return word;
#endif
}

// The registers of a step from the Next-th on, whose first bit is Bit; under BITMAP those of rows g before those of rows g + 8.
template <int Bit, int Next = 0>
__device__ __forceinline__ void expand(unsigned bits, nnz::SharedAt& at, Registers& a) {
    static_assert(!BITMAP || Bit == 0, "each step has a word of its own");
    if constexpr (Next < 8) {
        constexpr int kTile = BITMAP ? Next / 2 % 2 : Next / 4, kNumber = BITMAP ? Next % 2 * 2 + Next / 4 : Next % 4;
        a[kTile][kNumber] = expand_one<Bit + Next*(BITMAP ? 4 : kStepBits / 8)>(bits, at);
        expand<Bit, Next + 1>(bits, at, a);
    }
}

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
