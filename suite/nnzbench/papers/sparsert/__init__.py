"""SparseRT (PACT 2020)."""
