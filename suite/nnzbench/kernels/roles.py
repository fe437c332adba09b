"""What a kernel says of itself beside its plans: whose it is, how it is called, and what work bounds it.

Given to `nnzbench.kernel.register`. Reports, limits and validation ask `nnzbench.kernel.about`, and keep no
list of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nnzbench.problems.problem import Problem

Role = Literal["paper", "own", "library", "external"]
"""A published method as published; this project's design; a vendor's; a user's file."""
OURS: frozenset[Role] = frozenset({"paper", "own"})
"""Roles of kernels written here: what "this project's kernels" means in every report."""

TENSOR_CORES = frozenset({"f32", "tf32", "f16", "bf16"})
"""Arithmetic classes of a library that has them all."""


@dataclass(frozen=True)
class About:
    """All that is known of a kernel but how it computes."""

    role: Role = "external"
    label: str = ""
    """The name readers know, such as `cuBLAS`; empty for the kernel's own."""
    maths: frozenset[str] = frozenset()
    """Arithmetic classes of its variants (`check.TOLERANCE`); empty for those of its dtypes."""
    work: Literal["sparse", "dense"] = "sparse"
    """`dense` where every weight is multiplied, zeros included: its limit is that of the dense product."""
    pattern: Literal["", "balanced", "2:4"] = ""
    """Pattern that a matrix must have for it; empty where it takes any."""
    structure_bytes: Callable[[Problem, int], int] | None = None
    """Bytes of the sparse operand's structure, of the problem and its nonzeros; None for CSR's offsets and indices."""
    operand_bytes: Callable[[Problem, int], int] | None = None
    """Bytes of the whole sparse operand, values included, where these are not stored in the problem's type; then
    `structure_bytes` is not asked."""
    paper_variants: str = ""
    """Regular expression that a variant starts with where it is the paper's own mapping in a kernel of role `own`, or
    what the paper's rule chooses in one of role `paper` for which this project has a rule too."""
    reference: bool = False
    """A library's usual entry point: the 1x of pages that name none, and what stands for the library where a table
    has room for one."""
    searched: bool = False
    """Labels say `best`: its row is the fastest of several algorithms, beside which its default stands."""
    nothing_to_tune: bool = False
    """All its candidates run untuned (`measure.first`), on every problem: its first choices are its best."""
    study: bool = False
    """Made to show what a part of another kernel is worth, or of another one's plans: no baseline of its own."""
    part: bool = False
    """Computes parts of its problems alone, of a network: their rows have no roofline."""
    weights_in_code: bool = False
    """The matrix's positions, or its values too, are compiled into the program: new weights need a new one."""
    rank: int = 1000
    """Place in legends and tables, smaller first; equals by name."""
    samples: tuple[Problem, ...] = ()
    """Small problems that show its variants, of a kernel that refuses those that all kernels are shown on."""

    def of_paper(self, variant: str) -> bool:
        """Whether the variant is the paper's own, in a kernel that has others beside it."""
        return bool(self.paper_variants) and re.match(self.paper_variants, variant) is not None

    def role_of(self, variant: str) -> Role:
        """Whose a row of that variant is: a paper's mapping inside a kernel of ours is the paper's."""
        return "paper" if self.of_paper(variant) else self.role


RETIRED: dict[str, About] = {
    "panel": About("own", "panel", frozenset({"f32"}), rank=120),  # superseded by `ring`
}
"""Kernels that are gone. Their rows stay valid; nothing can run them, or take their names."""
