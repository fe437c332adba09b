// C = A B, fp16 (bf16 under BF16) in and out, fp32 sums on tensor cores. A: m x k, sparse without structure, packed by the
// host; B: k x n and C: m x n, dense, row-major.
//
// Loads A sparse and multiplies it dense. What a lane of a warp feeds to a tensor core for a 16x16 tile of A is four 32-bit
// registers, each two neighbouring elements of a row; at 90 % zeros four of five of these pairs are empty. The host keeps the
// others, each lane's in the order in which the lane needs them, and one bit per pair. To expand a register a lane then tests
// a bit and, where it is set, takes the next word of its own queue: no work per element, none of it shared with other lanes,
// and no tile of A in shared memory.
//
// Who computes what
//   grid    x: groups of WARPS strips, y: slices of k, z: tiles of kBlockN columns
//   block   WARPS warps, each a strip of 32 rows. B comes through a ring of PANELS panels of PANEL_K rows in shared memory
//   warp    32 rows x kBlockN columns as fragments of 16x8 sums; its packed A comes through a ring of STAGES chunks of its own
//   lane    of each 16x16 tile the pairs at rows g and g + 8, columns 2t and 2t + 8 with g = lane / 4 and t = lane % 4
// With several slices each warp leaves its sums in memory; the last of a strip's warps to arrive adds them all in the order
// of slices, so results don't depend on who is last.
//
// A tensor core multiplies the zeros of A too, so an Inf or NaN in B would make a whole column of a strip NaN. Every such
// product makes the sum not finite: those sums alone are computed again, nonzero by nonzero (`exact_sum`).
//
// What the host packs (`nnzbench.tensor_strips`): of every strip its chunks of kChunkK columns one after another; of a chunk
// each lane's MAP_WORDS words of bits, each lane's first word in the chunk as a 16-bit byte offset, then the lanes' words.
// Bit 8 s + 4 i + j of a lane is register j of tile i (rows 16 i on) in step s (columns 16 s on) of the chunk.
// `offsets` tells where each chunk starts in `stream`, in units of 16 bytes.
//
// Defines
//   BLOCK_N    columns per block: 8, 16, 32, 64 or 128      WARPS     strips per block
//   MAP_WORDS  1 or 2: chunks of 64 or 128 columns          STAGES    chunks in a warp's ring, 2 or more
//   PANEL_K    rows of B per panel, whole chunks            PANELS    panels in the ring, 2 or more
//   FILL       elements per copy of B: 8, 4, 2 or 1, a divisor of n
//   BLOCKS     blocks per multiprocessor                    BF16      1: values are bf16, not fp16
#include "async_barrier.cuh"
#include "bulk_copy.cuh"
#include "nnz.cuh"
#include "tensor_core.cuh"

constexpr int kBlockN = BLOCK_N;
constexpr int kWarps = WARPS;
constexpr int kMapWords = MAP_WORDS;
constexpr int kStages = STAGES;
constexpr int kPanelK = PANEL_K;
constexpr int kPanels = PANELS;
constexpr int kFill = FILL;

constexpr int kThreads = 32 * kWarps;
constexpr int kStripM = 32;
constexpr int kTiles = kStripM / 16;
constexpr int kSteps = 4 * kMapWords;  // of 16 columns in a chunk
constexpr int kChunkK = 16 * kSteps;
constexpr int kPanelChunks = kPanelK / kChunkK;
constexpr int kColumns = kBlockN / 8;  // tiles of 8 columns, and 16-byte pieces of a row of B
constexpr int kRowBytes = 2 * kBlockN;
constexpr int kPanelBytes = kPanelK * kRowBytes;
constexpr int kMapBytes = 128 * kMapWords;

static_assert(kBlockN == 8 || kBlockN == 16 || kBlockN == 32 || kBlockN == 64 || kBlockN == 128, "8 to 128 columns");
static_assert(kMapWords == 1 || kMapWords == 2, "a lane reads its bits at once");
static_assert(kPanelK % kChunkK == 0, "a panel is whole chunks");
static_assert(kStages >= 2 && kPanels >= 2, "one is filled while another is used");
static_assert(kFill == 1 || kFill == 2 || kFill == 4 || kFill == 8, "copies of 2, 4, 8 or 16 bytes");

// Where the 16-byte piece `piece` of row `row` of a panel lies: eight rows of one piece fall into different banks.
__device__ __forceinline__ int piece_at(int row, int piece) {
    const int twist = kColumns >= 8 ? row & 7 : row / (8 / kColumns) & (kColumns - 1);
    return row * kRowBytes + ((piece ^ twist) << 4);
}

