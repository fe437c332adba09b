// Direct sparse convolution as its paper gives it (section 5, algorithm 4), for images and for one-dimensional signals:
//
//   y[n][d][i][j] = sum over the stored (c, r, s) of channel d of w[d][c][r][s] * x[n][c][i * stride + r][j * stride + s]
//
// x is padded NCHW, y is NCHW, both fp32 or fp16 (F16). Weights have the same type and are kept in entries, sorted by output
// channel: 8 bytes (fp32 weight, pre-shifted offset) or 4 bytes (fp16 weight, 16-bit place). Sums are fp32.
//
// An entry (c, r, s) has the offset (c * padded height + r) * pitch + s from the first input element of a receptive field,
// the same for every output position, so that no division is left in the kernel. A place of 16 bits is that offset where
// all of them fit, and under OFFSET_TABLE the column of the weights (c, r, s), whose offset a table holds.
//
// Under CODEBOOK an entry is a word of 32 bits whatever the type: an index into a codebook of 16 weights in the lower four
// bits (the paper's 4-bit weights from k-means, section 4, which it does not run on a GPU), the offset in the others.
//
// Every channel has `row_entries` entries, the most that one needs: the host fills the others up with zeros, and row pointers
// are not read. Under CHANNEL_COUNTS, which the paper compares that with, channels keep their own counts, and a block reads
// its two row pointers.
//
// Under HALF2 (F16 only) two images share the halves of a register, and a multiply-add serves both: sums of kRun products
// in fp16, which are then added in fp32. The paper names neither the arithmetic nor the type of the sums of its half
// precision; whole sums in fp16 are too far from float64 at the lengths of its filters.
//
// Who computes what
//   grid    x, y: tiles of BLOCK_X x BLOCK_Y output positions; z: output channel (fastest) and sub-batch
//   block   one output channel of `images_per_block` images, SUB_BATCH at a time
//   warp    32 consecutive threads of the block, x fastest; the last one of a block may have fewer
//   thread  one output position; SUB_BATCH sums, fed by one weight each
//
// An output of one row has BLOCK_Y = 1 and BLOCK_X threads that share the row out evenly: a row of 63 is one block of 63
// threads. One of one column has it the other way round.
//
// The paper's listing clears and stores the sum inside the loop over entries; here it is cleared before and stored after.
// Its staging covers as many entries as a block has threads; here entries are staged in chunks. A weight is widened and an
// offset looked up once, when they are staged.
//
// `pad_images` makes the padded input, where that is to be timed too.
//
// Defines: SUB_BATCH images per pass, BLOCK_X and BLOCK_Y threads, F16, INDEX16 (the same), OFFSET_TABLE (F16 only),
// CHANNEL_COUNTS, CODEBOOK (without OFFSET_TABLE), HALF2 (F16 only, without CODEBOOK)
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kSubBatch = SUB_BATCH;
constexpr int kBlockX = BLOCK_X;
constexpr int kBlockY = BLOCK_Y;
constexpr bool kOffsetTable = OFFSET_TABLE;
constexpr bool kChannelCounts = CHANNEL_COUNTS;

constexpr int kThreads = kBlockX * kBlockY;
constexpr int kMostThreads = 256;  // bounds of one or two warps would make the compiler spill to fit 32 blocks on an SM
constexpr int kChunk = 512;

static_assert(kSubBatch >= 1 && kSubBatch <= 16, "SUB_BATCH sums must fit the registers");
static_assert(kThreads >= 1 && kThreads <= kMostThreads, "a block has 1 to 256 threads");
static_assert(sizeof(Index) == sizeof(Value), "INDEX16 goes with F16");
static_assert(!kOffsetTable || sizeof(Index) == 2, "OFFSET_TABLE is for places of 16 bits");

struct alignas(2 * sizeof(Value)) Entry {
    Value weight;
    Index place;
};

#if CODEBOOK
using Stored = unsigned;
static_assert(!kOffsetTable, "entries under CODEBOOK hold offsets");
#else
using Stored = Entry;
#endif

#if HALF2
static_assert(F16 && !CODEBOOK && SUB_BATCH % 2 == 0, "HALF2 pairs images of fp16");
using Weight = __half2;  // the same in both halves
__device__ __forceinline__ Weight staged_weight(Value x) { return __half2half2(x); }
#else
using Weight = float;
__device__ __forceinline__ Weight staged_weight(Value x) { return widen(x); }
#endif
constexpr int kRun = 16;

struct alignas(8) Staged {
    Weight weight;
    int offset;
};

