// What a decoder block of a language model does beside its products, one new token for each of N sequences.
//
//   add_norm      x = base + scale * y, where base is `input` in the first step and x later, and y is left out in the
//                 first; then out = x / sqrt(mean(x^2) + 1e-5) * gain. Grid (blocks, N); the blocks of a token are a cluster
//                 from sm_90 on, one before
//   attention     one part of the cached tokens for one key head and its GROUP query heads. Queries and the new key are
//                 turned by the position's angle, queries times 1/sqrt(128); the last part has the new token, whose key and
//                 value go to the cache's last place. Tensor cores multiply 16 cached tokens at a time, weights rounded to
//                 fp16. The block that ends last adds the parts of all. Grid (splits, key heads, N)
//   swiglu        out = silu(scale * gate) * scale * up. A thread per element, blocks of 128
//
// Heads have 128 features. Products' operands and results are 16-bit floats, element (i, n) at i * row + n * column, so that
// a product may have them in either order; with `bytes` an operand is e4m3 of 64 times the value instead. Sums are fp32.
//
// Each may begin before the launch that precedes it has ended, and lets the next one begin. What that one writes is read by
// `__ldcg`: loads of what is said to be constant could be made earlier than the wait.
//
// Buffers
//   input, x  N x hidden floats          gain      hidden floats            cosines, sines  64 floats of the position
//   cache     N x (keys, values) x key heads x tokens x 128 halves          arrived         N x key heads zeros
//   parts     N x key heads x splits x GROUP x 132 floats: sums, the greatest score, the sum of exp(score - greatest)
//
// Defines
//   GROUP  query heads per key head, at most 8     WARPS  of a block of attention, at least GROUP
#include "reduce.cuh"
#include "tensor_core.cuh"

#ifndef GROUP  // compiled as it is: for Llama 3 8B
#define GROUP 4
#define WARPS 8
#endif

constexpr int kGroup = GROUP;
constexpr int kFeatures = 128;
constexpr int kPart = kFeatures + 4;
constexpr int kWarps = WARPS;
constexpr int kThreads = 32 * kWarps;
constexpr int kNormThreads = 1024;
constexpr int kNormBlocks = 8;  // at most, of a token
constexpr int kNormed = 8;  // values that a thread keeps of a token
constexpr int kTile = 16;  // cached tokens that a warp multiplies at a time
constexpr int kSplits = 64;  // most parts of the cached tokens
constexpr int kAhead = 16;  // parts of which a thread waits for its numbers at a time
constexpr unsigned kAll = 0xffffffffu;
constexpr float kLowest = -1e30f;

static_assert(kGroup >= 1 && kGroup <= 8, "a tile of the tensor cores has 8 columns");
static_assert(kGroup <= kWarps, "each warp adds what parts tell of a query head");
static_assert(kGroup * kFeatures / 4 <= kThreads, "each thread adds four numbers of all parts");

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

// The sum of what all blocks of the cluster have, which all threads of each get; `shared` holds one number of each block.
// `cluster_begin` comes first: no block may store in the memory of another that has not begun.
__device__ __forceinline__ void cluster_begin(int blocks) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (blocks > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}

__device__ __forceinline__ float cluster_sum(float x, float* shared, int blocks, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (blocks > 1) {
        asm volatile("barrier.cluster.wait;" ::: "memory");
        if (static_cast<int>(threadIdx.x) < blocks) {
            const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(shared + rank));
            unsigned there;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(threadIdx.x));
            asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
        }
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        x = 0.0f;
        for (int i = 0; i < blocks; ++i) x += shared[i];
    }
#endif
    return x;
}

