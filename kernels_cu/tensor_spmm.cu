// C = A B, fp16 in and out (bf16 under BF16, fp32 under TF32), fp32 sums on tensor cores. A: m x k, sparse without structure,
// packed by the host; B: k x n and C: m x n, dense, row-major.
//
// Loads A sparse and multiplies it with the instruction for 2:4 matrices (two of any four neighbours in a row count). Of a
// row's group of four the two that count are one 32-bit register; at 90 % zeros two of three of them are empty. The host
// keeps the others, each lane's in the order in which the lane needs them, and one bit per register: a lane tests a bit and,
// where it is set, takes the next word of its own queue. No work per element, none of it shared with other lanes, and no tile
// of A in shared memory. Under HALVES the queue holds elements and each has a bit: a fifth fewer bytes at 70 to 90 % zeros, for
// nearly twice the instructions; under BITMAP another tenth fewer, and lanes work the bits out. What a group holds beyond two
// (0.9 % of the nonzeros at 90 % zeros, 8 % at 70 %) goes to further steps behind each panel, whose 32 columns are any that need
// them: rows of B are gathered at no cost, because a tensor core's fragments of B are loaded by the address of each row. A step
// with no more than 16 such columns is half a step's work.
//
// Who computes what
//   grid    x: groups of WARPS strips, y: slices of k, z: tiles of kBlockN columns
//   block   WARPS warps, each a strip of 32 rows. B comes through a ring of PANELS panels of PANEL_K rows in shared memory
//   warp    32 rows x kBlockN columns as 16x8 tiles of sums; its packed A comes through a ring of STAGES chunks of its own
//   lane    of each step (32 columns) and 16 rows the groups t and t + 4 of rows g and g + 8, g = lane / 4 and t = lane % 4
// With several slices each warp leaves its sums in memory; the last of a strip's warps to arrive adds them all in the order
// of slices, so results don't depend on who is last. Where `separate` is not 0, `tensor_spmm_add` does that instead. Under
// SPREAD the warps of a strip share it: each adds some of its tiles, as soon as the others have left theirs.
//
// Who asks for what when, after each warp has begun to look up where its chunks of A lie:
//   plain      panels of B, chunks of A
//   OVERLAPS   chunks of A; waits for the launch that may write B; panels of B
//   TOKENS     loads of B's first panels, chunks of A; then turns those panels
//   EARLY      and before the block's first barrier one chunk of A, for which nothing need be looked up
//
// A tensor core multiplies zeros too, so an Inf or NaN in B would make a whole column of a strip NaN. Every such product
// makes the sum not finite: those sums alone are computed again, nonzero by nonzero (`exact_sum`).
//
// What the host packs (`nnzbench.kernels.tensor.strips`): of every strip, panel by panel, first the chunks of kChunkK columns one
// after another, then those of gathered columns, if any. A chunk has kSteps steps, the last gathered one of a panel maybe
// fewer: each lane's MAP_WORDS words of bits; each lane's first entry in the chunk as a 16-bit byte offset; only for gathered
// columns the number of steps, a bit for each of them that has 16 columns at most (16 bytes together) and of each step the 32
// rows of the panel, 16 bits each; of each step what `multiply_tile` takes to select, a word of each lane; the lanes' entries.
// Bit 8 s + 4 i + j of a lane is register j of the step's tile i (rows 16 i on) in step s; under HALVES these are two bits,
// the lower half first. `panel_chunks` counts chunks up to each panel of each strip; `offsets` tells where each chunk starts
// in `stream`, in units of 16 bytes; `starts` has of each strip and slice what `SliceStart` looks up. Under EARLY `heads` has of
// each strip and slice the first chunk once more, slot_bytes apart, so that a warp can ask for it before it has looked up anything.
//
// Defines
//   BLOCK_N    columns per block: 8, 16, 32, 64 or 128      WARPS     strips per block: 4, 8 or 16
//   MAP_WORDS  1 or 2: chunks of 128 or 256 columns         STAGES    chunks in a warp's ring, 2 to 7
//   PANEL_K    rows of B per panel, whole chunks            PANELS    panels in the ring
//   HALVES     1: queues hold elements, MAP_WORDS is 2 or 4
//   BITMAP     1: the same, and a bitmap of each group of four columns in place of bits and selections (`step_of`). Fewer bytes
//              pay where memory is slow: an H100 takes 23 % longer without at 80 % zeros and 32 columns, an H200 no longer
//   PAIRS      1: registers are two neighbours of steps of 16 columns, multiplied as a dense tile: nothing is selected or left
//              over; with WIDE
//   FP8        1: values are e4m3, widened to fp16 in registers; B and C are fp16, and sums are multiplied by `scale`
//   FILL       elements per copy of B: 8, 4, 2 or 1, a divisor of n
//   BLOCKS     blocks per multiprocessor                    BF16      1: values are bf16, not fp16
//   AHEAD      fragments of B that a warp loads before it uses them
//   WIDE       1: columns as they come are multiplied by four warps together (wgmma), sm_90a; strips are a multiple of WARPS,
//              BLOCK_N is 32 at least
//   TF32       1: values are fp32, multiplied as TF32: steps of 8 columns, whose registers are single elements, so that nothing
//              is left over and nothing selected (tensor_spmm_tf32.cuh). MAP_WORDS may be 4, BLOCK_N is 64 at most and WIDE 0
//   BULK       1: chunks by bulk copies, from sm_90 on; 0: by copies of 16 bytes
//   EARLY      1: the first chunk comes from `heads`; at least as many panels as slices, panels x slices below 2^31
//   TOKENS     1: B is n x k and C n x m, row-major: a warp's loads are turned on their way to a panel. k is a multiple of 8
//              and m of 2; not under TF32
//   BIAS       1: one more argument, m numbers of C's type that are added to its rows; null: none
//   SWIGLU     1: of every 16 rows the first eight are gates, the others what these let through: C has half as many rows, m,
//              of silu(scale * gate) * scale * other, rounded once. Not under BIAS, TF32 and TOKENS
//   OVERLAPS   1: begins before the launch that writes B has ended, and asks for A's first chunks meanwhile; not under TOKENS
//   SPREAD     1: warps of a strip share the adding of slices; `separate` is 0, all blocks run at once (or time is lost)
#if SWIGLU && (TOKENS || BIAS || TF32)
#error "a result of SwiGLU has two rows of sums, which are neither turned nor shifted"
#endif
#include "async_barrier.cuh"
#include "nnz.cuh"
#include "tensor_core.cuh"
#include "tensor_spmm_copies.cuh"
#include "tensor_spmm_expand.cuh"
#include "tensor_spmm_shape.cuh"
#include "tensor_spmm_sums.cuh"
#if TF32
#include "tensor_spmm_tf32.cuh"
#else
#include "tensor_spmm_multiply.cuh"
#endif

