"""Decoders of language models in one graph (`problems.decoder`): steps of `decoder_steps.cu` between products.

The products are those of other kernels, each block's over a copy of the weights of its own: for every matrix the
candidate that is fastest over such copies on the GPU at hand, out of all of a library's and the first of a kernel of
ours. FP8 has the scales of `problems.operands`, per tensor and known beforehand. On the processor every product is one
of ours. `block_parts` are the chosen products alone, `block_steps` all that is left without them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnzbench.build.pool import compiled_ahead
from nnzbench.devices import Device
from nnzbench.devices.contract import each, over_copies, weight_names
from nnzbench.devices.gpu import DeviceArray, GpuDevice, LaunchError
from nnzbench.kernels.registry import About, candidates, kernels, register
from nnzbench.kernels.vendor.cublas import UNPRUNED
from nnzbench.matrices.formats import CSR
from nnzbench.plans.chain import SharedWork
from nnzbench.plans.plan import Array, Candidate, Launch, Plan, Prepared, Unsupported
from nnzbench.problems.buffers import inputs, weights_of
from nnzbench.problems.decoder import FEATURES, HEAD, LOGITS, Case, angles, matrices, scales
from nnzbench.problems.operands import Operands, operands_of, round_to
from nnzbench.problems.problem import ITEM_BYTES, DType, Problem
from nnzbench.problems.reference import Reference, reference

SOURCE = "decoder_steps.cu"
PAPER = "whole blocks: kernels of this suite and of libraries"
TRIED = 2
"""Candidates of a kernel of ours that are tried for each matrix: packing one takes seconds."""
SPLIT_TOKENS = 64
"""Cached tokens that a block of threads reads, at least."""
_SHARED = SharedWork()


@dataclass(frozen=True)
class Family:
    """How the products of a network are computed."""

    math: DType
    kernels: tuple[str, ...]
    multiple: int = 1
    """Columns are padded to a multiple of this."""

    def columns(self, n: int) -> int:
        """That a product has for n tokens."""
        return -(-n // self.multiple) * self.multiple


DENSE = Family("f16", ("cublas", "cublaslt"))
FAMILIES = {
    "dense_block": (DENSE,),
    "fp8_block": (Family("f8", ("cublaslt",), 16),),
    "two_four_block": (Family("f16", ("cusparselt",), 8), Family("f8", ("cusparselt",), 16)),
    "sparse_block": (Family("f16", ("delta_spmv", "tensor_spmm")),),
}


@dataclass(frozen=True)
class Choice:
    """The candidate of a product that was the fastest."""

    kernel: str
    variant: str


@dataclass
class Product:
    """A product in device memory, over each block's weights."""

    prepared: Prepared
    runs: list[Callable[[], None]]
    b: Any
    c: Any
    b_turned: bool
    c_turned: bool
    n: int
    """Columns, those of padding included."""
    m: int
    k: int

    @property
    def into(self) -> tuple[int, int]:
        """Steps of its operand's rows and columns."""
        return (1, self.k) if self.b_turned else (self.n, 1)

    @property
    def out(self) -> tuple[int, int]:
        """Steps of its result's rows and columns."""
        return (1, self.m) if self.c_turned else (self.n, 1)


def product_problem(problem: Problem, matrix: CSR, name: str, family: Family) -> Problem:
    """One product of the network as a problem of its own."""
    level = round(matrix.sparsity, 4)
    n = family.columns(problem.n)
    return replace(
        problem, name=f"{problem.label}_{name}", op="spmm", m=matrix.m, k=matrix.k, n=n, sparsity=level,
        dtype=family.math, label="",
    )  # fmt: skip


