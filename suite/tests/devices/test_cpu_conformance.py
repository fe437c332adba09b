import conformance
import pytest

from nnzbench.devices import open_device
from nnzbench.devices.cpu_device import CpuDevice

pytestmark = pytest.mark.usefixtures("cache_dir")


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_plain(case):
    conformance.check(open_device("cpu"), case)


@pytest.mark.parametrize("build", ["asan", "tsan"])
@pytest.mark.parametrize(
    "name", ["buffers keep their contents between runs", "asynchronous copies", "block reduction", "warp operations"]
)
def test_sanitizers_find_nothing(name, build):
    (case,) = (case for case in conformance.CASES if case.name == name)
    conformance.check(CpuDevice(build), case)


@pytest.mark.parametrize("order", ["backward", "random:7"])
@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_any_order_gives_the_same_bits(case, order):
    conformance.check(CpuDevice(order=order), case)
