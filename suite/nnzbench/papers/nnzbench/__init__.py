"""Experiments of this project's own, of which no paper prints numbers."""
