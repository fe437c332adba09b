"""What a kernel's module needs: the contract of docs/adding-a-kernel.md in one import, also for files of users."""

from __future__ import annotations

from nnzbench.kernels.registry import Kernel, VendorKernel, candidates, kernels, register
from nnzbench.kernels.roles import About, Role
from nnzbench.plans.plan import Arg, Array, Candidate, Launch, Plan, Prepared, Resources, Unsupported, plans_that_fit

__all__ = [
    "About",
    "Arg",
    "Array",
    "Candidate",
    "Kernel",
    "Launch",
    "Plan",
    "Prepared",
    "Resources",
    "Role",
    "Unsupported",
    "VendorKernel",
    "candidates",
    "kernels",
    "plans_that_fit",
    "register",
]
