"""Matrices from files: one reader for each format (`files.py` chooses), and no trust in any of them."""