extern "C" __global__ void __launch_bounds__(kNormThreads)
    add_norm(int hidden, int first, int bytes, float scale, int y_row, int y_column, int out_row, int out_column,
             const float* __restrict__ input, const Half* __restrict__ y, const float* __restrict__ gain, float* x,
             void* out) {
    __shared__ float sums[kNormThreads / 32], of_blocks[kNormBlocks];
    const int token = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
    const int blocks = static_cast<int>(gridDim.x), rank = static_cast<int>(blockIdx.x);
    const int begin = hidden / blocks * rank, end = rank == blocks - 1 ? hidden : begin + hidden / blocks;
    float* const row = x + static_cast<long long>(token) * hidden;
    const float* const base = first != 0 ? input + static_cast<long long>(token) * hidden : row;
    float value[kNormed], by[kNormed], added[kNormed], squares = 0.0f;
    const auto feature = [&](int j) { return begin + thread + j * static_cast<int>(blockDim.x); };
    nnz::let_next_begin();
    cluster_begin(blocks);
#pragma unroll
    for (int j = 0; j < kNormed; ++j) by[j] = feature(j) < end ? gain[feature(j)] : 0.0f;
    nnz::wait_for_previous();
#pragma unroll
    for (int j = 0; j < kNormed; ++j) {  // all loads are on their way before one is waited for
        const int i = feature(j);
        value[j] = i < end ? base[i] : 0.0f;
        added[j] = first == 0 && i < end ? nnz::widen_half(__ldcg(y + i * y_row + token * y_column)) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kNormed; ++j) {
        value[j] += scale * added[j];
        squares += value[j] * value[j];
    }
    squares = nnz::reduce<nnz::Sum>(squares);
    if (thread % 32 == 0) sums[thread / 32] = squares;
    __syncthreads();
    const float own = nnz::reduce<nnz::Sum>(thread % 32 < static_cast<int>(blockDim.x) / 32 ? sums[thread % 32] : 0.0f);
    const float total = cluster_sum(own, of_blocks, blocks, rank);
    const float shrink = 1.0f / sqrtf(total / static_cast<float>(hidden) + 1e-5f);
#pragma unroll
    for (int j = 0; j < kNormed; ++j) {
        const int i = feature(j);
        if (i >= end) break;
        row[i] = value[j];
        store(out, i * out_row + token * out_column, value[j] * shrink * by[j], bytes);
    }
}

#if defined(NNZ_CPU) || __CUDA_ARCH__ >= 800  // tensor cores that multiply 16x16 halves: older ones have no decoder
using Words = nnz::Words<4>;

__device__ __forceinline__ Words words_at(const Half* from) { return *reinterpret_cast<const Words*>(from); }

// Of two pairs of halves.
__device__ __forceinline__ float product_of(unsigned one, unsigned other) {
    const auto half = [](unsigned two) { return nnz::widen_half(static_cast<Half>(two & 0xffffu)); };
    return half(one) * half(other) + half(one >> 16) * half(other >> 16);
}

// Of a tile's tokens g and g + 8 the features that lane (g, t) multiplies, as columns of the transposed keys: 8 t to 8 t + 7
// of every 32, so that a lane loads whole words; queries are taken in the same order.
__device__ __forceinline__ void load_keys(Words (&key)[2][4], const Half* keys, int at, int end, int g, int t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const Half* const from = keys + static_cast<long long>(min(at + 8 * h + g, end - 1)) * kFeatures + 8 * t;
#pragma unroll
        for (int p = 0; p < 4; ++p) key[h][p] = words_at(from + 32 * p);
    }
}