// Rows first_row .. first_row + kPanelK of B, zeros behind its edges; all threads copy.
__device__ __forceinline__ void request_panel(char* panel, const nnz::Half* b, int first_row, int first_column, int k,
                                              int n) {
    constexpr int kPieces = kPanelK * kColumns;
#pragma unroll 4
    for (int i = threadIdx.x; i < kPieces; i += kThreads) {
        const int row = i / kColumns, piece = i % kColumns;
        char* const to = panel + piece_at(row, piece);
        const int column = first_column + 8 * piece;
        const nnz::Half* const from = b + static_cast<long long>(first_row + row) * n + column;
#pragma unroll
        for (int part = 0; part < 8; part += kFill) {
            const bool inside = first_row + row < k && column + part < n;
            if constexpr (kFill == 1) {
                reinterpret_cast<nnz::Half*>(to)[part] = inside ? nnz::ldg(from + part) : nnz::Half{0};
            } else {
                nnz::cp_async_bytes<2 * kFill>(to + 2 * part, inside ? from + part : b, inside);
            }
        }
    }
}

// The packed chunks of one strip, from first to last.
struct Chunks {
    const uint4* stream;
    const int* next_offset;
    const int* last_offset;
    int from, to;  // of the next chunk; the same behind the last one

    __device__ __forceinline__ Chunks(const uint4* stream_, const int* offsets, int first, int last)
        : stream(stream_), next_offset(offsets + first), last_offset(offsets + last), from(nnz::ldg(next_offset)) {
        advance();
    }

    __device__ __forceinline__ void advance() {
        if (next_offset < last_offset) ++next_offset;
        to = nnz::ldg(next_offset);  // known when it is needed
    }

    // Has the next chunk copied, if there is one; every call closes a group of copies.
    __device__ __forceinline__ void request(nnz::SharedAt slot, nnz::Barrier* filled, int lane) {
#if FEED == 1
        if (lane == 0 && to > from) {
            const int bytes = 16 * (to - from);
            nnz::barrier_arrive_expect(filled, bytes);
            nnz::bulk_copy_at(slot, stream + from, bytes, filled);
        }
#else
        const uint4* src = stream + from + lane;
        slot += 16 * lane;
#pragma unroll 1
        for (int i = to - from - lane; i > 0; i -= 32) {
            nnz::copy_to(slot, src);
            slot += 512;
            src += 32;
        }
        nnz::cp_async_commit();
#endif
        from = to;
        advance();
    }
};

// Expands the registers of one tile of step Step, in their order.
template <int Step, int Tile>
__device__ __forceinline__ void expand(const unsigned (&bits)[kMapWords], nnz::SharedAt& at, unsigned (&a)[4]) {
    constexpr int kFirst = (Step * kTiles + Tile) * 4;
    constexpr int kWord = kFirst / 32, kBit = kFirst % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = 0;
    nnz::take_if<kBit>(bits[kWord], at, a[0]);
    nnz::take_if<kBit + 1>(bits[kWord], at, a[1]);
    nnz::take_if<kBit + 2>(bits[kWord], at, a[2]);
    nnz::take_if<kBit + 3>(bits[kWord], at, a[3]);
}

