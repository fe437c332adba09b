// What the two kernels of ASpT share: where the parts of a row are, and a tile's rows of the dense operand in shared memory.
// aspt_spmm.cu says what panels, tiles and parts are. Include after `nnz.cuh`.
//
// Defines
//   TILE  columns of a tile, a power of two of at least 32: a column is in slot (column mod TILE) of its tile
#pragma once

constexpr int kTile = TILE;
constexpr int kPanel = 128;  // rows
constexpr unsigned kAll = 0xffffffffu;

static_assert((kTile & (kTile - 1)) == 0 && kTile >= 32, "TILE must be a power of two, at least 32");

struct Parts {
    const int* __restrict__ begins;
    const int* __restrict__ panels;
    const int* __restrict__ indices;
    const float* __restrict__ values;
};

struct Range {
    int begin, end;
};

__device__ __forceinline__ Range range_at(const Parts& parts, int at) {
    return {nnz::ldg(parts.begins + at), nnz::ldg(parts.begins + at + 1)};
}

// Where the row's first part is listed, and how many it has.
__device__ __forceinline__ Range parts_of(const Parts& parts, int row) {
    const int before = nnz::ldg(parts.panels + row / kPanel);
    const int count = nnz::ldg(parts.panels + row / kPanel + 1) - before;
    const int first = before * kPanel + row % kPanel * count;
    return {first, first + count};
}

__device__ __forceinline__ Range part_of(const Parts& parts, int row, int part) {
    return range_at(parts, parts_of(parts, row).begin + part);
}

__device__ __forceinline__ Range remainder_of(const Parts& parts, int row) {
    return range_at(parts, parts_of(parts, row).end - 1);
}

// Copies 32 * Columns numbers from `from` (in row 0, the lane's first) of each listed row of the dense operand, `pitch`
// numbers apart, one row a warp. Rows of empty slots (-1) are left undefined: no nonzero refers to them.
template <int Columns>
__device__ __forceinline__ void load_tile(float (&held)[kTile][32 * Columns], const int* __restrict__ slots,
                                          const float* __restrict__ from, int pitch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int slot = static_cast<int>(threadIdx.x) / 32; slot < kTile; slot += 32) {
        const int row = nnz::ldg(slots + slot);
        if (row < 0) continue;
#pragma unroll
        for (int j = 0; j < Columns; ++j) held[slot][lane + 32 * j] = nnz::ldg(from + row * pitch + 32 * j);
    }
}

// Goes through the nonzeros of the range, a batch of 32 at a time: `body.start` gets the column and value of the lane's own
// nonzero, `body.group<N>` the lane of the first of every Group nonzeros, then of 4, 2 and 1 as they are left, and
// `body.done` the lane's nonzero and whether there is one.
template <int Group, typename Body>
__device__ __forceinline__ void for_batches(const Parts& parts, const Range& range, Body& body) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int first = range.begin; first < range.end; first += 32) {
        const bool inside = first + lane < range.end;
        body.start(inside ? nnz::ldg(parts.indices + first + lane) : 0,
                   inside ? nnz::ldg(parts.values + first + lane) : 0.0f);
        const int count = range.end - first < 32 ? range.end - first : 32;
        int at = 0;
        for (; at + Group <= count; at += Group) body.template group<Group>(at);
        if (Group > 4 && at + 4 <= count) {
            body.template group<4>(at);
            at += 4;
        }
        if (Group > 2 && at + 2 <= count) {
            body.template group<2>(at);
            at += 2;
        }
        if (at < count) body.template group<1>(at);
        body.done(first + lane, inside);
    }
}

// Where the lane's part of a row of the dense operand is: in device memory, `pitch` numbers from row to row, or in the
// tile. `refer` turns a column into what lanes hand round, `row` that into the address.
struct GlobalRows {
    const float* __restrict__ from;
    int pitch;

    __device__ __forceinline__ int refer(int column) const { return column * pitch; }
    __device__ __forceinline__ const float* row(int offset) const { return from + offset; }
};

template <int Columns>
struct TileRows {
    const float* from;

    __device__ __forceinline__ int refer(int column) const { return (column & (kTile - 1)) * 32 * Columns; }
    __device__ __forceinline__ const float* row(int offset) const { return from + offset; }
};
