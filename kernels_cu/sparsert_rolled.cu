// The counterpart of SparseRT's generated code that reads its schedule from memory (figure 8 of the paper).
//
// Defines
//   ROWS     of the tallest block, 1 or more: accumulators of a thread
//   THREADS  of a block, 1 to 1024: its columns, whose number divides n, times its groups
#include "sparsert_rolled.cuh"

#ifndef ROWS
#define ROWS 32
#endif
#ifndef THREADS
#define THREADS 256
#endif

static_assert(ROWS >= 1, "a block has at least one row");
static_assert(THREADS >= 1 && THREADS <= 1024, "a block has 1 to 1024 threads");

extern "C" __global__ void __launch_bounds__(THREADS)
    sparsert_rolled(const float* b, float* c, const int* row_start, const int* body_start, const int* columns,
                    const int* first, const int* rows, const float* values, int n) {
    DYN_SHARED(float, sums);
    rolled<ROWS>(RolledMatrix{b, n}, c, row_start, body_start, columns, first, rows, values, sums);
}
