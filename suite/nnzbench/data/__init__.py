"""What is multiplied: matrices and their patterns, and the problems made of them. NumPy, no GPU."""