// Of tokens 2t, 2t + 1, 2t + 8 and 2t + 9 features 8 g to 8 g + 7 of both halves.
__device__ __forceinline__ void load_values(Words (&value)[4][2], const Half* values, int at, int end, int g, int t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int token = min(at + 2 * t + i % 2 + 8 * (i / 2), end - 1);
        const Half* const from = values + static_cast<long long>(token) * kFeatures + 8 * g;
#pragma unroll
        for (int c = 0; c < 2; ++c) value[i][c] = words_at(from + 64 * c);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attention(int tokens, int per_split, int bytes, float scale, int row, int column, int out_row, int out_column,
              const Half* __restrict__ qkv, const float* __restrict__ cosines, const float* __restrict__ sines,
              Half* cache, float* parts, int* arrived, void* out) {
    __shared__ __align__(16) Half turned[kGroup + 2][kFeatures + 8];  // queries, the new key, the new value
    __shared__ __align__(16) float sums[kWarps][kGroup][kFeatures + 4];
    __shared__ float greatest[kWarps][kGroup], weights[kWarps][kGroup];
    __shared__ float shares[kSplits * kGroup];
    __shared__ int last_of_all;
    const int split = static_cast<int>(blockIdx.x), splits = static_cast<int>(gridDim.x);
    const int head = static_cast<int>(blockIdx.y), key_heads = static_cast<int>(gridDim.y);
    const int token = static_cast<int>(blockIdx.z);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4,
              t = lane % 4;
    const int begin = split * per_split, end = min(begin + per_split, tokens - 1);
    const bool newest = split == splits - 1;
    const long long place = static_cast<long long>(token) * 2 * key_heads + head;
    Half* const keys = cache + place * tokens * kFeatures;
    Half* const values = keys + static_cast<long long>(key_heads) * tokens * kFeatures;

    Words key[2][4], value[4][2];
    const int first = begin + warp * kTile;
    if (first < end) {  // on their way while the queries are turned
        load_keys(key, keys, first, end, g, t);
        load_values(value, values, first, end, g, t);
    }
    nnz::let_next_begin();
    nnz::wait_for_previous();

    const auto given = [&](int of, int feature) {
        const long long at = static_cast<long long>(of * kFeatures + feature) * row;
        return scale * nnz::widen_half(__ldcg(qkv + at + static_cast<long long>(token) * column));
    };
    for (int i = thread; i < (newest ? kGroup + 1 : kGroup) * 64; i += kThreads) {
        const int of = i / 64, f = i % 64;
        const int from = of < kGroup ? head * kGroup + of : key_heads * kGroup + head;
        const float low = given(from, f), high = given(from, f + 64), size = of < kGroup ? 0.08838834764831845f : 1.0f;
        turned[of][f] = nnz::narrow_half((low * cosines[f] - high * sines[f]) * size);
        turned[of][f + 64] = nnz::narrow_half((high * cosines[f] + low * sines[f]) * size);
    }
    if (newest && thread < kFeatures)
        turned[kGroup + 1][thread] = nnz::narrow_half(given(key_heads * (kGroup + 1) + head, thread));
    __syncthreads();

    // Loaded anew for each tile: registers for more warps matter more. Lanes behind the last query head have its numbers, too
    const nnz::SharedAt own_query = nnz::kept(nnz::shared_at(&turned[min(g, kGroup - 1)][8 * t]));
    const auto query = [&](int p) { return nnz::load_at<uint4>(own_query + 64 * p); };
    float sum[2][4][4] = {};  // of features 64 c + 8 g + 2 j + i / 2 and of query head 2t + i % 2
    float most = kLowest, total = 0.0f;  // of query head g; the total is of this lane's tokens
    if (newest && thread < kFeatures) {
        keys[static_cast<long long>(tokens - 1) * kFeatures + thread] = turned[kGroup][thread];
        values[static_cast<long long>(tokens - 1) * kFeatures + thread] = turned[kGroup + 1][thread];
    }
    if (newest && warp == 0) {
        float dot = 0.0f;
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const uint4 ours = query(p), news = nnz::load_at<uint4>(nnz::shared_at(&turned[kGroup][32 * p + 8 * t]));
            dot += product_of(ours.x, news.x) + product_of(ours.y, news.y);
            dot += product_of(ours.z, news.z) + product_of(ours.w, news.w);
        }
        dot += __shfl_xor_sync(kAll, dot, 1);
        most = dot + __shfl_xor_sync(kAll, dot, 2);
        total = t == 0 ? 1.0f : 0.0f;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    sum[c][j][i] = nnz::widen_half(turned[kGroup + 1][64 * c + 8 * g + 2 * j + i / 2]);
            }
        }
    }

    for (int at = first; at < end; at += kWarps * kTile) {
        const int next = at + kWarps * kTile;
        float score[2][4] = {};  // of query head g and tokens 2t and 2t + 1 of each half of the tile
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const uint4 four = query(p);
            const unsigned low[4] = {four.x, 0, four.y, 0}, high[4] = {four.z, 0, four.w, 0};
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                nnz::multiply_dense(score[h], low, key[h][p].word[0], key[h][p].word[1]);
                nnz::multiply_dense(score[h], high, key[h][p].word[2], key[h][p].word[3]);
            }
        }
        if (next < end) load_keys(key, keys, next, end, g, t);
        float now = most;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& one = score[i / 2][i % 2];
            if (at + 8 * (i / 2) + 2 * t + i % 2 >= end) one = kLowest;
            now = fmaxf(now, one);
        }
        now = fmaxf(now, __shfl_xor_sync(kAll, now, 1));
        now = fmaxf(now, __shfl_xor_sync(kAll, now, 2));
        const float fade = expf(most - now);
        float weight[4];
        total *= fade;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weight[i] = expf(score[i / 2][i % 2] - now);
            total += weight[i];
        }
        most = now;
        const float fades[2] = {__shfl_sync(kAll, fade, 8 * t), __shfl_sync(kAll, fade, 8 * t + 4)};
        const unsigned by[2] = {nnz::narrow_pair(weight[0], weight[1]), nnz::narrow_pair(weight[2], weight[3])};
#pragma unroll
        for (int c = 0; c < 2; ++c) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[c][j][i] *= fades[i % 2];
                unsigned pairs[4];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const unsigned one = value[2 * i][c].word[j], other = value[2 * i + 1][c].word[j];
                    pairs[2 * i] = __byte_perm(one, other, 0x5410);
                    pairs[2 * i + 1] = __byte_perm(one, other, 0x7632);
                }
                nnz::multiply_dense(sum[c][j], pairs, by[0], by[1]);
            }
        }
        if (next < end) load_values(value, values, next, end, g, t);
    }

    total += __shfl_xor_sync(kAll, total, 1);
    total += __shfl_xor_sync(kAll, total, 2);
    if (t == 0 && g < kGroup) {
        greatest[warp][g] = most;
        weights[warp][g] = total;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (2 * t + i >= kGroup) continue;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float* const to = &sums[warp][2 * t + i][64 * c + 8 * g + 2 * j];
                to[0] = sum[c][j][i];
                to[1] = sum[c][j][2 + i];
            }
        }
    }
    __syncthreads();
    const long long result = static_cast<long long>(token) * out_column;
    const long long group = static_cast<long long>(token) * key_heads + head;
    float* const from = parts + group * splits * kGroup * kPart;
