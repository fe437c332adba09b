// C = A B, fp32, or under F16 fp16 in and out with fp32 sums. A: m x k, sparse, packed by the host; B: k x n and C: m x n,
// dense, row-major.
//
// Streams pieces of rows of A as packed {index, value} words, with the fewest dependent loads between launch and store:
// made for products so small that latency, not bandwidth, is the cost. A long row is cut into as many pieces as it needs,
// so that no thread group has more work than any other, however uneven the rows are.
//
// Who computes what
//   grid    x: groups of SLOTS pieces, y: tiles of kBlockN = LANES * VEC columns
//   block   LANES x SLOTS threads; the pieces of a row are neighbours in one block and add up in shared memory, in order
//   lane    VEC columns of one piece: neighbouring ones where ADJACENT, else LANES apart (for n that is no multiple of VEC)
//
// What the host packs (`nnzbench.kernels.row_stream`): every slot owns PIECE {row of B, value} pairs at a place that
// follows from its number alone, so the first words and the slot's header travel together. A 128-bit load, the same for
// all lanes, brings two pairs of an int and a float or, under INDEX16, four of an unsigned short and a half. Pairs behind
// a piece's last repeat its row of B: their loads hit, and their products are not added, so an Inf or NaN of B can't leak.
// The words of the next batch of UNROLL pairs travel with this batch's rows of B.
//
// Defines
//   LANES     4, 8, 16 or 32                   VEC      columns per lane: 1, 2 or 4 (8 in fp16)
//   SLOTS     pieces per block                 PIECE    pairs per slot, a multiple of UNROLL
//   UNROLL    pairs in flight per lane: 4, 8 or 16
//   ADJACENT  1: VEC neighbouring columns, n must be a multiple of VEC; 0: columns LANES apart, any n
//   F16       1: values of B and C are fp16    INDEX16  1, only with F16: pairs of 4 bytes (k <= 65535), not of 8
#include "nnz.cuh"
#include "pack.cuh"

constexpr int kLanes = LANES;
constexpr int kVec = VEC;
constexpr int kSlots = SLOTS;
constexpr int kPiece = PIECE;
constexpr int kUnroll = UNROLL;
constexpr bool kAdjacent = ADJACENT;

constexpr int kBlockN = kLanes * kVec;
constexpr int kThreads = kLanes * kSlots;
constexpr int kWordPairs = INDEX16 ? 4 : 2;  // of a 128-bit word
constexpr int kWords = kUnroll / kWordPairs;  // per batch
constexpr int kBases = kAdjacent ? 1 : kVec;  // loads per row of B

static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES must divide a warp");
static_assert((kVec & (kVec - 1)) == 0 && sizeof(Value) * kVec <= 16, "VEC must be a vector width");
static_assert(kUnroll == 4 || kUnroll == 8 || kUnroll == 16, "UNROLL counts pairs, in whole packed words");
static_assert(F16 || !INDEX16, "pairs of 4 bytes have room for a half only");
static_assert(kPiece % kUnroll == 0, "a piece is a whole number of batches");
static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block is whole warps, 1024 threads at most");

// An address is one instruction where index and bytes are both signed or both unsigned, else two.
#if INDEX16
using RowBytes = unsigned;
#else
using RowBytes = int;
#endif

// The lane's columns in row 0 of B. Columns outside are read at the last one inside, and never stored.
struct Tile {
    const char* base[kBases];
    RowBytes row_bytes;

    __device__ __forceinline__ Floats<kVec> row(Index index) const {
        const long long offset = static_cast<long long>(index) * row_bytes;
        if constexpr (kAdjacent) {
            return widen(load_here<kVec>(reinterpret_cast<const Value*>(base[0] + offset)));
        } else {
            Floats<kVec> columns;
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                columns.at[v] = widen(load_here<1>(reinterpret_cast<const Value*>(base[v] + offset)).at[0]);
            }
            return columns;
        }
    }
};

__device__ __forceinline__ void load_batch(uint4 (&batch)[kWords], const uint4* words) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) batch[i] = nnz::ldg(words + i);
}

struct Nonzero {
    Index row;  // of B
    float value;
};

