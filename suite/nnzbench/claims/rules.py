"""How each claim of the papers is judged, one line a claim: whose kernel, on which problems, against what.

A claim's number and source stand under the same id in `datasets/published/claims.csv`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from nnzbench.claims import methods as m
from nnzbench.facts.selector import CUBLAS, CUDNN, CUSPARSE, DENSE, FP16, kernel

RULES: dict[str, m.Rule] = {
    "sparsert-spmm-90": m.sparsert(m.table1(1, 20, "90"), DENSE),
    "sparsert-spmm-95": m.sparsert(m.table1(1, 11, "95"), DENSE),
    "sparsert-spmm-always": m.sparsert(m.table1(1, 20, "90|95"), DENSE, statistic="share faster"),
    "sparsert-95-over-90": m.sparsert_alone(m.HALVED, replace(m.PAPER, label="sparsert_paper at 90 %")),
    "sparsert-cusparse-90": m.sparsert(m.table1(1, 20, "90"), m.CUDA_10_1, CUSPARSE),
    "sparsert-cusparse-95": m.sparsert(m.table1(1, 11, "95"), m.CUDA_10_1, CUSPARSE),
    "sparsert-cusparse-always": m.sparsert(m.table1(1, 20, "90|95"), m.CUDA_10_1, CUSPARSE, "share faster"),
    "sparsert-cusparse-most": m.sparsert(m.table1(1, 20, "90|95"), m.CUDA_10_1, CUSPARSE, "largest"),
    "sparsert-cusparse-early": m.sparsert(m.table1(1, 20, "90"), m.CUDA_10_1, CUSPARSE, "largest"),
    "sparsert-cublas-over-cusparse": m.cublas(
        m.table1(1, 20, "90"), m.CUDA_10_1, CUSPARSE, "share faster", {"its default algorithm": (CUBLAS, CUSPARSE)}
    ),
    "sparsert-v100-always": m.sparsert(m.table1(1, 11, "90|95"), DENSE, statistic="share faster"),
    "sparsert-v100-cusparse-always": m.sparsert(m.table1(1, 11, "90|95"), m.CUDA_10_1, CUSPARSE, "share faster"),
    "sparsert-t4-over-v100": replace(m.sparsert_alone(m.table1(1, 11, "90|95"), DENSE), gpus=("t4", "v100")),
    "sparsert-time": m.sparsert(m.table1(1, 20, "90"), None, None, "exponent"),
    "sparsert-transposed": replace(m.cublas, subject=m.ROWS_LAST)(m.table1(1, 20, "90"), m.ROWS_FIRST),
    "sparsert-instances": m.sparsert_alone(m.INSTANCES, None, statistic="instances"),
    "sparsert-dense-1x1": m.cublas(m.table1(1, 20, "90"), kernel("cudnn_1x1"), statistic="share faster"),
    "sparsert-sputnik-small": m.read_as(
        m.sparsert(m.table1(12, 16, "90"), m.RULE), *(m.table1(12, last, "90") for last in (14, 15, 17))
    ),
    "sparsert-sputnik-large": m.read_as(
        m.sparsert(m.table1(17, 20, "90"), m.RULE), *(m.table1(first, 20, "90") for first in (16, 18, 19))
    ),
    "sparsert-conv-90": m.sparsert_conv(m.table3("90"), CUDNN),
    "sparsert-conv-95": m.sparsert_conv(m.table3("95"), CUDNN),
    "sparsert-conv-most": m.sparsert_conv(m.table3("95"), CUDNN, statistic="largest"),
    "sparsert-conv-over-5": m.sparsert_conv(m.table3("95"), CUDNN, statistic="largest"),
    "sparsert-conv-up-to-4": m.sparsert_conv(m.table3("95"), CUDNN, statistic="largest"),
    "sparsert-conv-always": m.sparsert_conv(m.table3("90|95"), CUDNN, statistic="share faster"),
    "sparsert-winograd": replace(m.cudnn, subject=m.WINOGRAD)(m.table3("90"), m.OTHERS),
    "sparsert-padding": m.PADDED(
        m.on("layers 1 and 2 of its table 3 at 90 and 95 %", r"(0[12]_n1_.*)"), m.conv.subject
    ),
    "sparsert-tuning-time": m.sparsert(m.table1(1, 20, "90|95"), None, None, "seconds"),
    # Of what is not unrolled the paper says that its tiling is the same.
    "sparsert-unrolling": m.Rule(
        m.sparsert.words,
        replace(m.ROLLED, same_variant=True),
        beside={"each at its own fastest tiling": m.ROLLED},
    ),
    "sparsert-load-balancing": m.sparsert_alone(m.FIGURE8, kernel("sparsert_unbalanced")),
    "sparsert-tuning": m.sparsert_alone(m.FIGURE8, kernel("sparsert_fixed")),
    "sputnik-spmm": m.sputnik(
        m.SAMPLE, m.COLUMN, CUSPARSE, beside={f"against {m.UNPREPARED.label}": (m.RULE, m.UNPREPARED)}
    ),
    "sputnik-spmm-most": m.sputnik(m.SAMPLE, m.COLUMN, CUSPARSE, "largest"),
    "sputnik-spmm-share": m.sputnik(m.SAMPLE, m.COLUMN, CUSPARSE, "share faster"),
    "sputnik-spmm-peak": m.sputnik(m.SAMPLE, None, None, "peak share"),
    "sputnik-spmm-half": m.sputnik_f16(m.SAMPLE, m.COLUMN_F16, m.CUSPARSE_F16),
    "sputnik-half-most": m.sputnik_f16(m.SAMPLE, m.COLUMN_F16, m.CUSPARSE_F16, "largest"),
    "sputnik-half-share": m.sputnik_f16(m.SAMPLE, m.COLUMN_F16, m.CUSPARSE_F16, "share faster"),
    "sputnik-half-peak": m.sputnik_f16(m.SAMPLE, None, None, "peak share"),
    "sputnik-sddmm": m.sddmm(m.SAMPLE_SDDMM, m.SDDMM_DEFAULT, CUSPARSE),
    "sputnik-sddmm-most": m.sddmm(m.SAMPLE_SDDMM, m.SDDMM_DEFAULT, CUSPARSE, "largest"),
    "sputnik-sddmm-share": m.sddmm(m.SAMPLE_SDDMM, m.SDDMM_DEFAULT, CUSPARSE, "share faster"),
    "sputnik-sddmm-peak": m.sddmm(m.SAMPLE_SDDMM, None, None, "peak share"),
    "sputnik-crossover": m.sputnik(m.FIGURE1, CUBLAS, DENSE, "crossover"),
    "sputnik-crossover-nonzeros": m.Rule(
        m.SPUTNIK_WORDS, m.NONZEROS, replace(m.NONZEROS, baseline=DENSE, second=CUSPARSE)
    ),
    "sputnik-imbalance": m.imbalance("no_load_balancing", "in their own order"),
    "sputnik-swizzle": m.imbalance("complete", "in order of length"),
    "sputnik-rnn-cusparse": m.sputnik(m.RNN, m.COLUMN, CUSPARSE),
    "sputnik-rnn-most": m.sputnik(m.RNN, m.COLUMN, CUSPARSE, "largest"),
    "sputnik-rnn-sddmm": m.sddmm(m.RNN_SDDMM, m.SDDMM_DEFAULT, CUSPARSE),
    "sputnik-rnn-sddmm-most": m.sddmm(m.RNN_SDDMM, m.SDDMM_DEFAULT, CUSPARSE, "largest"),
    "sputnik-rnn-merge": m.other_paper(m.MERGE),
    "sputnik-rnn-merge-most": m.other_paper(m.MERGE, "largest"),
    "sputnik-rnn-aspt": m.other_paper(m.ASPT),
    "sputnik-rnn-aspt-most": m.other_paper(m.ASPT, "largest"),
    "sputnik-rnn-sddmm-aspt": replace(m.sddmm, others=())(m.RNN_SDDMM, kernel("aspt_sddmm"), None, "mean percent"),
    "sputnik-rnn-vector": replace(m.sddmm, subject=m.COMPLETE, others=())(m.RNN_SDDMM, m.SCALAR),
    **{
        f"sputnik-{'sddmm-' * sampled}no-{part.replace('_', '-')}-{model}-{batch}": m.table2(
            part, model, batch, sampled
        )
        for part, products in (("load_balancing", 2), ("vector", 2), ("residue_unroll", 1), ("prescale", 1))
        for sampled in (False, True)[:products]
        for model, batch in (("tf", 1), ("tf", 8), ("rn50", 1), ("rn50", 256))
    },
    "sputnik-attention-time": m.network("transformer", m.SPARSE_TRANSFORMER, m.DENSE_TRANSFORMER, m.TRANSFORMER),
    "sputnik-attention-memory": m.transformer_memory(),
    "sputnik-mobilenet-1.0": m.mobilenet("1.3", "1"),
    "sputnik-mobilenet-1.2": m.mobilenet("1.5", "1.2"),
    "sputnik-mobilenet-1.4": m.mobilenet("1.8", "1.4"),
    "balanced-ptb-dense": m.balanced(m.lstm("ptb"), CUBLAS, DENSE),
    "balanced-ptb-random": m.balanced(m.lstm("ptb", "random"), m.COLUMN, CUSPARSE),
    "balanced-ptb-block": m.balanced(m.lstm("ptb", "block"), m.BLOCKS),
    "balanced-timit-dense": m.timit(partial(m.balanced, baseline=CUBLAS, today=DENSE)),
    "balanced-timit-random": m.timit(partial(m.balanced, baseline=m.COLUMN, today=CUSPARSE), "random"),
    "balanced-timit-block": m.balanced(m.lstm("timit", "block"), m.BLOCKS),
    "balanced-vgg-dense": m.balanced(m.vgg16(), CUBLAS, DENSE, "total"),
    "balanced-vgg-random": m.balanced(m.vgg16("random"), m.COLUMN, CUSPARSE, "total"),
    "balanced-vgg-block": m.balanced(m.vgg16("block"), m.BLOCKS, statistic="total"),
    "balanced-always": m.balanced(m.figure4(), CUBLAS, statistic="share faster"),
    "balanced-over-random": m.balanced(m.figure4("random"), m.COLUMN, CUSPARSE, "share faster"),
    "balanced-over-block": m.balanced(m.figure4("block"), m.BLOCKS, CUSPARSE, "share faster"),
    "balanced-cusparse-crossover": replace(m.cusparse, others=())(m.RANDOM, CUBLAS, (CUSPARSE, DENSE), "crossover"),
    "balanced-ideal-1": m.balanced(m.figure4(batch="1"), CUBLAS, statistic="over ideal"),
    "balanced-ideal-8": m.balanced(m.figure4(batch="8"), CUBLAS, statistic="over ideal"),
    "direct-vgg-last": m.direct(m.LAST, m.NCHW, CUDNN),
    "direct-vgg-last-half": m.direct_f16(m.LAST, m.NCHW_F16, m.CUDNN_F16),
    "direct-vgg-share": m.direct(m.VGG, m.NCHW, CUDNN, "share faster"),
    "direct-vgg-half-share": m.direct_f16(m.VGG, m.NCHW_F16, m.CUDNN_F16, "share faster"),
    "direct-half-over-single": replace(m.direct_f16, others=())(m.VGG, m.direct.subject, None, "share faster"),
    "direct-cudnn-half": m.cudnn(m.VGG, m.NCHW_F16, (CUDNN, m.CUDNN_F16), "share faster"),
    "direct-pointwise": m.direct(m.POINTWISE, m.NCHW, CUDNN),
    "direct-pointwise-half": m.direct_f16(m.POINTWISE, m.NCHW_F16, m.CUDNN_F16),
    **{
        f"direct-1d-{size}-{level}{half}": rule(m.table8(size, level), baseline, today)
        for size in (2, 3)
        for level in ("77", "83", "87.5")
        for half, rule, baseline, today in (
            ("", m.direct, m.NCHW, CUDNN),
            ("-half", m.direct_f16, m.NCHW_F16, m.CUDNN_F16),
        )
    },
    **{
        f"direct-{name}{ending}": m.slower(variant, m.on(f"layers {layers}", rf"({layers}_.*)"))
        for ending, layers in (("", "vgg16"), ("-1x1", "resnet50"), ("-1d", "cnn1d"))
        for name, variant in (("no-sub-batch", "paper_sbs1"), ("whole-batch", "paper_whole"))
    },
    "direct-unified-count": m.unified(),
    "direct-deviation": m.direct(m.VGG, None, None, "deviation"),
    "eie-gpu-1": m.cusparse(m.EIE_1, CUBLAS, (CUSPARSE, DENSE)),
    "eie-gpu-64": m.cusparse(m.EIE_64, CUBLAS, (CUSPARSE, DENSE)),
    "ese-gpu": m.read_as(
        m.cusparse(m.step(32), CUBLAS, (CUSPARSE, DENSE), "total"), m.step(32, "gates"), m.step(32, "projection")
    ),
    "ese-energy": m.step_measured("energy", "total"),
    "ese-power": m.step_measured("watts", "geometric mean"),
    "ese-batch-1": m.cusparse(m.step(1), CUBLAS, (CUSPARSE, DENSE), "share faster"),
    "nm-half": m.two_four(m.on("GEMMs of n of about 10K", r"(a100_.*)"), "i8", "largest", also="f16"),
    "nm-tf32": m.two_four(m.on("GEMMs of n of about 10K, 1:2", r"(table1_.*)"), "tf32", "largest"),
    "nm-bert": m.two_four(m.on("layers of BERT, fp16", r"(bert_.*)"), "f16", "geometric mean"),
    "patdnn-6-patterns": m.pattern_count(6),
    "patdnn-12-patterns": m.pattern_count(12),
    **{
        f"flash-llm-cublas-{level}": m.opt(partial(m.flash, baseline=m.CUBLAS_F16, today=FP16), level)
        for level in (70, 80, 90)
    },
    **{f"flash-llm-sputnik-{level}": m.opt(partial(m.flash, baseline=m.RULE_F16), level) for level in (70, 80, 90)},
    "spinfer-flash-llm": m.spinfer(m.LLAMA, m.flash.subject, statistic="largest"),
    "spinfer-cublas-from": m.spinfer(m.LLAMA_70B, m.CUBLAS_F16, FP16, "crossover"),
}
"""By the claim's id."""
