// Switching between stacks: a few pushes and pops on x86-64 and aarch64 (some 10 ns), ucontext elsewhere (some 200 ns).
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(NNZ_CPU_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define NNZ_CPU_UCONTEXT
#endif

#ifdef NNZ_CPU_UCONTEXT
#include <ucontext.h>
#endif

namespace nnz_cpu {

#ifdef NNZ_CPU_UCONTEXT

using Context = ucontext_t;

inline void make_context(Context& context, char* low, char* top, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = low;
    context.uc_stack.ss_size = static_cast<size_t>(top - low);
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

inline void swap_context(Context& from, Context& to) { swapcontext(&from, &to); }

#else

// Saves the registers a callee must keep and the stack pointer, then takes up another stack where it left off.
extern "C" void nnz_cpu_switch(void** save_to, void* resume);

struct Context {
    void* stack_pointer = nullptr;
};

// A fresh stack on which `entry` starts at the first swap to it; it must never return.
inline void make_context(Context& context, char*, char* top, void (*entry)()) {
    auto** words = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
#ifdef __x86_64__
    words[-1] = nullptr;  // the return address of `entry`: unwinding ends here
    words[-2] = reinterpret_cast<void*>(entry);
    constexpr int kSaved = 6;
    for (int i = 0; i < kSaved; ++i) words[-3 - i] = nullptr;
    context.stack_pointer = words - 2 - kSaved;
#else
    constexpr int kSaved = 20;  // x19..x30, d8..d15
    for (int i = 1; i <= kSaved; ++i) words[-i] = nullptr;
    context.stack_pointer = words - kSaved;
    words[-kSaved + 11] = reinterpret_cast<void*>(entry);  // x30, where `ret` jumps
#endif
}

inline void swap_context(Context& from, Context& to) { nnz_cpu_switch(&from.stack_pointer, to.stack_pointer); }

#endif

}  // namespace nnz_cpu
