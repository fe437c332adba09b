"""Direct sparse convolution (2022)."""
