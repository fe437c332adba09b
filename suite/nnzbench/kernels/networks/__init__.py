"""Whole networks of Sputnik's paper, every launch in one plan: its sparse Transformer and MobileNetV1."""
