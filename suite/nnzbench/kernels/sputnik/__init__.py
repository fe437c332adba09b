"""Sputnik (SC 2020): SpMM, SDDMM, softmax, and the steps of its two networks."""

PAPER = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020"
