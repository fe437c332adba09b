import conformance
import pytest

from nnzbench.core.plan import Unsupported
from nnzbench.devices import open_device

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]


@pytest.fixture(scope="module", params=["cupy", "pycuda", "cuda-core"])
def device(request):
    try:
        opened = open_device(request.param)
    except Unsupported as reason:
        pytest.skip(str(reason))
    yield opened
    opened.close()


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_same_results_as_the_processor(device, case):
    conformance.check(device, case)