#pragma unroll
    for (int i = thread; i < kGroup * kFeatures; i += kThreads) {
        const int of = i / kFeatures, f = i % kFeatures;
        float all = kLowest, mixed = 0.0f, weight = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) all = fmaxf(all, greatest[w][of]);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const float by = expf(greatest[w][of] - all);
            mixed += by * sums[w][of][f];
            weight += by * weights[w][of];
        }
        if (splits == 1) {
            const int feature = head * kGroup * kFeatures + i;
            store(out, result + static_cast<long long>(feature) * out_row, mixed / weight, bytes);
            continue;
        }
        float* const to = from + (split * kGroup + of) * kPart;
        to[f] = mixed;
        if (f == 0) {
            to[kFeatures] = all;
            to[kFeatures + 1] = weight;
        }
    }
    if (splits == 1) return;

    __syncthreads();
    if (thread == 0) {
        __threadfence();
        last_of_all = atomicAdd(arrived + group, 1) == splits - 1;
        if (last_of_all) atomicExch(arrived + group, 0);  // for the next launch
        __threadfence();
    }
    __syncthreads();
    if (!last_of_all) return;
    const bool mine = thread < kGroup * kFeatures / 4;
    const int own = thread * 4 / kFeatures, feature = thread * 4 % kFeatures;
    float4 held[kAhead];
    const auto request = [&](int begin) {
#pragma unroll
        for (int s = 0; s < kAhead; ++s) {
            const float* const one = from + ((begin + s) * kGroup + own) * kPart + feature;
            held[s] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (mine && begin + s < splits) held[s] = __ldcg(reinterpret_cast<const float4*>(one));
        }
    };
    request(0);
    if (warp < kGroup) {
        float2 told[kSplits / 32];  // the greatest score and the sum of each part
        float all = kLowest, weight = 0.0f;
#pragma unroll
        for (int i = 0; i < kSplits / 32; ++i) {
            const float* const one = from + ((lane + 32 * i) * kGroup + warp) * kPart + kFeatures;
            told[i] = make_float2(kLowest, 0.0f);
            if (lane + 32 * i < splits) told[i] = __ldcg(reinterpret_cast<const float2*>(one));
            all = fmaxf(all, told[i].x);
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) all = fmaxf(all, __shfl_xor_sync(kAll, all, distance));
#pragma unroll
        for (int i = 0; i < kSplits / 32; ++i) {
            const float by = expf(told[i].x - all);
            shares[(lane + 32 * i) * kGroup + warp] = by;  // 0 of parts that there are not
            weight += by * told[i].y;
        }
        weight = nnz::reduce<nnz::Sum>(weight);
        if (lane == 0) greatest[0][warp] = 1.0f / weight;
    }
    __syncthreads();
    if (!mine) return;
    float mixed[4] = {};
    for (int begin = 0; begin < splits; begin += kAhead) {
        if (begin > 0) request(begin);
#pragma unroll
        for (int s = 0; s < kAhead; ++s) {
            const float by = shares[(begin + s) * kGroup + own];
            mixed[0] += by * held[s].x;
            mixed[1] += by * held[s].y;
            mixed[2] += by * held[s].z;
            mixed[3] += by * held[s].w;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const long long place = static_cast<long long>((head * kGroup + own) * kFeatures + feature + i) * out_row;
        store(out, result + place, mixed[i] * greatest[0][own], bytes);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(128)
    swiglu(int inside, int n, int bytes, float scale, int row, int column, int out_row, int out_column,
           const Half* __restrict__ two, void* out) {
    const int at = static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x);
    nnz::let_next_begin();
    nnz::wait_for_previous();
    if (at >= inside * n) return;
    const int i = column == 1 ? at / n : at % inside, token = column == 1 ? at % n : at / inside;
    const int from = i * row + token * column;
    const float gate = scale * nnz::widen_half(__ldcg(two + from));
    const float up = scale * nnz::widen_half(__ldcg(two + from + inside * row));
    store(out, i * out_row + token * out_column, gate / (1.0f + expf(-gate)) * up, bytes);
}
