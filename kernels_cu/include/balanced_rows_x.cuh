// X of `balanced_rows.cu` on its way from memory to its place in shared memory.
#pragma once

#include "balanced_rows_shape.cuh"
#include "nnz.cuh"

// X of one pass to shared memory, rearranged. Lanes take neighbouring ranges, so that they write to different banks; blocks
// begin at different places, so that they do not all ask L2 for the same line at once.
struct Loader {
    unsigned char* slots;
    const Value* x;
    int k, n, ranges;
#if X_FIRST
    Pack<Value, kAlong> held[kXSteps];
#endif

    __device__ __forceinline__ int group() const { return threadIdx.x % kGroup; }

    // The first of the kAlong elements that step `step` of this thread handles; kWidth or more: none.
    __device__ __forceinline__ int first(int step) const {
        constexpr int kTurns = (kWidth + kAlong - 1) / kAlong;
        const int at = static_cast<int>(threadIdx.x) / kGroup + step * (kThreads / kGroup);
        const int turned = at + static_cast<int>(blockIdx.x) * 8 % kTurns;
        return at >= kTurns ? kWidth : (turned >= kTurns ? turned - kTurns : turned) * kAlong;
    }

    __device__ __forceinline__ bool inside(int range, int i) const {  // with kAlong > 1 all of its elements or none
        return range < ranges && i < kWidth && range * kWidth + i < k;
    }

    __device__ __forceinline__ const Value* source(int range, int i) const {
        return x + static_cast<long long>(range * kWidth + i) * n;
    }

    // Starts the loading: copies, or loads to registers where those are few.
    __device__ __forceinline__ void request(int pass) {
        if constexpr (kCopied) {
            // 8 ranges, their planes, then neighbouring elements: whole lines of X, and different banks
            constexpr int kLow = kGroup < 8 ? kGroup : 8;
            constexpr int kNear = kLow * kPlanes < 32 ? 32 / (kLow * kPlanes) : 1;
            constexpr int kHigh = kGroup / kLow;
            constexpr int kTurns = (kWidth + kNear - 1) / kNear;
            const int turn = static_cast<int>(blockIdx.x) * 8 % kTurns;
#pragma unroll 4
            for (int e = threadIdx.x; e < kTurns * kNear * kGroup * kPlanes; e += kThreads) {
                const int plane = e / kLow % kPlanes;
                const int near = e / (kLow * kPlanes) % kNear;
                const int rest = e / (kLow * kPlanes * kNear);
                const int slot = e % kLow + rest % kHigh * kLow;
                const int turned = rest / kHigh + turn;
                const int i = (turned >= kTurns ? turned - kTurns : turned) * kNear + near;
                if (kWidth % kNear != 0 && i >= kWidth) continue;
                const int range = pass * kGroup + slot;
                const bool keep = inside(range, i);
                nnz::cp_async16(slots + plane * kPlaneBytes + i * kStride + slot * kSlotBytes,
                                keep ? source(range, i) + plane * kSlotColumns : x, keep);
            }
            nnz::cp_async_commit();
        }
#if X_FIRST
        if constexpr (kAlong > 1) {
#pragma unroll
            for (int step = 0; step < kXSteps; ++step) {
                const int i = first(step);
                held[step] = Pack<Value, kAlong>{};
                if (inside(pass * kGroup + group(), i)) held[step] = load<kAlong>(source(pass * kGroup + group(), i));
            }
        }
#endif
    }

    // Ends it. `Later`: groups of copies that were requested since. A barrier must follow.
    template <int Later>
    __device__ __forceinline__ void land(int pass) {
        if constexpr (kCopied) {
            nnz::cp_async_wait<Later>();
            return;
        }
        const int range = pass * kGroup + group();
#pragma unroll kXUnrolled
        for (int step = 0; step < kXSteps; ++step) {
            const int i = first(step);
            if (i >= kWidth) continue;
            unsigned char* slot = slots + i * kStride + group() * kSlotBytes;
            if constexpr (kAlong > 1) {
                Pack<Value, kAlong> in{};
#if X_FIRST
                in = held[step];
#else
                if (inside(range, i)) in = load<kAlong>(source(range, i));
#endif
#pragma unroll
                for (int a = 0; a < kAlong; ++a) *reinterpret_cast<float*>(slot + a * kStride) = widen(in.at[a]);
            } else {
                put(slot, range, i);
            }
        }
    }

    // One element of every column.
    __device__ __forceinline__ void put(unsigned char* slot, int range, int i) const {
        const bool in_x = inside(range, i);
        const Value* from = source(range, i);
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane) {
            Pack<Value, kSlotColumns> in{};
            if (kExact && in_x) {
                in = load<kSlotColumns>(from + plane * kSlotColumns);
            } else {
#pragma unroll
                for (int c = 0; c < kSlotColumns; ++c) {
                    const int column = plane * kSlotColumns + c;
                    in.at[c] = in_x && column < n ? nnz::ldg(from + column) : narrow(0.0f);
                }
            }
            if constexpr (sizeof(Element) == sizeof(Value)) {
                store<kSlotColumns>(reinterpret_cast<Value*>(slot + plane * kPlaneBytes), in);
            } else {
                *reinterpret_cast<float*>(slot) = widen(in.at[0]);
            }
        }
    }
};
