"""The lectures on pruning of MIT 6.S965 (S. Han): granularities, and 2:4 sparsity."""
