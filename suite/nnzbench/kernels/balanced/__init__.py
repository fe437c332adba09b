"""Balanced Sparsity (AAAI 2019): the same number of nonzeros in every range of every row."""
