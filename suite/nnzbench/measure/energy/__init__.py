"""Joules of a launch, by the counter of the GPU's own board."""
