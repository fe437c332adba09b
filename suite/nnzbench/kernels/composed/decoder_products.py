"""Products of a decoder's network: which candidate computes each, and that one in device memory.

Each block's product runs over a copy of the weights of its own. For every matrix it is the candidate that is fastest
over such copies on the GPU at hand, out of all of a library's and the first of a kernel of ours. A sparse network's may
be a dense one, where that is faster.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from nnzbench.core.architectures import architecture
from nnzbench.core.plan import Array, Candidate, Ends, Prepared, SharedWork, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.buffers import inputs, weights_of
from nnzbench.data.problems.decoder import HEAD, Case, matrices, scales
from nnzbench.data.problems.operands import Operands, operands_of, round_to
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.devices import Device
from nnzbench.devices.build.pool import compiled_ahead
from nnzbench.devices.gpu import GpuDevice, LaunchError
from nnzbench.kernels.copies import each, over_copies, weight_names
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.tensor import spmm, spmv
from nnzbench.kernels.vendor.cublas import UNPRUNED

TRIED = {"delta_spmv": 6, "tensor_spmm": 4}
"""Candidates of a kernel of ours that are tried for each matrix: of some each is packed anew, which takes seconds."""
GATED = {"delta_spmv": spmv.gated, "tensor_spmm": spmm.gated}
"""Plans of the product with gates that does SwiGLU, by kernel."""
STEP_US = 1.0
"""At least what a step costs that a product does by itself."""
_SHARED = SharedWork()


class ProductChoice(NamedTuple):
    """The candidate of a product that was the fastest."""

    us: float
    kernel: str
    variant: str


@dataclass(frozen=True)
class ProductFamily:
    """How the products of a network are computed."""

    math: DType
    kernels: tuple[str, ...]
    multiple: int = 1
    """Columns are padded to a multiple of this."""
    whole: bool = False
    """Whether every weight is multiplied, zeros included."""
    or_dense: bool = False
    """Whether a matrix may have a product of `DENSE` instead."""

    def columns(self, n: int) -> int:
        """That a product has for n tokens."""
        return -(-n // self.multiple) * self.multiple


DENSE = ProductFamily("f16", ("cublas", "cublaslt"), whole=True)


@dataclass
class Product:
    """A product in device memory, over each block's weights."""

    prepared: Prepared
    runs: list[Callable[[], None]]
    b: Any
    c: Any
    into: tuple[int, int]
    """Steps of its operand's rows and columns."""
    out: tuple[int, int]
    """Steps of its result's rows and columns."""
    c_turned: bool


