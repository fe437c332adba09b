"""Direct sparse convolution (2021)."""
