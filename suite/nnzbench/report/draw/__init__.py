"""Figures, as every page draws them."""
