"""Dense attention, softmax(Q K^T over a mask) V: what `sparse_attention` is compared with.

`dense_attention`: cuBLAS, a masked softmax, cuBLAS. All m x k scores are computed and kept, and the mask is applied in
the softmax, so that the result is that of the sparse kernel and is checked against the same reference.

`cudnn_attention`: one kernel that writes no score to device memory, as a dense Transformer runs today. cuDNN takes the
mask in one of two ways. `causal`: where the mask is the whole lower triangle, cuDNN's own causal mask, whose upper half
is not computed. `bias`: any other mask, as a tensor of m x k numbers of the operands' type that are added to the
scores: the very function of the sparse kernel, with every score computed and the tensor read. Inputs and outputs are
fp16 or bf16, which is all that the operation takes; scores, softmax and sums are fp32, and the weights are rounded to
the inputs' type between the two products. Every plan that the heuristics propose is a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from nnzbench.core.plan import Array, Candidate, Prepared, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.copies import each
from nnzbench.kernels.registry import About
from nnzbench.kernels.sputnik.layers import masked_softmax_plan
from nnzbench.kernels.vendor import cublas, support
from nnzbench.kernels.vendor.cublas import MODES, product
from nnzbench.kernels.vendor.cudnn import CudnnHandle, buildable, planned, prepare_plan
from nnzbench.kernels.vendor.support import Inputs, Output, Preparing, library, to_storage

MASKED = -32768.0
"""Added to the scores that the mask leaves out: exp of it is 0 beside any score, and unlike minus infinity it leaves no
NaN where a block of scores is masked altogether."""
ALIGNED = 8
"""Elements that a row of the added tensor is a multiple of: 16 bytes."""

Q, K, V, O, BIAS = 1, 2, 3, 4, 5  # noqa: E741 - the operands' usual names
"""Identifiers of the tensors in the graph."""


def is_causal(mask: CSR) -> bool:
    """Whether query i sees exactly the keys 0 to i."""
    if mask.m != mask.k or not np.array_equal(mask.row_lengths, np.arange(1, mask.m + 1)):
        return False
    return np.array_equal(mask.indices[mask.offsets[1:] - 1], np.arange(mask.m))


def added_mask(mask: CSR, dtype: DType) -> Array:
    """What is added to the scores, as the GPU stores it: 0 at the mask's positions and `MASKED` elsewhere.

    (m, k rounded up to whole `ALIGNED`).
    """
    hidden = to_storage(np.full(1, MASKED, np.float16 if dtype == "f16" else np.float32), dtype)
    bias = np.full((mask.m, -(-mask.k // ALIGNED) * ALIGNED), hidden[0])
    bias[mask.rows, mask.indices] = 0
    return bias


def attention_graph(handle: CudnnHandle, p: Problem, causal: bool) -> Any:
    """One operation over heads of (1, 1, rows, features). Raises `Unsupported` with cuDNN's reason."""

    def attention(graph: Any, kind: Any) -> None:
        def tensor(name: str, rows: int, columns: int, pitch: int, uid: int) -> Any:
            stride = [rows * pitch, rows * pitch, pitch, 1]
            return graph.tensor(name=name, dim=[1, 1, rows, columns], stride=stride, data_type=kind, uid=uid)

        q = tensor("q", p.m, p.n, p.n, Q)
        k, v = tensor("k", p.k, p.n, p.n, K), tensor("v", p.k, p.n, p.n, V)
        masked: dict[str, Any] = {"use_causal_mask": True}
        if not causal:
            masked = {"bias": tensor("bias", p.m, p.k, -(-p.k // ALIGNED) * ALIGNED, BIAS)}
        # the factor of scores is part of Q
        result, _ = graph.sdpa(q=q, k=k, v=v, attn_scale=1.0, generate_stats=False, name="o", **masked)
        result.set_output(True).set_data_type(kind).set_uid(O)
        result.set_dim([1, 1, p.m, p.n]).set_stride([p.m * p.n, p.m * p.n, p.n, 1])

    return planned(handle, p.dtype, "attention", "A FALLBACK", attention)


@library(
    "NVIDIA cuDNN, scaled dot-product attention",
    "attention",
    "f16 bf16",
    About("library", "cuDNN attention", work="dense", rank=261),
)
def cudnn_attention(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """Fused attention of one head, as a dense Transformer runs it today: every plan that builds, cuDNN's choice first.

    Raises `Unsupported` without a GPU of sm_80 or later or without cuDNN. And where a query sees no key: the softmax of
    nothing but masked scores would be that of all of them.
    """
    if gpu.facts.compute_capability < (8, 0):
        raise Unsupported(f"cudnn's fused attention needs sm_80 or later, this GPU is {gpu.arch}")
    mask, dtype = operands.sparse, problem.dtype
    if not mask.row_lengths.all():
        raise Unsupported("cudnn's fused attention has no result for a query without a key")
    handle, causal = CudnnHandle.of(gpu), is_causal(mask)
    way = f"{dtype}_{'causal' if causal else 'bias'}"

    def inputs() -> tuple[Array, ...]:
        return tuple(to_storage(operands.dense[name], dtype) for name in ("q", "k", "v"))

    def prepare(index: int) -> Prepared:
        preparing = Preparing(Inputs(gpu))
        arrays = dict(zip((Q, K, V), preparing.arrays(("q", "k", "v"), inputs), strict=True))
        if not causal:
            arrays[BIAS] = preparing.array(("bias",), lambda: added_mask(mask, dtype))
        output = Output(gpu, (problem.m, problem.n), dtype)
        return prepare_plan(handle, graph, index, {**arrays, O: output.array}, output, way, preparing)

    try:
        graph = attention_graph(handle, problem, causal)
        end = "_default"
        for index in buildable(handle.lib, graph):
            yield Candidate(f"{way}_plan{index:02}{end}", dtype, partial(prepare, index))
            end = ""
        if end:
            raise Unsupported(f"cudnn has no engine for this attention ({way.partition('_')[2]})")
    except Unsupported as error:
        yield support.refusal(way, dtype, str(error))


def prepare_attention(device: GpuDevice, math: str, operands: Operands) -> Prepared:
    """softmax(Q K^T over the mask) V, products in math mode `f32` or `tf32`, softmax in fp32.

    Raises `Unsupported` without cuBLAS or for rows too long for the softmax, `LaunchError` where there is no memory.
    """
    dense = operands.dense
    preparing = Preparing(Inputs(device), math)  # not shared: its device memory is measured
    handle = cublas.CublasHandle.of(device)
    mask = operands.sparse
    q, keys, v = preparing.arrays(("q", "k", "v"), lambda: (dense["q"], dense["k"], dense["v"]))
    features = q.shape[1]
    scores = device.empty((mask.m, mask.k), np.float32)
    softmax = masked_softmax_plan(mask, np.empty((0, 0), np.float32))
    bits = preparing.array(("mask",), lambda: softmax.buffers["mask"])
    output = Output(device, (mask.m, features), "f32")
    steps = (
        product(handle, math, (mask.m, features, mask.k), q, keys, scores, b_transposed=True),
        device.bind(softmax, {"mask": bits, "x": scores}),
        product(handle, math, (mask.m, mask.k, features), scores, v, output.array),
    )
    return support.finish(preparing, partial(each, steps), output, [scores])


@library(
    "NVIDIA cuBLAS and a softmax kernel of this suite",
    "attention",
    "f32",
    About("library", maths=frozenset(MODES["f32"]), work="dense", reference=True, nothing_to_tune=True, rank=260),
)
def dense_attention(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """All scores, as cuBLAS computes them: one per math mode."""
    for math in MODES["f32"]:
        yield Candidate(math, math, partial(prepare_attention, gpu, math, operands))
