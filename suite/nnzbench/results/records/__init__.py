"""Recorded rows: the contract of records, their files, results folders, and which row stands for its kernel."""
