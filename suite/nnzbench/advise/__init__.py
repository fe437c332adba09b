"""The answer for one's own layer: which kernel, how much faster than dense, in how much memory, up to what width."""
