// Hopper's bulk copies: one instruction moves a row from global to shared memory and reports to a barrier there, so that a
// single producer warp can run chunks ahead of consumers that never wait for each other. sm_90 and later only.
#pragma once

#if !defined(NNZ_CPU) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

namespace nnz {

using Barrier = unsigned long long;  // an mbarrier object, in shared memory

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrives and announces the bytes that copies will deliver before the phase may complete.
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, int bytes) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Waits until the phase of the given parity has completed.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, unsigned parity) {
    unsigned done = 0;
    while (done == 0) {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    }
}

// Copies `bytes` (a multiple of 16, both sides aligned to 16) and reports them to `barrier`.
__device__ __forceinline__ void bulk_copy(void* dst, const void* src, int bytes, Barrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(dst)),
                 "l"(src), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

}  // namespace nnz

#endif