// Multiplies what a chunk holds from step Step on. `matrix`: where the lane's row of each pair of column tiles lies in the
// chunk's first step.
template <int Step = 0>
__device__ __forceinline__ void multiply_chunk(float (&acc)[kTiles][kColumns][4], const unsigned (&bits)[kMapWords],
                                               nnz::SharedAt& at, const nnz::SharedAt (&matrix)[(kColumns + 1) / 2],
                                               int chunk_at) {
    unsigned a[kTiles][4];
    expand<Step, 0>(bits, at, a[0]);
    expand<Step, 1>(bits, at, a[1]);
    if constexpr (kColumns == 1) {
        unsigned b[2];
        nnz::load_matrices<2>(matrix[0] + chunk_at + Step * 16 * kRowBytes, b);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) nnz::multiply_tile(acc[i][0], a[i], b[0], b[1]);
    } else {
#pragma unroll
        for (int j = 0; j < kColumns / 2; ++j) {
            unsigned b[4];
            nnz::load_matrices<4>(matrix[j] + chunk_at + Step * 16 * kRowBytes, b);
#pragma unroll
            for (int i = 0; i < kTiles; ++i) {
                nnz::multiply_tile(acc[i][2 * j], a[i], b[0], b[1]);
                nnz::multiply_tile(acc[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
    if constexpr (Step + 1 < kSteps) multiply_chunk<Step + 1>(acc, bits, at, matrix, chunk_at);
}

__device__ __forceinline__ float product(unsigned value, const nnz::Half* b, long long at) {
    const nnz::Half half = static_cast<nnz::Half>(value);
    return (half & 0x7fff) == 0 ? 0.0f : nnz::widen_half(half) * nnz::widen_half(b[at]);
}

// The sum of row `row` of a strip and column `column` over its chunks first .. last, of its nonzeros alone.
__device__ __noinline__ float exact_sum(const uint4* stream, const int* offsets, int first, int last, int row,
                                        const nnz::Half* b, int n, int column) {
    float sum = 0.0f;
    for (int chunk = first; chunk < last; ++chunk) {
        const char* const packed = reinterpret_cast<const char*>(stream + offsets[chunk]);
        for (int t = 0; t < 4; ++t) {
            const int lane = row % 8 * 4 + t;
            int at = reinterpret_cast<const nnz::Half*>(packed + kMapBytes)[lane];
            for (int i = 0; i < 32 * kMapWords; ++i) {
                const unsigned bits = reinterpret_cast<const unsigned*>(packed)[lane * kMapWords + i / 32];
                if ((bits >> i % 32 & 1u) == 0) continue;
                const unsigned pair = *reinterpret_cast<const unsigned*>(packed + at);
                at += 4;
                if (i / 4 % kTiles != row / 16 || i % 2 != row / 8 % 2) continue;
                const long long k = chunk * kChunkK + i / (4 * kTiles) * 16 + i / 2 % 2 * 8 + 2 * t;
                sum += product(pair, b, k * n + column);
                if (pair >> 16) sum += product(pair >> 16, b, (k + 1) * n + column);
            }
        }
    }
    return sum;
}

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    tensor_spmm(int m, int n, int k, int strips, int chunks, int slot_bytes, const int* __restrict__ offsets,
                const uint4* __restrict__ stream, const nnz::Half* __restrict__ b, float4* partial, int* arrived,
                nnz::Half* __restrict__ c) {
    DYN_SHARED(char, shared);
    __shared__ nnz::Barrier full[kPanels], empty[kPanels];
    __shared__ nnz::Barrier filled[kWarps][kStages];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int strip = blockIdx.x * kWarps + warp;
    const int first_column = blockIdx.z * kBlockN;
    const int panels = (chunks + kPanelChunks - 1) / kPanelChunks;
    const int slices = gridDim.y;
    const int first_panel = static_cast<int>(static_cast<long long>(panels) * blockIdx.y / slices);
    const int end_panel = static_cast<int>(static_cast<long long>(panels) * (blockIdx.y + 1) / slices);
    const int first_chunk = first_panel * kPanelChunks;
    const int end_chunk = strip < strips ? min(end_panel * kPanelChunks, chunks) : first_chunk;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kPanels; ++i) {
            nnz::barrier_init(&full[i], kThreads);
            nnz::barrier_init(&empty[i], kWarps);
        }
#if FEED == 1
        for (int i = 0; i < kWarps * kStages; ++i) nnz::barrier_init(&filled[0][i], 1);
        nnz::barrier_init_fence();
#endif
    }
#if FEED == 1
    __syncthreads();
#endif
    const int* const own_offsets = offsets + static_cast<long long>(min(strip, strips - 1)) * chunks;
    Chunks packed(stream, own_offsets, first_chunk, end_chunk);
    const nnz::SharedAt panels_at = nnz::kept(nnz::shared_at(shared));
    const nnz::SharedAt ring = nnz::kept(panels_at + kPanels * kPanelBytes + warp * kStages * slot_bytes);
    int slot = 0, free_slot = 0;
    const auto request_chunk = [&] {
        packed.request(ring + free_slot * slot_bytes, &filled[warp][free_slot], lane);
        free_slot = free_slot + 1 == kStages ? 0 : free_slot + 1;
    };
    request_chunk();
    __syncthreads();

    int requested = first_panel, request_stage = 0;
    unsigned request_parity = 1;  // nothing to wait for in the first round
    const auto request_next_panel = [&] {
        if (requested >= end_panel) return;
        nnz::barrier_wait(&empty[request_stage], request_parity);
        request_panel(shared + request_stage * kPanelBytes, b, requested * kPanelK, first_column, k, n);
        if constexpr (kFill == 1) {
            nnz::barrier_arrive(&full[request_stage]);
        } else {
            nnz::barrier_arrive_after_copies(&full[request_stage]);
        }
        ++requested;
        if (++request_stage == kPanels) {
            request_stage = 0;
            request_parity ^= 1;
        }
    };
    for (int i = 0; i < kPanels - 1; ++i) request_next_panel();
    for (int i = 1; i < kStages - 1; ++i) request_chunk();

    nnz::SharedAt matrix[(kColumns + 1) / 2];
#pragma unroll
    for (int j = 0; j < (kColumns + 1) / 2; ++j) {
        matrix[j] = nnz::kept(panels_at + piece_at(lane % 16, kColumns == 1 ? 0 : 2 * j + lane / 16));
    }
    float acc[kTiles][kColumns][4] = {};
    int chunk = first_chunk, stage = 0;
    unsigned parity = 0, slot_parity = 0;
    for (int panel = first_panel; panel < end_panel; ++panel) {
        request_next_panel();
        nnz::barrier_wait(&full[stage], parity);
        const int end = min((panel + 1) * kPanelChunks, end_chunk);
        int chunk_at = stage * kPanelBytes;
        for (; chunk < end; ++chunk) {
#if FEED == 1
            nnz::barrier_wait(&filled[warp][slot], slot_parity);
#else
            nnz::cp_async_wait<kStages - 2>();
#endif
            __syncwarp();
            request_chunk();
            const nnz::SharedAt head = ring + slot * slot_bytes;
            if (++slot == kStages) {
                slot = 0;
                slot_parity ^= 1;
            }
            unsigned bits[kMapWords];
            if constexpr (kMapWords == 1) {
                bits[0] = nnz::load_at<unsigned>(head + 4 * lane);
            } else {
                const uint2 both = nnz::load_at<uint2>(head + 8 * lane);
                bits[0] = both.x;
                bits[1] = both.y;
            }
            nnz::SharedAt at = head + nnz::load_at<nnz::Half>(head + kMapBytes + 2 * lane);
            multiply_chunk(acc, bits, at, matrix, chunk_at);
            chunk_at += kChunkK * kRowBytes;
        }
        __syncwarp();
        if (lane == 0) nnz::barrier_arrive(&empty[stage]);
        if (++stage == kPanels) {
            stage = 0;
            parity ^= 1;
        }
    }
    nnz::cp_async_wait<0>();
    if (strip >= strips) return;

    const int first_row = strip * kStripM + lane / 4;
    const auto row_of = [&](int i, int e) { return first_row + 16 * i + e / 2 * 8; };
    const auto column_of = [&](int j, int e) { return first_column + 8 * j + lane % 4 * 2 + e % 2; };
    bool all_finite = true;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) all_finite = all_finite && finite(acc[i][j][e]);
        }
    }
    if (!all_finite) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (finite(acc[i][j][e]) || column_of(j, e) >= n) continue;
                    acc[i][j][e] = exact_sum(stream, own_offsets, first_chunk, end_chunk, row_of(i, e) % kStripM, b, n,
                                             column_of(j, e));
                }
            }
        }
    }

    if (slices > 1) {
        const long long tile = static_cast<long long>(blockIdx.z) * strips + strip;
        float4* const sums = partial + tile * slices * (kTiles * kColumns * 32) + lane;
        const auto place = [&](int slice, int i, int j) { return ((slice * kTiles + i) * kColumns + j) * 32; };
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
                const float(&own)[4] = acc[i][j];
                __stcg(sums + place(blockIdx.y, i, j), make_float4(own[0], own[1], own[2], own[3]));
            }
        }
        __threadfence();
        __syncwarp();
        int before = 0;
        if (lane == 0) before = atomicAdd(arrived + tile, 1);
        if (__shfl_sync(0xffffffffu, before, 0) != slices - 1) return;
        if (lane == 0) arrived[tile] = 0;  // for the next launch
        __threadfence();
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
                float4 sum = __ldcg(sums + place(0, i, j));
#pragma unroll 4
                for (int slice = 1; slice < slices; ++slice) {
                    const float4 more = __ldcg(sums + place(slice, i, j));
                    sum.x += more.x;
                    sum.y += more.y;
                    sum.z += more.z;
                    sum.w += more.w;
                }
                acc[i][j][0] = sum.x;
                acc[i][j][1] = sum.y;
                acc[i][j][2] = sum.z;
                acc[i][j][3] = sum.w;
            }
        }
    }

#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                const int row = row_of(i, e), column = column_of(j, e);
                if (row >= m || column >= n) continue;
                nnz::Half* const out = c + static_cast<long long>(row) * n + column;
                const nnz::Half low = nnz::narrow_half(acc[i][j][e]), high = nnz::narrow_half(acc[i][j][e + 1]);
                if constexpr (kFill >= 2) {
                    *reinterpret_cast<unsigned*>(out) = low | static_cast<unsigned>(high) << 16;
                } else {
                    out[0] = low;
                    if (column + 1 < n) out[1] = high;
                }
            }
        }
    }
}
