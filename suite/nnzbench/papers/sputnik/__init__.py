"""Sputnik (SC 2020)."""
