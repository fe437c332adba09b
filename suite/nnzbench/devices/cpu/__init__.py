"""`cxx/`, on which `.cu` kernels run on the processor (fibers, scheduler, the CUDA language for a C++20 compiler), and
`build`, which makes programs with the system's compiler through a cache.
"""
