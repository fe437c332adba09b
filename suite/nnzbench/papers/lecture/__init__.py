"""Accelerating Sparse Deep Neural Networks (2021)."""
