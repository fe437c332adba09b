// Barriers in shared memory that asynchronous copies report to, so that producer warps can run chunks ahead of consumer
// warps that never wait for each other. sm_80 and later only; the CPU build has the same calls.
#pragma once

#include "nnz.cuh"

namespace nnz {

#ifdef NNZ_CPU

struct Barrier {
    int arrivals;
    int missing;
    unsigned completed;  // phases
    int expected;  // bytes that bulk copies have yet to bring before the phase completes
    struct Copy {
        char* to;  // null when it is not on its way
        const char* from;
        int bytes;
    } copies[2];
};

inline void barrier_init(Barrier* barrier, int arrivals) { *barrier = Barrier{arrivals, arrivals, 0, 0, {}}; }

inline void barrier_complete(Barrier* barrier) {
    __atomic_store_n(&barrier->missing, barrier->arrivals, __ATOMIC_RELEASE);
    __atomic_add_fetch(&barrier->completed, 1, __ATOMIC_ACQ_REL);
}

inline void barrier_arrive(Barrier* barrier) {
    if (__atomic_sub_fetch(&barrier->missing, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (barrier->expected == 0) barrier_complete(barrier);
}

inline void barrier_arrive_after_copies(Barrier* barrier) {
    cp_async_commit();
    cp_async_wait<0>();
    barrier_arrive(barrier);
}

// Bulk copies land when a thread first waits for them, the latest moment hardware may take.
inline void barrier_wait(Barrier* barrier, unsigned parity) {
    while ((__atomic_load_n(&barrier->completed, __ATOMIC_ACQUIRE) & 1) == parity) {
        bool landed = false;
        for (Barrier::Copy& copy : barrier->copies) {
            char* const to = __atomic_exchange_n(&copy.to, nullptr, __ATOMIC_ACQ_REL);
            if (to == nullptr) continue;
            memcpy(to, copy.from, copy.bytes);
            landed = __atomic_sub_fetch(&barrier->expected, copy.bytes, __ATOMIC_ACQ_REL) == 0;
        }
        if (landed)
            barrier_complete(barrier);
        else
            nnz_cpu::yield();
    }
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

using Barrier = unsigned long long;  // an mbarrier object

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// One phase of the barrier completes with its `arrivals`-th arrival.
__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrives once all of the calling thread's copies so far have landed; the thread itself goes on.
__device__ __forceinline__ void barrier_arrive_after_copies(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Waits until the phase of the given parity has completed.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, unsigned parity) {
    unsigned done = 0;
    while (done == 0) {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    }
}

#endif

}  // namespace nnz
