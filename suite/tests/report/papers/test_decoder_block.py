"""The page of decoder blocks: networks beside the one without zeros, and whole models in README's headline."""

from __future__ import annotations

from dataclasses import replace

from sputnik_records import view_of

from nnzbench.papers.nnzbench.decoder_block import DENSE, FP8, SPARSE, against_dense, by_model
from nnzbench.results.table import Comparison
from nnzbench.site.generations.models import whole_models
from nnzbench.site.index.headlines import answers, headline
from nnzbench.site.index.page import entry_of, render

TIMES = [
    ("sparse_block", "f16_block", lambda p: 10.0 if p.sparsity == 0.9 and p.n == 1 else 20.0 if p.sparsity else None),
    ("dense_block", "f16_block", lambda p: None if p.sparsity else 30.0),
    ("fp8_block", "f8_block", lambda p: None if p.sparsity else 15.0),
]


def test_whole_models_are_answered_against_dense_ones_in_either_arithmetic(tmp_path):
    folder = tmp_path / "reports" / "nvidia-h200" / "decoder_block"
    folder.mkdir(parents=True)
    view = view_of(folder, "decoder_block", TIMES)
    facts = view.compare(Comparison((SPARSE,), (DENSE, FP8), (against_dense(90, 1),)))
    assert dict(zip(facts["baseline"], facts["ratio"], strict=True)) == {DENSE.label: 3.0, FP8.label: 1.5}
    assert set(facts["group"]) == {"whole models, 2048 tokens cached, at 90 % zeros with 1 column"}
    shown = headline(folder.parent)
    lines = [f"README.md) | {n} | " for n in (1, 16)]
    assert all(
        f"[all of llama3_8b, synthetic weights](reports/nvidia-h200/decoder_block/{one}" in shown for one in lines
    )
    assert "**3.00×** (2.80 to 3.21) | **1.50×** (1.40 to 1.60) | – |" in shown, "dense fp16, FP8, no INT4"
    assert (
        "**Dense FP8 is as fast or faster** even than 90 % zeros: all of llama3_8b, synthetic weights at 16." in shown
    )
    (answer,) = answers(folder.parent)
    assert (answer.layers, answer.text.count("**3.00×**"), "1.50×" in answer.text) == ("Whole language models", 1, True)


def test_two_of_four_zeros_are_no_zeros_anywhere(tmp_path):
    times = [
        ("sparse_block", "f16_block", lambda p: 90.0 if p.source.startswith("nm") else 9.0 if p.sparsity else None)
    ]
    view = view_of(tmp_path, "decoder_block", times + TIMES[1:])
    half = {
        one: view.compare(Comparison((SPARSE,), (DENSE,), (against_dense(50, 1, one),))) for one in ("uniform", "nm")
    }
    assert [round(float(found["ratio"].iloc[0]), 2) for found in half.values()] == [3.33, 0.33]


def test_index_html_has_the_tokens_a_second_of_whole_models(tmp_path):
    def part(family, product, us):
        return ("block_parts", f"f16_{family}_{product}_cublas.f16_b1000000", lambda p: us)

    products = [
        part(family, one, 1.0) for family in ("dense_block", "sparse_block") for one in ("qkv", "o", "up", "down")
    ]
    again = "f16_sparse_block_qkv_cublaslt.f16_b1000000"  # a resumed run chose anew
    products.append(("block_parts", again, lambda p: 1.5))
    steps = [("block_steps", f"f16_{one}", lambda p: 1.0) for one in ("steps", "norm", "attention", "swiglu")]
    folder = tmp_path / "reports" / "nvidia-h200" / "decoder_block"
    folder.mkdir(parents=True)
    view = view_of(folder, "decoder_block", [*TIMES, *products, *steps, part("head", "head", 2.0)])
    found = by_model(view.results)
    assert set(found["model"]) == {"llama3_8b"}
    one = found[found["tokens at once"] == 1].iloc[0]
    assert (one["dense fp16"], one["90 % zeros"]) == ("33,333", "100,000")  # 30 and 10 us
    html = render([entry_of(folder)], ["decoder_block"])
    assert "Tokens a second on NVIDIA H200" in html
    assert "<td>100,000</td>" in html
    assert whole_models([view.results]) == ""  # one GPU is not set beside another
    lines = whole_models([view.results, replace(view.results, gpu="gb10", environment={})]).splitlines()
    assert "| GPU | dense fp16 |" in lines[0]
    assert sum("| 1 |" in line and "| 33,333 |" in line and "| 100,000 |" in line for line in lines) == 2
