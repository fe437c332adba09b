// y = A x, fp16 (bf16 under BF16), fp32 sums. A: m x k, sparse without structure, packed by the host in 22 or 20 bits a
// nonzero; x: k, y: m, or k x n and m x n of up to four columns. For products whose time is A's bytes.
//
// A's entries travel in chunks of 16 neighbouring ones of a row: 32 bytes of values, and 12 bytes that tell the column of the
// first and how far each other one is from the one before, less one, in 5 bits. Where two are further apart, entries of value
// 0 stand between them. So a lane knows its columns without asking its neighbours, and each load of a warp is of neighbours.
//
// Who computes what
//   grid    x: as many blocks as are resident
//   block   kWarps warps; brings x to shared memory once, the columns of a row side by side, then goes through the rows
//   warp    32 / `lanes` neighbouring rows at a time, gridDim.x * kWarps such groups apart
//   lane    of its row the chunks l, l + `lanes`, ...; the next one, be it of the next row, travels while one is multiplied.
//           The lanes of a row then add up by shuffles, so sums come out the same in every run
//
// The last chunk of a row is filled up with zeros. An Inf or NaN of x would reach rows through zeros that stand between or fill
// up: rows whose sum is not finite are summed again without them.
//
// Buffers (host: `nnzbench.kernels.tensor.spmv`)
//   offsets       (m + 1) chunks up to each row
//   low, high     (chunks, 8) values 0 to 7 and 8 to 15
//   near          (chunks, 2) words: the first's column in 16 bits and steps 1 to 3 in 5 bits each; steps 4 to 9
//   far           (chunks) words: steps 10 to 15
// Launch: block 32 * kWarps; 2 kPitch (k + 16 DEALT) bytes of dynamic shared memory, rounded up to 16.
//
// Defines
//   BLOCKS   that an SM should hold
//   COLUMNS  of x: 1, or 2 to 4, of which the argument n tells how many there are
//   TOKENS   1: of more columns than 1: x is n x k and y n x m; k is even
//   BITS     of a step, 5; or 3, of which `near` has all, the first five behind the column, and `far` is not read
//   DEALT    1; or a power of two, among as many neighbouring chunks as which a row's entries are dealt in turn. So lanes read
//            of x what lies together, in other banks. Steps are longer by as much, and count from there
//   BF16     1: values, x and y are bf16
//   BIAS     1: one more argument, m numbers that are added to y; null: none
//   FP8      1: values are e4m3 in 16 bytes a chunk, `low` alone; x and y are fp16, and sums are multiplied by `scale`
//   SWIGLU   1: the first half of the rows are gates: y has m / 2 rows, silu(factor * gate) * factor * other; `lanes` is at
//            most 16, as neighbours of a warp have such a pair. Not with BIAS or COLUMNS
//   OVERLAPS 1: begins before the launch that writes x has ended, and asks for A's first chunks meanwhile
#include "nnz.cuh"
#include "reduce.cuh"
#include "tensor_core.cuh"

#ifndef COLUMNS
#define COLUMNS 1
#define TOKENS 0
#endif
#ifndef BITS
#define BITS 5
#define DEALT 1
#endif
#ifndef OVERLAPS
#define OVERLAPS 0
#endif
#ifndef SWIGLU
#define SWIGLU 0
#endif

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kChunk = 16;
constexpr int kBeyond = kChunk * DEALT;  // rows of zeros behind x, which what fills up the last chunks reads
constexpr int kPitch = COLUMNS == 3 ? 4 : COLUMNS;  // of rows of x in shared memory, so that a load brings one

// A row of x, and sums of a row of y.
struct alignas(2 * kPitch) Operands {
    nnz::Half of[COLUMNS];
};
#if COLUMNS == 1
using Sums = float;  // and no array of one, of which the compiler makes another program
#else
struct Sums {
    float of[COLUMNS];
};
#endif

// Calls `act` with each column, its sum, and its part of `more`.
template <typename Do, typename... More>
__device__ __forceinline__ void each(const Do& act, Sums& sums, const More&... more) {
#if COLUMNS == 1
    act(0, sums, more...);
#else
#pragma unroll
    for (int t = 0; t < COLUMNS; ++t) act(t, sums.of[t], more.of[t]...);
#endif
}

__device__ __forceinline__ float of(const Sums& sums, int t) {
#if COLUMNS == 1
    return sums;
#else
    return sums.of[t];
#endif
}

struct Row {
    int begin, end;
};

// The packed matrix; see above.
struct Chunks {
    const uint4* __restrict__ low;
#if !FP8
    const uint4* __restrict__ high;
#endif
    const uint2* __restrict__ near;
    const unsigned* __restrict__ far;
};

// Chunk `at` of A, zeros where `there` is false.
struct Chunk {
    uint4 low;
#if !FP8
    uint4 high;
#endif
    uint2 near;
    unsigned far;