class DecoderNetwork:
    """The products of one problem: its matrices, and which candidate computes each."""

    def __init__(self, problem: Problem, operands: Operands, device: Device) -> None:
        self.problem, self.operands, self.device = problem, operands, device

    @functools.cached_property
    def case(self) -> Case:
        """Sizes. Raises `MatrixError` where they are not those of the model that is named."""
        return Case.of(self.problem)

    @functools.cached_property
    def matrices(self) -> Mapping[str, CSR]:
        """Of a block, by name."""
        weights = self.operands.sparse
        return _SHARED.once_for(weights, "matrices", lambda: matrices(self.case.net, weights))

    @functools.cached_property
    def scales(self) -> Mapping[str, float]:
        """What FP8 operands are multiplied by."""
        return scales(self.matrices)

    def matrix(self, name: str, family: ProductFamily) -> CSR:
        """A product's, rounded to the family's type; the same one for every problem with these weights."""
        if name == HEAD:
            dense = self.operands.dense["head"]
            return _SHARED.once_for(dense, "head", lambda: _whole(dense.copy()))
        own = self.matrices[name]
        whole = family.whole and own.nnz < own.m * own.k

        def make() -> CSR:
            rounded = own.with_values(round_to(own.values, family.math))
            return _whole(rounded.to_dense()) if whole else rounded

        return _SHARED.once_for(self.operands.sparse, ("matrix", name, family.math, whole), make)

    def part(self, name: str, family: ProductFamily) -> tuple[Problem, Operands]:
        """A product as a problem of its own, and its operands."""
        matrix, whole = self.matrix(name, family), self.problem
        sized = replace(whole, m=matrix.m, k=matrix.k, n=family.columns(whole.n), sparsity=round(matrix.sparsity, 4))
        one = replace(sized, name=f"{whole.label}_{name}", op="spmm", dtype=family.math, label="")
        return one, operands_of(one, matrix, "")

    def tried(self, name: str, family: ProductFamily) -> Iterator[tuple[str, Candidate]]:
        """The candidates of a product that are tried, with the kernel of each. Raises `Unsupported` without any."""
        one, made = self.part(name, family)
        refusals = []
        for kernel in family.kernels:
            try:
                for candidate in itertools.islice(
                    candidates(kernels()[kernel], one, made, self.device), TRIED.get(kernel)
                ):
                    if not candidate.variant.endswith(UNPRUNED) and _plain(candidate, made):
                        yield kernel, replace(candidate, operands=made)
                if kernel == "delta_spmv" and one.n == 1:
                    return  # of a single column it was the fastest on every layer recorded, at 50 % zeros and more
            except Unsupported as error:
                refusals.append(str(error))
        if len(refusals) == len(family.kernels):
            raise Unsupported(refusals[0])

    def chosen(self, name: str, family: ProductFamily) -> tuple[str, ProductFamily, Candidate]:
        """The candidate that computes a product, with inputs of its own, its kernel and of which family it is.

        It is the fastest over copies. Raises `Unsupported` where none runs.
        """
        best = self._best(name, family)
        if family.or_dense and isinstance(self.device, GpuDevice):
            dense = self._best(name, DENSE)
            best, family = (best, family) if best.us <= dense.us else (dense, DENSE)
        alone = self.tried(name, replace(family, kernels=(best.kernel,)))
        return best.kernel, family, next(candidate for _, candidate in alone if candidate.variant == best.variant)

    def _best(self, name: str, family: ProductFamily) -> ProductChoice:
        """Of a dense product the same for all weights of its size."""
        net, n = self.case.net, family.columns(self.problem.n)
        size = (net.vocabulary, net.hidden) if name == HEAD else net.products[name]
        key = ("best", self.device.name, *size, n, family)
        refusal = f"no candidate of {', '.join(family.kernels)} runs {name}"

        def fastest() -> ProductChoice:
            return self._fastest(list(self.tried(name, family)), refusal)

        return (
            _SHARED.once(key, fastest)
            if family.whole
            else _SHARED.once_for(self.operands.sparse, (name, *key), fastest)
        )

    def _fastest(self, found: list[tuple[str, Candidate]], refusal: str) -> ProductChoice:
        """Of kernels' candidates, timed; on the processor the first. Raises `Unsupported` where none runs."""
        device = self.device
        if not isinstance(device, GpuDevice):
            return ProductChoice(0.0, found[0][0], found[0][1].variant)
        timed: list[ProductChoice] = []
        each_one = (overlapping(one, device) for _, one in found)
        for candidate in compiled_ahead(each_one, device.arch, device.link):
            kernel = next(kernel for kernel, one in found if one.variant == candidate.variant)
            try:
                timed.append(ProductChoice(_timed(device, candidate), kernel, candidate.variant))
            except (Unsupported, LaunchError) as error:
                refusal = str(error)
        if not timed:
            raise Unsupported(refusal)
        return min(timed)

    def gated(self, family: ProductFamily) -> Candidate | None:
        """The product with gates and what they let through, its result that of SwiGLU; None where it has none.

        Its kernel is that of the product without, if one of `GATED`.
        """
        kernel, own, chosen = self.chosen("up", family)
        if kernel not in GATED or own.math != "f16":
            return None
        asked = (*self.part("up", own), self.device.arch, chosen.variant, self.scales["up"])
        found: dict[str, Candidate] = {}
        with contextlib.suppress(Unsupported):
            for plan in itertools.islice(GATED[kernel](*asked), TRIED[kernel]):
                prepare = functools.partial(self.device.prepare, plan)
                found[plan.variant] = replace(chosen, variant=plan.variant, plan=plan, prepare=prepare)
        if not found:
            return None

        def fastest() -> ProductChoice:
            return self._fastest([(kernel, one) for one in found.values()], "no product with SwiGLU runs")

        key = ("gated", self.device.name, self.problem.n, kernel)
        best = _SHARED.once_for(self.operands.sparse, key, fastest)
        return found[best.variant] if best.us <= self._best("up", own).us + STEP_US else None

    def gated_product(self, family: ProductFamily, following: Product) -> Product | None:
        """It in device memory, with its result in the operand of the product that follows; None, too, if that has it
        by columns."""
        n = self.problem.n
        candidate = self.gated(family) if following.into[0] == n else None
        if candidate is None:
            return None
        candidate = overlapping(candidate, self.device)
        plan, made = candidate.plan, candidate.operands
        assert plan is not None
        assert isinstance(self.device, GpuDevice)
        prepared = candidate.prepare()
        arrays: dict[str, Any] = {**prepared.arrays, plan.output: following.b}
        runs = [self.device.bind(plan, arrays)]
        names = weights_of(plan, made)
        for _ in range(self.case.net.blocks - 1):
            runs.append(self.device.bind(plan, arrays | {name: arrays[name].copy() for name in names}))
        return Product(prepared, runs, arrays[inputs(plan, made)["b"]], following.b, (n, 1), (n, 1), False)

    def product(self, name: str, family: ProductFamily) -> Product:
        """The product in device memory, over as many copies of its weights as there are blocks."""
        _, _, candidate = self.chosen(name, family)
        made: Operands = candidate.operands
        prepared = overlapping(candidate, self.device).prepare()
        (m, k), n = (made.sparse.m, made.sparse.k), made.dense["b"].shape[1]
        blocks = 1 if name == HEAD else self.case.net.blocks
        names = weight_names(candidate, prepared, made)
        prepared.run()
        runs = [prepared.run, *(prepared.copied(names) for _ in range(blocks - 1) if prepared.copied)]
        ends = prepared.ends
        if ends is None:
            plan = candidate.plan
            assert plan is not None
            ends = Ends(prepared.arrays[inputs(plan, made)["b"]], prepared.arrays[plan.output], False, False)
        into, out = (1, k) if ends.b_turned else (n, 1), (1, m) if ends.c_turned else (n, 1)
        return Product(prepared, runs, ends.b, ends.c, into, out, ends.c_turned)


