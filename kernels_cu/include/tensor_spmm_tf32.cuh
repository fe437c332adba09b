// `tensor_spmm.cu` with TF32: steps of 8 columns, of which each register of A is one element, and `mma.m16n8k8`. Nothing is left
// over, so there are no selections and no gathered columns. Columns 2 t and 2 t + 1 of a step are what the instruction calls t
// and t + 4, so that lanes' loads of B meet in no bank. Bits lie word by word, in each word lane by lane. A's values are rounded
// by the host; of B's the tensor cores read the upper 19 bits.
#pragma once

#include "tensor_spmm_expand.cuh"
#include "tensor_spmm_shape.cuh"

// Where the calling lane's elements of B lie: base 2 j + q is row 2 t + q of column tile j, of a panel's first step.
__device__ __forceinline__ int base_at(int lane, int base) {
    const int row = lane % 4 * 2 + base % 2, group = lane / 4;
    return piece_at(row, base / 2 * 2 + group / 4) + group % 4 * 4;
}

// The steps from Step on of those that a word of bits is of, `a` being the registers of the first. The next step's registers are
// on their way while this one's are multiplied.
template <int Step = 0>
__device__ __forceinline__ void multiply_word(Sums& acc, const Registers& a, unsigned bits, nnz::SharedAt& at,
                                              const nnz::SharedAt (&bases)[kBases], int offset) {
    constexpr int kAt = Step * (kStepK * kRowBytes);
    unsigned b[kColumns][2];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int q = 0; q < 2; ++q) {
            b[j][q] = nnz::load_at<unsigned>(bases[j % 4 * 2 + q] + (offset + kAt + j / 4 * kBlockBytes));
        }
    }
    Registers next;
    if constexpr (Step + 1 < kWordSteps) expand<(Step + 1) * 8>(bits, at, next);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
        nnz::multiply_tf32(acc[0][j], a[0], b[j][0], b[j][1]);
        nnz::multiply_tf32(acc[1][j], a[1], b[j][0], b[j][1]);
    }
    if constexpr (Step + 1 < kWordSteps) multiply_word<Step + 1>(acc, next, bits, at, bases, offset);
}

// A chunk, whose first word of bits of the calling lane lies at `words`.
__device__ __forceinline__ void multiply_words(Sums& acc, nnz::SharedAt words, nnz::SharedAt& at,
                                               const nnz::SharedAt (&bases)[kBases], int offset) {
#pragma unroll 1
    for (int word = 0; word < kMapWords; ++word) {
        const unsigned bits = nnz::load_at<unsigned>(words + 128 * word);
        Registers a;
        expand<0>(bits, at, a);
        multiply_word(acc, a, bits, at, bases, offset + word * (kWordSteps * kStepK * kRowBytes));
    }
}
