// The weights of `balanced_rows.cu` on their way from memory: a queue of chunks per warp, in registers or in shared memory.
#pragma once

#include "balanced_rows_shape.cuh"
#include "bulk_copy.cuh"
#include "nnz.cuh"

// The chunks of a warp in the order it uses them: passes, items, chunks.
struct Cursor {
    int pass;
    int item;
    int chunk;

    __device__ __forceinline__ void advance(int first, int last) {
        if (++chunk < kChunks) return;
        chunk = 0;
        item += kWarps;
        if (item < last) return;
        item = first;
        pass += kParts;
    }

    __device__ __forceinline__ int packs() const {
        return kItemPacks % kChunk == 0 ? kChunk : min(kChunk, kItemPacks - chunk * kChunk);
    }
};

// The weights of one warp: a chunk to use now, others on their way.
struct Feed {
    const Value* values;
    const Position* positions;
    int strands;  // of a pass, as stored
    int first, last;
    Cursor ahead;
#if STAGING == 0
    Values now_values[kChunk], next_values[kChunk];
    PositionWord now_positions[kChunk], next_positions[kChunk];
#else
    unsigned char* ring;
    int stage;
#if STAGING == 2
    nnz::Barrier* full;
    unsigned parity;
#endif
#endif

    __device__ __forceinline__ int lane() const { return threadIdx.x % 32; }

    // The first pack of the chunk to be requested.
    __device__ __forceinline__ long long pack() const {
        return (static_cast<long long>(ahead.pass) * strands + static_cast<long long>(ahead.item) * kRuns) * kPacks +
               ahead.chunk * kChunk;
    }

    __device__ __forceinline__ void request() {
        if (ahead.pass < kPasses) {
            const long long at = pack() * 128;
            const int packs = ahead.packs();
#if STAGING == 2
            if (lane() == 0) {
                unsigned char* to = ring + stage * kStageBytes;
                nnz::barrier_arrive_expect(full + stage, packs * (kStageBytes / kChunk));
                nnz::bulk_copy(to, values + at, packs * (kValueBytes / kChunk), full + stage);
                nnz::bulk_copy(to + kValueBytes, positions + at, packs * (kPositionBytes / kChunk), full + stage);
            }
#else
            const Value* from = values + at + lane() * 4;
            const Position* where = positions + at + lane() * 4;
#pragma unroll
            for (int u = 0; u < kChunk; ++u) {
                if (u >= packs) break;
#if STAGING == 1
                unsigned char* to = ring + stage * kStageBytes;
                void* value = to + (u * 32 + lane()) * sizeof(Values);
                void* position = to + kValueBytes + (u * 32 + lane()) * sizeof(PositionWord);
                nnz::cp_async_bytes<sizeof(Values)>(value, from + u * 128, true);
                nnz::cp_async_bytes<sizeof(PositionWord)>(position, where + u * 128, true);
#else
                next_values[u].word = nnz::ld_stream(reinterpret_cast<const Word<Value, 4>*>(from + u * 128));
                next_positions[u] = nnz::ld_stream(reinterpret_cast<const PositionWord*>(where + u * 128));
#endif
            }
#endif
            ahead.advance(first, last);
        }
#if STAGING == 1
        nnz::cp_async_commit();
#endif
    }

    // Requests the first chunks. `scratch` is the warp's ring.
    __device__ __forceinline__ void start(unsigned char* scratch, int pass) {
        ahead = {first < last ? pass : kPasses, first, 0};
#if STAGING == 0
        request();
#else
        ring = scratch;
        for (stage = 0; stage < kStages; ++stage) request();
        stage = 0;
#if STAGING == 2
        parity = 0;
#endif
#endif
    }

    // Waits until the next chunk is there.
    __device__ __forceinline__ void wait() {
#if STAGING == 2
        nnz::barrier_wait(full + stage, parity);
#elif STAGING == 1
        nnz::cp_async_wait<kStages - 1>();
#else
#pragma unroll
        for (int u = 0; u < kChunk; ++u) {
            now_values[u] = next_values[u];
            now_positions[u] = next_positions[u];
        }
        request();
#endif
    }

    __device__ __forceinline__ Values value(int u) const {
#if STAGING == 0
        return now_values[u];
#else
        Values pack;
        const unsigned char* from = ring + stage * kStageBytes + (u * 32 + lane()) * sizeof(Values);
        pack.word = *reinterpret_cast<const Word<Value, 4>*>(from);
        return pack;
#endif
    }

    __device__ __forceinline__ PositionWord position(int u) const {
#if STAGING == 0
        return now_positions[u];
#else
        const unsigned char* from = ring + stage * kStageBytes + kValueBytes + (u * 32 + lane()) * sizeof(PositionWord);
        return *reinterpret_cast<const PositionWord*>(from);
#endif
    }

    // Gives the chunk back, to be filled with one that lies STAGES ahead.
    __device__ __forceinline__ void release() {
#if STAGING != 0
        if constexpr (kStaging == 2) __syncwarp();  // all lanes have read it; copies by a lane wait only for that lane
        request();
        if (++stage == kStages) {
            stage = 0;
#if STAGING == 2
            parity ^= 1;
#endif
        }
#endif
    }
};
