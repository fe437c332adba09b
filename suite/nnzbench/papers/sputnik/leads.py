"""What Sputnik's pages are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.data.series import DEFAULT
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, own, side

SPMM = (side("sputnik", variants=DEFAULT), side("sputnik"))
SDDMM = (side("sputnik_sddmm", variants=DEFAULT), side("sputnik_sddmm"))
OURS = (own(), own(as_data=True), own("f16"), lead.UNTUNED)
OVER_CUSPARSE = (lead.CUSPARSE_COLUMN, lead.CUSPARSE_DEFAULT, lead.CUSPARSE, lead.CUBLAS, lead.TF32, lead.FP16)

FIGURE1 = Lead(
    "From how many zeros on is an LSTM's sparse product faster than the dense one?",
    sides=(*SPMM, *OURS),
    rivals=lead.PRODUCTS,
    groups=(Group(level=90), Group(level=70), Group(level=80), Group(level=95)),
    answered=1,
    crossing=tuple(Group(level=level) for level in (50, 55, 60, 65, 70, 71, 75, 80, 85, 90, 92, 94, 95, 96, 98)),
    crossing_claim="sputnik-crossover",
)
FIGURE7 = Lead(
    "How much of its speed does a kernel keep where rows are uneven?",
    sides=(
        side("sputnik_ablation", variants="complete", words="complete"),
        side("sputnik_ablation", variants="no_load_balancing", words="rows in their own order"),
    ),
    rivals=(side("sputnik_ablation", variants="complete", words="complete on even rows"),),
    groups=(
        Group(words="with uneven rows against even ones", like="cov1.7", baseline_like="cov0"),
        Group(words="with half as uneven rows against even ones", like="cov0.75", baseline_like="cov0"),
    ),
    claims=("sputnik-swizzle",),
    claim_words="keeps",
    second=side("sputnik_ablation", variants="no_load_balancing", words="rows in their own order"),
)
DLMC = Lead(
    "Is Sputnik faster than cuSPARSE, and than a dense product, over the collection of pruned matrices?",
    sides=(*SPMM, *SDDMM, *OURS),
    rivals=OVER_CUSPARSE,
    groups=(Group(op="spmm", sample=True), Group(op="sddmm", sample=True)),
    claims=("sputnik-spmm", "sputnik-sddmm"),
    claim_words="on the whole collection, over cuSPARSE of CUDA 10.1",
    drawn_over=lead.CUSPARSE,
    also_over=lead.CUSPARSE_DEFAULT,
)
RNN = Lead(
    "Is Sputnik faster than cuSPARSE, and than a dense product, on the weights of recurrent layers?",
    sides=(*SPMM, *SDDMM, *OURS),
    rivals=OVER_CUSPARSE,
    groups=(
        Group(op="spmm", words="of figure 10", like="[rgl]*"),
        Group(op="sddmm", words="of figure 10", like="sddmm_[rgl]*"),
        Group(op="spmm", words="of figure 10", like="[rgl]*", level=70),
        Group(op="spmm", words="of figure 10", like="[rgl]*", level=90),
    ),
    claims=("sputnik-rnn-cusparse", "sputnik-rnn-sddmm"),
    claim_words="over cuSPARSE of CUDA 10.1",
    drawn_over=lead.CUSPARSE,
    also_over=lead.CUSPARSE_DEFAULT,
)
_WITHOUT = tuple(
    side("sputnik_ablation", variants=f"no_{what}", words=f"without {words}")
    for what, words in (
        ("load_balancing", "load balancing"),
        ("vector", "vector loads"),
        ("residue_unroll", "unrolled residues"),
        ("prescale", "scaled indices"),
    )
)
ABLATION = Lead(
    "What is each of Sputnik's optimisations worth?",
    sides=_WITHOUT,
    rivals=(side("sputnik_ablation", variants="complete", words="complete"),),
    groups=(
        Group(words="SpMM of ResNet-50 at the large batch, each layer once", like="rn50_*_b256"),
        Group(words="SpMM of the Transformer at the large batch, each layer once", like="tf_*_b8"),
        Group(words="SpMM of ResNet-50 at batch one, each layer once", like="rn50_*_b1"),
        Group(words="SpMM of the Transformer at batch one, each layer once", like="tf_*_b1"),
    ),
    claims=("sputnik-no-load-balancing-rn50-256", "sputnik-no-load-balancing-tf-8"),
    claim_words="keeps",
    second=_WITHOUT[1],
)
ATTENTION = Lead(
    "Is attention under a sparse mask faster than dense attention?",
    sides=(
        side("sparse_attention", variants=DEFAULT),
        side("sparse_attention"),
        side("sparse_attention", "f16"),
    ),
    rivals=(
        side("dense_attention"),
        side("dense_attention", "tf32"),
        side("cudnn_attention", "f16"),
    ),
    groups=(
        Group(words="with the sparse mask", like="attention"),
        Group(words="with the sparse mask against the causal one", like="attention", baseline_like="causal"),
    ),
    claims=("sputnik-attention-time",),
    claim_words="on a whole network",
    answered=1,
    second=side("sparse_attention", "f16"),
)
MOBILENET = Lead(
    "Is a pruned 1x1 convolution of MobileNetV1, with bias and ReLU, faster than the dense one of the same size?",
    sides=(side("sputnik_bias_relu", variants=DEFAULT), side("sputnik_bias_relu"), side("row_stream_bias_relu")),
    rivals=(side("cublas_bias_relu"), side("cublas_bias_relu", "tf32")),
    groups=(Group(op="spmm"),),
    claims=("sputnik-mobilenet-1.2",),
    claim_words="on a whole network of equal accuracy",
    second=side("row_stream_bias_relu"),
)
WHOLE_NETWORKS = Lead(
    "Is a whole pruned network faster than the dense one?",
    sides=(
        side("sparse_transformer", variants=DEFAULT),
        side("sparse_transformer"),
        side("sparse_transformer", "tf32", DEFAULT),
        side("sparse_transformer", "tf32"),
        side("sparse_mobilenet", variants=DEFAULT),
        side("sparse_mobilenet"),
    ),
    rivals=(
        side("dense_transformer"),
        side("dense_transformer", "tf32"),
        side("dense_mobilenet"),
        side("dense_mobilenet", "tf32"),
    ),
    groups=(
        Group(words="of the Transformer", like="transformer"),
        Group(words="of MobileNetV1 at equal accuracy", like="sparse_w1.5", baseline_like="dense_w1.2"),
    ),
    claims=("sputnik-attention-time", "sputnik-mobilenet-1.2"),
)
