"""A kernel taken along: its packed weights and its program, to multiply a caller's own arrays with."""
