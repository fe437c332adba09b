"""Sputnik (SC 2020): what its experiments share."""

from __future__ import annotations

from nnzbench.data.problems.experiment import SPMM

PAPER = "Sputnik (SC 2020)"
OTHER_PAPERS = ("merge_spmm", "aspt", "aspt_sddmm")
"""Other papers' kernels that figure 10 compares with."""
AS_DATA = SPMM[1:]
"""Where matrices have more nonzeros than code can hold."""

EQUAL_ACCURACY = (("1", "1.3"), ("1.2", "1.5"), ("1.4", "1.8"))
"""Widths of the dense and the sparse MobileNetV1 of the same accuracy: the paper's pairs."""
