"""SpMM and SDDMM that stream B through a ring of chunks in shared memory: designs of this project."""