// partial: the sums of every column tile, strip and slice, as its lanes hold them. arrived: of every column tile and strip the
// warps that have left theirs, under SPREAD of each of kSums parts; 0 before and after a launch.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    tensor_spmm(int m, int n, int k, int strips, int panels, int slot_bytes, int separate,
                const int* __restrict__ panel_chunks, const int4* __restrict__ starts, const int* __restrict__ offsets,
                const uint4* __restrict__ stream, const Element* __restrict__ b, float4* partial, int* arrived,
                Element* __restrict__ c
#if EARLY
                ,
                const uint4* __restrict__ heads
#endif
#if FP8 || SWIGLU
                ,
                float scale
#endif
#if BIAS
                ,
                const Element* __restrict__ bias
#endif
    ) {
    DYN_SHARED(char, unaligned);
    __shared__ nnz::Barrier full[kPanels], empty[kPanels], filled[BULK ? kWarps * kStages : 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int strip = blockIdx.x * kWarps + warp;
    const int first_column = blockIdx.z * kBlockN;
    const int slices = gridDim.y;
    const int first_panel = static_cast<int>(static_cast<Product>(panels) * blockIdx.y / slices);
    const int end_panel = static_cast<int>(static_cast<Product>(panels) * (blockIdx.y + 1) / slices);
    const int plain = (k + kChunkK - 1) / kChunkK;

    // Warps behind the last strip take part in copying B alone. Four that multiply together must all have one.
    const bool active = WIDE || strip < strips;
    const int held_strip = min(strip, strips - 1);
    const int* const own_panels = panel_chunks + static_cast<long long>(held_strip) * panels;
    const SliceStart begin(starts + (static_cast<long long>(held_strip) * slices + blockIdx.y) * SliceStart::kLoads);
    const auto b_halves = reinterpret_cast<const nnz::Half*>(b);
    PanelSource source(b_halves, first_panel * kPanelK, kHalves * first_column, k, kHalves * n);
    nnz::let_next_begin();
#if TOKENS
    source.begin(end_panel - first_panel);
#endif
    if (threadIdx.x < kPanels) {
        nnz::barrier_init(&full[threadIdx.x], kThreads);
        nnz::barrier_init(&empty[threadIdx.x], kWarps);
    }
#if BULK && !EARLY
    if (threadIdx.x < kWarps * kStages) {
        nnz::barrier_init(&filled[threadIdx.x], 1);
        nnz::barrier_init_fence();
    }
#endif
    // Shared memory, its pieces aligned to whole rows of eight pieces
    const int skipped = (kAlign - static_cast<int>(__cvta_generic_to_shared(unaligned) % kAlign)) % kAlign;
    char* const shared = unaligned + skipped;
    const nnz::SharedAt panels_at = nnz::kept(nnz::shared_at(shared));
    Chunks packed{
        stream,     offsets, filled + warp * kStages, panels_at + kPanels * kPanelBytes + warp * kStages * slot_bytes,
        slot_bytes, lane};
#if EARLY
    const long long head = (static_cast<long long>(held_strip) * slices + blockIdx.y) * (slot_bytes / 16);
    packed.start_early(active ? heads + head : nullptr);
#endif
    __syncthreads();

    int requested = first_panel, request_stage = 0;
    unsigned request_parity = 1;  // nothing to wait for in the first round
    const auto free_panel = [&] {
        nnz::barrier_wait(&empty[request_stage], request_parity);
        return shared + request_stage * kPanelBytes;
    };
    const auto panel_requested = [&] {
        if constexpr (kFill == 1 || kTokens) {
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
    const auto request_panel = [&] {
        if (requested >= end_panel) return;
        source.request(free_panel(), b_halves, kHalves * n);
        panel_requested();
    };
    const int first_chunk = begin.chunk;
#if OVERLAPS
    packed.start(begin, active);
    nnz::wait_for_previous();
#endif
#if !TOKENS
#pragma unroll 1
    for (int i = 0; i < PanelSource::kFirst; ++i) request_panel();
#endif
#if !OVERLAPS
    packed.start(begin, active);
#endif
#if TOKENS  // waits for what was asked for
#pragma unroll
    for (int i = 0; i < PanelSource::kFirst && requested < end_panel; ++i) {
        source.first(i, free_panel());
        panel_requested();
    }
#endif

#if !WIDE
    nnz::SharedAt bases[kBases];
#pragma unroll
    for (int j = 0; j < kBases; ++j) bases[j] = nnz::kept(panels_at + base_at(lane, j));
#endif
    Sums acc = {};
    [[maybe_unused]] int chunk = first_chunk;
    int stage = 0;
    int next_end = active ? begin.next_panel : first_chunk;
    unsigned parity = 0;
#pragma unroll 1
    for (int panel = first_panel; panel < end_panel; ++panel) {
        [[maybe_unused]] const int end = next_end;
        if (active) next_end = nnz::ldg(own_panels + min(panel + 2, end_panel));
        // `wide_ready` waits for copies that are on their way, too: the next panel's must not be among them
        const bool further = PanelSource::kFirst < kPanels || panel > first_panel;
        if ((!WIDE || kPanels == 1) && further) request_panel();
        nnz::barrier_wait(&full[stage], parity);
#if WIDE
        nnz::wide_ready();
        if (kPanels > 1 && further && !PAIRS) request_panel();
#endif
        const int plain_here = active ? min(kPanelChunks, plain - panel * kPanelChunks) : 0;
#pragma unroll 1
        for (int i = 0; i < plain_here; ++i) {
            const nnz::SharedAt head = packed.take();
            const int offset = stage * kPanelBytes + i * (kChunkK * kRowBytes);
#if TF32
            nnz::SharedAt at = head + nnz::load_at<nnz::Half>(head + kStartsAt + 2 * lane);
            multiply_words(acc, head + 4 * lane, at, bases, offset);
#else
            Plain own(head, lane);
            Registers a;
            const unsigned selected = own.expand_step<0>(a);
#if WIDE
            multiply_wide_plain(acc, a, selected, own, panels_at + offset);
#if PAIRS
            if (kPanels > 1 && i == 0 && further) request_panel();  // waits for who is behind: not before a product
#else
            nnz::wide_wait<0>();
#endif
#else
            multiply_plain(acc, a, selected, own, bases, offset);
#endif
#endif
        }
#if PAIRS
        nnz::wide_wait<0>();
#elif !TF32
        const nnz::SharedAt panel_at = panels_at + stage * kPanelBytes;
#pragma unroll 1
        for (chunk += plain_here; chunk < end; ++chunk) {
            const nnz::SharedAt head = packed.take();
            nnz::SharedAt at = head + nnz::load_at<nnz::Half>(head + kStartsAt + 2 * lane);
            multiply_gathered(acc, head, at, panel_at, lane);
        }
#endif
        __syncwarp();
        if (lane == 0) nnz::barrier_arrive(&empty[stage]);
        if (++stage == kPanels) {
            stage = 0;
            parity ^= 1;
        }
    }
    nnz::cp_async_wait<0>();
    if (!active) return;

    const int first_row = strip * kStripM + lane / 4;
#if SWIGLU  // of C
    const auto row_of = [&](int tile, int) { return strip * (kStripM / 2) + tile / kColumns * 8 + lane / 4; };
#else
    const auto row_of = [&](int tile, int e) { return first_row + tile / kColumns * 16 + e / 2 * 8; };
#endif
    const auto column_of = [&](int tile, int e) { return first_column + tile % kColumns * 8 + lane % 4 * 2 + e % 2; };
#if BIAS
    const Shift shifts[kTiles] = {Shift(bias, first_row, m), Shift(bias, first_row + 16, m)};
#endif
    const auto store = [&](int tile, float4 sum) {
#if BIAS
        (tile < kColumns ? shifts[0] : shifts[1]).add_to(sum);
#endif
        store_tile(c, m, n, first_row + tile / kColumns * 16, first_column + tile % kColumns * 8 + lane % 4 * 2, sum);
    };
#if FP8 || SWIGLU
#pragma unroll
    for (int i = 0; i < 4 * kSums; ++i) acc[i / 4 / kColumns][i / 4 % kColumns][i % 4] *= scale;
#endif
    const long long place = static_cast<long long>(blockIdx.z) * strips + strip;
    float4* const sums = partial + place * slices * (kSums * 32) + lane;
#pragma unroll
    for (int tile = 0; tile < kSums; ++tile) {
        const float (&own)[4] = acc[tile / kColumns][tile % kColumns];
        const float4 sum = make_float4(own[0], own[1], own[2], own[3]);
        if (slices == 1) {
            store(tile, sum);
        } else {
            __stcg(sums + (blockIdx.y * kSums + tile) * 32, sum);
        }
    }
    bool all_finite = true;
#pragma unroll
    for (int i = 0; i < 4 * kSums; ++i) {
        all_finite = all_finite && nnz::finite(acc[i / 4 / kColumns][i / 4 % kColumns][i % 4]);
    }
    if (kTokens) __syncwarp();  // lanes have stored others' sums
    if (!all_finite) {  // rare: sums are read again from where they were stored, so that this code is there once
#pragma unroll 1
        for (int i = 0; i < 4 * kSums; ++i) {
            const int row = row_of(i / 4, i % 4), column = column_of(i / 4, i % 4);
            if (row >= m || column >= n) continue;
            Element* const stored = c + dense_at(row, column, m, n);
            float* const left = reinterpret_cast<float*>(sums + (blockIdx.y * kSums + i / 4) * 32) + i % 4;
            if (nnz::finite(slices == 1 ? widen(*stored) : __ldcg(left))) continue;
#if SWIGLU
            const auto exact = [&](int half) {
                const int of_strip = i / 4 / kColumns * 16 + half * 8 + lane / 4;
                return scale *
                       exact_sum(stream, offsets, own_panels, first_panel, end_panel, plain, of_strip, b, k, n, column);
            };
            const float sum = slices == 1 ? gated(exact(0), exact(1)) : exact(i % 4 / 2);
#else
            float sum =
                exact_sum(stream, offsets, own_panels, first_panel, end_panel, plain, row % kStripM, b, k, n, column);
#if FP8
            sum *= scale;
#endif
#endif
            if (slices == 1) {
#if BIAS
                if (bias != nullptr) sum += widen(bias[row]);
#endif
                *stored = narrow(sum);
            } else {
                __stcg(left, sum);
            }
        }
    }
    if (slices == 1 || separate) return;
    __syncwarp();
    // Tiles `first`, `first` + step and so on, several at a time
    const auto add_slices = [&](int first, int step) {
        const auto there = [&](int tile) { return !SPREAD || tile < kSums; };
#pragma unroll 1
        for (; first < kSums; first += kBatchTiles * step) {
            float4 total[kBatchTiles];
#pragma unroll 1
            for (int slice = 0; slice < slices; slice += kBatchSlices) {
                float4 more[kBatchSlices][kBatchTiles];
#pragma unroll
                for (int s = 0; s < kBatchSlices; ++s) {
#pragma unroll
                    for (int i = 0; i < kBatchTiles; ++i) {
                        const int tile = first + i * step;
                        more[s][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                        if (slice + s < slices && there(tile)) {
                            more[s][i] = __ldcg(sums + ((slice + s) * kSums + tile) * 32);
                        }
                    }
                }
#pragma unroll
                for (int s = 0; s < kBatchSlices; ++s) {
#pragma unroll
                    for (int i = 0; i < kBatchTiles; ++i) {
                        if (slice + s == 0) {
                            total[i] = more[s][i];
                        } else {
                            add(total[i], more[s][i]);
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < kBatchTiles; ++i) {
                if (there(first + i * step)) store(first + i * step, total[i]);
            }
        }
    };
#if SPREAD
    unsigned parts = own_parts(arrived + place * kSums, slices, blockIdx.y, lane);
    for (; parts != 0; parts &= parts - 1) add_slices(__ffs(static_cast<int>(parts)) - 1, min(slices, kSums));
#else
    int before = 0;
    if (lane == 0) before = arrive_in_order(arrived + place);
    if (__shfl_sync(0xffffffffu, before, 0) != slices - 1) return;
    if (lane == 0) arrived[place] = 0;
    __syncwarp();
    add_slices(0, 1);
#endif
}

// Adds the slices of `partial` in their order. A warp adds one 16x8 tile of sums; tiles, strips and column tiles make the grid.
extern "C" __global__ void __launch_bounds__(256)
    tensor_spmm_add(int m, int n, int strips, int slices, int tiles, const float4* __restrict__ partial,
                    Element* __restrict__ c
#if BIAS
                    ,
                    const Element* __restrict__ bias
#endif
    ) {
    const int tile_of_all = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    nnz::let_next_begin();
    nnz::wait_for_previous();
    if (tile_of_all >= tiles) return;
    const int tile = tile_of_all % kSums, place = tile_of_all / kSums;
    const float4* const sums = partial + (static_cast<long long>(place) * slices * kSums + tile) * 32 + lane;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int slice = 0; slice < slices; ++slice) add(total, __ldcg(sums + slice * (kSums * 32)));
    const int row = place % strips * kStripM + tile / kColumns * 16 + lane / 4;
    const int column = place / strips * kBlockN + tile % kColumns * 8 + lane % 4 * 2;
#if BIAS
    Shift(bias, row, m).add_to(total);
#endif
    store_tile(c, m, n, row, column, total);
}
