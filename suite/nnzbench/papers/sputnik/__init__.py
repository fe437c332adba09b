"""Sputnik (SC 2020): what its experiments share."""

EQUAL_ACCURACY = (("1", "1.3"), ("1.2", "1.5"), ("1.4", "1.8"))
"""Widths of the dense and the sparse MobileNetV1 of the same accuracy: the paper's pairs."""
