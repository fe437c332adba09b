"""Facts and tables of attention and whole networks on invented records with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from sputnik_records import Timed, records

from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.kernels.registry import kernels
from nnzbench.kernels.sputnik.layers import mask_bits
from nnzbench.kernels.vendor.attention import added_mask
from nnzbench.papers.catalogue import experiment
from nnzbench.papers.sputnik import networks, whole_networks
from nnzbench.report import render
from nnzbench.report.page import View
from nnzbench.results.records.beside import MEMORY, Memory
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import load

ATTENTION: tuple[Timed, ...] = (
    ("dense_attention", "f32", lambda p: 900.0 if p.op == "attention" else None),
    ("dense_attention", "tf32", lambda p: 300.0 if p.op == "attention" else None),
    ("sparse_attention", "heuristic_s32", lambda p: 200.0 if p.label == "attention" else None),
    ("sparse_attention", "s32_w32", lambda p: 150.0 if p.label == "attention" else None),
    ("sputnik_sddmm", "heuristic_s32", lambda p: 60.0 if p.op == "sddmm" else None),
)
HALF: tuple[Timed, ...] = (
    ("cudnn_attention", "f16_bias_plan00", lambda p: 240.0 if p.label == "attention" else None),
    ("cudnn_attention", "f16_causal_plan00", lambda p: 60.0 if p.label == "causal" else None),
    ("sparse_attention", "s32_w32", lambda p: 90.0 if p.label == "attention" else None),
)


def facts_of(folder: Path) -> pd.Series[float]:
    return pd.read_csv(folder / "facts.csv").set_index(["group", "subject", "baseline"])["ratio"]


def test_attention_stands_beside_fused_attention_in_time_and_measured_memory(tmp_path: Path) -> None:
    rows = records("sputnik_attention", ATTENTION) + records("sputnik_attention", HALF, "f16")
    folder = fake_records.write(tmp_path, rows)
    sizes = {"dense_attention": 600, "sparse_attention": 100, "f16_bias_plan00": 320, "f16_causal_plan00": 12}
    for one in rows:
        if size := sizes.get(one.kernel, sizes.get(one.variant)):
            key = (one.problem, one.dtype, one.kernel, one.variant, one.device)
            MEMORY.add(folder, Memory(*key, 5_000_000, 5_000_000 + size * 10**6, 5_000_000))
    results = load(folder)
    render.write(networks.sputnik_attention(), results)
    facts = facts_of(folder)
    whole, same = "sparse against full causal attention", "attention under the sparse mask"
    assert facts[whole, "sparse_attention fp16", "cuDNN attention fp16"] == pytest.approx(60 / 90, rel=1e-5)
    assert facts[same, "sparse_attention fp16", "cuDNN attention fp16"] == pytest.approx(240 / 90, rel=1e-5)
    assert facts[same, "sparse_attention", "dense_attention"] == 6.0
    assert facts[same, "sparse_attention, its heuristic", "dense_attention TF32"] == 1.5
    found = networks._memory(View(results)).set_index(["problem", "kernel"])
    assert found["tokens/s"]["attention", "sparse_attention"] == round(12288 / (24 * 150e-6))  # 3 layers of 8 heads
    assert found["times less than dense_attention's"]["attention", "sparse_attention"] == pytest.approx(6.0)
    assert found["MB measured"]["causal", "cuDNN attention fp16"] == pytest.approx(12.0)
    features = 2 * 128 * 4 * 12288  # bytes of Q, K, V and the output in fp16
    assert found["MB counted"]["causal", "cuDNN attention fp16"] == pytest.approx(features / 1e6)


def pointwise(us: float, sparse: bool = False) -> Callable[[Problem], float | None]:
    return lambda p: us if p.op == "pointwise" and (p.sparsity > 0 or not sparse) else None


LAYERS: tuple[Timed, ...] = (
    ("depthwise_conv", "o4", lambda p: 2.0 if p.op == "depthwise" else None),
    ("cublas_bias_relu", "f32_rowmajor", pointwise(10.0)),
    ("cublas_bias_relu", "tf32_rowmajor", pointwise(3.0)),
    ("sputnik_bias_relu", "heuristic_y4", pointwise(5.0, sparse=True)),
    ("row_stream_bias_relu", "n64", pointwise(4.0, sparse=True)),
)


def test_mobilenet_sums_its_layers_each_as_often_as_it_occurs(tmp_path: Path) -> None:
    results = load(fake_records.write(tmp_path, records("sputnik_mobilenet", LAYERS)))
    page = networks.sputnik_mobilenet()
    render.write(page, results)
    facts = facts_of(tmp_path)
    pair = "MobileNetV1 of equal accuracy, sparse of width 1.8 against dense of 1.4 (total)"
    best = "each layer's fastest kernel fp32"
    assert facts[pair, best, "dense layers fp32"] == pytest.approx(156 / 84, rel=1e-5)
    # each layer's fastest: cuBLAS's 10 us of the first, Sputnik's 5 of the others
    sputnik = "each layer's fastest of Sputnik and cuBLAS fp32"
    assert facts[pair, sputnik, "dense layers fp32"] == pytest.approx(156 / 96, rel=1e-5)
    assert facts[pair, best, "dense layers TF32 or fp32"] == pytest.approx(65 / 84, rel=1e-5)
    found = networks.networks_of(View(results, page.attributes)).set_index(["curve", "width"])
    assert found["us"]["dense, cuBLAS TF32", 1.0] == 13 * 2 + 13 * 3
    assert found["us"]["sparse, best kernel of each layer", 1.8] == 13 * 2 + 10 + 12 * 4
    assert found["us"]["sparse, sputnik alone", 1.3] == 13 * 2 + 10 + 12 * 5
    assert found["depthwise"]["sparse, best kernel of each layer", 1.8] == pytest.approx(100 * 26 / 84)
    assert found["accuracy"]["sparse, sputnik alone", 1.8] == 74.9


def test_the_fastest_tile_is_taken_for_the_four_layers_that_gain_most(tmp_path: Path) -> None:
    faster: tuple[Timed, ...] = (
        ("sputnik_bias_relu", "y2", lambda p: 4.0 if "pw06" in p.label or "pw02" in p.label else None),
        ("sputnik_bias_relu", "y1", lambda p: 3.0 if "pw02" in p.label else None),
    )
    results = load(fake_records.write(tmp_path, records("sputnik_mobilenet", (*LAYERS, *faster))))
    found = {one["width"]: one for one in networks._tiles(View(results, networks.sputnik_mobilenet().attributes))}
    assert found["1.8"] == {
        "width": "1.8", "the heuristic's": 12 * 5, "the fastest for four": 60 - 2 - 3 * 1,
        "the fastest for all": 60 - 2 - 5 * 1, "the four": "1 of pw02, 3 of pw06",
    }  # fmt: skip


def test_a_mobilenet_with_a_layer_missing_has_no_frames_per_second(tmp_path: Path) -> None:
    rows = records("sputnik_mobilenet", LAYERS, keep=lambda p: p.label != "sparse_w1.8_pw06")
    found = networks.networks_of(View(load(fake_records.write(tmp_path, rows))))
    assert 1.7 in set(found["width"])
    assert 1.8 not in set(found["width"])


def of(label: str, us: float) -> Callable[[Problem], float | None]:
    return lambda p: us if p.label == label else None


def width(p: Problem) -> float:
    return float(p.label.partition("_w")[2])


NETWORKS: tuple[Timed, ...] = (
    ("sparse_transformer", "f32_heuristic", of("transformer", 100_000.0)),
    ("dense_transformer", "f32_default", of("transformer", 250_000.0)),
    ("dense_transformer", "tf32_default", of("transformer", 90_000.0)),
    ("sparse_transformer", "tf32_heuristic", of("transformer", 60_000.0)),
    ("sparse_transformer", "f32_rule", of("transformer", 50_000.0)),
    *(("cublas", "f32_rowmajor", of(f"gemm_{name}", 100.0)) for name in ("project", "output", "up", "down")),
    ("sputnik_sddmm", "heuristic_s32", of("step_scores", 1000.0)),
    ("sputnik_sddmm", "s16", of("step_scores", 500.0)),
    ("sparse_softmax", "w32", of("step_softmax", 500.0)),
    ("sputnik", "heuristic_y4", of("step_context", 1500.0)),
    ("sparse_mobilenet", "f32_rule", lambda p: 50 * width(p) if p.label.startswith("sparse_w") else None),
    ("sparse_mobilenet", "f32_heuristic", lambda p: 100 * width(p) if p.label.startswith("sparse_w") else None),
    ("dense_mobilenet", "f32_default", lambda p: 200 * width(p) if p.op == "mobilenet" else None),
)
STEPS: tuple[Timed, ...] = (
    ("depthwise_conv", "o2_t128", lambda p: 1.0 if p.op == "depthwise" else None),
    ("sputnik_bias_relu", "heuristic_y4", pointwise(2.0, sparse=True)),
    ("sputnik_bias_relu", "y2", pointwise(1.0, sparse=True)),
    ("cublas_bias_relu", "f32_rowmajor", pointwise(4.0)),
)


def test_networks_stand_beside_their_steps(tmp_path: Path) -> None:
    fake_records.write(tmp_path / "gpu" / "sputnik_mobilenet", records("sputnik_mobilenet", STEPS))
    rows = records("whole_networks", NETWORKS, keep=lambda p: p.label != "dense_w1.2")
    folder = fake_records.write(tmp_path / "gpu" / "whole_networks", rows)
    (name,) = {row.problem for row in rows if row.shape == "transformer"}
    traced = (whole_networks.Traced(name, "sparse_transformer", "f32_heuristic", n, 100500, 100000) for n in (7, 250))
    whole_networks.BUSY.add(folder, *traced)  # of two lines the later counts
    results, page = load(folder), whole_networks.whole_networks()
    render.write(page, results)
    facts = facts_of(folder)
    assert facts["the Transformer", "sparse Transformer, its heuristic", "dense Transformer"] == 2.5
    assert facts["the Transformer", "sparse Transformer TF32, its heuristic", "dense Transformer TF32"] == 1.5
    pair = "MobileNetV1 of equal accuracy, sparse of width {} against dense of {}"
    rule, dense = "sparse MobileNetV1, its heuristic", "dense MobileNetV1"
    assert facts[pair.format("1.3", "1"), rule, dense] == pytest.approx(200 / 130, rel=1e-5)
    assert (pair.format("1.5", "1.2"), rule, dense) not in facts.index
    view = View(results, page.attributes)
    every = whole_networks._every(view, "transformer")
    assert dict(zip(every["variant"], every["tokens/s"], strict=True))["`f32_heuristic`"] == 122_880
    found = pd.DataFrame(whole_networks._parts(view)).set_index(["network", "variant"])
    traced = found.loc[("transformer", "`f32_heuristic`")]
    assert (traced["launches"], traced["difference per launch"]) == (250, 2.0)
    # 72 + 24 + 3 + 3 products of 100 us and 24 heads of 3000 us
    assert traced["its steps by themselves"] == 82_200
    assert math.isnan(found["launches"]["transformer", "`f32_rule`"])
    # 13 depthwise layers of 1 us, 12 sparse of 2 us, the first by cuBLAS 4 us
    assert found["its steps by themselves"]["sparse_w1.3", "`f32_heuristic`"] == 41
    assert found["its steps by themselves"]["dense_w1", "`f32_default`"] == 65


@pytest.mark.parametrize("row", ["a,b,c,0,1,1", "a,b,c,1,nan,1", "a,b,c,1,1", "a,b,c,one,1,1"])
def test_a_table_of_busy_times_that_is_none_is_refused(tmp_path: Path, row: str) -> None:
    (tmp_path / whole_networks.BUSY.file).write_text(f"problem,kernel,variant,launches,whole_us,busy_us\n{row}\n")
    with pytest.raises(RecordError, match="not a table of busy times"):
        whole_networks.BUSY.read(tmp_path)


def test_cublas_computes_the_dense_products_alone() -> None:
    whole = experiment("whole_networks")
    taken = [p for p in whole.problems() if whole.takes("cublas", p)]
    assert {p.op for p in taken} == {"gemm"}
    assert len(taken) == 4


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_attention_memory_is_that_of_the_plan(dtype: DType) -> None:
    problem = Problem("test", "p", "attention", 1024, 1024, 32, 0.9, "banded:64:0", dtype)
    operands = make_operands(problem)
    plan = next(kernels()["sparse_attention"].plans(problem, operands, "sm_90"))  # type: ignore[union-attr]
    held = sum(array.nbytes for array in plan.buffers.values())
    sizes = (1024, 1024, 32, operands.sparse.nnz)
    assert networks.attention_bytes("sparse_attention", "any", dtype, *sizes) == pytest.approx(held, rel=0.02)
    if dtype == "f32":
        dense = sum(4 * 1024 * 32 for _ in "qkvo") + 4 * 1024 * 1024 + mask_bits(operands.sparse).nbytes
        assert networks.attention_bytes("dense_attention", "tf32", "tf32", *sizes) == dense
        assert dense / held > 2
    else:
        fused = sum(2 * 1024 * 32 for _ in "qkvo")
        assert networks.attention_bytes("cudnn_attention", "f16_causal_plan00_default", "f16", *sizes) == fused
        added = fused + added_mask(operands.sparse, "f16").nbytes
        assert networks.attention_bytes("cudnn_attention", "f16_bias_plan00_default", "f16", *sizes) == added
        assert fused < held < added
