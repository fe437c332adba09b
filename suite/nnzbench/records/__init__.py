"""Recorded rows: the contract of records.csv, results folders, and which row stands for its kernel."""
