"""One module per kernel family; each registers its kernels when imported (found by `nnzbench.kernel.kernels`)."""