__device__ __forceinline__ Nonzero nonzero_of(const uint4 (&batch)[kWords], int i) {
    const uint4 word = batch[i / kWordPairs];
#if INDEX16
    const unsigned pair = i % 4 == 0 ? word.x : i % 4 == 1 ? word.y : i % 4 == 2 ? word.z : word.w;
    Pack<Value, 2> halves;
    halves.word = static_cast<int>(pair);
    return {static_cast<Index>(pair & 0xffff), widen(halves).at[1]};
#else
    return i % 2 ? Nonzero{static_cast<int>(word.z), __uint_as_float(word.w)}
                 : Nonzero{static_cast<int>(word.x), __uint_as_float(word.y)};
#endif
}

// acc += a * b where `keep`, element by element from V on. In fp16, a branch around all that conversion and multiplication
// would stay a branch; chosen one by one, the sums become predicated instructions.
template <int V = 0>
__device__ __forceinline__ void multiply_add_if(bool keep, float (&acc)[kVec], float a, const Floats<kVec>& b) {
    if constexpr (sizeof(Value) == 2) {
        const float sum = nnz::fma_rn(a, b.at[V], acc[V]);
        acc[V] = keep ? sum : acc[V];
    } else {
        if (keep) acc[V] = nnz::fma_rn(a, b.at[V], acc[V]);
    }
    if constexpr (V + 1 < kVec) multiply_add_if<V + 1>(keep, acc, a, b);
}

// headers: of each slot {row, -1 unless the slot holds the row's first piece; nonzeros of this piece + 65536 * pieces of the
// row}. words: PIECE / kWordPairs of each slot. Only the first `joined_blocks` blocks hold rows of more than one piece.
// A least number of blocks per multiprocessor must be given: without it ptxas saves registers by making each load of a
// batch wait for the one before.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    row_spmm(int n, int joined_blocks, const int2* __restrict__ headers, const uint4* __restrict__ words,
             const Value* __restrict__ b, Value* __restrict__ c) {
    const int lane = threadIdx.x % kLanes;
    const int own = threadIdx.x / kLanes;
    const int slot = blockIdx.x * kSlots + own;
    words += static_cast<long long>(slot) * (kPiece / kWordPairs);
    uint4 batch[kWords];
    load_batch(batch, words);
    const int2 header = nnz::ldg(headers + slot);

    const int column = blockIdx.y * kBlockN + (kAdjacent ? lane * kVec : lane);
    Tile tile;
    tile.row_bytes = n * static_cast<RowBytes>(sizeof(Value));
#pragma unroll
    for (int v = 0; v < kBases; ++v) {
        const Value* first = b + min(column + v * kLanes, n - (kAdjacent ? kVec : 1));
        tile.base[v] = opaque(reinterpret_cast<const char*>(first));
    }

    float acc[kVec] = {};
    int left = header.y & 0xffff;
#pragma unroll 1
    do {
        Floats<kVec> rows[kUnroll];
        float values[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            const Nonzero nonzero = nonzero_of(batch, i);
            rows[i] = tile.row(nonzero.row);
            values[i] = nonzero.value;
        }
        words += kWords;
        if (kPiece > kUnroll && left > kUnroll) load_batch(batch, words);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) multiply_add_if(i < left, acc, values[i], rows[i]);
        left -= kUnroll;
    } while (kPiece > kUnroll && left > 0);

    if (blockIdx.x < joined_blocks) {
        __shared__ float partial[kSlots][kVec][kLanes];
#pragma unroll
        for (int v = 0; v < kVec; ++v) partial[own][v][lane] = acc[v];
        __syncthreads();
        const int pieces = header.y >> 16;
#pragma unroll 1
        for (int other = 1; other < pieces; ++other) {
#pragma unroll
            for (int v = 0; v < kVec; ++v) acc[v] += partial[own + other][v][lane];
        }
    }
    if (header.x < 0) return;
    Value* out = c + static_cast<long long>(header.x) * n + column;
    if constexpr (kAdjacent) {
        if (column < n) {
            Pack<Value, kVec> sums;
#pragma unroll
            for (int v = 0; v < kVec; ++v) sums.at[v] = narrow(acc[v]);
            store<kVec>(out, sums);
        }
    } else {
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
            if (column + v * kLanes < n) out[v * kLanes] = narrow(acc[v]);
        }
    }
}
