// What runs a CUDA grid on the processor: every CUDA thread is a fiber, a block's fibers share one OS thread and switch
// only where threads meet (barriers, warp operations), and blocks are dealt out over a few OS threads.
//
// The kernel sees this file through cuda_on_cpu.h. Mistakes that hardware leaves undefined end the program with one
// sentence naming the .cu file and line: barriers met at different lines, warp operations that can't complete, deadlock.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>
#include <utility>

namespace nnz_cpu {

struct Dim {
    unsigned x, y, z;
};

// Where in the .cu file a thread waits.
struct Site {
    const char* file;
    int line;
};
// Last parameters of what a kernel calls; left to their defaults they are the caller's place.
#define NNZ_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum class Op {
    sync,
    shuffle,
    ballot,
    match,
    add,
    min_int,
    max_int,
    min_unsigned,
    max_unsigned,
    bit_and,
    bit_or,
    bit_xor
};

// One thread's side of a warp operation; `value` holds its 4 or 8 bytes.
struct WarpCall {
    const char* name;
    Op op;
    unsigned mask;
    uint64_t value;
    int source_lane;
    Site site;
};

struct BarrierResult {
    int count;
    int live;
};

// One asynchronous copy between its issue and its wait.
struct Copy {
    void* to;
    unsigned char data[16];
    int bytes;
    unsigned group;
};

// The state common to a block's threads that kernels read.
struct Block {
    Dim index{};
    Dim grid{};
    Dim size{};
    void* dynamic_shared = nullptr;
};

// A CUDA thread as its kernel sees it; runtime.cpp keeps the rest. It lies at the top of its own stack, in a slot aligned
// to its size, so that `self` finds it from the stack pointer alone: no thread-local lookup, and nothing a compiler may
// cache across a switch.
struct Fiber {
    Block* block = nullptr;
    Dim thread{};
    int index = 0;  // linear thread index within the block
};

#if defined(NNZ_CPU_ASAN) || defined(NNZ_CPU_TSAN)
constexpr size_t kStackBytes = 256 * 1024;  // sanitizers make frames several times larger
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif
constexpr size_t kFiberBytes = 1280;

// The fiber of the stack slot that starts at `slot`. Slots are so aligned that equal offsets in them share one set of
// every cache, so neighbours keep their fiber, and their stack below it, at different offsets.
__attribute__((always_inline)) inline Fiber& fiber_in(uintptr_t slot) {
    return *reinterpret_cast<Fiber*>(slot + kStackBytes - kFiberBytes - slot / kStackBytes % 64 * 192);
}

__attribute__((always_inline)) inline Fiber& self() {
    return fiber_in(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~uintptr_t{kStackBytes - 1});
}

inline int lane() { return self().index % 32; }

inline void* dynamic_shared() { return self().block->dynamic_shared; }

// Ends the program; the host turns the sentence into an exception.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

BarrierResult barrier(Site site, bool predicate);
uint64_t warp_op(const WarpCall& call);
unsigned live_lanes();
void yield();
long long nanoseconds();
void full_fence();

// A place in the calling thread's list of copies, in the group it has not committed yet.
Copy& new_copy();
void cp_async_commit();
// The next copy that must have landed when only so many groups may be in flight, null when there are no more.
const Copy* next_landing(unsigned newest_in_flight);

// The copied bytes are read at once but land at the wait. Both accesses are made here, where sanitizers see them.
template <int Bytes>
void cp_async(void* dst, const void* src, bool keep) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    if (reinterpret_cast<uintptr_t>(dst) % Bytes || (keep && reinterpret_cast<uintptr_t>(src) % Bytes))
        fail("asynchronous copy of %d bytes with a misaligned address (thread %d of its block)", Bytes, self().index);
    Copy& copy = new_copy();
    copy.to = dst;
    copy.bytes = Bytes;
    if (keep) __builtin_memcpy(copy.data, src, Bytes);
}

inline void cp_async_wait(unsigned newest_in_flight) {
    while (const Copy* copy = next_landing(newest_in_flight)) memcpy(copy->to, copy->data, copy->bytes);
}

// A kernel as the host launches it: `kinds` holds p (pointer), i (32-bit integer), f (float) or ? per parameter.
struct Entry {
    const char* name;
    const char* kinds;
    void (*call)(void** arguments);
};

template <typename T>
constexpr char kind_of() {
    if (std::is_pointer_v<T>) return 'p';
    if (std::is_integral_v<T> && sizeof(T) == 4) return 'i';
    if (std::is_same_v<T, float>) return 'f';
    return '?';
}

template <auto Kernel>
struct Call;

template <typename... P, void (*Kernel)(P...)>
struct Call<Kernel> {
    static constexpr char kinds[] = {kind_of<P>()..., '\0'};
    static void run(void** arguments) { unpack(arguments, std::index_sequence_for<P...>{}); }
    template <size_t... I>
    static void unpack([[maybe_unused]] void** arguments, std::index_sequence<I...>) {
        Kernel(*static_cast<P*>(arguments[I])...);
    }
};

template <auto Kernel>
constexpr Entry entry(const char* name) {
    return {name, Call<Kernel>::kinds, Call<Kernel>::run};
}

// Defined by the program built for one plan; ends with an entry without a name.
extern const Entry entries[];

}  // namespace nnz_cpu
