import pytest

from nnzbench.arches import block_shared_bytes, sm_count
from nnzbench.compile import ARCHES
from nnzbench.occupancy import SM_LIMITS


@pytest.mark.parametrize("arch", ARCHES)
def test_a_block_never_gets_more_shared_memory_than_its_multiprocessor_has(arch):
    assert 48 * 1024 < block_shared_bytes(arch) <= SM_LIMITS[arch].shared_bytes
    assert block_shared_bytes(f"{arch}a") == block_shared_bytes(arch)
    assert sm_count(arch) >= 40


def test_an_architecture_of_the_future_gets_what_every_gpu_has():
    assert block_shared_bytes("sm_999") == 48 * 1024
    assert sm_count("sm_999") > 0