class Network:
    """The products of one problem: its matrices, and which candidate computes each."""

    def __init__(self, problem: Problem, operands: Operands, device: Device) -> None:
        self.problem, self.operands, self.device = problem, operands, device
        self.case = Case.of(problem)

    @functools.cached_property
    def matrices(self) -> Mapping[str, CSR]:
        """Of a block, by name."""
        weights = self.operands.sparse
        found: Mapping[str, CSR] = _SHARED.once_for(weights, "matrices", lambda: matrices(self.case.net, weights))
        return found

    @functools.cached_property
    def scales(self) -> Mapping[str, float]:
        """What FP8 operands are multiplied by."""
        return scales(self.matrices)

    def matrix(self, name: str, math: DType) -> CSR:
        """A product's, rounded to that type; the same one for every problem with these weights."""
        if name == HEAD:
            dense = self.operands.dense["head"]
            found: CSR = _SHARED.once_for(dense, "head", lambda: _whole(dense.copy()))
            return found
        own = self.matrices[name]
        if math == "f16":
            return own
        make = functools.partial(_rounded, own, math)
        return _SHARED.once_for(self.operands.sparse, ("rounded", name, math), make)

    def part(self, name: str, family: Family) -> tuple[Problem, Operands]:
        """A product's problem and operands."""
        matrix = self.matrix(name, family.math)
        one = product_problem(self.problem, matrix, name, family)
        return one, operands_of(one, matrix, "")

    def tried(self, name: str, family: Family, only: Choice | None = None) -> Iterator[tuple[str, Candidate, Operands]]:
        """The candidates of a product that are tried, or that one alone."""
        one, made = self.part(name, family)
        refusals = []
        for kernel in family.kernels if only is None else (only.kernel,):
            found = candidates(kernels()[kernel], one, made, self.device)
            try:
                if kernel not in ("cublas", "cublaslt", "cusparselt"):
                    found = itertools.islice(found, TRIED)
                for candidate in found:
                    wanted = only is None or candidate.variant == only.variant
                    if wanted and not candidate.variant.endswith(UNPRUNED) and _plain(candidate, made):
                        yield kernel, replace(candidate, operands=made), made
                    if only is not None and wanted:
                        return
                if kernel == "delta_spmv":
                    return  # of a single column it was the fastest on every layer recorded
            except Unsupported as error:
                refusals.append(str(error))
        if len(refusals) == len(family.kernels):
            raise Unsupported(refusals[0])

    def choose(self, name: str, family: Family) -> Choice:
        """The fastest over copies of its weights. Raises `Unsupported` where none runs."""
        key = ("choice", self.device.name, self.problem.n, name, family)
        chosen: Choice = _SHARED.once_for(self.operands.sparse, key, lambda: self._fastest(name, family))
        return chosen

    def _fastest(self, name: str, family: Family) -> Choice:
        device = self.device
        found = list(self.tried(name, family))
        if not isinstance(device, GpuDevice):
            return Choice(found[0][0], found[0][1].variant)
        best: tuple[float, Choice] | None = None
        refusal = f"no candidate of {', '.join(family.kernels)} runs {name}"
        for candidate in compiled_ahead(iter([one for _, one, _ in found]), device.arch, device.link):
            kernel = next(kernel for kernel, one, _ in found if one.variant == candidate.variant)
            try:
                us = _quickly(device, candidate)
            except (Unsupported, LaunchError) as error:
                refusal = str(error)
                continue
            if best is None or us < best[0]:
                best = us, Choice(kernel, candidate.variant)
        if best is None:
            raise Unsupported(refusal)
        return best[1]

    def chosen(self, name: str, family: Family) -> tuple[Candidate, Operands]:
        """The candidate that computes a product, with inputs of its own."""
        _, candidate, made = next(self.tried(name, family, self.choose(name, family)))
        return candidate, made

    def product(self, name: str, family: Family) -> Product:
        """The product in device memory, over as many copies of its weights as there are blocks."""
        candidate, made = self.chosen(name, family)
        prepared = candidate.prepare()
        matrix, n = made.sparse, made.dense["b"].shape[1]
        blocks = 1 if name == HEAD else self.case.net.blocks
        names = weight_names(candidate, prepared, made)
        prepared.run()
        runs = [prepared.run, *(prepared.copied(names) for _ in range(blocks - 1) if prepared.copied)]
        if prepared.ends is not None:
            ends = prepared.ends
            at = (ends.b, ends.c, ends.b_turned, ends.c_turned)
        else:
            plan = candidate.plan
            assert plan is not None
            at = (prepared.arrays[inputs(plan, made)["b"]], prepared.arrays[plan.output], False, False)
        return Product(prepared, runs, *at, n, matrix.m, matrix.k)


def _whole(dense: Array) -> CSR:
    m, k = dense.shape
    offsets = (np.arange(m + 1, dtype=np.int64) * k).astype(np.int32)
    return CSR(m, k, offsets, np.tile(np.arange(k, dtype=np.int32), m), dense.reshape(-1))


def _rounded(matrix: CSR, math: DType) -> CSR:
    return matrix.with_values(round_to(matrix.values, math))


def _plain(candidate: Candidate, made: Operands) -> bool:
    """Whether a candidate takes its dense operand and leaves its result as they are, and not in a form of its own."""
    plan = candidate.plan
    return plan is None or (plan.unpermute is None and "b" in inputs(plan, made))


