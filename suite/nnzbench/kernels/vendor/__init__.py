"""NVIDIA's libraries, the rivals: cuBLAS, cuBLASLt, cuSPARSE, cuSPARSELt, cuDNN."""