def overlaps(device: Device) -> bool:
    """Whether launches may begin there before those that precede them have ended."""
    return (
        isinstance(device, GpuDevice)
        and device.backend.attributes
        and architecture(device.arch).has("dependent_launch")
    )


def overlapping(candidate: Candidate, device: Device) -> Candidate:
    """The candidate for a graph of launches that overlap, where they can and it is one of ours."""
    if candidate.plan is None or not overlaps(device):
        return candidate
    plan = candidate.plan.overlapping()
    return replace(candidate, plan=plan, prepare=functools.partial(device.prepare, plan))


def _whole(dense: Array) -> CSR:
    m, k = dense.shape
    offsets = (np.arange(m + 1, dtype=np.int64) * k).astype(np.int32)
    return CSR(m, k, offsets, np.tile(np.arange(k, dtype=np.int32), m), dense.reshape(-1))


def _plain(candidate: Candidate, made: Operands) -> bool:
    """Whether a candidate takes its dense operand and leaves its result as they are, and not in a form of its own."""
    plan = candidate.plan
    return plan is None or (plan.unpermute is None and "b" in inputs(plan, made))


def _timed(device: GpuDevice, candidate: Candidate) -> float:
    """Microseconds of a product, with the GPU for itself."""
    with device.alone(), contextlib.closing(candidate.prepare()) as prepared:
        prepared.run()
        runs = over_copies(candidate, prepared, None, device.timer)
        replay = device.timer.capture(functools.partial(each, runs), 1)
        device.timer.elapsed_us(replay)
        return min(device.timer.elapsed_us(replay) for _ in range(3)) / len(runs)
