// What the scheduler keeps: CUDA threads as fibers, their warps, and the worker that runs a block of them at a time.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fiber.h"
#include "grid.h"
#include "turns.h"

namespace nnz_cpu {

constexpr int kWarp = 32;

enum class State { ready, at_barrier, at_warp_op, exited };

struct Thread : Fiber {
    Context context;
    State state = State::ready;
    Site site{};  // where it waits
    WarpCall call{};
    uint64_t result = 0;
    std::deque<Copy> copies;  // oldest first
    Copy landing{};
    unsigned open_group = 0;  // number of groups committed so far
    std::vector<std::pair<unsigned, unsigned>> calls_by_mask;  // TSan build: calls made with each mask in this block
    void* sanitizer = nullptr;  // TSan's fiber or ASan's fake stack
};
static_assert(sizeof(Thread) <= kFiberBytes);

struct Warp {
    unsigned live = 0;  // lanes that exist and have not exited
    unsigned waiting = 0;  // lanes inside a warp operation
    std::map<std::pair<unsigned, unsigned>, char> tokens;  // TSan build: by mask and parity of the call
};

// One OS thread's blocks, one at a time.
class Worker : public Block {
public:
    Worker(const Launch& launch, Order order, uint64_t seed);
    ~Worker();
    void run_block(Dim index);
    BarrierResult wait_at_barrier(Thread& me, Site site, bool predicate);
    uint64_t wait_in_warp(Thread& me, const WarpCall& call);
    unsigned live_lanes(const Thread& me) const { return warps_[me.index / kWarp].live; }
    void leave(Thread& me);  // back to the scheduler
    static void thread_main();

private:
    Thread& fiber(size_t i) {
        return static_cast<Thread&>(fiber_in(reinterpret_cast<uintptr_t>(stacks_) + i * kStackBytes));
    }
    void resume(Thread& target);
    void exit_thread(Thread& me);
    void open_barrier();
    void complete(Warp& warp, int first_thread, unsigned mask);
    void begin_block();
    [[noreturn]] void report_deadlock();
    std::string describe(const Thread& one) const;

    const Launch& launch_;
    Order order_;
    Random random_;
    size_t threads_;
    char* mapping_ = nullptr;
    char* stacks_ = nullptr;
    size_t mapped_ = 0;
    std::vector<void*> arguments_;
    std::vector<Warp> warps_;
    std::vector<unsigned> turn_;
    size_t live_ = 0;
    size_t arrived_ = 0;
    int predicates_ = 0;
    Site barrier_site_{};
    int barrier_thread_ = 0;
    BarrierResult result_{};
    Context scheduler_;
    void* scheduler_sanitizer_ = nullptr;
    const void* scheduler_stack_ = nullptr;
    size_t scheduler_stack_bytes_ = 0;
    // TSan tokens come in pairs used in turn: with one, a thread running ahead would hide its own race.
    unsigned phase_ = 0;
    unsigned block_parity_ = 0;
    char barrier_token_[2] = {};
    char block_token_[2] = {};
};

}  // namespace nnz_cpu
