"""Code generated per matrix: the inspector of SparseRT. Pure functions from a pattern to program text."""
