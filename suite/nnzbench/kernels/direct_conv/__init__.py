"""Direct sparse convolution (2021): the published kernel, and a generated one of this project."""
