// What warp operations that combine the values of all lanes make of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime.h"

namespace nnz_cpu {

// `so_far` of the lanes before, if there are `any`, with one more lane's value; `so_far` starts at 0.
inline uint64_t with_lane(Op op, uint64_t so_far, bool any, uint64_t value, int lane) {
    const auto low = static_cast<uint32_t>(value), all = static_cast<uint32_t>(so_far);
    const auto low_int = static_cast<int>(low), all_int = static_cast<int>(all);
    switch (op) {
        case Op::sync:
        case Op::match:
        case Op::shuffle:
            break;
        case Op::ballot:
            return so_far | uint64_t{value != 0} << lane;
        case Op::add:
            return static_cast<uint32_t>(all + low);
        case Op::min_int:
            return any ? static_cast<uint32_t>(std::min(all_int, low_int)) : low;
        case Op::max_int:
            return any ? static_cast<uint32_t>(std::max(all_int, low_int)) : low;
        case Op::min_unsigned:
            return any ? std::min(all, low) : low;
        case Op::max_unsigned:
            return std::max(all, low);
        case Op::bit_and:
            return any ? all & low : low;
        case Op::bit_or:
            return all | low;
        case Op::bit_xor:
            return all ^ low;
    }
    return so_far;
}

}  // namespace nnz_cpu
