"""A whole network as one plan of small steps (`kernels_cu/network_steps.cu`).

Where there is a GPU, cuBLAS computes the dense products among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nnzbench.devices import Device
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import About
from nnzbench.kernels.vendor import cublas
from nnzbench.kernels.vendor.support import Inputs, Preparing, finish
from nnzbench.plans.chain import Step
from nnzbench.plans.plan import Arg, Array, Candidate, Dim3, Launch, Plan, Prepared
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import ConvShape, Problem

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


@dataclass(frozen=True)
class Network:
    """A kernel that computes a whole network, in each arithmetic of its dense products, fp32 alone off a GPU.

    `makes` gives its plans by variant; no plan outlives its candidate.
    """

    name: str
    paper: str
    ops: frozenset[str]
    makes: Callable[[Problem, Operands, str], Mapping[str, Make]]
    maths: tuple[str, ...] = MATHS
    dtypes: frozenset[str] = frozenset({"f32"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per plan and arithmetic; raises `Unsupported` as `makes` does."""
        for name, make in self.makes(problem, operands, device.arch).items():
            for math in self.maths if isinstance(device, GpuDevice) else MATHS[:1]:

                def prepared(name: str = name, make: Make = make, math: str = math) -> Prepared:
                    return prepare(device, make(name), math)

                yield Candidate(f"{math}_{name}", math, prepared)


def prepare(device: Device, plan: Plan, math: str) -> Prepared:
    """The plan on the device, products in cuBLAS's mode `math` on a GPU and as written elsewhere.

    Raises as `Device.prepare` does, and `Unsupported` where cuBLAS is missing or the GPU has no such arithmetic.
    """
    if not isinstance(device, GpuDevice):
        return device.prepare(plan)
    preparing = Preparing(Inputs(device), math)  # not shared: the network's device memory is measured
    handle = cublas.Handle.of(device)
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
    device: GpuDevice, handle: cublas.Handle, plan: Plan, arrays: dict[str, DeviceArray], math: str
) -> Callable[[], None]:
    ours = replace(plan, launches=tuple(launch for launch in plan.launches if launch.entry != PRODUCT))
    calls = iter(device.bind_each(ours, arrays))
    steps = [
        _library(handle, launch, arrays, math) if launch.entry == PRODUCT else next(calls) for launch in plan.launches
    ]

    def run() -> None:
        for step in steps:
            device.guarded(step)

    return run


def _library(handle: cublas.Handle, launch: Launch, arrays: dict[str, DeviceArray], math: str) -> Callable[[], None]:
    m, k, n, transposed, accumulate = (int(one) for one in launch.args[:5])
    a, b, c = (arrays[str(name)] for name in launch.args[5:])
    return cublas.product(handle, math, (m, k, n), a, b, c, b_transposed=bool(transposed), accumulate=bool(accumulate))
