// The order in which blocks and threads take their turns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "grid.h"

namespace nnz_cpu {

// splitmix64: any seed, zero included, gives a good sequence
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = (state += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    void shuffle(std::vector<unsigned>& items) {
        for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[next() % i]);
    }
};

inline std::vector<unsigned> in_order(size_t count, Order order, Random& random) {
    std::vector<unsigned> items(count);
    std::iota(items.begin(), items.end(), 0u);
    if (order == Order::backward) std::reverse(items.begin(), items.end());
    if (order == Order::random) random.shuffle(items);
    return items;
}

}  // namespace nnz_cpu
