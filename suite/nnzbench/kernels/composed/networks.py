"""The whole networks of Sputnik's paper, dense and sparse, as one plan each of the steps of `network_steps.cu`.

MobileNetV1 at batch 1 (table IV and figure 12): first convolution, 13 pairs of depthwise and 1x1 convolution with bias
and ReLU, average pooling, classifier. The first 1x1 convolution and the classifier are dense in both networks.

The Transformer, forward (table III): three layers of eight heads with the norm before each part, ReLU between the
feed-forward products, no dropout; embedding and output layer are left out, as the paper leaves them open. Heads run one
after another in both networks.

Where there is a GPU, cuBLAS computes the dense products among the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from nnzbench.core.architectures import sm_count
from nnzbench.core.plan import Arg, Array, Candidate, Dim3, Launch, Plan, Prepared, SharedWork, Step, Unsupported, chain
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.networks import HEADS, LAYERS, Block, MobileNet, blocks_of
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.devices import Device
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.copies import each
from nnzbench.kernels.registry import About, FoundKernel, register
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.layers import attention_plans, bias_relu_plan, depthwise_plan, masked_softmax_plan
from nnzbench.kernels.sputnik.sddmm import heuristic_strip, rule_strip
from nnzbench.kernels.sputnik.spmm import Tile, heuristic_tile, rule_tile, spmm_plan
from nnzbench.kernels.vendor import cublas
from nnzbench.kernels.vendor.support import Inputs, Preparing, finish

SOURCE = "network_steps.cu"
PRODUCT = "dense_product"
"""Entry that a library's product takes the place of on a GPU; its arguments are (m, k, n, transposed, accumulate, a,
b, c)."""


Named = tuple[str, Array]
"""An operand and its name in the chain, empty for one of the step's own."""


def _step(entry: str, grid: Dim3, sizes: tuple[Arg, ...], operands: Mapping[str, Named]) -> Step:
    """`operands` follow the `sizes`; the last is the result."""
    names = {name: chained for name, (chained, _) in operands.items() if chained}
    buffers = {name: array for name, (_, array) in operands.items()}
    launch = Launch(entry, grid, (128, 1, 1), (*sizes, *operands))
    return Step(Plan(entry, "cuda", SOURCE, {}, buffers, list(operands)[-1], (launch,)), names)


def scratch(*shape: int) -> Array:
    """Room for what a step computes: zeros, which take no memory on the host until they are touched."""
    return np.zeros(shape, np.float32)


