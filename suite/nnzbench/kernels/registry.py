"""Every kernel by name, what it says of itself beside its plans, and whose each recorded row is.

Reports, limits and validation ask `about`, and keep no list of names.
Adding a kernel touches two places: `kernels_cu/<name>.cu` and one module in `nnzbench/kernels/` that calls
`register`. A vendor library is a kernel too; it yields prepared callables instead of plans.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar, get_args, runtime_checkable

from nnzbench.core.plan import Candidate, Plan, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType, Op, Problem
from nnzbench.devices import Device

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
    pattern: Literal["", "balanced", "2:4", "V:N:M"] = ""
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
    """All its candidates run untuned (`measure.trial`), on every problem: its first choices are its best."""
    study: bool = False
    """Made to show what a part of another kernel is worth, or of another one's plans: no baseline of its own."""
    study_variants: Callable[[Problem], tuple[str, ...]] | None = None
    """What the variants of a study begin with on a problem, where it needs a time of each and coverage counts each;
    None where the fastest stands for all."""
    part: bool = False
    """Computes parts of its problems alone, of a network: their rows have no roofline."""
    refuses: Callable[[Problem, CSR], None] | None = None
    """Raises `Unsupported` where it takes no such matrix, of a kernel whose plans are slow to make or that has none.
    None where its first plan tells."""
    weights_in_code: bool = False
    """The matrix's positions, or its values too, are compiled into the program: new weights need a new one."""
    rank: int = 1000
    """Place in legends and tables, smaller first; equals by name."""
    samples: tuple[Problem, ...] = ()
    """Small problems that show its variants, of a kernel that refuses those that all kernels are shown on."""

    def takes(self, kind: str) -> bool:
        """Whether it multiplies matrices of a kind of pattern (`describe.pattern_of`)."""
        return self.pattern in ("", kind) or (self.pattern == "V:N:M" and kind.count(":") == 2)

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


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def paper(self) -> str: ...
    @property
    def ops(self) -> frozenset[str]: ...
    @property
    def dtypes(self) -> frozenset[str]: ...


@runtime_checkable
class Kernel(_Named, Protocol):
    """A kernel of ours or of a paper: yields plans. Raises `Unsupported` with a reason."""

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Every variant worth trying, launch geometry included. `arch` is such as `sm_90`."""
        ...


@runtime_checkable
class VendorKernel(_Named, Protocol):
    """A vendor library: yields candidates, one per algorithm, layout and math mode."""

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """Every algorithm on this device; raises `Unsupported` where the library or device is missing."""
        ...


AnyKernel = Kernel | VendorKernel


class KernelDefect(Exception):
    """A kernel breaks its contract; the message names the kernel and what it did."""


_registry: dict[str, AnyKernel] = {}
_about: dict[str, About] = {}
_OLD_ROLES: dict[str, Role] = {"guest": "external"}
"""Former names of roles, which users' files may still have."""


def register(kernel: AnyKernel, about: About | None = None) -> None:
    """Adds a kernel under its name, with what it says of itself; without that it is `external`.

    A second kernel of the same name, or one of a retired name, is an error (`ValueError`), and so is one that lacks
    what `Kernel` and `VendorKernel` ask for.
    """
    _check(kernel)
    if kernel.name in _registry:
        raise ValueError(f"kernel '{kernel.name}' is registered twice")
    if kernel.name in RETIRED:
        raise ValueError(f"kernel '{kernel.name}' was retired, and recorded rows have its name: choose another")
    about = about or About()
    _registry[kernel.name] = kernel
    role, maths = _OLD_ROLES.get(about.role, about.role), about.maths or kernel.dtypes
    _about[kernel.name] = replace(about, role=role, label=about.label or kernel.name, maths=maths)


Plans = Callable[..., Iterator[Plan]]
"""`Kernel.plans` as a function of problem, operands and architecture; of a variant too where it is `by_name`."""


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel that consists of its `plans`."""

    name: str
    paper: str
    ops: frozenset[str]
    dtypes: frozenset[str]
    plans: Plans
    by_name: bool = False
    """Whether `plans` takes a variant, and yields then those alone whose names differ in what follows from weights."""


Find = Callable[[Problem, Operands, Device], Iterator[Candidate]]
"""`VendorKernel.candidates` as a function."""


@dataclass(frozen=True)
class FoundKernel:
    """A kernel that consists of its `candidates`: a library's, or one of whole networks."""

    name: str
    paper: str
    ops: frozenset[str]
    dtypes: frozenset[str]
    candidates: Find


def kernel(paper: str, ops: str, dtypes: str, about: About, by_name: bool = False) -> Callable[[Plans], PlannedKernel]:
    """Registers a function that yields plans as the kernel of its name; several `ops` or `dtypes` in one string."""

    def made(plans: Plans) -> PlannedKernel:
        one = PlannedKernel(plans.__name__, paper, frozenset(ops.split()), frozenset(dtypes.split()), plans, by_name)
        register(one, about)
        return one

    return made


