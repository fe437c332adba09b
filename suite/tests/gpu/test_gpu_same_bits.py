"""Every kernel gives the same bits through CuPy, PyCUDA and cuda.core; clusters run through the first and the last."""

import re
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from nnzbench.core.plan import Launch, Plan, Unsupported
from nnzbench.data.problems.operands import make_operands
from nnzbench.devices import open_device
from nnzbench.kernels.registry import VendorKernel, about, kernels
from nnzbench.kernels.samples import PROBLEMS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

ATOMIC = re.compile(r"_gy(?!1$)\d+$")
"""Tilings of SparseRT's paper whose groups add to shared memory atomically: in a new order, to other bits, each run."""

CLUSTER = r"""
extern "C" __global__ void ranks(int* y) {
    unsigned rank, size;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    if (threadIdx.x == 0) y[blockIdx.x] = (int)(size * 100 + rank);
}
extern "C" __global__ void after(int* y, int* z) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (threadIdx.x == 0) z[blockIdx.x] = y[blockIdx.x] + 1;
}
"""


@pytest.fixture(scope="module")
def devices():
    opened = []
    for name in ("cupy", "pycuda", "cuda-core"):
        try:
            opened.append(open_device(name))
        except Unsupported:
            continue
    if len(opened) < 2:
        pytest.skip("fewer than two GPU libraries work here")
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize("name", [name for name, one in kernels().items() if not isinstance(one, VendorKernel)])
def test_every_kernel_gives_the_same_bits(devices, name):
    kernel = kernels()[name]
    compared = 0
    for problem in (one for one in (*PROBLEMS, *about(name).samples) if one.op in kernel.ops):
        for dtype in sorted(kernel.dtypes):
            typed = replace(problem, dtype=dtype)
            try:
                every = kernel.plans(typed, make_operands(typed), devices[0].arch)
                plans = list(islice((plan for plan in every if not ATOMIC.search(plan.variant)), 2))
            except Unsupported:
                continue
            for plan in plans:
                results = []
                for device in devices:
                    prepared = device.prepare(plan)
                    prepared.poison()
                    prepared.run()
                    results.append(prepared.read())
                    prepared.close()
                for device, result in zip(devices[1:], results[1:], strict=True):
                    assert result.tobytes() == results[0].tobytes(), f"{typed.name} {plan.variant} on {device.name}"
                compared += 1
    assert compared


@pytest.fixture(scope="module", params=["cupy", "cuda-core"])
def attributed(request):
    try:
        opened = open_device(request.param)
    except Unsupported as reason:
        pytest.skip(str(reason))
    if int(opened.arch[3:]) < 90:
        pytest.skip(f"{opened.arch} has no clusters")
    yield opened
    opened.close()


def test_clusters_and_programmatic_launches_reach_the_kernel(attributed):
    block = (32, 1, 1)
    launches = (
        Launch("ranks", (8, 1, 1), block, ("y",), cluster=(4, 1, 1)),
        Launch("after", (8, 1, 1), block, ("y", "z"), overlaps=True),
    )
    buffers = {"y": np.zeros(8, np.int32), "z": np.zeros(8, np.int32)}
    prepared = attributed.prepare(Plan("c", "cuda", CLUSTER, {}, buffers, "z", launches))
    prepared.run()
    assert prepared.read().tolist() == [401, 402, 403, 404] * 2
    prepared.close()
