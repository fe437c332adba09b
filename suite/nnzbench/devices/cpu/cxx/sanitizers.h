// What the scheduler calls of the sanitizer it is built for, if any.
#pragma once

#ifdef NNZ_CPU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef NNZ_CPU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace nnz_cpu {

// What comes before a release of `token` comes before what follows its acquisition, for TSan.
#ifdef NNZ_CPU_TSAN
inline void tsan_acquire(void* token) { __tsan_acquire(token); }
inline void tsan_release(void* token) { __tsan_release(token); }
#else
inline void tsan_acquire(void*) {}
inline void tsan_release(void*) {}
#endif

}  // namespace nnz_cpu
