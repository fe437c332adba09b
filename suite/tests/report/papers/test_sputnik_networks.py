"""Facts and tables of attention and whole networks on invented records with known answers."""

from __future__ import annotations

import importlib
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from sputnik_records import Timed, records

from nnzbench.facts.results import load
from nnzbench.papers.sputnik import sputnik_attention
from nnzbench.records import memory
from nnzbench.report import render
from nnzbench.report.pages.view import View

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
            memory.add(folder / memory.FILE, memory.Memory(*key, 5_000_000, 5_000_000 + size * 10**6, 5_000_000))
    results = load(folder)
    render.write(sputnik_attention.page(), results)
    facts = facts_of(folder)
    whole, same = "sparse against full causal attention", "attention under the sparse mask"
    assert facts[whole, "sparse_attention fp16", "cuDNN attention fp16"] == pytest.approx(60 / 90, rel=1e-5)
    assert facts[same, "sparse_attention fp16", "cuDNN attention fp16"] == pytest.approx(240 / 90, rel=1e-5)
    assert facts[same, "sparse_attention", "dense_attention"] == 6.0
    assert facts[same, "sparse_attention, its heuristic", "dense_attention TF32"] == 1.5
    found = sputnik_attention._memory(View(results))
    assert found is not None
    found = found.set_index(["problem", "kernel"])
    assert found["tokens/s"]["attention", "sparse_attention"] == round(12288 / (24 * 150e-6))  # 3 layers of 8 heads
    assert found["times less than dense_attention's"]["attention", "sparse_attention"] == pytest.approx(6.0)
    assert found["MB measured"]["causal", "cuDNN attention fp16"] == pytest.approx(12.0)
    features = 2 * 128 * 4 * 12288  # bytes of Q, K, V and the output in fp16
    assert found["MB counted"]["causal", "cuDNN attention fp16"] == pytest.approx(features / 1e6)


@pytest.mark.parametrize("name", ["sputnik_attention"])
def test_records_without_times_make_a_page(name: str, tmp_path: Path) -> None:
    (row, *_) = records(name, (("sputnik", "x", lambda _: 1.0),))
    results = load(fake_records.write(tmp_path, [fake_records.failed(row, "timeout", "took too long")]))
    page = importlib.import_module(f"nnzbench.papers.sputnik.{name}").page()
    assert "took too long" in render.write(page, results).read_text(encoding="utf-8")
