"""Sparse formats, pruners, generators and loaders. NumPy only; every bad input raises `MatrixError`."""
