// What the host side asks of the runtime: one launch of one kernel.
#pragma once

#include <vector>

#include "runtime.h"

namespace nnz_cpu {

enum class Order { forward, backward, random };

struct Launch {
    const Entry* entry;
    Dim grid;
    Dim block;
    size_t shared_bytes;
    std::vector<void*> arguments;
};

// Runs every block of the launch; returns when all are done.
void run_grid(const Launch& launch, Order order, uint64_t seed, unsigned workers);

}  // namespace nnz_cpu
