"""Every expected number is worked out by hand from the limits table in the comments."""

import pytest

from nnzbench.plans.architectures import ARCHITECTURES
from nnzbench.plans.tiles import Occupancy, occupancy

CASES = [
    # 32 registers: 1024 per warp, 16 warps per partition, 64 per SM; 8 warps per block.
    (("sm_90", 32, 0, 256), Occupancy(8, 64, 1.0, "warps")),
    # One warp per block: block slots run out at 32 of 64 warps.
    (("sm_90", 32, 0, 32), Occupancy(32, 32, 0.5, "blocks")),
    # 255 registers: 8160 rounded to 8192 per warp, 2 warps per partition, 8 per SM, one block of 8.
    (("sm_90", 255, 0, 256), Occupancy(1, 8, 0.125, "registers")),
    # 33 registers: 1056 rounded to 1280, 12 warps per partition, 48 per SM, six blocks of 8.
    (("sm_80", 33, 0, 256), Occupancy(6, 48, 0.75, "registers")),
    # 40000 + 1024 reserved = 41024, rounded to 41088; 167936 / 41088 = 4.08.
    (("sm_80", 32, 40000, 128), Occupancy(4, 16, 0.25, "shared memory")),
    # 41000 + 1024 = 42024, rounded to 42112, 3.99 of which fit; without what is reserved there would be room for four.
    (("sm_80", 32, 41000, 128), Occupancy(3, 12, 0.1875, "shared memory")),
    # 33 registers: 12 warps per partition, 48 per SM, sixteen blocks of 3; the registers left over make no warp.
    (("sm_80", 33, 0, 96), Occupancy(16, 48, 0.75, "registers")),
    # The largest block: 227 KiB and 1 KiB reserved is the whole SM.
    (("sm_90", 32, 227 * 1024, 1024), Occupancy(1, 32, 0.5, "shared memory")),
    (("sm_90", 32, 227 * 1024 + 1, 1024), Occupancy(0, 0, 0.0, "shared memory")),
    # Nothing is reserved before sm_80: 96 KiB / 32 KiB; steps of 256 bytes make 32769 into 33024.
    (("sm_70", 32, 32768, 256), Occupancy(3, 24, 0.375, "shared memory")),
    (("sm_70", 32, 32769, 256), Occupancy(2, 16, 0.25, "shared memory")),
    (("sm_75", 64, 0, 64), Occupancy(16, 32, 1.0, "blocks")),
    (("sm_86", 40, 0, 128), Occupancy(12, 48, 1.0, "warps")),
    (("sm_89", 16, 0, 64), Occupancy(24, 48, 1.0, "blocks")),
    # A block of 1024 threads at 65 registers wants 32 warps of 2304, more than the 65536 there are.
    (("sm_90", 65, 0, 1024), Occupancy(0, 0, 0.0, "registers")),
    # Part of a warp takes a whole one.
    (("sm_90a", 32, 0, 33), Occupancy(32, 64, 1.0, "blocks")),
]


@pytest.mark.parametrize(("arguments", "expected"), CASES)
def test_occupancy(arguments, expected):
    assert occupancy(*arguments) == expected


def test_one_register_more_never_raises_occupancy():
    for arch in ARCHITECTURES:
        for threads in (32, 96, 256, 1000):
            blocks = [occupancy(arch, registers, 4096, threads).blocks for registers in range(256)]
            assert blocks == sorted(blocks, reverse=True)


@pytest.mark.parametrize("arguments", [(32, 0, 0), (32, 0, 1025), (256, 0, 32), (-1, 0, 32), (32, -1, 32)])
def test_impossible_blocks_are_refused(arguments):
    with pytest.raises(ValueError, match=r"block has|make no kernel"):
        occupancy("sm_90", *arguments)
