// The scheduler of runtime.h. Built without sanitizer instrumentation: it tells TSan about fibers and meeting points, so
// that a race is reported between CUDA threads unless a barrier of the kernel itself orders them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fiber.inc"
#include "grid.h"
#include "sanitizers.h"
#include "turns.h"
#include "warp_values.h"
#include "worker.h"

#if defined(__linux__) && !defined(NNZ_CPU_ASAN) && !defined(NNZ_CPU_TSAN)
#include <link.h>
#define NNZ_CPU_FILL_STATIC_SHARED
#endif

namespace nnz_cpu {
namespace {

Thread& current() { return static_cast<Thread&>(self()); }

Worker& worker_of(const Thread& one) { return *static_cast<Worker*>(one.block); }

#ifdef NNZ_CPU_FILL_STATIC_SHARED
// Static shared arrays are the program's only thread-local variables, so its TLS block is this OS thread's copy of them.
int fill_tls(dl_phdr_info* program, size_t, void*) {
    for (int i = 0; i < program->dlpi_phnum; ++i) {
        if (program->dlpi_phdr[i].p_type == PT_TLS && program->dlpi_tls_data != nullptr)
            std::memset(program->dlpi_tls_data, 0xff, program->dlpi_phdr[i].p_memsz);
    }
    return 1;  // the first module is the program itself
}
#endif

}  // namespace

Worker::Worker(const Launch& launch, Order order, uint64_t seed)
    : launch_(launch),
      order_(order),
      random_{seed},
      threads_(size_t{launch.block.x} * launch.block.y * launch.block.z),
      arguments_(launch.arguments) {
    grid = launch.grid;
    size = launch.block;
    warps_.resize((threads_ + kWarp - 1) / kWarp);
    turn_ = in_order(threads_, order_, random_);
    mapped_ = (threads_ + 1) * kStackBytes;
    void* mapping = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) fail("no memory for %zu thread stacks", threads_);
    mapping_ = static_cast<char*>(mapping);
    stacks_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(mapping_) + kStackBytes - 1) & ~(kStackBytes - 1));
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < threads_; ++i) {
        char* low = stacks_ + i * kStackBytes;
        mprotect(low, page, PROT_NONE);  // a stack too small is a crash, not a silent overwrite
        Thread& one = *new (&fiber(i)) Thread;
        one.block = this;
        one.index = static_cast<int>(i);
        const auto n = static_cast<unsigned>(i);
        one.thread = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        make_context(one.context, low + page, reinterpret_cast<char*>(&one), thread_main);
#ifdef NNZ_CPU_TSAN
        one.sanitizer = __tsan_create_fiber(0);
#endif
    }
#ifdef NNZ_CPU_TSAN
    scheduler_sanitizer_ = __tsan_get_current_fiber();
#endif
}

Worker::~Worker() {
    tsan_acquire(&block_token_[0]);
    tsan_acquire(&block_token_[1]);
    for (size_t i = 0; i < threads_; ++i) {
#ifdef NNZ_CPU_TSAN
        __tsan_destroy_fiber(fiber(i).sanitizer);
#endif
        fiber(i).~Thread();
    }
    munmap(mapping_, mapped_);
}

