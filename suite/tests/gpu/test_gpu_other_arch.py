"""Older architectures' plans and code paths on the GPU at hand; `--other-arch sm_75` chooses, all of them unasked."""

from dataclasses import replace

import conformance
import pytest
from vendor_candidates import outcomes

from nnzbench.core.architectures import ARCHITECTURES
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.operands import make_operands
from nnzbench.devices import open_device
from nnzbench.devices.other_arch import checking
from nnzbench.kernels.registry import VendorKernel, kernels
from nnzbench.kernels.samples import PROBLEMS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

CANDIDATES = 4
"""Of a kernel on each problem."""
OLDER = [name for name, one in ARCHITECTURES.items() if one.compiled]


@pytest.fixture(scope="module", params=OLDER)
def device(request):
    asked = request.config.getoption("--other-arch")
    if asked and request.param not in asked:
        pytest.skip(f"--other-arch names {', '.join(asked)}")
    try:
        opened = open_device("cupy")
        yield checking(opened, request.param)
    except Unsupported as reason:
        pytest.skip(str(reason))
    opened.close()


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_same_results_as_the_processor(device, case):
    conformance.check(device, case)


@pytest.mark.parametrize("name", [name for name, one in kernels().items() if not isinstance(one, VendorKernel)])
def test_every_kernel_is_right_on_the_representative_problems(device, name):
    kernel = kernels()[name]
    right, wrong = 0, []
    for problem in PROBLEMS:
        if problem.op not in kernel.ops:
            continue
        for dtype in sorted(kernel.dtypes):
            typed = replace(problem, dtype=dtype)
            for variant, outcome in outcomes(device, name, typed, make_operands(typed), CANDIDATES):
                right += outcome.status == "ok"
                if outcome.status not in ("ok", "unsupported"):
                    wrong.append((typed.name, dtype, variant, outcome.status, outcome.reason))
    assert not wrong
    if not right:
        pytest.skip(f"{name} has no plan for {device.arch}")
