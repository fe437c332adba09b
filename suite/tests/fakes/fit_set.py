"""A result set of an invented GPU that `nnzbench validate` finds fit, to be broken in one place."""

from __future__ import annotations

import dataclasses

import fake_records

from nnzbench.data.matrices import index
from nnzbench.site.contribute.validate import validate

GPU = "nvidia-b100"
SNAPSHOT = {
    "schema": "nnzbench-environment/1",
    "gpu": {"name": "NVIDIA B100", "slug": GPU, "compute_processes": 1},
    "source": {"commit": "ab" * 20, "dirty": False},
    "software": {"cusparselt": "10.3.9.90"},
    "peaks": {
        "copy_gbs": 4000.0,
        "l2_gbs": 9000.0,
        "fp32_tflops": 60.0,
        "tf32_tflops": 350.0,
        "f16_tflops": 700.0,
        "floor_hot_us": 0.5,
        "floor_cold_us": 0.5,
        "l2_bytes": 50 << 20,
        "sms": 132,
    },
}
PROBLEM = "04_n1_c512_h7_w7_d512_r3_s3_p1_95_standin"


ENTRY = next(one for one in index.dlmc().values() if (one.rows, one.cols) == (64, 256) and one.nnz)
SPARSITY = 1 - ENTRY.nnz / (64 * 256)


def row(problem="01_64x256x3136_90_dlmc", **changes):
    """A row of a matrix of the collection, with the work that its nonzeros make."""
    given = {"problem": problem, "gpu": GPU, "nnz": ENTRY.nnz, "sparsity": SPARSITY, "source": f"dlmc:{ENTRY.path}"}
    values = {**given, **changes}
    work = {"flops": 2.0 * values["nnz"] * values.get("n", 3136)}
    return fake_records.record(**{**work, **values})


def fit_rows():
    """A set that is fit: four problems (a quick run has the three smallest), two variants, one of them wrong."""
    names = ["01_64x256x3136_90_dlmc", "02_256x64x3136_90_dlmc", "07_512x2048x49_90_dlmc", "20_1024x1024x49_90_dlmc"]
    made = [row(name, variant=variant) for name in names for variant in ("a", "b")]
    made[1] = dataclasses.replace(made[1], median_us=3.0, q1_us=2.9, q3_us=3.1)
    return fake_records.select([*made, fake_records.failed(row(variant="c"), "wrong", "far from the reference")])


def faults(folder):
    """What makes a set unfit, in the sentences that the command tells."""
    return [finding.sentence for finding in validate(folder) if finding.fault]
