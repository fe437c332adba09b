// Hopper's bulk copies: one instruction moves many bytes from global to shared memory and reports to a barrier there. Each
// costs some 58 clocks of a multiprocessor whatever its size, so it pays for kilobytes, not for rows of a few hundred bytes.
// sm_90 and later only.
#pragma once

#include "async_barrier.cuh"

namespace nnz {

#ifdef NNZ_CPU

inline void barrier_init_fence() {}

inline void barrier_arrive_expect(Barrier* barrier, int bytes) {
    barrier->expected = bytes;
    barrier_arrive(barrier);
}

// Up to two copies per phase, by the thread that expects their bytes and arrives last.
inline void bulk_copy(const void* dst, const void* src, int bytes, Barrier* barrier) {
    if (bytes % 16 || reinterpret_cast<uintptr_t>(dst) % 16 || reinterpret_cast<uintptr_t>(src) % 16)
        nnz_cpu::fail("bulk copy of %d bytes with a misaligned size or address", bytes);
    int left = barrier->expected - bytes;
    Barrier::Copy* place = nullptr;
    for (Barrier::Copy& copy : barrier->copies) {
        if (__atomic_load_n(&copy.to, __ATOMIC_RELAXED) == nullptr)
            place = &copy;
        else
            left -= copy.bytes;
    }
    if (__atomic_load_n(&barrier->missing, __ATOMIC_RELAXED) != 0 || left < 0 || place == nullptr)
        nnz_cpu::fail("bulk copy of %d bytes where its barrier expects others", bytes);
    place->from = static_cast<const char*>(src);
    place->bytes = bytes;
    __atomic_store_n(&place->to, static_cast<char*>(const_cast<void*>(dst)), __ATOMIC_RELEASE);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives and announces the bytes that copies will deliver before the phase may complete.
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, int bytes) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Copies `bytes` (a multiple of 16, both sides aligned to 16) to an address in shared memory and reports them to `barrier`.
__device__ __forceinline__ void bulk_copy(unsigned dst, const void* src, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void bulk_copy(void* dst, const void* src, int bytes, Barrier* barrier) {
    bulk_copy(shared_address(dst), src, bytes, barrier);
}

#endif

}  // namespace nnz
