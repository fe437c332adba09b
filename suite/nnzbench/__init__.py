"""nnzbench: honest GPU benchmarks of kernels that multiply by pruned weight matrices."""

__version__ = "0.1.0"