void Worker::resume(Thread& target) {
#ifdef NNZ_CPU_ASAN
    __sanitizer_start_switch_fiber(&scheduler_sanitizer_, stacks_ + target.index * kStackBytes, kStackBytes);
#endif
#ifdef NNZ_CPU_TSAN
    __tsan_switch_to_fiber(target.sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
    swap_context(scheduler_, target.context);
#ifdef NNZ_CPU_ASAN
    __sanitizer_finish_switch_fiber(scheduler_sanitizer_, nullptr, nullptr);
#endif
}

void Worker::leave(Thread& me) {
#ifdef NNZ_CPU_ASAN
    __sanitizer_start_switch_fiber(&me.sanitizer, scheduler_stack_, scheduler_stack_bytes_);
#endif
#ifdef NNZ_CPU_TSAN
    __tsan_switch_to_fiber(scheduler_sanitizer_, __tsan_switch_to_fiber_no_sync);
#endif
    swap_context(me.context, scheduler_);
#ifdef NNZ_CPU_ASAN
    __sanitizer_finish_switch_fiber(me.sanitizer, nullptr, nullptr);
#endif
}

// Where every fiber starts; it goes round once per block and never returns.
void Worker::thread_main() {
    Thread& me = current();
    Worker& worker = worker_of(me);
#ifdef NNZ_CPU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &worker.scheduler_stack_, &worker.scheduler_stack_bytes_);
#endif
    for (;;) {
        tsan_acquire(&worker.block_token_[1 - worker.block_parity_]);
        worker.launch_.entry->call(worker.arguments_.data());
        worker.exit_thread(me);
        worker.leave(me);
    }
}

void Worker::begin_block() {
    // The previous block on this OS thread is over: its use of the shared memory comes before this one's.
    block_parity_ ^= 1;
    tsan_acquire(&block_token_[1 - block_parity_]);
    std::free(dynamic_shared);
    dynamic_shared = nullptr;
    if (launch_.shared_bytes > 0) {
        if (posix_memalign(&dynamic_shared, 128, launch_.shared_bytes) != 0)
            fail("no memory for dynamic shared memory");
        std::memset(dynamic_shared, 0xff, launch_.shared_bytes);  // NaN in every floating type
    }
#ifdef NNZ_CPU_FILL_STATIC_SHARED
    dl_iterate_phdr(fill_tls, nullptr);
#endif
    live_ = threads_;
    arrived_ = 0;
    for (size_t w = 0; w < warps_.size(); ++w) {
        const size_t lanes = std::min<size_t>(kWarp, threads_ - w * kWarp);
        warps_[w].live = lanes == kWarp ? ~0u : (1u << lanes) - 1;
        warps_[w].waiting = 0;
    }
    for (size_t i = 0; i < threads_; ++i) {
        Thread& one = fiber(i);
        one.state = State::ready;
        one.copies.clear();
        one.open_group = 0;
        one.calls_by_mask.clear();
    }
    tsan_release(&block_token_[1 - block_parity_]);
}

void Worker::run_block(Dim block_index) {
    index = block_index;
    begin_block();
    while (live_ > 0) {
        if (order_ == Order::random) random_.shuffle(turn_);
        bool progress = false;
        for (const unsigned i : turn_) {
            if (fiber(i).state != State::ready) continue;
            progress = true;
            resume(fiber(i));
        }
        if (!progress) report_deadlock();
    }
    tsan_acquire(&block_token_[block_parity_]);
    std::free(dynamic_shared);
    dynamic_shared = nullptr;
}

void Worker::exit_thread(Thread& me) {
    me.state = State::exited;
    tsan_release(&block_token_[block_parity_]);
    tsan_release(&barrier_token_[phase_]);
    --live_;
    if (arrived_ > 0 && arrived_ == live_) open_barrier();
    Warp& warp = warps_[me.index / kWarp];
    warp.live &= ~(1u << me.index % kWarp);
    const int first = me.index / kWarp * kWarp;
    for (int i = 0; i < kWarp; ++i) {
        if (warp.waiting >> i & 1) complete(warp, first, fiber(first + i).call.mask);
    }
}

void Worker::open_barrier() {
    result_ = {predicates_, static_cast<int>(live_)};
    arrived_ = 0;
    predicates_ = 0;
    phase_ ^= 1;
    for (size_t i = 0; i < threads_; ++i) {
        if (fiber(i).state == State::at_barrier) fiber(i).state = State::ready;
    }
}

BarrierResult Worker::wait_at_barrier(Thread& me, Site site, bool predicate) {
    if (arrived_ == 0) {
        barrier_site_ = site;
        barrier_thread_ = me.index;
    } else if (site.line != barrier_site_.line || std::strcmp(site.file, barrier_site_.file) != 0) {
        fail("%s:%d: __syncthreads in divergent code: %s is here while %s waits at %s:%d", site.file, site.line,
             describe(me).c_str(), describe(fiber(barrier_thread_)).c_str(), barrier_site_.file, barrier_site_.line);
    }
    me.state = State::at_barrier;
    me.site = site;
    predicates_ += predicate ? 1 : 0;
    ++arrived_;
    char* token = &barrier_token_[phase_];
    tsan_release(token);
    if (arrived_ == live_) open_barrier();
    leave(me);
    tsan_acquire(token);
    return result_;
}

uint64_t Worker::wait_in_warp(Thread& me, const WarpCall& call) {
    const int lane = me.index % kWarp;
    Warp& warp = warps_[me.index / kWarp];
    const auto [name, op, mask, value, source, site] = call;
    if (!(mask >> lane & 1))
        fail("%s:%d: %s called by lane %d, which its mask 0x%08x leaves out (%s)", site.file, site.line, name, lane,
             mask, describe(me).c_str());
    if (op == Op::shuffle && !(mask >> source & 1))
        fail("%s:%d: %s in lane %d reads lane %d, which takes no part: mask 0x%08x (%s)", site.file, site.line, name,
             lane, source, mask, describe(me).c_str());
    me.call = call;
    me.site = site;
    me.state = State::at_warp_op;
    warp.waiting |= 1u << lane;
#ifdef NNZ_CPU_TSAN
    // All lanes of a mask have made as many calls with it, so the count names the meeting.
    auto counted = std::find_if(me.calls_by_mask.begin(), me.calls_by_mask.end(),
                                [&](const auto& pair) { return pair.first == call.mask; });
    if (counted == me.calls_by_mask.end()) counted = me.calls_by_mask.insert(counted, {call.mask, 0});
    char* token = &warp.tokens[{call.mask, counted->second++ & 1}];
#else
    char* token = nullptr;
#endif
    tsan_release(token);
    complete(warp, me.index - lane, mask);
    leave(me);
    tsan_acquire(token);
    return me.result;
}

// Gives every lane of `mask` its result if all of them that are still running have arrived.
void Worker::complete(Warp& warp, int first_thread, unsigned mask) {
    const unsigned lanes = mask & warp.live;
    if (lanes == 0 || (lanes & ~warp.waiting) != 0) return;
    auto at = [&](int lane) -> Thread& { return fiber(first_thread + lane); };
    const WarpCall& first = at(__builtin_ctz(lanes)).call;
    uint64_t all = 0;
    bool started = false;
    for (int i = 0; i < kWarp; ++i) {
        if (!(lanes >> i & 1)) continue;
        const WarpCall& call = at(i).call;
        if (call.mask != mask) return;  // it waits for another set of lanes
        if (call.op != first.op)
            fail("%s:%d: %s in lane %d meets %s at %s:%d in lane %d of the same mask 0x%08x", call.site.file,
                 call.site.line, call.name, i, first.name, first.site.file, first.site.line, __builtin_ctz(lanes),
                 mask);
        if (call.op == Op::shuffle && !(lanes >> call.source_lane & 1))
            fail("%s:%d: %s in lane %d reads lane %d, which has left the kernel", call.site.file, call.site.line,
                 call.name, i, call.source_lane);
        all = with_lane(call.op, all, started, call.value, i);
        started = true;
    }
    for (int i = 0; i < kWarp; ++i) {
        if (!(lanes >> i & 1)) continue;
        Thread& one = at(i);
        one.result = all;
        if (first.op == Op::shuffle) one.result = at(one.call.source_lane).call.value;
        if (first.op == Op::match) {
            one.result = 0;
            for (int j = 0; j < kWarp; ++j) {
                if ((lanes >> j & 1) && at(j).call.value == one.call.value) one.result |= uint64_t{1} << j;
            }
        }
        one.state = State::ready;
    }
    warp.waiting &= ~lanes;
}

std::string Worker::describe(const Thread& one) const {
    char text[160];
    std::snprintf(text, sizeof text, "thread (%u,%u,%u) of block (%u,%u,%u)", one.thread.x, one.thread.y, one.thread.z,
                  index.x, index.y, index.z);
    return text;
}

// Names the first group's line, then lists who waits where, consecutive threads together.
void Worker::report_deadlock() {
    auto place = [&](Thread& one) -> std::string {
        if (one.state == State::exited) return "have left the kernel";
        const std::string site = std::string(one.site.file) + ":" + std::to_string(one.site.line);
        if (one.state == State::at_barrier) return "wait in __syncthreads at " + site;
        char mask[32];
        std::snprintf(mask, sizeof mask, " (mask 0x%08x)", one.call.mask);
        return std::string("wait in ") + one.call.name + mask + " at " + site;
    };
    std::string who, first_site;
    for (size_t i = 0; i < threads_;) {
        size_t end = i + 1;
        const std::string where = place(fiber(i));
        while (end < threads_ && place(fiber(end)) == where) ++end;
        if (first_site.empty() && fiber(i).state != State::exited)
            first_site = std::string(fiber(i).site.file) + ":" + std::to_string(fiber(i).site.line);
        who +=
            (who.empty() ? "threads " : "; threads ") + std::to_string(i) + "-" + std::to_string(end - 1) + " " + where;
        i = end;
    }
    fail("%s: deadlock in block (%u,%u,%u): %s", first_site.c_str(), index.x, index.y, index.z, who.c_str());
}

void fail(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::fputs("nnz-error: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
    std::fflush(stderr);
    _exit(3);
}

BarrierResult barrier(Site site, bool predicate) {
    Thread& me = current();
    return worker_of(me).wait_at_barrier(me, site, predicate);
}

uint64_t warp_op(const WarpCall& call) {
    Thread& me = current();
    return worker_of(me).wait_in_warp(me, call);
}

unsigned live_lanes() { return worker_of(current()).live_lanes(current()); }

void yield() {
    Thread& me = current();
    worker_of(me).leave(me);
}

Copy& new_copy() {
    Thread& me = current();
    return me.copies.emplace_back(Copy{nullptr, {}, 0, me.open_group});
}

void cp_async_commit() { ++current().open_group; }

const Copy* next_landing(unsigned newest_in_flight) {
    Thread& me = current();
    if (me.copies.empty() || me.copies.front().group + newest_in_flight >= me.open_group) return nullptr;
    me.landing = me.copies.front();
    me.copies.pop_front();
    return &me.landing;
}

long long nanoseconds() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// The race detector does not know fences: each is told to come after all earlier ones, whichever atomics order them.
void full_fence() {
    static char token;
    tsan_release(&token);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    tsan_acquire(&token);
}

void run_grid(const Launch& launch, Order order, uint64_t seed, unsigned workers) {
    const size_t blocks = size_t{launch.grid.x} * launch.grid.y * launch.grid.z;
    Random random{seed};
    const std::vector<unsigned> turn = in_order(blocks, order, random);
    workers = static_cast<unsigned>(std::min<size_t>(workers, blocks));
    auto work = [&](unsigned first) {
        Worker worker(launch, order, seed + first);
        for (size_t i = first; i < blocks; i += workers) {
            const unsigned b = turn[i];
            worker.run_block({b % launch.grid.x, b / launch.grid.x % launch.grid.y, b / launch.grid.x / launch.grid.y});
        }
    };
    std::vector<std::thread> others;
    for (unsigned w = 1; w < workers; ++w) others.emplace_back(work, w);
    if (blocks > 0) work(0);
    for (std::thread& other : others) other.join();
}

}  // namespace nnz_cpu
