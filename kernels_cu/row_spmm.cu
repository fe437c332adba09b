// C = A B, fp32. A: m x k, sparse, packed by the host; B: k x n and C: m x n, dense, row-major.
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
// What the host packs (`nnzbench.kernels.row_stream`): every slot owns PIECE {row of B, value bits} pairs at a place that
// follows from its number alone, so the first words and the slot's header travel together. Two pairs are one 128-bit load,
// the same for all lanes. Pairs behind a piece's last repeat its row of B: their loads hit, and their products are not
// added, so an Inf or NaN of B can't leak. The words of the next batch of UNROLL pairs travel with this batch's rows of B.
//
// Defines
//   LANES     4, 8, 16 or 32                   VEC      columns per lane: 1, 2 or 4
//   SLOTS     pieces per block                 PIECE    pairs per slot, a multiple of UNROLL
//   UNROLL    pairs in flight per lane: 4, 8 or 16
//   ADJACENT  1: VEC neighbouring columns, n must be a multiple of VEC; 0: columns LANES apart, any n
#include "nnz.cuh"
#include "vector_columns.cuh"

constexpr int kLanes = LANES;
constexpr int kVec = VEC;
constexpr int kSlots = SLOTS;
constexpr int kPiece = PIECE;
constexpr int kUnroll = UNROLL;
constexpr bool kAdjacent = ADJACENT;

constexpr int kBlockN = kLanes * kVec;
constexpr int kThreads = kLanes * kSlots;
constexpr int kWords = kUnroll / 2;  // 128-bit words per batch
constexpr int kBases = kAdjacent ? 1 : kVec;  // loads per row of B

static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES must divide a warp");
static_assert(kVec == 1 || kVec == 2 || kVec == 4, "VEC must be a vector width");
static_assert(kUnroll == 4 || kUnroll == 8 || kUnroll == 16, "UNROLL counts pairs, two to a packed word");
static_assert(kPiece % kUnroll == 0, "a piece is a whole number of batches");
static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block is whole warps, 1024 threads at most");

using Vector = nnz::Columns<kVec>::type;

// The lane's columns in row 0 of B. Columns outside are read at the last one inside, and never stored.
struct Tile {
    const char* base[kBases];
    int row_bytes;

    __device__ __forceinline__ Vector row(int index) const {
        const long long offset = static_cast<long long>(index) * row_bytes;
        if constexpr (kAdjacent) {
            return nnz::load_here(reinterpret_cast<const Vector*>(base[0] + offset));
        } else {
            Vector value;
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                const float* column = reinterpret_cast<const float*>(base[v] + offset);
                reinterpret_cast<float*>(&value)[v] = nnz::load_here(column);
            }
            return value;
        }
    }
};

__device__ __forceinline__ void load_batch(uint4 (&batch)[kWords], const uint4* words) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) batch[i] = nnz::ldg(words + i);
}

// headers: of each slot {row, -1 unless the slot holds the row's first piece; nonzeros of this piece + 65536 * pieces of the
// row}. words: PIECE / 2 of each slot. Only the first `joined_blocks` blocks hold rows of more than one piece.
// A least number of blocks per multiprocessor must be given: without it ptxas saves registers by making each load of a
// batch wait for the one before.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    row_spmm(int n, int joined_blocks, const int2* __restrict__ headers, const uint4* __restrict__ words,
             const float* __restrict__ b, float* __restrict__ c) {
    const int lane = threadIdx.x % kLanes;
    const int own = threadIdx.x / kLanes;
    const int slot = blockIdx.x * kSlots + own;
    words += static_cast<long long>(slot) * (kPiece / 2);
    uint4 batch[kWords];
    load_batch(batch, words);
    const int2 header = nnz::ldg(headers + slot);

    const int column = blockIdx.y * kBlockN + (kAdjacent ? lane * kVec : lane);
    Tile tile;
    tile.row_bytes = n * 4;
#pragma unroll
    for (int v = 0; v < kBases; ++v) {
        tile.base[v] = reinterpret_cast<const char*>(b + min(column + v * kLanes, n - (kAdjacent ? kVec : 1)));
        nnz::keep_in_register(tile.base[v]);
    }

    float acc[kVec] = {};
    int left = header.y & 0xffff;
#pragma unroll 1
    do {
        Vector rows[kUnroll];
        float values[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            const uint4 word = batch[i / 2];
            rows[i] = tile.row(i % 2 ? word.z : word.x);
            values[i] = __uint_as_float(i % 2 ? word.w : word.y);
        }
        words += kWords;
        if (kPiece > kUnroll && left > kUnroll) load_batch(batch, words);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            if (i < left) nnz::multiply_add(acc, values[i], rows[i]);
        }
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
    float* out = c + static_cast<long long>(header.x) * n + column;
    if constexpr (kAdjacent) {
        if (column < n) {
            Vector value;
#pragma unroll
            for (int v = 0; v < kVec; ++v) reinterpret_cast<float*>(&value)[v] = acc[v];
            *reinterpret_cast<Vector*>(out) = value;
        }
    } else {
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
            if (column + v * kLanes < n) out[v * kLanes] = acc[v];
        }
    }
}
