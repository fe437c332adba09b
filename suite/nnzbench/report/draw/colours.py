"""Colour and marker of each kernel, the same in every figure."""

from __future__ import annotations

from typing import NamedTuple


class Look(NamedTuple):
    """Colour (a name of `style.PALETTE`, or `#rrggbb`) and marker (Matplotlib's letter)."""

    colour: str
    marker: str


LOOKS = {
    "sputnik": Look("blue", "o"),
    "sputnik_sddmm": Look("blue", "h"),
    "sparse_softmax": Look("blue", "p"),
    "sparsert": Look("vermillion", "s"),
    "merge_spmm": Look("orange", "D"),
    "aspt": Look("yellow", "D"),
    "aspt_sddmm": Look("yellow", "D"),
    "sparsert_conv": Look("vermillion", "s"),
    "sparsert_paper": Look("vermillion", "D"),
    "sparsert_conv_paper": Look("vermillion", "D"),
    "sparsert_unbalanced": Look("sky", "v"),
    "sparsert_fixed": Look("orange", "P"),
    "sparsert_rolled": Look("purple", "X"),
    "sparsert_pattern": Look("green", "p"),
    "row_stream": Look("green", "^"),
    "panel": Look("purple", "d"),  # superseded by `ring`: its recorded rows are drawn as before
    "flash_llm": Look("orange", "X"),
    "ring": Look("sky", "p"),
    "spinfer": Look("green", "P"),
    "tensor_spmm": Look("vermillion", "h"),
    "tensor_spmm_tf32": Look("yellow", "h"),
    "delta_spmv": Look("sky", "h"),
    "ring_sddmm": Look("sky", "D"),
    "balanced": Look("purple", "P"),
    "eie": Look("orange", "h"),
    "direct_conv": Look("green", "X"),
    "cusparse": Look("orange", "v"),
    "cusparselt": Look("orange", "<"),
    "cublas": Look("ink", "_"),
    "cublaslt": Look("sky", "_"),
    "cudnn": Look("ink", "_"),
    "cublas_bias_relu": Look("ink", "_"),
    "dense_attention": Look("ink", "_"),
    "cudnn_attention": Look("ink", "_"),
    "sparse_transformer": Look("blue", "o"),
    "dense_transformer": Look("ink", "_"),
    "sparse_mobilenet": Look("blue", "o"),
    "dense_mobilenet": Look("ink", "_"),
    "depthwise_conv": Look("green", "*"),
    "row_stream_bias_relu": Look("purple", "d"),
    "sparse_attention": Look("sky", ">"),
    "sputnik_ablation": Look("vermillion", "H"),
    "sputnik_bias_relu": Look("green", "*"),
    "sputnik_sddmm_ablation": Look("yellow", "8"),
    "sputnik_transposed": Look("purple", "d"),
    "untuned": Look("yellow", "8"),
}
"""By kernel, in the order of legends; one that is not here gets a look from its name (`style.look`)."""
