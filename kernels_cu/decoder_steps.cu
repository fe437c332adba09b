// What a decoder block of a language model does beside its products, one new token for each of N sequences.
//
//   add_norm      x = base + scale * y, where base is `input` in the first step and x later, and y is left out in the
//                 first; then out = x / sqrt(mean(x^2) + 1e-5) * gain. A block of 1024 per token
//   rope_cache    queries and keys turned by the position's angle, queries times 1/sqrt(128); keys and values go to the
//                 cache's last place. A block of 64 per head (queries', keys', values') and token; thread t has the
//                 features t and t + 64
//   attention     one part of the cached tokens for one key head and its GROUP query heads: sums of exp(score - greatest)
//                 times the values, the greatest score and the sum of the exponentials. Grid (splits, key heads, N); a
//                 block of 4 warps, which take 4 tokens each in turn; a lane has 4 features
//   combine       the parts of a head together. A block of 128 per head and token, a thread per feature
//   swiglu        out = silu(scale * gate) * scale * up. A thread per element, blocks of 128
//
// Heads have 128 features. Products' operands and results are 16-bit floats, element (i, n) at i * row + n * column, so that
// a product may have them in either order; with `bytes` an operand is e4m3 of 64 times the value instead. Sums are fp32.
//
// Buffers
//   input, x  N x hidden floats          gain      hidden floats            cosines, sines  64 floats of the position
//   queries   N x heads x 128 halves     cache     N x (keys, values) x key heads x tokens x 128 halves
//   parts     N x key heads x splits x GROUP x 130 floats
//
// Defines
//   GROUP  query heads per key head
#include "tensor_core.cuh"

#ifndef GROUP  // Llama 3 8B
#define GROUP 4
#endif

constexpr int kGroup = GROUP;
constexpr int kFeatures = 128;
constexpr int kPart = kFeatures + 2;
constexpr int kWarps = 4;
constexpr int kNormThreads = 1024;
constexpr int kTokens = 4;  // that a warp loads at a time
constexpr unsigned kAll = 0xffffffffu;
constexpr float kLowest = -1e30f;

static_assert(kGroup >= 1 && kGroup <= 8, "a block keeps the sums of up to 8 heads in shared memory");

using nnz::Half;

// The nearest e4m3 number to x, the largest where x is beyond it.
__device__ __forceinline__ unsigned char e4m3(float x) {
    const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
    const float size = fminf(fabsf(x), 448.0f);
    if (x != x) return 0x7f;
    if (size < 0.015625f) return static_cast<unsigned char>(sign | static_cast<unsigned>(rintf(size * 512.0f)));
    unsigned bits = __float_as_uint(size);
    bits += 0x7ffffu + (bits >> 20 & 1u);
    return static_cast<unsigned char>(sign | ((bits >> 20) - (120u << 3)));
}

__device__ __forceinline__ void store(void* to, long long at, float value, int bytes) {
    if (bytes != 0) {
        static_cast<unsigned char*>(to)[at] = e4m3(64.0f * value);
    } else {
        static_cast<Half*>(to)[at] = nnz::narrow_half(value);
    }
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(kAll, x, distance);
    return x;
}

extern "C" __global__ void __launch_bounds__(kNormThreads)
    add_norm(int hidden, int first, int bytes, float scale, int y_row, int y_column, int out_row, int out_column,
             const float* __restrict__ input, const Half* __restrict__ y, const float* __restrict__ gain, float* x,
             void* out) {
    __shared__ float sums[kNormThreads / 32];
    const int token = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    float* const row = x + static_cast<long long>(token) * hidden;
    float squares = 0.0f;
    for (int i = thread; i < hidden; i += kNormThreads) {
        float value;
        if (first != 0) {
            value = input[static_cast<long long>(token) * hidden + i];
        } else {
            const long long at = static_cast<long long>(i) * y_row + static_cast<long long>(token) * y_column;
            value = row[i] + scale * nnz::widen_half(y[at]);
        }
        row[i] = value;
        squares += value * value;
    }
    squares = warp_sum(squares);
    if (thread % 32 == 0) sums[thread / 32] = squares;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kNormThreads / 32; ++w) total += sums[w];
    const float by = 1.0f / sqrtf(total / static_cast<float>(hidden) + 1e-5f);
    for (int i = thread; i < hidden; i += kNormThreads) {
        const long long at = static_cast<long long>(i) * out_row + static_cast<long long>(token) * out_column;
        store(out, at, row[i] * by * gain[i], bytes);
    }
}

extern "C" __global__ void __launch_bounds__(64)
    rope_cache(int heads, int key_heads, int tokens, float scale, int row, int column, const Half* __restrict__ qkv,
               const float* __restrict__ cosines, const float* __restrict__ sines, Half* queries, Half* cache) {
    const int head = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y);
    const int t = static_cast<int>(threadIdx.x);
    const long long at = static_cast<long long>(head * kFeatures + t) * row + static_cast<long long>(token) * column;
    const float low = scale * nnz::widen_half(qkv[at]);
    const float high = scale * nnz::widen_half(qkv[at + 64LL * row]);
    const float cosine = cosines[t], sine = sines[t];
    const bool value = head >= heads + key_heads;
    const float first = value ? low : low * cosine - high * sine;
    const float second = value ? high : high * cosine + low * sine;
    if (head < heads) {
        Half* const to = queries + (static_cast<long long>(token) * heads + head) * kFeatures;
        to[t] = nnz::narrow_half(first * 0.08838834764831845f);
        to[t + 64] = nnz::narrow_half(second * 0.08838834764831845f);
        return;
    }
    // keys come before values in qkv and in the cache
    const long long place = static_cast<long long>(token) * 2 * key_heads + (head - heads);
    Half* const to = cache + (place * tokens + tokens - 1) * kFeatures;
    to[t] = nnz::narrow_half(first);
    to[t + 64] = nnz::narrow_half(second);
}