def _check(kernel: object) -> None:
    """Raises `ValueError` naming the first thing that is missing or of the wrong kind."""
    name = getattr(kernel, "name", None)
    if not isinstance(name, str) or not name or any(not one.isprintable() or one in " ,/" for one in name):
        raise ValueError(f"a kernel's name must be one word, not {name!r}")
    if not isinstance(getattr(kernel, "paper", None), str):
        raise ValueError(f"kernel '{name}' needs a `paper`: where it was published, or 'none'")
    for attribute, allowed in (("ops", get_args(Op)), ("dtypes", get_args(DType))):
        found = getattr(kernel, attribute, None)
        if not isinstance(found, Set) or not found or not set(found) <= set(allowed):
            raise ValueError(f"kernel '{name}' needs `{attribute}`: a set out of {', '.join(allowed)}, not {found!r}")
    if not any(callable(getattr(kernel, method, None)) for method in ("plans", "candidates")):
        raise ValueError(f"kernel '{name}' needs a method `plans` (or `candidates`, for a library)")


def forget(name: str) -> AnyKernel:
    """Takes a kernel out again."""
    _about.pop(name)
    return _registry.pop(name)


def kernels() -> dict[str, AnyKernel]:
    """Every registered kernel by name, after importing each module of `nnzbench.kernels` once."""
    _import_modules()
    return dict(sorted(_registry.items()))


@functools.cache
def _import_modules() -> None:
    package = importlib.import_module("nnzbench.kernels")
    for module in pkgutil.walk_packages(package.__path__, "nnzbench.kernels."):
        importlib.import_module(module.name)


def about(name: str) -> About:
    """What the kernel of that name says of itself, retired ones included; a name nobody knows is `external`."""
    _import_modules()
    found = _about.get(name) if name in _registry else None
    return found or RETIRED.get(name) or About(label=name)


def of_study(variant: str, needed: str) -> bool:
    """Whether a row of that variant is of one that a study needs (`About.study_variants`): a row that names none, as
    of a kernel that refused its problem, is of all."""
    return variant.startswith(needed) or not variant


def known() -> dict[str, About]:
    """What every kernel that rows may name says of itself, in the order of legends: retired ones too."""
    names = sorted({*kernels(), *RETIRED}, key=lambda name: (about(name).rank, name))
    return {name: about(name) for name in names}


def _those(wanted: Callable[[str, About], bool]) -> tuple[str, ...]:
    return tuple(name for name, one in known().items() if wanted(name, one))


def dense_libraries(math: str) -> tuple[str, ...]:
    """Vendors' kernels that multiply by every weight and can do so in that arithmetic, in the order of legends."""
    return _those(lambda name, one: (one.role, one.work) == ("library", "dense") and math in one.maths)


def baselines(op: str) -> tuple[str, ...]:
    """Kernels that compute `op` and would be run for their speed: all that are registered but studies of others."""
    return _those(lambda name, one: not one.study and name in _registry and op in _registry[name].ops)


def with_variant(kernel: AnyKernel, variant: str, exact: bool = True) -> AnyKernel:
    """The kernel with that one of its candidates alone; it ends when that is found, and makes no other if it can.

    Unless `exact`, the first that has that name but for what follows from weights will do.
    """
    said = kernel.name, kernel.paper, kernel.ops, kernel.dtypes
    if isinstance(kernel, VendorKernel):
        find = kernel.candidates
        return FoundKernel(*said, lambda *asked: _first_named(find(*asked), variant))
    plan: Plans = kernel.plans
    if not (isinstance(kernel, PlannedKernel) and kernel.by_name):
        return PlannedKernel(*said, lambda *asked: _first_named(plan(*asked), variant))
    if exact:
        return PlannedKernel(*said, lambda *asked: _first_named(plan(*asked, variant), variant))
    return PlannedKernel(*said, lambda *asked: itertools.islice(plan(*asked, variant), 1))


Made = TypeVar("Made", Plan, Candidate)


def _first_named(found: Iterator[Made], variant: str) -> Iterator[Made]:
    return itertools.islice((one for one in found if one.variant == variant), 1)


def role_of(name: str, variant: str) -> Role:
    """Whose a recorded row is, by its kernel and variant: where a kernel has a paper's mapping and ours, of either."""
    return about(name).role_of(variant)


def candidates(
    kernel: AnyKernel, problem: Problem, operands: Operands, device: Device, untuned: bool = False
) -> Iterator[Candidate]:
    """The candidates of any kernel: a vendor's own, or one per plan.

    If `untuned`, those that run untuned are enough: of a vendor's kernel that has a method `untuned` for them, they are
    all.
    Raises `Unsupported` where the kernel has none for this op or dtype, `KernelDefect` at the second candidate of one
    name: rows are known by it, so that one of the two would never be measured.
    """
    if problem.op not in kernel.ops:
        raise Unsupported(f"{kernel.name} does not compute {problem.op}")
    if problem.dtype not in kernel.dtypes:
        raise Unsupported(f"{kernel.name} has no {problem.dtype} form")
    if isinstance(kernel, VendorKernel):
        few = getattr(kernel, "untuned", None) if untuned else None
        found = (few or kernel.candidates)(problem, operands, device)
    else:
        found = map(functools.partial(_of_plan, device), kernel.plans(problem, operands, device.arch))
    seen: set[str] = set()
    for candidate in found:
        if candidate.variant in seen:
            raise KernelDefect(f"{kernel.name} has two candidates named '{candidate.variant}' for one problem")
        seen.add(candidate.variant)
        yield candidate


def _of_plan(device: Device, plan: Plan) -> Candidate:
    preload = getattr(device, "preload", None)
    ready = functools.partial(preload, plan) if preload else None
    prepare = functools.partial(device.prepare, plan)
    return Candidate(plan.variant, plan.math, prepare, plan=plan, tolerance=plan.tolerance, ready=ready)
