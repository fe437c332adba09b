"""SparseRT (PACT 2020): straight-line code generated from the matrix, as published and as here."""

PAPER = "SparseRT (PACT 2020)"
