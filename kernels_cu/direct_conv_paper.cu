// Direct sparse convolution as its paper gives it (Algorithm 4): padded NCHW input, CSR weights whose rows hold equally
// many entries, and one pre-shifted offset per entry. Inputs fp32 or fp16 (F16), weights and sums fp32.
//
// An entry (c, r, s) has the offset (c * padded height + r) * pitch + s from the first input element of a receptive field,
// the same for every output position, so that neither row pointers nor divisions are left in the kernel.
//
// Who computes what
//   grid    x, y: tiles of BLOCK_X x BLOCK_Y output positions; z: output channel (fastest) and sub-batch
//   block   one output channel of `images_per_block` images, SUB_BATCH at a time
//   thread  one output position; SUB_BATCH sums, fed by one weight each
//
// The paper's listing clears and stores the sum inside the loop over entries; here it is cleared before and stored after.
// Its staging covers as many entries as a block has threads; here entries are staged in chunks.
//
// `pad_images` makes the padded input, where that is to be timed too.
//
// Defines: SUB_BATCH images per pass, BLOCK_X and BLOCK_Y threads, F16
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kSubBatch = SUB_BATCH;
constexpr int kBlockX = BLOCK_X;
constexpr int kBlockY = BLOCK_Y;

constexpr int kThreads = kBlockX * kBlockY;
constexpr int kChunk = 512;

static_assert(kSubBatch >= 1 && kSubBatch <= 16, "SUB_BATCH sums must fit the registers");
static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block is whole warps, at most 1024 threads");

struct Entry {
    float value;
    int offset;
};

extern "C" __global__ void __launch_bounds__(kThreads)
    direct_conv_paper(const Value* __restrict__ x, const Entry* __restrict__ entries, Value* __restrict__ y,
                      int row_entries, int filters, int batch, int images_per_block, int image_size, int pitch,
                      int stride, int out_h, int out_w, int first_z) {
    DYN_SHARED(Entry, staged);  // kChunk
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
    const Entry* const own = entries + static_cast<long long>(filter) * row_entries;

    for (int image = first; image < last; image += kSubBatch) {
        const Value* from[kSubBatch];
        float sum[kSubBatch];
#pragma unroll
        for (int t = 0; t < kSubBatch; ++t) {
            from[t] = x + static_cast<long long>(min(image + t, last - 1)) * image_size + field;
            sum[t] = 0.0f;
        }
        for (int start = 0; start < row_entries; start += kChunk) {
            const int count = min(kChunk, row_entries - start);
            __syncthreads();
            for (int i = thread; i < count; i += kThreads) staged[i] = own[start + i];
            __syncthreads();
#pragma unroll 4
            for (int i = 0; i < count; ++i) {
                const Entry entry = staged[i];
#pragma unroll
                for (int t = 0; t < kSubBatch; ++t) {
                    sum[t] = nnz::fma_rn(entry.value, widen(nnz::ldg(from[t] + entry.offset)), sum[t]);
                }
            }
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