def product(
    sizes: tuple[int, int, int], a: Named, b: Named, c: str, transposed: bool = False, accumulate: bool = False
) -> Step:
    """C (m, n) = A (m, k) B (k, n), or A B^T for `transposed` b (n, k), added to C with `accumulate`.

    `sizes` is (m, k, n).
    """
    m, _, n = sizes
    flags = (int(transposed), int(accumulate))
    return _step(PRODUCT, (-(-n // 128), m, 1), (*sizes, *flags), {"a": a, "b": b, "c": (c, scratch(m, n))})


def copy(x: Named, y: str) -> Step:
    """y = x: what later steps change in place starts anew with every run."""
    size = x[1].size
    return _step("copy", (-(-size // 128), 1, 1), (size,), {"x": x, "y": (y, scratch(*x[1].shape))})


def layer_norm(x: Named, gain: Named, shift: Named, y: str) -> Step:
    """Rows of x (m, n) normed into y."""
    m, n = x[1].shape
    operands = {"x": x, "gain": gain, "shift": shift, "y": (y, scratch(m, n))}
    return _step("layer_norm", (-(-m // 4), 1, 1), (m, n), operands)


def bias_relu_columns(x: Named, bias: Named) -> Step:
    """max(x + bias, 0) in place, x (m, n) and bias (n,)."""
    size, n = x[1].size, x[1].shape[1]
    return _step("bias_relu_columns", (-(-size // 128), 1, 1), (size, n), {"bias": bias, "x": x})


def first_convolution(shape: ConvShape, image: Array, weights: Array, bias: Array, y: str) -> Step:
    """The convolution of an image (channels, height, width) with stride 2, bias and ReLU; y (filters, positions)."""
    positions = shape.out_height * shape.out_width
    sizes = (shape.channels, shape.height, shape.width, shape.filters)
    out = (y, scratch(shape.filters, positions))
    operands = {"x": ("", image), "weights": ("", weights), "bias": ("", bias), "y": out}
    return _step("first_convolution", (-(-positions // 128), -(-shape.filters // 8), 1), sizes, operands)


def average_pool(x: Named, y: str) -> Step:
    """The mean of each row of x (channels, positions)."""
    channels, positions = x[1].shape
    return _step(
        "average_pool", (-(-channels // 4), 1, 1), (channels, positions), {"x": x, "y": (y, scratch(channels))}
    )


def classify(x: Named, weights: Array, bias: Array, y: str) -> Step:
    """weights (classes, features) times x (features,), plus bias; y (classes, 1)."""
    classes, features = weights.shape
    operands = {"x": x, "weights": ("", weights), "bias": ("", bias), "y": (y, scratch(classes, 1))}
    return _step("classify", (-(-classes // 4), 1, 1), (classes, features), operands)


MATHS = ("f32", "tf32")
"""Of a network's dense products by cuBLAS; everything else is fp32 always."""
DENSE = "NVIDIA cuBLAS and kernels of this suite"
"""Where dense networks are from, and what is known of them all."""
DENSE_ABOUT = About("library", "", frozenset(MATHS), "dense", reference=True, nothing_to_tune=True)
Make = Callable[[str], Plan]
"""The plan under the variant's name."""


def _registered(
    name: str,
    paper: str,
    makes: Callable[[Problem, Operands, str], Mapping[str, Make]],
    about: About,
    maths: tuple[str, ...] = MATHS,
) -> None:
    """A kernel that computes a whole network, in each arithmetic of its dense products, fp32 alone off a GPU.

    `makes` gives its plans by variant; no plan outlives its candidate.
    """

    def candidates(problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        for variant, make in makes(problem, operands, device.arch).items():
            for math in maths if isinstance(device, GpuDevice) else MATHS[:1]:

                def prepared(variant: str = variant, make: Make = make, math: str = math) -> Prepared:
                    return prepare(device, make(variant), math)

                yield Candidate(f"{math}_{variant}", math, prepared)

    network = frozenset({name.partition("_")[2]})
    register(FoundKernel(name, paper, network, frozenset({"f32"}), candidates), about)


def prepare(device: Device, plan: Plan, math: str) -> Prepared:
    """The plan on the device, products in cuBLAS's mode `math` on a GPU and as written elsewhere.

    Raises as `Device.prepare` does, and `Unsupported` where cuBLAS is missing or the GPU has no such arithmetic.
    """
    if not isinstance(device, GpuDevice):
        return device.prepare(plan)
    preparing = Preparing(Inputs(device), math)  # not shared: the network's device memory is measured
    handle = cublas.CublasHandle.of(device)
    arrays: dict[str, DeviceArray] = {}
    try:
        for name, array in plan.buffers.items():
            arrays[name] = device.upload(array)
        run = _bound(device, handle, plan, arrays, math)
    except BaseException:
        for held in arrays.values():
            held.close()
        raise
    others = [array for name, array in arrays.items() if name != plan.output]
    return finish(preparing, run, arrays[plan.output], others)


def _bound(
    device: GpuDevice, handle: cublas.CublasHandle, plan: Plan, arrays: dict[str, DeviceArray], math: str
) -> Callable[[], None]:
    ours = replace(plan, launches=tuple(launch for launch in plan.launches if launch.entry != PRODUCT))
    calls = iter(device.bind_each(ours, arrays))
    steps = [
        _library(handle, launch, arrays, math) if launch.entry == PRODUCT else next(calls) for launch in plan.launches
    ]
    return partial(each, [partial(device.guarded, step) for step in steps])


def _library(
    handle: cublas.CublasHandle, launch: Launch, arrays: dict[str, DeviceArray], math: str
) -> Callable[[], None]:
    m, k, n, transposed, accumulate = (int(one) for one in launch.args[:5])
    a, b, c = (arrays[str(name)] for name in launch.args[5:])
    return cublas.product(handle, math, (m, k, n), a, b, c, b_transposed=bool(transposed), accumulate=bool(accumulate))


Choose = Callable[[CSR, int], Tile]
"""A tile for the weights of a 1x1 convolution and its positions."""


def mobilenet_plan(variant: str, net: MobileNet, operands: Operands, choose: Choose | None) -> Plan:
    """The whole network; sparse 1x1 convolutions take the tile that `choose` gives, all are dense without it."""
    dense = operands.dense
    first = first_convolution(net.first, dense["image"], dense["first"], dense["first.bias"], "input0")
    made = [first]
    for number, (block, weights) in enumerate(zip(net.blocks, blocks_of(net, operands.sparse), strict=True)):
        names = {"x": f"input{number}", "y": f"inner{number}"}
        made.append(Step(_depthwise(block, dense, number), names))
        bias = dense[f"{number}.bias"]
        columns = scratch(weights.k, block.positions)
        if choose is None or weights.nnz == weights.m * weights.k:
            made += _dense_pointwise(weights, columns, bias, number)
            continue
        tile = choose(weights, block.positions)
        sparse = spmm_plan(weights, columns, tile, bias=bias)
        made.append(Step(sparse, {"b": names["y"], "c": f"input{number + 1}"}))
    last = net.blocks[-1]
    made.append(average_pool((f"input{len(net.blocks)}", scratch(last.filters, last.positions)), "pooled"))
    pooled = ("pooled", scratch(last.filters))
    made.append(classify(pooled, dense["classes"], dense["classes.bias"], "classes"))
    return chain(variant, made)


def _depthwise(block: Block, dense: Mapping[str, Array], number: int) -> Plan:
    shape = block.depthwise
    problem = Problem("", "", "depthwise", shape.channels, 9, block.positions, 0.0, "", conv=shape)
    held = {"x": scratch(1, shape.channels, shape.height, shape.width), "bias": dense[f"{number}.depthwise.bias"]}
    return depthwise_plan(problem, Operands(CSR.from_dense(dense[f"{number}.depthwise"]), held, ""), 2, 128)


def _dense_pointwise(weights: CSR, columns: Array, bias: Array, number: int) -> list[Step]:
    """A library's product, then bias and ReLU in a launch of their own."""
    (k, n), output = columns.shape, f"input{number + 1}"
    operand = (f"weights{number}", np.ascontiguousarray(weights.to_dense()))
    after = bias_relu_plan(bias, scratch(weights.m, n))
    return [
        product((weights.m, k, n), operand, (f"inner{number}", columns), output),
        Step(after, {"c": output}),
    ]


def _sparse_mobilenet(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """1x1 convolutions by Sputnik's SpMM with bias and ReLU fused: the paper's tile for each layer, then our rule's.

    Raises `Unsupported` for a dense network.
    """
    if problem.sparsity == 0:
        raise Unsupported("this network's weights are dense")
    net, sms = MobileNet.of(problem.source), sm_count(arch)
    return {
        "heuristic": lambda name: mobilenet_plan(name, net, operands, lambda weights, n: heuristic_tile(n, 4)),
        "rule": lambda name: mobilenet_plan(name, net, operands, lambda weights, n: rule_tile(weights, n, 4, sms)),
    }


def _dense_mobilenet(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """1x1 convolutions by cuBLAS, bias and ReLU after each; zeros are multiplied like any other weight."""
    net = MobileNet.of(problem.source)
    return {"default": lambda name: mobilenet_plan(name, net, operands, None)}


_MOBILENET = About("paper", "sparse MobileNetV1", paper_variants="f32_heuristic$", rank=272)
# only the first convolution is a dense product here: fp32 alone
_registered("sparse_mobilenet", f"{PAPER}, table IV", _sparse_mobilenet, _MOBILENET, MATHS[:1])
_registered("dense_mobilenet", DENSE, _dense_mobilenet, replace(DENSE_ABOUT, label="dense MobileNetV1", rank=273))


class SparseHeads:
    """Attention of one head out of the buffers `q`, `k` and `v` into `context` by the paper's three kernels.

    `arch` chooses strip and tile by our rule, the empty one by the paper's heuristic.
    """

    def __init__(self, mask: CSR, features: int, arch: str = "") -> None:
        rows = scratch(mask.m, features)
        strip, tile = heuristic_strip(features, 4), heuristic_tile(features, 4)
        if arch:
            strip = rule_strip(mask, features, 4, sm_count(arch))
            tile = rule_tile(mask, features, 4, sm_count(arch))
        self._plans = attention_plans(mask, rows, rows, rows, strip, tile, SharedWork())

    def steps(self, scores: str) -> list[Step]:
        """Scores and weights take one value per position of the mask; the mask's structure is held once."""
        common = {"indices": "mask.indices"}
        weights = f"{scores}.weights"
        sampled, softmax, context = self._plans
        return [
            Step(sampled, {**common, "strips": "mask.strips", "a": "q", "b": "k", "d": scores}),
            Step(softmax, {"rows": "mask.rows", "x": scores, "y": weights}),
            Step(context, {**common, "rows": "mask.tiles", "values": weights, "b": "v", "c": "context"}),
        ]


class DenseHeads:
    """Every score as a library computes it, a softmax over the mask's bits, and every weight times the values."""

    def __init__(self, mask: CSR, features: int) -> None:
        self._rows, self._square = scratch(mask.m, features), scratch(mask.m, mask.k)
        self._softmax = masked_softmax_plan(mask, self._square)

    def steps(self, scores: str) -> list[Step]:
        """Scores take a number for each pair of tokens; the mask is held once, as bits."""
        rows, square = self._rows, self._square
        (m, features), k = rows.shape, square.shape[1]
        return [
            product((m, features, k), ("q", rows), ("k", rows), scores, transposed=True),
            Step(self._softmax, {"mask": "mask", "x": scores}),
            product((m, k, features), (scores, square), ("v", rows), "context"),
        ]


def transformer_plan(variant: str, dense: Mapping[str, Array], heads: SparseHeads | DenseHeads, together: bool) -> Plan:
    """The whole network. With `together` the scores of all heads have room of their own, else one after another."""
    tokens, hidden = dense["x"].shape
    features, x = hidden // HEADS, ("x", dense["x"])
    normed, rows = ("normed", scratch(tokens, hidden)), scratch(tokens, features)
    made = [copy(("input", dense["x"]), "x")]

    def weight(layer: int, name: str) -> tuple[str, Array]:
        return f"layer{layer}.{name}", dense[f"{layer}.{name}"]

    for layer in range(LAYERS):
        made.append(layer_norm(x, weight(layer, "attention.gain"), weight(layer, "attention.shift"), "normed"))
        for head in range(HEADS):
            mine = {
                name: (f"layer{layer}.{name}{head}", dense[f"{layer}.{name}"][head]) for name in ("q", "k", "v", "o")
            }
            made += [product((tokens, hidden, features), normed, mine[name], name) for name in ("q", "k", "v")]
            made += heads.steps(f"scores{head}" if together else "scores")
            made.append(product((tokens, features, hidden), ("context", rows), mine["o"], "x", accumulate=True))
        made.append(layer_norm(x, weight(layer, "feedforward.gain"), weight(layer, "feedforward.shift"), "normed"))
        up, down = weight(layer, "up"), weight(layer, "down")
        wide = up[1].shape[1]
        inside = ("inside", scratch(tokens, wide))
        made += [
            product((tokens, hidden, wide), normed, up, "inside"),
            bias_relu_columns(inside, weight(layer, "bias")),
            product((tokens, wide, hidden), inside, down, "x", accumulate=True),
        ]
    return chain(variant, made)


def _sparse_transformer(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """Attention at the positions of the mask alone, by the paper's heuristics and by our rule.

    Heads run one after another; then with all heads' scores held, as in the paper's model.
    """
    mask, dense, features = operands.sparse, operands.dense, problem.n
    if mask.nnz == 0:
        raise Unsupported("the mask has no positions")
    return {
        "heuristic": lambda name: transformer_plan(name, dense, SparseHeads(mask, features), False),
        "rule": lambda name: transformer_plan(name, dense, SparseHeads(mask, features, arch), False),
        "heuristic_together": lambda name: transformer_plan(name, dense, SparseHeads(mask, features), True),
    }


def _dense_transformer(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """Every score computed, the mask applied in the softmax: the same function, in the same two ways."""
    mask, dense, features = operands.sparse, operands.dense, problem.n
    return {
        "default": lambda name: transformer_plan(name, dense, DenseHeads(mask, features), False),
        "default_together": lambda name: transformer_plan(name, dense, DenseHeads(mask, features), True),
    }


_TRANSFORMER = About("paper", "sparse Transformer", frozenset(MATHS), paper_variants="t?f32_heuristic$", rank=270)
_registered("sparse_transformer", f"{PAPER}, table III", _sparse_transformer, _TRANSFORMER)
_registered("dense_transformer", DENSE, _dense_transformer, replace(DENSE_ABOUT, label="dense Transformer", rank=271))