struct Four {
    float x[4];
};

__device__ __forceinline__ Four load4(const Half* from) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    Four out;
    out.x[0] = nnz::widen_half(static_cast<Half>(bits.x & 0xffffu));
    out.x[1] = nnz::widen_half(static_cast<Half>(bits.x >> 16));
    out.x[2] = nnz::widen_half(static_cast<Half>(bits.y & 0xffffu));
    out.x[3] = nnz::widen_half(static_cast<Half>(bits.y >> 16));
    return out;
}

extern "C" __global__ void __launch_bounds__(kWarps * 32)
    attention(int tokens, int per_split, const Half* __restrict__ queries, const Half* __restrict__ cache,
              float* parts) {
    __shared__ float sums[kWarps][kGroup][kFeatures];
    __shared__ float greatest[kWarps][kGroup], weights[kWarps][kGroup];
    const int split = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int token = static_cast<int>(blockIdx.z), key_heads = static_cast<int>(gridDim.y);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int begin = split * per_split, end = begin + per_split < tokens ? begin + per_split : tokens;
    const long long place = static_cast<long long>(token) * 2 * key_heads + head;
    const Half* const keys = cache + place * tokens * kFeatures + 4 * lane;
    const Half* const values = keys + static_cast<long long>(key_heads) * tokens * kFeatures;
    Four query[kGroup], sum[kGroup];
    float most[kGroup], total[kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
        const long long of = (static_cast<long long>(token) * key_heads + head) * kGroup + g;
        query[g] = load4(queries + of * kFeatures + 4 * lane);
        sum[g] = Four{{0.0f, 0.0f, 0.0f, 0.0f}};
        most[g] = kLowest;
        total[g] = 0.0f;
    }
    for (int at = begin + warp * kTokens; at < end; at += kWarps * kTokens) {
        Four key[kTokens], value[kTokens];
#pragma unroll
        for (int u = 0; u < kTokens; ++u) {
            const long long of = static_cast<long long>(at + u < end ? at + u : end - 1) * kFeatures;
            key[u] = load4(keys + of);
            value[u] = load4(values + of);
        }
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
            float score[kTokens], now = most[g];
#pragma unroll
            for (int u = 0; u < kTokens; ++u) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < 4; ++i) dot += query[g].x[i] * key[u].x[i];
                score[u] = at + u < end ? warp_sum(dot) : kLowest;
                now = fmaxf(now, score[u]);
            }
            const float fade = expf(most[g] - now);
            total[g] *= fade;
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[g].x[i] *= fade;
            most[g] = now;
#pragma unroll
            for (int u = 0; u < kTokens; ++u) {
                const float weight = at + u < end ? expf(score[u] - now) : 0.0f;
                total[g] += weight;
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[g].x[i] += weight * value[u].x[i];
            }
        }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[warp][g][4 * lane + i] = sum[g].x[i];
        if (lane == 0) {
            greatest[warp][g] = most[g];
            weights[warp][g] = total[g];
        }
    }
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    for (int g = 0; g < kGroup; ++g) {
        float all = kLowest, value = 0.0f, weight = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) all = fmaxf(all, greatest[w][g]);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const float by = expf(greatest[w][g] - all);
            value += by * sums[w][g][t];
            weight += by * weights[w][g];
        }
        const long long of = (static_cast<long long>(token) * key_heads + head) * gridDim.x + split;
        float* const to = parts + (of * kGroup + g) * kPart;
        to[t] = value;
        if (t == 0) {
            to[kFeatures] = all;
            to[kFeatures + 1] = weight;
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
    combine(int splits, int bytes, int row, int column, const float* __restrict__ parts, void* out) {
    const int head = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y);
    const int heads = static_cast<int>(gridDim.x), t = static_cast<int>(threadIdx.x);
    const long long first = (static_cast<long long>(token) * heads + head) / kGroup * splits;
    const int g = head % kGroup;
    float all = kLowest, value = 0.0f, weight = 0.0f;
    for (int s = 0; s < splits; ++s) all = fmaxf(all, parts[((first + s) * kGroup + g) * kPart + kFeatures]);
    for (int s = 0; s < splits; ++s) {
        const float* const from = parts + ((first + s) * kGroup + g) * kPart;
        const float by = expf(from[kFeatures] - all);
        value += by * from[t];
        weight += by * from[kFeatures + 1];
    }
    const long long at = static_cast<long long>(head * kFeatures + t) * row + static_cast<long long>(token) * column;
    store(out, at, value / weight, bytes);
}

extern "C" __global__ void __launch_bounds__(128)
    swiglu(int inside, int n, int bytes, float scale, int row, int column, int out_row, int out_column,
           const Half* __restrict__ both, void* out) {
    const long long at = static_cast<long long>(blockIdx.x) * 128 + threadIdx.x;
    if (at >= static_cast<long long>(inside) * n) return;
    const long long i = column == 1 ? at / n : at % inside, token = column == 1 ? at % n : at / inside;
    const long long from = i * row + token * column;
    const float gate = scale * nnz::widen_half(both[from]);
    const float up = scale * nnz::widen_half(both[from + static_cast<long long>(inside) * row]);
    store(out, i * out_row + token * out_column, gate / (1.0f + expf(-gate)) * up, bytes);
}
