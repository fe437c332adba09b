"""The machine that a run measures on: its snapshot, what it can do at most, and its libraries opened."""
