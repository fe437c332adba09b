"""Decoders of language models in one graph (`problems.decoder`): steps of `decoder_steps.cu` between products.

The products are those of other kernels, chosen for the GPU at hand (`decoder_products`). FP8 has the scales of
`problems.operands`, per tensor and known beforehand. On the processor every product is one of ours. `block_parts` are
the chosen products alone, `block_steps` all that is left without them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from nnzbench.core.architectures import architecture, sm_count
from nnzbench.core.plan import Array, Candidate, Launch, Plan, Prepared, SharedWork, Step, Unsupported, chain
from nnzbench.data.problems.buffers import inputs, weights_of
from nnzbench.data.problems.decoder import FEATURES, HEAD, LOGITS, Case, angles
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ITEM_BYTES, Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.composed.decoder_products import DENSE, DecoderNetwork, Product, ProductFamily, overlaps
from nnzbench.kernels.copies import each
from nnzbench.kernels.registry import About, FoundKernel, register
from nnzbench.kernels.vendor.support import refusal

SOURCE = "decoder_steps.cu"
PAPER = "whole blocks: kernels of this suite and of libraries"
SPLIT_TOKENS = 128
"""Cached tokens that a block of attention's threads reads at a time."""
MOST_SPLITS = 64
WARPS = 8
"""Of a block of attention."""
NORM_BLOCKS = 8
"""Of a token's norm, where launches can be clusters."""
BLOCKS = 1
"""Of attention for a multiprocessor, where there are as many tokens."""
FAMILIES = {
    "dense_block": (DENSE,),
    "fp8_block": (ProductFamily("f8", ("cublaslt",), 16, whole=True),),
    "two_four_block": (ProductFamily("f16", ("cusparselt",), 8), ProductFamily("f8", ("cusparselt",), 16)),
    "sparse_block": (ProductFamily("f16", ("delta_spmv", "tensor_spmm"), or_dense=True),),
}
"""Of each kernel of whole networks."""

STEPS = frozenset({"add_norm", "attention", "swiglu"})
"""Kernels of `SOURCE`."""
STEPS_ALONE = {"f16_steps": STEPS, **{f"f16_{one.split('_')[-1]}": frozenset({one}) for one in sorted(STEPS)}}
"""Those of each variant of `block_steps`."""
_SHARED = SharedWork()
Part = Launch | tuple[str, int]
"""A launch of ours, or a product's name and the number of the block."""
Strides = Mapping[str, tuple[int, int]]
"""By `<product>.b` and `<product>.c`: steps of rows and columns."""