def _quickly(device: GpuDevice, candidate: Candidate) -> float:
    prepared = candidate.prepare()
    try:
        prepared.run()
        runs = over_copies(candidate, prepared, None, device.timer)
        replay = device.timer.capture(functools.partial(each, runs), 1)
        device.timer.elapsed_us(replay)
        return min(device.timer.elapsed_us(replay) for _ in range(3)) / len(runs)
    finally:
        prepared.close()


Step = Launch | tuple[str, int]
"""A launch of ours, or a product's name and the number of the block."""
Strides = Mapping[str, tuple[int, int]]
"""By `<product>.b` and `<product>.c`: steps of rows and columns."""


def steps(network: Network, strides: Strides, e4m3: bool) -> list[Step]:
    """The whole network in order. `e4m3`: the blocks' operands are of that type."""
    case, scale = network.case, network.scales
    net, n = case.net, case.n
    splits, per_split = splitting(case.tokens)
    made: list[Step] = []

    def norm(gain: int, after: str, into: str) -> None:
        y, out = strides.get(f"{after}.c", (0, 0)), strides[f"{into}.b"]
        is_e4m3 = int(e4m3 and into != HEAD)
        sizes = (net.hidden, int(not after), is_e4m3, float(scale.get(after, 0.0)), *y, *out)
        names = ("input", f"{after}.c" if after else "queries", f"gain{gain}", "x", f"{into}.b")
        made.append(Launch("add_norm", (n, 1, 1), (1024, 1, 1), (*sizes, *names)))

    after = ""
    for block in range(net.blocks):
        cache = f"cache{block}"
        norm(0, after, "qkv")
        made.append(("qkv", block))
        all_heads = net.heads + 2 * net.key_heads
        sizes = (net.heads, net.key_heads, case.tokens, float(scale["qkv"]), *strides["qkv.c"])
        names = ("qkv.c", "cosines", "sines", "queries", cache)
        made.append(Launch("rope_cache", (all_heads, n, 1), (64, 1, 1), (*sizes, *names)))
        grid = (splits, net.key_heads, n)
        made.append(Launch("attention", grid, (128, 1, 1), (case.tokens, per_split, "queries", cache, "parts")))
        ends = (splits, int(e4m3), *strides["o.b"], "parts", "o.b")
        made.append(Launch("combine", (net.heads, n, 1), (128, 1, 1), ends))
        made.append(("o", block))
        norm(1, "o", "up")
        made.append(("up", block))
        grid = (-(-net.inside * n // 128), 1, 1)
        between = (*strides["up.c"], *strides["down.b"], "up.c", "down.b")
        arguments = (net.inside, n, int(e4m3), float(scale["up"]), *between)
        made.append(Launch("swiglu", grid, (128, 1, 1), arguments))
        made.append(("down", block))
        after = "down"
    norm(2, "down", HEAD)
    made.append((HEAD, 0))
    return made


def splitting(tokens: int) -> tuple[int, int]:
    """Parts of the cached tokens, and tokens in each."""
    splits = max(1, min(32, tokens // SPLIT_TOKENS))
    per_split = -(-tokens // splits)
    return -(-tokens // per_split), per_split


def state(network: Network) -> dict[str, Array]:
    """What the steps work on beside the products' operands and results."""
    case, dense = network.case, network.operands.dense
    net, n = case.net, case.n
    cosines, sines = (one.astype(np.float32) for one in angles(net, case.cached))
    cache = np.zeros((n, 2, net.key_heads, case.tokens, FEATURES), np.float16)
    cache[:, :, :, : case.cached] = dense["cache"]
    splits, _ = splitting(case.tokens)
    return {
        "input": dense["x"].astype(np.float32),
        **{f"gain{at}": gain.astype(np.float32) for at, gain in enumerate(dense["gains"])},
        "x": np.zeros((n, net.hidden), np.float32),
        "cosines": cosines,
        "sines": sines,
        "queries": np.zeros((n, net.heads, FEATURES), np.float16),
        "parts": np.zeros((n, net.heads, splits, FEATURES + 2), np.float32),
        "cache0": cache,
    }


def _plan(network: Network, buffers: Mapping[str, Array], launches: tuple[Launch, ...], output: str) -> Plan:
    net = network.case.net
    return Plan("steps", "cuda", SOURCE, {"GROUP": net.heads // net.key_heads}, buffers, output, launches)


def on_gpu(network: Network, family: Family, device: GpuDevice, with_products: bool = True) -> Prepared:
    """The network in device memory. Raises what preparing its parts raises."""
    products: dict[str, Product] = {}

    def close() -> None:
        device.synchronise()
        for one in products.values():
            one.prepared.close()

    try:
        for name in network.matrices:
            products[name] = network.product(name, family)
        products[HEAD] = network.product(HEAD, DENSE)
        held = {name: device.upload(array) for name, array in state(network).items()}
        for block in range(1, network.case.net.blocks):
            held[f"cache{block}"] = held["cache0"].copy()
        for name, one in products.items():
            held |= {f"{name}.b": one.b, f"{name}.c": one.c}
            device.backend.fill(one.b.pointer, 0, one.b.size_bytes)  # columns of padding stay zeros
        strides = {f"{name}.b": one.into for name, one in products.items()}
        strides |= {f"{name}.c": one.out for name, one in products.items()}
        order = steps(network, strides, family.math == "f8")
        launches = tuple(one for one in order if isinstance(one, Launch))
        bound = iter(device.bind_each(_plan(network, {}, launches, "x"), held))
        calls = [
            functools.partial(device.guarded, next(bound)) if isinstance(one, Launch) else products[one[0]].runs[one[1]]
            for one in order
            if with_products or isinstance(one, Launch)
        ]
    except BaseException:
        close()
        raise

    def run(keep: Any = (held, products)) -> None:
        each(calls)

    return _prepared(network, run, held, products, close, with_products)


def _prepared(
    network: Network,
    run: Callable[[], None],
    held: dict[str, DeviceArray],
    products: Mapping[str, Product],
    close: Callable[[], None],
    with_products: bool,
) -> Prepared:
    last = products[HEAD]

    def read() -> Array:
        if not with_products:
            return np.zeros((1, 1), np.float16)
        raw: Array = last.c.read()
        return (raw.T if last.c_turned else raw)[::LOGITS, : network.case.n]

    poisoned = last.c if with_products else held["x"]
    return Prepared(run, read, poisoned.poison, close, rotates=True)


def on_host(network: Network, family: Family, device: Device) -> Prepared:
    """The same on the processor, step by step: every launch and every product a plan of its own."""
    names = {name: network.chosen(name, family) for name in network.matrices}
    names[HEAD] = network.chosen(HEAD, Family("f16", ("row_stream",)))
    strides: dict[str, tuple[int, int]] = {}
    held = state(network)
    for name, (_, made) in names.items():
        n = made.dense["b"].shape[1]
        strides |= {f"{name}.b": (n, 1), f"{name}.c": (n, 1)}
        held[f"{name}.b"] = np.zeros_like(made.dense["b"])
        held[f"{name}.c"] = np.full((made.sparse.m, n), np.nan, np.float16)
    held |= {f"cache{block}": held["cache0"].copy() for block in range(1, network.case.net.blocks)}

    def launch(one: Launch) -> None:
        mine = {arg: held[arg] for arg in one.args if isinstance(arg, str)}
        prepared = device.prepare(_plan(network, mine, (one,), list(mine)[-1]))
        try:
            prepared.run()
            held.update({name: prepared.arrays[name].read() for name in mine})
        finally:
            prepared.close()

    def multiply(name: str) -> None:
        candidate, made = names[name]
        plan = candidate.plan
        assert plan is not None
        place = inputs(plan, made)["b"]
        prepared = device.prepare(replace(plan, buffers={**plan.buffers, place: held[f"{name}.b"]}))
        try:
            prepared.run()
            held[f"{name}.c"] = prepared.read()
        finally:
            prepared.close()

    def run() -> None:
        for one in steps(network, strides, False):
            if isinstance(one, Launch):
                launch(one)
            else:
                multiply(one[0])

    def poison() -> None:
        held[f"{HEAD}.c"] = np.full_like(held[f"{HEAD}.c"], np.nan)

    return Prepared(run, lambda: held[f"{HEAD}.c"][::LOGITS], poison, lambda: None)


def require(problem: Problem, name: str) -> None:
    """Raises `Unsupported` where the family is not for such weights."""
    whole = problem.sparsity == 0
    if name in ("dense_block", "fp8_block") and not whole:
        raise Unsupported("dense products are those of the problem without zeros")
    if name == "sparse_block" and whole:
        raise Unsupported("no weight is zero")
    if name == "two_four_block" and not problem.source.startswith("nm:2:4"):
        raise Unsupported("weights are not 2:4 sparse")


@dataclass(frozen=True)
class Block:
    """A kernel that computes the whole network by products of one family or of several."""

    name: str
    families: tuple[Family, ...]
    paper: str = PAPER
    ops: frozenset[str] = frozenset({"decoder"})
    dtypes: frozenset[str] = frozenset({"f16"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per family. Raises `Unsupported` for weights that are not for it."""
        require(problem, self.name)
        network = Network(problem, operands, device)
        for family in self.families:

            def prepare(family: Family = family) -> Prepared:
                if isinstance(device, GpuDevice):
                    return on_gpu(network, family, device)
                return on_host(network, family, device)

            tolerance = "f8_network" if family.math == "f8" else ""
            yield Candidate(f"{family.math}_block", family.math, prepare, tolerance=tolerance)


class BlockParts:
    """The chosen products of each family alone."""

    name, paper = "block_parts", PAPER
    ops, dtypes = frozenset({"decoder"}), frozenset({"f16"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per family and matrix, and the vocabulary's. Raises `Unsupported` off a GPU."""
        if not isinstance(device, GpuDevice):
            raise Unsupported("products have tests of their own")
        network = Network(problem, operands, device)
        for kernel, families in FAMILIES.items():
            try:
                require(problem, kernel)
            except Unsupported:
                continue
            for family in families:
                for name in network.matrices:
                    try:
                        yield self._part(network, kernel, name, family)
                    except Unsupported as error:
                        yield _refused(f"{family.math}_{kernel}_{name}", family.math, str(error))
        yield self._part(network, HEAD, HEAD, DENSE)

    def _part(self, network: Network, kernel: str, name: str, family: Family) -> Candidate:
        candidate, made = network.chosen(name, family)
        problem, _ = network.part(name, family)
        by = network.choose(name, family)
        words = re.sub("[^A-Za-z0-9.]", ".", candidate.variant)
        size = _weight_bytes(candidate, made, family)
        variant = f"{family.math}_{kernel}_{name}_{by.kernel}.{words}_b{size}"
        truth = functools.partial(reference, problem, made)
        return replace(candidate, variant=variant, truth=truth, ready=None)


def _weight_bytes(candidate: Candidate, made: Operands, family: Family) -> int:
    """Of the weights as the candidate holds them."""
    if candidate.plan is not None:
        return sum(candidate.plan.buffers[name].nbytes for name in weights_of(candidate.plan, made))
    weights = made.sparse.m * made.sparse.k
    whole = weights * ITEM_BYTES[family.math]
    return whole // 2 + weights // 8 if "cusparselt" in family.kernels else whole


def _refused(variant: str, math: str, reason: str) -> Candidate:
    def prepare() -> Prepared:
        raise Unsupported(reason)

    return Candidate(variant, math, prepare)


class BlockSteps:
    """Everything but the products, on whatever their results hold: only a time. Whole networks' results are checked."""

    name, paper = "block_steps", PAPER
    ops, dtypes = frozenset({"decoder"}), frozenset({"f16"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One, of the dense or the sparse network. Raises `Unsupported` off a GPU."""
        if not isinstance(device, GpuDevice):
            raise Unsupported("without its products the network has no result to check")
        network = Network(problem, operands, device)
        whole = problem.sparsity == 0
        family = DENSE if whole else FAMILIES["sparse_block"][0]

        def prepare() -> Prepared:
            return on_gpu(network, family, device, with_products=False)

        yield Candidate("f16_steps", "f16", prepare, truth=_nothing)


def _nothing() -> Reference:
    return Reference(np.zeros((1, 1)), np.ones((1, 1)))


_NOTHING_TO_TUNE: dict[str, Any] = {"nothing_to_tune": True}
register(
    Block("dense_block", FAMILIES["dense_block"]),
    About("library", "dense block", work="dense", reference=True, rank=280, **_NOTHING_TO_TUNE),
)
register(
    Block("fp8_block", FAMILIES["fp8_block"]),
    About("library", "8-bit block", frozenset({"f8"}), rank=281,
          operand_bytes=lambda problem, nnz: problem.m * problem.k, **_NOTHING_TO_TUNE),
)  # fmt: skip
register(
    Block("two_four_block", FAMILIES["two_four_block"]),
    About("library", "2:4 block", frozenset({"f16", "f8"}), rank=282, pattern="2:4",
          operand_bytes=lambda problem, nnz: nnz * 9 // 8, **_NOTHING_TO_TUNE),
)  # fmt: skip
register(
    Block("sparse_block", FAMILIES["sparse_block"]),
    About("own", "sparse block", rank=279, operand_bytes=lambda problem, nnz: 2 * nnz + problem.m * problem.k // 8,
          **_NOTHING_TO_TUNE),
)  # fmt: skip
register(BlockParts(), About("own", "products of a block", frozenset({"f16", "f8"}), study=True, part=True, rank=283))
register(BlockSteps(), About("own", "a block without its products", study=True, part=True, rank=284))
