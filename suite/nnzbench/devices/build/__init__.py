"""From a plan's program to a cubin: toolchain, cache, and worker processes that compile. Needs no GPU."""
