"""What is predicted of published times, of invented records and of drawn sizes changes on purpose alone: four digits of
every number, by one digest a part.

    python suite/tests/papers/predict/test_kept_predictions.py     prints the digests, where a change is meant
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2] / "fakes"))
import fake_records

from nnzbench.core.gpus import gpus
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.papers.predict import holdouts, published
from nnzbench.papers.predict.estimator import Carry, Model, Sizes
from nnzbench.papers.predict.model import bound, calibrate, transfer
from nnzbench.papers.predict.records import predict
from nnzbench.results.result_set import load

H100, H200, A100, T4 = "nvidia-h100-80gb-hbm3", "nvidia-h200", "nvidia-a100-sxm4-40gb", "tesla-t4"
KERNELS = (
    ("cublas", "f32_default_nn", "f32"), ("cublas", "tf32_default_nn", "f32"), ("cublaslt", "f16_rowmajor", "f16"),
    ("sputnik", "y4", "f32"), ("sputnik", "y8", "f32"), ("tensor_spmm", "n32", "f16"), ("cusparselt", "f16_a", "f16"),
    ("sputnik_sddmm", "s4", "f32"),
)  # fmt: skip


def products() -> Iterator[object]:
    for name in (H100, T4, "nvidia-b200"):
        for policy in ("hot", "cold"):
            rows = pd.concat([published.products(False), published.products(True), published.strata("sputnik")])
            yield bound(rows, gpus()[name], policy)
        yield transfer(published.products(True), gpus()[name])
    rows = published.strata("cublas")[["flops", "bytes", "m", "n", "us"]]
    us = rows["us"].to_numpy()
    yield calibrate(us[:9], rows[:9], 2 * us[:9] ** 1.1, us[9:], rows[9:])


def recorded() -> Iterator[object]:
    """Of three GPUs, one of which has a part of the problems."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        reports = Path(folder)
        sizes = [tuple(int(2 ** rng.integers(5, 12)) for _ in range(3)) for _ in range(24)]
        for at, slug in enumerate((H200, H100, A100)):
            for experiment, op in (("sparsert_table1", "spmm"), ("gemm_2to4", "gemm")):
                rows = [
                    fake_records.timed(
                        kernel, us, variant, problem=f"{number:02}_{m}x{k}x{n}_90_dlmc", m=m, k=k, n=n, dtype=dtype,
                        policy=policy, floor_us=1.0 + at / 4, gpu=slug, op=op, experiment=experiment,
                        nnz=m * k // (8 + number % 5),
                    )
                    for number, (m, k, n) in enumerate(sizes[: 24 if at < 2 else 11])
                    for (kernel, variant, dtype), policy in itertools.product(KERNELS, ("hot", "cold"))
                    for us in [2.0 + (1 + at) * (m * k * n) ** 0.4 / 50 * rng.uniform(0.8, 1.2)]
                    if op == "spmm" or kernel.startswith("cu")
                ]  # fmt: skip
                fake_records.write(reports / slug / experiment, rows)
        for target in (A100, T4, "nvidia-h100-pcie", "nvidia-b200"):
            yield predict(reports, "sparsert_table1", target).rows
        yield predict(reports, "sparsert_table1", T4, A100).rows
        yield holdouts.errors(reports)
        for sparse in (False, True):
            yield holdouts.recorded_products(load(reports / H200 / "gemm_2to4"), sparse)


def estimated() -> Iterator[object]:
    rng = np.random.default_rng(1)
    kinds = ("uniform:0", "uniform:0", "nm:2:4:0", "balanced:32:0")
    drawn = [[int(2 ** rng.uniform(1.5, 12)) for _ in range(3)] for _ in range(60)]
    rows = pd.DataFrame(drawn, columns=["m", "k", "n"]).assign(source=rng.choice(kinds, 60), floor_us=1.5)
    rows["nnz"] = (rows["m"] * rows["k"] * rng.uniform(0.02, 0.5, 60)).astype(int) + 1
    rows["median_us"] = 2 + 1e-6 * rows["nnz"] * rows["n"] * rng.uniform(0.8, 1.2, 60) + 1e-5 * rows["m"] * rows["n"]
    asked = [
        Sizes(*(int(2 ** rng.uniform(1, 15)) for _ in range(3)), 9999, kind)
        for kind in ("2:4", "unstructured", "balanced") * 2
    ]
    carry = Carry(gpus()[H200], gpus()[T4], 1.2, 0.3)
    for dense, sddmm, library, policy in itertools.product(*[(False, True)] * 3, ("hot", "cold")):
        more = {"halved": sddmm and dense, "coded": library, "carry": carry if policy == "cold" else None}
        for narrow in (1, 16, 40):
            some = rows.assign(n=np.maximum(rows["n"], narrow), k=np.maximum(rows["k"], narrow))
            model = Model(some, dense, sddmm, 2 + 2 * library, 1.0, library, policy=policy, gpu=gpus()[T4], **more)
            for one in asked:
                near = [away for away, _ in model.near(one)]
                yield (*model.at([one]), model.guess(one), model.widened(one), model.within(one.kind), *near)
                yield model.held_out_error(one.kind), model.remoteness(one)
            yield model.estimates(model.folds == 1)


def spread_out(found: object) -> Iterator[str]:
    if isinstance(found, pd.DataFrame):
        found = [*found.columns, *found.to_numpy().ravel()]
    if isinstance(found, tuple | list | np.ndarray | pd.Series | Iterator):
        for one in found:
            yield from spread_out(one)
    else:
        yield f"{float(found):.4g}" if isinstance(found, float | np.floating) else str(found)


def digest(found: object) -> str:
    return hashlib.sha256("\n".join(spread_out(found)).encode()).hexdigest()[:12]


MADE: dict[str, Callable[[], object]] = {
    "errors": lambda: holdouts.errors(Path("no records")),
    "published": lambda: [*map(published.products, (False, True)), *map(published.strata, published.LIBRARIES)],
    "bars": lambda: [*holdouts.bars().items(), dlmc_n512.printed(of_all=True)],
    "products": products,
    "recorded": recorded,
    "estimated": estimated,
}
KEPT = {
    "errors": "e01e4f4ec9e7",
    "published": "d21cfa238d58",
    "bars": "f81c56c0baba",
    "products": "1cecc4a2392c",
    "recorded": "65f184a1deed",
    "estimated": "1fa92732a413",
}


@pytest.mark.parametrize("name", MADE)
def test_predictions_are_those_kept(name):
    assert digest(MADE[name]()) == KEPT[name], "where this is meant, see above"


if __name__ == "__main__":
    print({name: digest(make()) for name, make in MADE.items()})
