"""Choosing a kernel and its tiling without measuring: rules, and costs fitted to recorded runs."""
