"""SpMM of unstructured matrices on tensor cores: a design of this project."""