    __device__ __forceinline__ void load(const Chunks& all, int at, bool there) {
        *this = {};
        if (!there) return;
        low = nnz::ld_stream(all.low + at);
#if !FP8
        high = nnz::ld_stream(all.high + at);
#endif
        near = nnz::ld_stream(all.near + at);
        if (BITS == 5) far = nnz::ld_stream(all.far + at);
    }

    // Bytes of x in the step to entry I. A word of places has 30 bits of steps, but the first one: it has the last half of its
    // steps, behind the first column.
    template <int I>
    __device__ __forceinline__ int step() const {
        constexpr int kEach = 30 / BITS, kStep = I + kEach / 2 - 1;
        constexpr int kWord = kStep / kEach, kBit = BITS * (kStep % kEach) + (kWord == 0);
        const unsigned word = kWord == 0 ? near.x : kWord == 1 ? near.y : far;
        constexpr int kShift = kPitch == 4 ? 3 : kPitch;
        constexpr int kRight = kBit < kShift ? 0 : kBit - kShift;
        return static_cast<int>((kBit == 0 ? word << kShift : word >> kRight) & (1u << BITS) - 1 << kShift);
    }

    template <int I>
    __device__ __forceinline__ nnz::Half value() const {
#if FP8
        const unsigned four = I < 4 ? low.x : I < 8 ? low.y : I < 12 ? low.z : low.w;
        const unsigned two = nnz::from_e4m3(four >> (I % 4 / 2 * 16) & 0xffffu);
#else
        const uint4& four = I < 8 ? low : high;
        const unsigned two = I % 8 < 2 ? four.x : I % 8 < 4 ? four.y : I % 8 < 6 ? four.z : four.w;
#endif
        return static_cast<nnz::Half>(I % 2 ? two >> 16 : two);
    }

    // Adds the products of entries I and on; `at` is where entry I - 1 lies in x, less I - 1 rows. Checked: zeros multiply
    // nothing.
    template <bool Checked, int I = 0>
    __device__ __forceinline__ void add(Sums& sums, const char* x, int at) const {
        if constexpr (I < kChunk) {
            if constexpr (I > 0) at += step<I>();
            const nnz::Half weight = value<I>();
            if (!Checked || (weight & 0x7fff) != 0) {
                const Operands row = *reinterpret_cast<const Operands*>(x + at + 2 * kPitch * DEALT * I);
                each([&](int t,
                         float& sum) { sum = nnz::fma_rn(nnz::widen_half(weight), nnz::widen_half(row.of[t]), sum); },
                     sums);
            }
            add<Checked, I + 1>(sums, x, at);
        }
    }

    template <bool Checked>
    __device__ __forceinline__ void add_to(Sums& sums, const char* x) const {
        add<Checked>(sums, x, static_cast<int>(near.x & 0xffffu) * (2 * kPitch));
    }
};

__device__ __forceinline__ Sums with_other(Sums sums, int apart) {
    each([=](int, float& sum) { sum += __shfl_xor_sync(0xffffffffu, sum, apart); }, sums);
    return sums;
}

// The sums over a row's lanes, which all of them get.
__device__ __forceinline__ Sums over_lanes(Sums sums, int lanes) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) sums = with_other(sums, apart);
    return sums;
}

__device__ __forceinline__ bool finite(Sums sums) {
    bool all = true;
    each([&](int, float sum) { all = all && nnz::finite(sum); }, sums);
    return all;
}

// lanes: of a row, a power of two up to 32.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    delta_spmv(int m,
#if COLUMNS > 1
               int n,
#endif
               int k, int lanes, const int* __restrict__ offsets, const uint4* __restrict__ low,
#if FP8
               const uint2* __restrict__ near, const unsigned* __restrict__ far, const nnz::Half* __restrict__ x,
               nnz::Half* __restrict__ y, float scale
#else
               const uint4* __restrict__ high, const uint2* __restrict__ near, const unsigned* __restrict__ far,
               const nnz::Half* __restrict__ x, nnz::Half* __restrict__ y
#endif
#if BIAS
               ,
               const nnz::Half* __restrict__ bias
#endif
#if SWIGLU
               ,
               float factor