def steps(network: DecoderNetwork, strides: Strides, e4m3: bool) -> list[Part]:
    """The whole network in order. `e4m3`: the blocks' operands are of that type.

    Without strides of `up.c` the product `up` has SwiGLU's results, where `down` takes them.
    """
    case, scale = network.case, network.scales
    net, n = case.net, case.n
    if max(m for m, _ in net.products.values()) * n >= 2**31:
        raise Unsupported(f"{n} tokens: places in a product's results do not fit in 32 bits")
    splits, per_split = splitting(case.cached, net.key_heads * n, network.device.arch)
    made: list[Part] = []

    def norm(gain: int, after: str, into: str) -> None:
        y, out = strides.get(f"{after}.c", (0, 0)), strides[f"{into}.b"]
        is_e4m3 = int(e4m3 and into != HEAD)
        sizes = (net.hidden, int(not after), is_e4m3, float(scale.get(after, 0.0)), *y, *out)
        names = ("input", f"{after}.c" if after else "qkv.c", f"gain{gain}", "x", f"{into}.b")
        blocks = NORM_BLOCKS if overlaps(network.device) else 1
        made.append(
            Launch("add_norm", (blocks, n, 1), (1024 // blocks, 1, 1), (*sizes, *names), cluster=(blocks, 1, 1))
        )

    after = ""
    for block in range(net.blocks):
        cache = f"cache{block}"
        norm(0, after, "qkv")
        made.append(("qkv", block))
        sizes = (case.tokens, per_split, int(e4m3), float(scale["qkv"]), *strides["qkv.c"], *strides["o.b"])
        names = ("qkv.c", "cosines", "sines", cache, "parts", "arrived", "o.b")
        made.append(Launch("attention", (splits, net.key_heads, n), (32 * WARPS, 1, 1), (*sizes, *names)))
        made.append(("o", block))
        norm(1, "o", "up")
        made.append(("up", block))
        if "up.c" in strides:
            between = (*strides["up.c"], *strides["down.b"], "up.c", "down.b")
            arguments = (net.inside, n, int(e4m3), float(scale["up"]), *between)
            made.append(Launch("swiglu", (-(-net.inside * n // 128), 1, 1), (128, 1, 1), arguments))
        made.append(("down", block))
        after = "down"
    norm(2, "down", HEAD)
    made.append((HEAD, 0))
    return made


def splitting(cached: int, heads: int, arch: str) -> tuple[int, int]:
    """Parts of the cached tokens, and tokens in each, for so many heads with keys of their own."""
    wanted = min(MOST_SPLITS, max(1, BLOCKS * sm_count(arch) // heads))
    per_split = max(1, -(-cached // wanted // SPLIT_TOKENS)) * SPLIT_TOKENS
    return max(1, -(-cached // per_split)), per_split


def state(network: DecoderNetwork) -> dict[str, Array]:
    """What the steps work on beside the products' operands and results."""
    case, dense = network.case, network.operands.dense
    net, n = case.net, case.n
    cosines, sines = (one.astype(np.float32) for one in angles(net, case.cached))
    cache = np.zeros((n, 2, net.key_heads, case.tokens, FEATURES), np.float16)
    cache[:, :, :, : case.cached] = dense["cache"]
    splits, _ = splitting(case.cached, net.key_heads * n, network.device.arch)
    return {
        "input": dense["x"].astype(np.float32),
        **{f"gain{at}": gain.astype(np.float32) for at, gain in enumerate(dense["gains"])},
        "x": np.zeros((n, net.hidden), np.float32),
        "cosines": cosines,
        "sines": sines,
        "parts": np.zeros((n, net.heads, splits, FEATURES + 4), np.float32),
        "arrived": np.zeros((n, net.key_heads), np.int32),
        "cache0": cache,
    }


def _plan(network: DecoderNetwork, buffers: Mapping[str, Array], launches: tuple[Launch, ...], output: str) -> Plan:
    net = network.case.net
    defines = {"GROUP": net.heads // net.key_heads, "WARPS": WARPS}
    return Plan("steps", "cuda", SOURCE, defines, buffers, output, launches)


def on_gpu(network: DecoderNetwork, family: ProductFamily, device: GpuDevice) -> Prepared:
    """The network in device memory. Raises what preparing its parts raises."""
    products: dict[str, Product] = {}
    is_gated = False

    def close() -> None:
        device.synchronise()
        for one in products.values():
            one.prepared.close()

    try:
        for name in reversed([*network.matrices]):  # `down` comes before what may write its operand
            gated = network.gated_product(family, products["down"]) if name == "up" else None
            products[name] = gated or network.product(name, family)
            is_gated = is_gated or gated is not None
        last = products[HEAD] = network.product(HEAD, DENSE)
        held: dict[str, Any] = {}
        strides: dict[str, tuple[int, int]] = {}
        for name, one in products.items():
            held |= {f"{name}.b": one.b, f"{name}.c": one.c}
            strides |= {f"{name}.b": one.into, f"{name}.c": one.out}
            device.backend.fill(one.b.pointer, 0, one.b.size_bytes)  # columns of padding stay zeros
        if is_gated:
            del strides["up.c"]
        order = steps(network, strides, family.math == "f8")
        bound = _bound(network, device, [one for one in order if isinstance(one, Launch)], held)
        calls = [next(bound) if isinstance(one, Launch) else products[one[0]].runs[one[1]] for one in order]
    except BaseException:
        close()
        raise

    def run(keep: Any = (held, products)) -> None:
        each(calls)

    def read() -> Array:
        raw: Array = last.c.read()
        return (raw.T if last.c_turned else raw)[::LOGITS, : network.case.n]

    return Prepared(run, read, last.c.poison, close, rotates=True)


def _bound(
    network: DecoderNetwork, device: GpuDevice, launches: list[Launch], held: dict[str, Any]
) -> Iterator[Callable[[], None]]:
    """What enqueues each launch, over `held` and what else they name, which is added to it."""
    named = {arg for one in launches for arg in one.args if isinstance(arg, str)}
    held |= {name: device.upload(array) for name, array in state(network).items() if name in named}
    held |= {name: held["cache0"].copy() for name in sorted(named) if name.startswith("cache") and name not in held}
    plan = _plan(network, {}, tuple(launches), "x")
    for one in device.bind_each(plan.overlapping() if overlaps(device) else plan, held):
        yield functools.partial(device.guarded, one)


def alone_on_gpu(network: DecoderNetwork, kernels: Set[str], device: GpuDevice) -> Prepared:
    """Those of the steps in device memory, over results of products that nobody computed."""
    n = network.case.n
    held: dict[str, Any] = {}
    for name, (m, k) in {**network.case.net.products, HEAD: (1, network.case.net.hidden)}.items():
        held[f"{name}.b"] = device.upload(np.zeros((k, n), np.float16))
        held[f"{name}.c"] = device.upload(np.resize(network.operands.dense["x"].astype(np.float16), (m, n)))
    order = steps(network, dict.fromkeys(held, (n, 1)), False)
    calls = list(
        _bound(network, device, [one for one in order if isinstance(one, Launch) and one.entry in kernels], held)
    )

    def run(keep: Any = held) -> None:
        each(calls)

    return Prepared(run, lambda: np.zeros((1, 1), np.float16), lambda: None, device.synchronise, rotates=True)


def on_host(network: DecoderNetwork, family: ProductFamily, device: Device) -> Prepared:
    """The same on the processor: every launch and every product a step of one plan."""
    held = state(network)
    strides: dict[str, tuple[int, int]] = {}
    products: dict[str, Step] = {}
    for name in (*reversed([*network.matrices]), HEAD):  # `down` comes before what may write its operand
        own = ProductFamily("f16", ("row_stream",)) if name == HEAD else family
        gated = network.gated(own) if name == "up" else None
        candidate = gated or network.chosen(name, own)[-1]
        plan, made = candidate.plan, candidate.operands
        assert plan is not None
        b, result = made.dense["b"], "down.b" if gated else f"{name}.c"
        strides |= dict.fromkeys([f"{name}.b"] if gated else [f"{name}.b", result], (b.shape[1], 1))
        held[f"{name}.b"] = np.zeros_like(b)
        held.setdefault(result, np.zeros((made.sparse.m, b.shape[1]), np.float16))
        ends = {inputs(plan, made)["b"]: f"{name}.b", plan.output: result}
        mine = replace(plan, buffers={**plan.buffers, **{one: held[end] for one, end in ends.items()}})
        products[name] = Step(mine, {one: f"{name}.{one}" for one in plan.buffers} | ends)
    held |= {f"cache{block}": held["cache0"].copy() for block in range(1, network.case.net.blocks)}

    def step(launch: Launch) -> Step:
        names = [arg for arg in launch.args if isinstance(arg, str)]
        return Step(_plan(network, {name: held[name] for name in names}, (launch,), names[-1]), {n: n for n in names})

    made_of = [step(one) if isinstance(one, Launch) else products[one[0]] for one in steps(network, strides, False)]
    return device.prepare(replace(chain("network", made_of), unpermute=lambda raw: raw[::LOGITS]))


def require(problem: Problem, name: str) -> None:
    """Raises `Unsupported` where the family is not for such weights."""
    whole = problem.sparsity == 0
    if name in ("dense_block", "fp8_block") and not whole:
        raise Unsupported("dense products are those of the problem without zeros")
    if name == "sparse_block" and whole:
        raise Unsupported("no weight is zero")
    if name == "two_four_block" and not problem.source.startswith("nm:2:4"):
        raise Unsupported("weights are not 2:4 sparse")


def _registered(name: str, found: Callable[[DecoderNetwork], Iterator[Candidate]], about: About) -> None:
    """A kernel for decoders, which raises `Unsupported` for weights or a device that it is not for."""

    def candidates(problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        if not architecture(device.arch).has("mma_f16_k16"):
            raise Unsupported(f"tensor cores of {device.arch} do not multiply as attention does")
        return found(DecoderNetwork(problem, operands, device))

    register(FoundKernel(name, PAPER, frozenset({"decoder"}), frozenset({"f16"}), candidates), about)


def _networks(name: str, network: DecoderNetwork) -> Iterator[Candidate]:
    """The whole network by products of each family of the kernel."""
    require(network.problem, name)
    for family in FAMILIES[name]:

        def prepare(family: ProductFamily = family) -> Prepared:
            device = network.device
            return (
                on_gpu(network, family, device) if isinstance(device, GpuDevice) else on_host(network, family, device)
            )

        tolerance = "f8_network" if family.math == "f8" else ""
        yield Candidate(f"{family.math}_block", family.math, prepare, tolerance=tolerance)


def _parts(network: DecoderNetwork) -> Iterator[Candidate]:
    """The chosen products alone: one per family and matrix, and the vocabulary's."""
    if not isinstance(network.device, GpuDevice):
        raise Unsupported("products have tests of their own")
    for variant, (name, family) in products_alone(network.problem).items():
        try:
            yield _part(network, variant, name, family)
        except Unsupported as error:
            yield refusal(variant, family.math, str(error))


def products_alone(problem: Problem) -> dict[str, tuple[str, ProductFamily]]:
    """Matrix and family of each variant of `block_parts`, by how it begins. Raises `MatrixError` as `Case.of`."""
    found: dict[str, tuple[str, ProductFamily]] = {}
    for kernel, families in FAMILIES.items():
        with contextlib.suppress(Unsupported):
            require(problem, kernel)
            pairs = itertools.product(families, Case.of(problem).net.products)
            found |= {f"{family.math}_{kernel}_{name}": (name, family) for family, name in pairs}
    return {**found, f"{DENSE.math}_{HEAD}_{HEAD}": (HEAD, DENSE)}


def _part(network: DecoderNetwork, variant: str, name: str, family: ProductFamily) -> Candidate:
    by, chosen, candidate = network.chosen(name, family)
    problem, _ = network.part(name, chosen)
    words = re.sub("[^A-Za-z0-9.]", ".", candidate.variant)
    variant = f"{variant}_{by}.{words}_b{_weight_bytes(candidate, chosen)}"
    return replace(candidate, variant=variant, truth=functools.partial(_truth, problem, candidate.operands), ready=None)


def _truth(problem: Problem, operands: Operands) -> Reference:
    """Of a product: kept with its matrix, as the vocabulary's is that of all problems of a model."""
    key = ("truth", problem.n, problem.seed)
    return _SHARED.once_for(operands.sparse, key, lambda: reference(problem, operands))


def _weight_bytes(candidate: Candidate, family: ProductFamily) -> int:
    """Of the weights as the candidate holds them."""
    plan, made = candidate.plan, candidate.operands
    if plan is not None:
        return sum(plan.buffers[name].nbytes for name in weights_of(plan, made))
    weights: int = made.sparse.m * made.sparse.k
    whole = weights * ITEM_BYTES[family.math]
    return whole // 2 + weights // 8 if "cusparselt" in family.kernels else whole


def _steps(network: DecoderNetwork) -> Iterator[Candidate]:
    """All steps but the products, and those of each kind alone: only times. Whole networks' results are checked."""
    device = network.device
    if not isinstance(device, GpuDevice):
        raise Unsupported("without its products the network has no result to check")
    nothing = Reference(np.zeros((1, 1)), np.ones((1, 1)))
    for variant, kernels in STEPS_ALONE.items():
        prepare = functools.partial(alone_on_gpu, network, kernels, device)
        yield Candidate(variant, "f16", prepare, truth=lambda: nothing)


ABOUT = {
    "dense_block": About("library", "dense block", work="dense", reference=True, rank=280),
    "fp8_block": About(
        "library", "8-bit block", frozenset({"f8"}), rank=281, operand_bytes=lambda problem, nnz: problem.m * problem.k
    ),
    "two_four_block": About(
        "library",
        "2:4 block",
        frozenset({"f16", "f8"}),
        pattern="2:4",
        rank=282,
        operand_bytes=lambda _, nnz: nnz * 9 // 8,
    ),
    "sparse_block": About(
        "own", "sparse block", rank=279, operand_bytes=lambda problem, nnz: 2 * nnz + problem.m * problem.k // 8
    ),
}
"""Of the kernels of whole networks, which choose by themselves."""
for _name, _about in ABOUT.items():
    _registered(_name, functools.partial(_networks, _name), replace(_about, nothing_to_tune=True))
_STUDY = About("own", study=True, part=True)
_registered(
    "block_parts",
    _parts,
    replace(
        _STUDY,
        label="products of a block",
        maths=frozenset({"f16", "f8"}),
        study_variants=lambda problem: tuple(products_alone(problem)),
        rank=283,
    ),
)
_registered(
    "block_steps",
    _steps,
    replace(_STUDY, label="a block without its products", study_variants=lambda _: tuple(STEPS_ALONE), rank=284),
)
