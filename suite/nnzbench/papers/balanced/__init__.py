"""Balanced Sparsity (AAAI 2019)."""
