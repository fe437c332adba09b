"""A whole network on a device: one plan, whose dense products cuBLAS computes where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from nnzbench.devices import Device
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.networks.steps import PRODUCT
from nnzbench.kernels.roles import About
from nnzbench.kernels.vendor.cublas import Handle, product
from nnzbench.kernels.vendor.inputs import Inputs, Preparing
from nnzbench.kernels.vendor.support import Freed, finish, open_library, require_math
from nnzbench.plans.plan import Candidate, Launch, Plan, Prepared
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

MATHS = ("f32", "tf32")
"""Of a network's dense products by cuBLAS; everything else is fp32 always."""
DENSE = "NVIDIA cuBLAS and kernels of this suite"
"""Where dense networks are from, and what is known of them all."""
DENSE_ABOUT = About("library", "", frozenset(MATHS), "dense", reference=True, nothing_to_tune=True)
Make = Callable[[str], Plan]
"""The plan under the variant's name."""


class _Output:
    """The network's result in device memory."""

    def __init__(self, array: DeviceArray) -> None:
        self.array, self.read, self.poison = array, array.read, array.poison


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
    require_math(device, math)
    preparing = Preparing(Inputs(device))  # not shared: the network's device memory is measured
    handle = open_library(device, "cublas", lambda: Handle(device))
    arrays: dict[str, DeviceArray] = {}
    try:
        for name, array in plan.buffers.items():
            arrays[name] = device.upload(array)
        run = _bound(device, handle, plan, arrays, math)
    except BaseException:
        Freed(*arrays.values()).close()
        raise
    others = [array for name, array in arrays.items() if name != plan.output]
    return finish(device, run, _Output(arrays[plan.output]), [Freed(*others)], preparing)


def _bound(
    device: GpuDevice, handle: Handle, plan: Plan, arrays: dict[str, DeviceArray], math: str
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


def _library(handle: Handle, launch: Launch, arrays: dict[str, DeviceArray], math: str) -> Callable[[], None]:
    m, k, n, transposed, accumulate = (int(one) for one in launch.args[:5])
    a, b, c = (arrays[str(name)] for name in launch.args[5:])
    return product(handle, math, (m, k, n), a, b, c, b_transposed=bool(transposed), accumulate=bool(accumulate))
