"""What a kernel's module needs: the contract of docs/adding-a-kernel.md in one import, also for files of users."""

from __future__ import annotations

from pathlib import Path

from nnzbench.core.plan import Arg, Array, Candidate, Launch, Plan, Prepared, Resources, Unsupported, plans_that_fit
from nnzbench.kernels.registry import About, Kernel, Role, VendorKernel, candidates, kernels, register
from nnzbench.kernels.torch_calls import TorchCSR, torch_kernel

__all__ = [
    "About", "Arg", "Array", "Candidate", "Kernel", "Launch", "Plan", "Prepared", "Resources", "Role", "TorchCSR",
    "Unsupported", "VendorKernel", "candidates", "kernels", "plans_that_fit", "register", "source_text", "torch_kernel",
]  # fmt: skip


def source_text(path: Path) -> str:
    """The text of a `.cu` file for `Plan.source`, so that a compiler's messages name the file and its own lines."""
    return f'#line 1 "{path.name}"\n{path.read_text(encoding="utf-8")}'