#endif
    ) {
#if FP8
    const Chunks chunks{low, near, far};
#else
    const Chunks chunks{low, high, near, far};
    constexpr float scale = 1.0f;
#endif
#if COLUMNS == 1
    constexpr int n = 1;
#endif
    DYN_SHARED(char, shared);
    nnz::let_next_begin();
    const auto bring_x = [&] {
        nnz::wait_for_previous();
        // not through the read-only cache: the launch before may write x, and such loads may come before the wait
#if TOKENS
#pragma unroll 4
        for (int i = 2 * static_cast<int>(threadIdx.x); i < k + kBeyond; i += 2 * kThreads) {
            Operands rows[2];
#pragma unroll
            for (int t = 0; t < COLUMNS; ++t) {
                const unsigned two = i < k && t < n ? __ldcg(reinterpret_cast<const unsigned*>(x + t * k + i)) : 0;
                rows[0].of[t] = static_cast<nnz::Half>(two);
                rows[1].of[t] = static_cast<nnz::Half>(two >> 16);
            }
            for (int j = 0; j < 2; ++j) reinterpret_cast<Operands*>(shared)[i + j] = rows[j];
        }
#elif COLUMNS == 3
        constexpr int kAhead = 9;  // pairs of rows that a thread asks for at once: three words, whose sectors L1 keeps
        for (int i = 2 * static_cast<int>(threadIdx.x); i < k + kBeyond; i += 2 * kAhead * kThreads) {
            unsigned words[kAhead][3];
#pragma unroll
            for (int a = 0; a < 3 * kAhead; ++a) {
                const int at = 3 * (i + a / 3 * 2 * kThreads) + a % 3 * 2;
                words[a / 3][a % 3] = at + 1 < 3 * k ? __ldca(reinterpret_cast<const unsigned*>(x + at)) : 0;
            }
#pragma unroll
            for (int a = 0, at = i; a < kAhead && at < k + kBeyond; ++a, at += 2 * kThreads) {
                const auto& [low, both, high] = words[a];
                reinterpret_cast<uint4*>(shared)[at / 2] =
                    make_uint4(low, both & 0xffffu, both >> 16 | high << 16, high >> 16);
            }
        }
        if (k % 2 != 0 && k / 2 % kThreads == static_cast<int>(threadIdx.x))  // half a word is left of the last row
            reinterpret_cast<Operands*>(shared)[k - 1].of[2] = __ldca(x + 3 * k - 1);
#else
        const int end = k * n, copied = n == COLUMNS ? end : 0;
        for (int i = threadIdx.x * 8; i + 8 <= copied; i += kThreads * 8) nnz::cp_async16(shared + 2 * i, x + i);
        nnz::cp_async_commit();
        for (int i = copied / 8 * 8 + static_cast<int>(threadIdx.x); i < COLUMNS * (k + kBeyond); i += kThreads) {
            const int at = n == COLUMNS ? i : i % COLUMNS < n ? i / COLUMNS * n + i % COLUMNS : end;
            reinterpret_cast<nnz::Half*>(shared)[i] = at < end ? __ldcg(x + at) : nnz::Half{0};
        }
#endif
    };
    if (!OVERLAPS) bring_x();
    const int rows = 32 / lanes, lane = threadIdx.x % lanes;
    const int step = static_cast<int>(gridDim.x) * kWarps * rows;
    int first = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * rows;
    const int in_warp = static_cast<int>(threadIdx.x) % 32 / lanes;
    const auto look_up = [&](int number) {
        const int row = SWIGLU && number < m ? number / 2 + number % 2 * (m / 2) : number;
        return row < m ? Row{nnz::ldg(offsets + row), nnz::ldg(offsets + row + 1)} : Row{0, 0};
    };
    Row now = look_up(first + in_warp);
    Chunk chunk;
    chunk.load(chunks, now.begin + lane, now.begin + lane < now.end);
    Row next = look_up(first + step + in_warp);
    if (OVERLAPS) bring_x();
    nnz::cp_async_wait<0>();
    __syncthreads();

#pragma unroll 1
    for (; first < m; first += step) {
        const int row = first + in_warp;
        Sums sums{};
#if BIAS
        const float shift = bias != nullptr && row < m ? nnz::widen_half(bias[row]) : 0.0f;
#endif
        int at = now.begin + lane;
        bool more = true;
#pragma unroll 1
        while (more) {
            const Chunk used = chunk;
            at += lanes;
            more = at < now.end;
            const int following = more ? at : next.begin + lane;
            chunk.load(chunks, following, more || following < next.end);
            used.add_to<false>(sums, shared);
        }
        __syncwarp();
        sums = over_lanes(sums, lanes);
        if (__any_sync(0xffffffffu, !finite(sums))) {
            Sums exact{};
            for (int i = now.begin + lane; i < now.end; i += lanes) {
                Chunk again;
                again.load(chunks, i, true);
                again.add_to<true>(exact, shared);
            }
            __syncwarp();
            exact = over_lanes(exact, lanes);
            each([](int, float& sum, float again) { sum = nnz::finite(sum) ? sum : again; }, sums, exact);
        }
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) {
            float sum = of(sums, t) * scale;
#if BIAS
            sum += shift;
#endif
#if SWIGLU
            const float other = factor * __shfl_down_sync(0xffffffffu, sum, lanes), gate = factor * sum;
            if (lane == 0 && in_warp % 2 == 0 && row < m)
                y[row / 2] = nnz::narrow_half(gate / (1.0f + expf(-gate)) * other);
#else
            if (lane == 0 && row < m && t < n) y[TOKENS ? t * m + row : row * n + t] = nnz::narrow_half(sum);
#endif
        }
        now = next;
        next = look_up(row + 2 * step);
    }
}
