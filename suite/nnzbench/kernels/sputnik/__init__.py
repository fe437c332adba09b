"""Sputnik (SC 2020): SpMM, SDDMM, softmax, and the steps of its two networks."""
