// The few device helpers every kernel shares. Valid under NVRTC (no standard headers there), nvcc and the CPU build.
//
//   DYN_SHARED(T, name);            the block's dynamic shared memory as `T* const name`, aligned to 16 bytes; several
//                                   declarations in one kernel alias the same bytes, so carve further arrays by hand
//   nnz::ldg(p)                     load through the read-only cache: data that no thread writes during the launch
//   nnz::ld_stream(p)               load that is used once and should leave the caches first
//   nnz::fma_rn(a, b, c)            a * b + c rounded once, never contracted differently
//   nnz::cp_async_bytes<N>(dst, src, keep)   asynchronous copy of N = 4, 8 or 16 bytes, global to shared, both sides aligned to
//                                   N; writes zeros, and reads nothing, where `keep` is false
//   nnz::cp_async16(dst, src, keep = true)   the same of 16
//   nnz::cp_async_commit()          closes the calling thread's group of copies
//   nnz::cp_async_wait<N>()         waits until at most N of the thread's newest groups are in flight; a barrier must follow
//                                   before other threads read what was copied
//   nnz::wait_for_previous()        where the launch may begin before the one that precedes it has ended (`Launch.overlaps`):
//                                   waits until it has. Before, only what no launch of the graph writes may be read
//   nnz::let_next_begin()           lets the next launch begin, where it may, once all blocks have called it or ended
//
// Copies are cp.async from sm_80 on, and plain loads and stores before it. The CPU build (NNZ_CPU is defined there) lands a
// copy only at its wait, the latest moment hardware may take, so that a forgotten wait gives a wrong result.
#pragma once

#ifdef NNZ_CPU

#define DYN_SHARED(T, name) T* const name = static_cast<T*>(nnz_cpu::dynamic_shared())

#else

#define DYN_SHARED(T, name)                                             \
    extern __shared__ __align__(16) unsigned char nnz_dynamic_shared[]; \
    T* const name = reinterpret_cast<T*>(nnz_dynamic_shared)

#endif

namespace nnz {

template <typename T>
__device__ __forceinline__ T ldg(const T* p) {
    return __ldg(p);
}

template <typename T>
__device__ __forceinline__ T ld_stream(const T* p) {
    return __ldcs(p);
}

__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#ifdef NNZ_CPU

template <int Bytes>
__device__ __forceinline__ void cp_async_bytes(void* dst, const void* src, bool keep) {
    nnz_cpu::cp_async<Bytes>(dst, src, keep);
}

__device__ __forceinline__ void cp_async_commit() { nnz_cpu::cp_async_commit(); }

template <int N>
__device__ __forceinline__ void cp_async_wait() {
    nnz_cpu::cp_async_wait(N);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

template <int Bytes>
__device__ __forceinline__ void cp_async_bytes(void* dst, const void* src, bool keep) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(dst));
    const int from_bytes = keep ? Bytes : 0;
    if constexpr (Bytes == 16) {  // only 16-byte copies may skip L1
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(src), "r"(from_bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(src), "n"(Bytes), "r"(from_bytes)
                     : "memory");
    }
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#else

template <int Bytes>
__device__ __forceinline__ void cp_async_bytes(void* dst, const void* src, bool keep) {
    if constexpr (Bytes == 4) {
        *static_cast<int*>(dst) = keep ? *static_cast<const int*>(src) : 0;
    } else if constexpr (Bytes == 8) {
        *static_cast<int2*>(dst) = keep ? *static_cast<const int2*>(src) : make_int2(0, 0);
    } else {
        *static_cast<int4*>(dst) = keep ? *static_cast<const int4*>(src) : make_int4(0, 0, 0, 0);
    }
}

__device__ __forceinline__ void cp_async_commit() {}

template <int N>
__device__ __forceinline__ void cp_async_wait() {}

#endif

__device__ __forceinline__ void cp_async16(void* dst, const void* src, bool keep = true) {
    cp_async_bytes<16>(dst, src, keep);
}

}  // namespace nnz