// starts    first entry of each channel, then the number of entries; read under CHANNEL_COUNTS
// offsets   of each column of the weights; read under OFFSET_TABLE
// codebook  16 weights; read under CODEBOOK
extern "C" __global__ void __launch_bounds__(kMostThreads)
    direct_conv_paper(const Value* __restrict__ x, const Stored* __restrict__ entries, const int* __restrict__ starts,
                      const int* __restrict__ offsets, const float* __restrict__ codebook, Value* __restrict__ y,
                      int row_entries, int filters, int batch, int images_per_block, int image_size, int pitch,
                      int stride, int out_h, int out_w, int first_z) {
    DYN_SHARED(Staged, staged);  // the lesser of kChunk and the most entries of a channel
    const int z = first_z + static_cast<int>(blockIdx.z);
    const int filter = z % filters;
    const int first = z / filters * images_per_block;
    const int last = min(first + images_per_block, batch);
    const int column = static_cast<int>(blockIdx.x) * kBlockX + static_cast<int>(threadIdx.x);
    const int row = static_cast<int>(blockIdx.y) * kBlockY + static_cast<int>(threadIdx.y);
    const int thread = static_cast<int>(threadIdx.y) * kBlockX + static_cast<int>(threadIdx.x);
    const bool inside = column < out_w && row < out_h;
    // A thread past the edge computes the last position again and stores nothing.
    const int field = min(row, out_h - 1) * stride * pitch + min(column, out_w - 1) * stride;
    const long long start = kChannelCounts ? starts[filter] : static_cast<long long>(filter) * row_entries;
    const int all = kChannelCounts ? starts[filter + 1] - static_cast<int>(start) : row_entries;
    const Stored* const own = entries + start;

    for (int image = first; image < last; image += kSubBatch) {
        const Value* from[kSubBatch];
        float sum[kSubBatch];
#pragma unroll
        for (int t = 0; t < kSubBatch; ++t) {
            from[t] = x + static_cast<long long>(min(image + t, last - 1)) * image_size + field;
            sum[t] = 0.0f;
        }
        for (int chunk = 0; chunk < all; chunk += kChunk) {
            const int count = min(kChunk, all - chunk);
            __syncthreads();
#pragma unroll 2
            for (int i = thread; i < count; i += kThreads) {
                const Stored entry = own[chunk + i];
#if CODEBOOK
                staged[i] = {nnz::ldg(codebook + (entry & 15)), static_cast<int>(entry >> 4)};
#else
                const int place = static_cast<int>(entry.place);
                staged[i] = {staged_weight(entry.weight), kOffsetTable ? offsets[place] : place};
#endif
            }
            __syncthreads();
#if HALF2
            for (int begin = 0; begin < count; begin += kRun) {
                __half2 part[kSubBatch / 2];
#pragma unroll
                for (int t = 0; t < kSubBatch; t += 2) part[t / 2] = staged_weight(narrow(0.0f));
#pragma unroll 4
                for (int i = begin; i < min(begin + kRun, count); ++i) {
                    const Staged entry = staged[i];
#pragma unroll
                    for (int t = 0; t < kSubBatch; t += 2) {
                        const Value low = nnz::ldg(opaque(from[t]) + entry.offset);
                        const Value high = nnz::ldg(opaque(from[t + 1]) + entry.offset);
                        part[t / 2] = __hfma2(entry.weight, __halves2half2(low, high), part[t / 2]);
                    }
                }
#pragma unroll
                for (int t = 0; t < kSubBatch; t += 2) {
                    const float2 both = __half22float2(part[t / 2]);
                    sum[t] += both.x;
                    sum[t + 1] += both.y;
                }
            }
#else
#pragma unroll 4
            for (int i = 0; i < count; ++i) {
                const Staged entry = staged[i];
#pragma unroll
                for (int t = 0; t < kSubBatch; ++t) {
                    sum[t] = nnz::fma_rn(entry.weight, widen(nnz::ldg(opaque(from[t]) + entry.offset)), sum[t]);
                }
            }
#endif
        }
#pragma unroll
        for (int t = 0; t < kSubBatch; ++t) {
            if (inside && image + t < last) {
                const long long plane = static_cast<long long>(image + t) * filters + filter;
                y[(plane * out_h + row) * out_w + column] = narrow(sum[t]);
            }
        }
    }
}

// One block per padded row of `pitch` elements; rows are numbered through all images and channels.
extern "C" __global__ void __launch_bounds__(kThreads)
    pad_images(const Value* __restrict__ x, Value* __restrict__ padded, int height, int width, int pad_h, int pad_w,
               int padded_h, int pitch) {
    const int plane = static_cast<int>(blockIdx.x) / padded_h;
    const int row = static_cast<int>(blockIdx.x) % padded_h - pad_h;
    const Value* const from = x + (static_cast<long long>(plane) * height + row) * width;
    Value* const to = padded + static_cast<long long>(blockIdx.x) * pitch;
    for (int i = static_cast<int>(threadIdx.y) * kBlockX + static_cast<int>(threadIdx.x); i < pitch; i += kThreads) {
        const int column = i - pad_w;
        const bool inside = row >= 0 && row < height && column >= 0 && column < width;
        to[i] = inside ? from[column] : narrow(0.0f);
    }
}
