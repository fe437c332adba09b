"""How each claim of the papers is judged: two sides, the problems and a statistic, one line a claim.

A claim's number and source stand under the same id in `datasets/published/claims.csv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nnzbench.claims.quantities import Quantity, Statistic
from nnzbench.facts.groups import Group
from nnzbench.facts.selector import (
    CUBLAS,
    CUDNN,
    CUDNN_DEFAULT,
    CUDNN_F16,
    CUSPARSE,
    CUSPARSE_COLUMN,
    CUSPARSE_F16,
    DEFAULT,
    DENSE,
    FP16,
    MATHS,
    Selector,
    best_dense,
    kernel,
    written_here,
)

Sides = tuple[Selector, Selector]
"""A subject and its baseline."""


@dataclass(frozen=True)
class Rule:
    """Whose kernel a claim is judged by, and by which quantity."""

    kernel: str
    """The paper's method as published, or a library where the claim is about one; never this project's own design."""
    quantity: Quantity
    """As the paper compares: with the baseline that it had."""
    today: Quantity | None = None
    """The same against the best of today's algorithms; None where the paper's baseline is that already."""
    beside: Mapping[str, Quantity] = field(default_factory=dict)
    """Numbers printed beside the verdicts, which judge nothing."""


def judged(
    words: str, quantity: Quantity, beside: Mapping[str, Sides | Quantity] | None = None, today: Sides | None = None
) -> Rule:
    """A rule; sides of `today` and `beside` are compared as the quantity's are."""

    def like(one: Sides | Quantity) -> Quantity:
        return one if isinstance(one, Quantity) else replace(quantity, subject=one[0], baseline=one[1])

    return Rule(words, quantity, like(today) if today else None, {name: like(one) for name, one in (beside or {}).items()})


def of(scope: str, cases: str, baseline_cases: str = "") -> Group:
    """The problems, in words and by what their names begin with; what its groups match pairs them."""
    return Group(words=scope, cases=cases, baseline_cases=baseline_cases)


OURS, OURS_F16 = written_here(), written_here("f16")
CUBLAS_F16, CUSPARSE_COLUMN_F16 = (
    replace(one, math="f16", label=one.label.replace("fp32", "fp16")) for one in (CUBLAS, CUSPARSE_COLUMN)
)

# SparseRT: its own kernels judge, as the paper describes them; our generator stands beside. It took the best of its
# baselines' algorithms, so they are today's best of the same arithmetic.
SPARSERT, GENERATOR = kernel("sparsert_paper"), kernel("sparsert")
SPUTNIK_RULE = kernel("sputnik", variants=DEFAULT)


def _sparsert(first: int, last: int, level: str, baseline: Selector, statistic: Statistic = "geometric mean") -> Rule:
    cases = rf"((?:{'|'.join(f'{number:02}' for number in range(first, last + 1))})_.*_(?:{level}))$"
    group = of(f"problems {first} to {last} of its table 1 at {level.replace('|', ' and ')} %", cases)
    beside = {"this project's generator `sparsert`": (GENERATOR, baseline), "best of ours": (OURS, baseline)}
    words = "`sparsert_paper`, the paper's tilings and code generated anew"
    return judged(words, Quantity(SPARSERT, baseline, group, statistic), beside)


def _cublas_first() -> Rule:
    group = of("its table 1 at 90 %", r"((?:0[1-9]|1\d|20)_.*_90)$")
    beside = {"cuBLAS's default algorithm": (CUBLAS, CUSPARSE)}
    return judged("no kernel of this project: cuBLAS", Quantity(DENSE, CUSPARSE, group, "share faster"), beside)


def _halving() -> Rule:
    """On the same layers; the paper's speed-ups share the dense time, so they divide out."""
    group = of("95 over 90 %, problems 1 to 11 of its table 1", r"(0[1-9]|1[01])_.*_95$", r"(0[1-9]|1[01])_.*_90$")
    words = "`sparsert_paper`, the paper's tilings and code generated anew"
    return judged(words, Quantity(replace(SPARSERT, label="its time at 95 %"), SPARSERT, group))


def _sparsert_conv(level: str, statistic: Statistic = "geometric mean") -> Rule:
    group = of(f"its table 3 at {level.replace('|', ' and ')} %", rf"(.*_(?:{level}))$")
    quantity = Quantity(kernel("sparsert_conv_paper"), CUDNN, group, statistic)
    beside = {"this project's generator `sparsert_conv`": (kernel("sparsert_conv"), CUDNN)}
    return judged("`sparsert_conv_paper`, the paper's convolution generated anew", quantity, beside)


def _sparsert_without(part: str, statistic: Statistic) -> Rule:
    """Of what is not unrolled the paper says that its tiling is the same."""
    own = Quantity(SPARSERT, kernel(f"sparsert_{part}"), of("its figure 8's problems at 90 %", "(.*)"), statistic)
    rolled = part == "rolled"
    words = "`sparsert_paper`, the paper's tilings and code generated anew"
    return judged(words, replace(own, same_variant=rolled), {"each at its own fastest tiling": own} if rolled else {})


# Sputnik: at the paper's heuristic, against the algorithm that the paper calls, then against today's best.
SPUTNIK, SPUTNIK_F16, SPUTNIK_RULE_F16 = kernel("sputnik"), kernel("sputnik", "f16"), kernel("sputnik", "f16", DEFAULT)
SDDMM_RULE = kernel("sputnik_sddmm", variants=DEFAULT)
SDDMM_DEFAULT = Selector("cuSPARSE's default SDDMM fp32", ("cusparse",), variants="sddmm_default")
SPUTNIK_WORDS = "`sputnik`, the paper's kernel written anew, at the paper's heuristic"
SDDMM_WORDS = "`sputnik_sddmm`, the paper's kernel written anew, at the paper's heuristic"
SAMPLE = of("SpMM of the sample of the collection", r"((?!sddmm_).*)$")
SAMPLE_SDDMM = of("SDDMM of the sample of the collection", r"(sddmm_.*)$")
RNN = of("RNN, GRU and LSTM layers", r"((?:rnn|gru|lstm).*)$")
RNN_SDDMM = of("SDDMM of RNN, GRU and LSTM layers", r"(sddmm_(?:rnn|gru|lstm).*)$")
FIGURE1 = of("M = 8192, K = 2048, N = 128", "(.*)")


def _spmm(group: Group, statistic: Statistic = "geometric mean", half: bool = False) -> Rule:
    chosen, default, best, ours, tiles = (
        (SPUTNIK_RULE_F16, CUSPARSE_COLUMN_F16, CUSPARSE_F16, OURS_F16, SPUTNIK_F16)
        if half
        else (SPUTNIK_RULE, CUSPARSE_COLUMN, CUSPARSE, OURS, SPUTNIK)
    )
    beside = {f"the best of all tiles against {best.label}": (tiles, best), f"best of ours against {best.label}": (ours, best)}
    return judged(SPUTNIK_WORDS, Quantity(chosen, default, group, statistic), beside, (chosen, best))


def _sddmm(group: Group, statistic: Statistic = "geometric mean") -> Rule:
    beside = {f"best of ours against {CUSPARSE.label}": (OURS, CUSPARSE)}
    quantity = Quantity(SDDMM_RULE, SDDMM_DEFAULT, group, statistic)
    return judged(SDDMM_WORDS, quantity, beside, (SDDMM_RULE, CUSPARSE))


def _other_paper(baseline: Selector, statistic: Statistic = "geometric mean") -> Rule:
    """Beside it what that makes of cuSPARSE, as figure 10 shows."""
    beside = {
        f"the best of all tiles against {baseline.label}": (SPUTNIK, baseline),
        f"{baseline.label} against {CUSPARSE_COLUMN.label}": (baseline, CUSPARSE_COLUMN),
    }
    return judged(SPUTNIK_WORDS, Quantity(SPUTNIK_RULE, baseline, RNN, statistic), beside)


def _peak(subject: Selector, group: Group = SAMPLE, words: str = SPUTNIK_WORDS) -> Rule:
    return judged(words, Quantity(subject, None, group, "peak share"))


def _crossover() -> Rule:
    beside = {"with the best of all tiles": (SPUTNIK, DENSE), "best of ours": (OURS, DENSE)}
    quantity = Quantity(SPUTNIK_RULE, CUBLAS, FIGURE1, "crossover")
    return judged(SPUTNIK_WORDS, quantity, beside, (SPUTNIK_RULE, DENSE))


def _crossover_nonzeros() -> Rule:
    quantity = Quantity(SPUTNIK_RULE, CUBLAS, FIGURE1, "nonzeros", second=CUSPARSE_COLUMN)
    return Rule(SPUTNIK_WORDS, quantity, replace(quantity, baseline=DENSE, second=CUSPARSE))


ABLATED = ("sputnik_ablation", "sputnik_sddmm_ablation")
COMPLETE = Selector("the complete kernel", ABLATED, variants="complete")


def _imbalance(variant: str, words: str) -> Rule:
    """Same nonzeros in both matrices, so times stand for throughput."""
    uneven = Selector(f"the kernel with rows {words}, rows' variation 1.7,", ABLATED[:1], variants=variant)
    even = Selector("the complete kernel on rows of equal length", ABLATED, variants="complete")
    group = of("M = 8192, K = 2048, N = 128, 75 % zeros", r"cov1\.7_", r"cov0_")
    return judged(SPUTNIK_WORDS, Quantity(uneven, even, group, "mean percent"))


def _table2(part: str, layers: str, sampled: bool) -> Rule:
    """One cell of table II; `sampled` are the cells of the sampled product."""
    model, batch = layers.split()
    name = "ResNet-50" if model == "rn50" else "the Transformer"
    scope = f"{name} at batch {batch}{', SDDMM' * sampled}, one matrix per shape and level for all that have them"
    group = of(scope, rf"({'sddmm_' * sampled}{model}_.*_b{batch}_.*)")
    lesser = Selector(f"the kernel without {part.replace('_', ' ')}", ABLATED, variants=f"no_{part}")
    return judged(SDDMM_WORDS if sampled else SPUTNIK_WORDS, Quantity(lesser, COMPLETE, group, "mean percent"))


TABLE2 = {
    f"sputnik-{'sddmm-' * sampled}no-{part}-{layers}".replace("_", "-").replace(" ", "-"): _table2(part, layers, sampled)
    for part in ("load_balancing", "vector", "residue_unroll", "prescale")
    for sampled in ((False, True) if part in ("load_balancing", "vector") else (False,))
    for layers in ("tf 1", "tf 8", "rn50 1", "rn50 256")
}
"""All 24 cells of table II by the claim's id."""
HEURISTIC, OUR_RULE, TOGETHER = r"[a-z0-9]+_heuristic$", r"[a-z0-9]+_rule$", r"[a-z0-9]+_(heuristic|default)_together$"
"""Variants of whole networks: tiles as the paper chooses, or as a rule of this project; scores of all heads held."""
MOBILENET = ("sputnik_bias_relu", "cublas_bias_relu", "depthwise_conv")


def _mobilenet(sparse: str, dense: str) -> Rule:
    """Of whole networks; beside it at our rule's tiles, and the sum of layers' times, as often as each occurs."""
    chosen = Selector(f"the sparse network of width {sparse}", ("sparse_mobilenet",), variants=HEURISTIC)
    whole = Selector(f"the dense network of width {dense}", ("dense_mobilenet",))
    group = of("one image through the whole network", rf"sparse_w{sparse}_\d", rf"dense_w{dense}_\d")
    layers = Quantity(
        Selector("Sputnik's layers and the first dense one", MOBILENET, also="f32"),
        Selector("dense layers", MOBILENET[1:], also="f32"),
        of("all layers", rf"sparse_w{sparse}_(\w\w\d\d)_", rf"dense_w{dense}_(\w\w\d\d)_"),
        "total",
        "sputnik_mobilenet",
    )
    beside = {
        "at this project's rule's tiles": (replace(chosen, variants=OUR_RULE), whole),
        "the sum of its layers' times, each at its best tile": layers,
    }
    words = "`sparse_mobilenet`: the paper's kernels written anew, at its heuristic"
    return judged(words, Quantity(chosen, whole, group), beside)


def _transformer(statistic: Statistic) -> Rule:
    """Under the sparse mask; the dense network's attention takes every key up to the query's own."""
    memory = statistic == "memory"
    sparse = Selector("the sparse Transformer fp32", ("sparse_transformer",), variants=TOGETHER if memory else HEURISTIC)
    dense = Selector("the dense Transformer fp32", ("dense_transformer",), variants=TOGETHER if memory else "")
    scope = f"the Transformer's layers as a whole{', scores of all heads held' * memory}"
    head = Quantity(
        kernel("sparse_attention"),
        Selector("dense attention by cuBLAS, or cuDNN's fused one in fp16,", ("dense_attention", "cudnn_attention")),
        of("one head", "attention_", "(?:attention|causal)_"),
        "memory or buffers" if memory else statistic,
        "sputnik_attention",
    )
    beside: dict[str, Sides | Quantity] = {"attention of one head alone": head}
    if not memory:
        beside = {"at this project's rule's choice": (replace(sparse, variants=OUR_RULE), dense), **beside}
    words = "`sparse_transformer`: the paper's kernels written anew, at its heuristics"
    return judged(words, Quantity(sparse, dense, of(scope, "transformer_"), statistic), beside)


# Balanced Sparsity: the paper's mapping judges; all of ours stand beside.
BALANCED, BALANCED_PAPER = kernel("balanced"), kernel("balanced", variants="paper", words="the paper's mapping")
BLOCKS = replace(CUSPARSE, label="cuSPARSE on 8 × 8 blocks")
BALANCED_BATCHES = "16384 × 8192, eleven sparsities, batch 1 and 8"
ALL_LEVELS = of(BALANCED_BATCHES, r"balanced_(b\d+_keep\d+)_")


def _balanced(
    group: Group, baseline: Selector, today: Selector | None = None, statistic: Statistic = "geometric mean"
) -> Rule:
    beside = {"all variants of `balanced`": (BALANCED, today or baseline)}
    words = "the `paper` variants of `balanced`, the paper's mapping written anew"
    best = (BALANCED_PAPER, today) if today else None
    return judged(words, Quantity(BALANCED_PAPER, baseline, group, statistic), beside, best)


def _lstm(model: str, pattern: str = "balanced") -> Group:
    """`pattern` is of the matrix that the baseline runs on: its own, or the dense product of the balanced one."""
    scope = f"gate matrices of the {model.upper()} LSTM"
    return of(scope, rf"({model})_balanced_", rf"({model})_{pattern}_")


def _vgg16(pattern: str = "balanced") -> Group:
    return of("products of VGG-16, im2col not timed", r"vgg16_(.*)_balanced_\d+x", rf"vgg16_(.*)_{pattern}_\d+x")


def _patterns(pattern: str) -> Group:
    return of(f"{BALANCED_BATCHES}, {pattern} zeros", r"balanced_(b\d+_keep\d+)_", rf"{pattern}_(b\d+_keep\d+)_")


def _ideal(batch: int) -> Rule:
    group = of(f"16384 × 8192, eleven sparsities, batch {batch}", rf"balanced_(b{batch}_keep\d+)_")
    return _balanced(group, CUBLAS, statistic="over ideal")


def _cusparse(quantity: Quantity, today: Sides, beside: Mapping[str, Sides | Quantity] | None = None) -> Rule:
    return judged("no kernel of this project: cuSPARSE", quantity, beside, today)


# Direct sparse convolution: algorithm 4 judges.
DIRECT = kernel("direct_conv", variants=r"paper_sbs[248]$", words="the paper's")
DIRECT_F16 = kernel("direct_conv", "f16", r"paper_sbs[248]$", "the paper's")
CUDNN_DEFAULT_F16 = replace(CUDNN_DEFAULT, math="f16", label=CUDNN_DEFAULT.label.replace("fp32", "fp16"))
DIRECT_WORDS = "the `paper` variants of `direct_conv`, algorithm 4 written anew, padding not timed"
CUDNN_WORDS = "no kernel of this project: cuDNN"
VGG, LAST = of("3x3 layers of VGG-16", r"(\d+_equal_.*)"), of("the last 3x3 layers of VGG-16", r"(08_equal_.*)")
POINTWISE = of("1x1 layers on 32 x 32 images", r"(c\d+_d\d+_32_equal_.*)")


def _conv(group: Group, statistic: Statistic = "geometric mean", half: bool = False) -> Rule:
    paper, default, best, ours = (
        (DIRECT_F16, CUDNN_DEFAULT_F16, CUDNN_F16, OURS_F16) if half else (DIRECT, CUDNN_DEFAULT, CUDNN, OURS)
    )
    beside = {f"best of ours against {best.label}": (ours, best)}
    return judged(DIRECT_WORDS, Quantity(paper, default, group, statistic), beside, (paper, best))


def _conv_1d(filter_: int, level: str, half: bool) -> Rule:
    cases = rf"(filter{filter_}_n.*_{level.replace('.', '[.]')}_.*)"
    return _conv(of(f"filter of {filter_} at {level} %", cases), half=half)


def _sub_batch(variant: str, layers: str) -> Rule:
    worse = kernel("direct_conv", variants=f"{variant}$", words=f"its variant `{variant}`")
    return judged(DIRECT_WORDS, Quantity(worse, DIRECT, of(f"layers {layers}", rf"({layers}_.*)"), "mean loss"))


def _unified() -> Rule:
    """Uneven counts judge: with equal ones nothing is filled up, and only the reading of two row pointers is saved."""
    counts = kernel("direct_conv", variants=r"paper_counts_sbs[248]$", words="its variant `paper_counts`")
    uneven = Quantity(counts, DIRECT, of("3x3 layers of VGG-16, random positions", r"(\d+_uniform_.*)"), "mean loss")
    pointwise, one_d = of("1x1 layers", r"(c\d+_d\d+_\d+_uniform_.*)"), of("1-D layers", r"(filter\d_uniform_.*)")
    beside = {
        "3x3 layers with equal counts": replace(uneven, group=VGG),
        "1x1 layers, random positions": replace(uneven, group=pointwise, experiment="direct_conv_table7"),
        "1-D layers, random positions": replace(uneven, group=one_d, experiment="direct_conv_table8"),
    }
    return judged(DIRECT_WORDS, uneven, beside)


# EIE's GPU rows, ESE, 2:4 sparsity.
def _eie(batch: int) -> Rule:
    group = of(f"nine layers at batch {batch}", rf"(.*_b{batch}_.*)")
    return _cusparse(Quantity(CUSPARSE_COLUMN, CUBLAS, group), (CUSPARSE, DENSE), {"best of ours": (OURS, DENSE)})


def _ese() -> Rule:
    """Both products of a step; the published times have the element-wise steps too."""
    quantity = Quantity(CUSPARSE_COLUMN, CUBLAS, of("both products of a step at batch 32", r"(gates|projection)_b32_"), "total")
    return _cusparse(quantity, (CUSPARSE, DENSE), {f"best of ours against {DENSE.label}": (OURS, DENSE)})


def _two_four(group: Group, math: str, statistic: Statistic, also: str = "") -> Rule:
    """Both sides on tensor cores already, so there is no other arithmetic to judge by; `also` stands beside."""

    def sides(one: str, best: bool = False) -> Sides:
        dense = best_dense(one) if best else replace(CUBLAS, math=one, label=f"cuBLAS {MATHS[one]}")
        return kernel("cusparselt", one), dense

    beside = {f"in {MATHS[also]}": sides(also)} if also else {}
    quantity = Quantity(*sides(math), group, statistic)
    return judged("no kernel of this project: cuSPARSELt", quantity, beside, sides(math, best=True))


# Flash-LLM and SpInfer: unstructured weights on tensor cores, uniform patterns on layers of Llama models.
FLASH, SPINFER = kernel("flash_llm", "f16"), kernel("spinfer", "f16")
SPINFER_WORDS = "`spinfer`, the paper's kernel written anew, K in as many parts as are fastest"


def _llama(columns: str, levels: str) -> str:
    return rf"(llama\d?_\d+b_(?:qkvo|qo|up|down)_\d+x\d+x(?:{columns})_(?:{levels}))"


def _flash(level: int, baseline: Selector, today: Selector | None = None) -> Rule:
    group = of(f"layers of Llama models, 8 to 64 columns, {level} % uniform zeros", _llama("8|16|32|64", f"{level}"))
    beside = {f"best of ours against {FP16.label}": (OURS_F16, FP16)}
    words = "`flash_llm`, the paper's kernel written anew, K in as many parts as are fastest"
    return judged(words, Quantity(FLASH, baseline, group), beside, (FLASH, today) if today else None)


LLAMA = of("layers of Llama models, 8 to 32 columns, 50 to 70 % uniform zeros", _llama("8|16|32", "50|60|70"))
LLAMA_70B = of("8192 x 8192, 16 columns, uniform zeros", r"(llama_70b_qo_8192x8192x16_\d+)")

_CHIP = "An accelerator of its own, which this suite can't run."
_MODELS = "Whole models are not part of this suite."
_PHONE = "GPUs of phones are not among the devices of this suite."
_SPARTA = "SparTA is not part of this suite."
_SUITESPARSE = "The matrices of SuiteSparse, which the paper compares with, are not part of this suite."

RULES: dict[str, Rule | str] = {
    "sparsert-spmm-90": _sparsert(1, 20, "90", DENSE),
    "sparsert-spmm-95": _sparsert(1, 11, "95", DENSE),
    "sparsert-spmm-always": _sparsert(1, 20, "90|95", DENSE, "share faster"),
    "sparsert-95-over-90": _halving(),
    "sparsert-cusparse-90": _sparsert(1, 20, "90", CUSPARSE),
    "sparsert-cusparse-95": _sparsert(1, 11, "95", CUSPARSE),
    "sparsert-cusparse-always": _sparsert(1, 20, "90|95", CUSPARSE, "share faster"),
    "sparsert-cusparse-most": _sparsert(1, 20, "90|95", CUSPARSE, "largest"),
    "sparsert-cusparse-early": _sparsert(1, 20, "90", CUSPARSE, "largest"),
    "sparsert-cublas-over-cusparse": _cublas_first(),
    "sparsert-v100-always": _sparsert(1, 11, "90|95", DENSE, "share faster"),
    "sparsert-v100-cusparse-always": _sparsert(1, 11, "90|95", CUSPARSE, "share faster"),
    "sparsert-t4-over-v100": "One GPU's records can't say on which of two GPUs the gain is larger.",
    "sparsert-instances": "One matrix per problem is run, so times can't differ between instances.",
    "sparsert-dense-1x1": "cuDNN does not run on the 1x1 layers of this table.",
    "sparsert-sputnik-small": _sparsert(12, 16, "90", SPUTNIK_RULE),
    "sparsert-sputnik-large": _sparsert(17, 20, "90", SPUTNIK_RULE),
    "sparsert-conv-90": _sparsert_conv("90"),
    "sparsert-conv-95": _sparsert_conv("95"),
    "sparsert-conv-most": _sparsert_conv("95", "largest"),
    "sparsert-conv-over-5": _sparsert_conv("90|95", "largest"),
    "sparsert-conv-up-to-4": _sparsert_conv("90|95", "largest"),
    "sparsert-conv-always": _sparsert_conv("90|95", "share faster"),
    "sparsert-winograd": "cuDNN does not say which of its engines is the implicit GEMM.",
    "sparsert-padding": "There is no variant that tests bounds for every pixel to compare with.",
    "sparsert-tuning-time": "It is time of the processor that assembles candidates, not of a GPU.",
    "sparsert-unrolling": _sparsert_without("rolled", "largest"),
    "sparsert-load-balancing": _sparsert_without("unbalanced", "geometric mean"),
    "sparsert-tuning": _sparsert_without("fixed", "geometric mean"),
    "sputnik-spmm": _spmm(SAMPLE),
    "sputnik-spmm-most": _spmm(SAMPLE, "largest"),
    "sputnik-spmm-share": _spmm(SAMPLE, "share faster"),
    "sputnik-spmm-peak": _peak(SPUTNIK_RULE),
    "sputnik-spmm-half": _spmm(SAMPLE, half=True),
    "sputnik-half-most": _spmm(SAMPLE, "largest", half=True),
    "sputnik-half-share": _spmm(SAMPLE, "share faster", half=True),
    "sputnik-half-peak": _peak(SPUTNIK_RULE_F16),
    "sputnik-sddmm": _sddmm(SAMPLE_SDDMM),
    "sputnik-sddmm-most": _sddmm(SAMPLE_SDDMM, "largest"),
    "sputnik-sddmm-share": _sddmm(SAMPLE_SDDMM, "share faster"),
    "sputnik-sddmm-peak": _peak(SDDMM_RULE, SAMPLE_SDDMM, SDDMM_WORDS),
    **dict.fromkeys(("sputnik-less-sparse", "sputnik-longer-rows", "sputnik-less-variation"), _SUITESPARSE),
    "sputnik-crossover": _crossover(),
    "sputnik-crossover-nonzeros": _crossover_nonzeros(),
    "sputnik-imbalance": _imbalance("no_load_balancing", "in their own order"),
    "sputnik-swizzle": _imbalance("complete", "in order of length"),
    "sputnik-rnn-cusparse": _spmm(RNN),
    "sputnik-rnn-most": _spmm(RNN, "largest"),
    "sputnik-rnn-sddmm": _sddmm(RNN_SDDMM),
    "sputnik-rnn-sddmm-most": _sddmm(RNN_SDDMM, "largest"),
    "sputnik-rnn-merge": _other_paper(kernel("merge_spmm", variants=DEFAULT)),
    "sputnik-rnn-merge-most": _other_paper(kernel("merge_spmm", variants=DEFAULT), "largest"),
    "sputnik-rnn-aspt": _other_paper(kernel("aspt")),
    "sputnik-rnn-aspt-most": _other_paper(kernel("aspt"), "largest"),
    "sputnik-rnn-sddmm-aspt": judged(SDDMM_WORDS, Quantity(SDDMM_RULE, kernel("aspt_sddmm"), RNN_SDDMM, "mean percent")),
    "sputnik-rnn-aspt-memory": "No product's memory is measured, and ASpT written anew keeps its reordered copy only.",
    "sputnik-rnn-vector": "The scalar SDDMM runs in the ablation alone, not on these layers.",
    **TABLE2,
    "sputnik-attention-time": _transformer("geometric mean"),
    "sputnik-attention-memory": _transformer("memory"),
    "sputnik-attention-1080": "That GPU is none of this project's.",
    "sputnik-mobilenet-1.0": _mobilenet("1.3", "1"),
    "sputnik-mobilenet-1.2": _mobilenet("1.5", "1.2"),
    "sputnik-mobilenet-1.4": _mobilenet("1.8", "1.4"),
    "balanced-ptb-dense": _balanced(_lstm("ptb"), CUBLAS, DENSE),
    "balanced-ptb-random": _balanced(_lstm("ptb", "random"), CUSPARSE_COLUMN, CUSPARSE),
    "balanced-ptb-block": _balanced(_lstm("ptb", "block"), BLOCKS),
    "balanced-timit-dense": _balanced(_lstm("timit"), CUBLAS, DENSE),
    "balanced-timit-random": _balanced(_lstm("timit", "random"), CUSPARSE_COLUMN, CUSPARSE),
    "balanced-timit-block": _balanced(_lstm("timit", "block"), BLOCKS),
    "balanced-vgg-dense": _balanced(_vgg16(), CUBLAS, DENSE, "total"),
    "balanced-vgg-random": _balanced(_vgg16("random"), CUSPARSE_COLUMN, CUSPARSE, "total"),
    "balanced-vgg-block": _balanced(_vgg16("block"), BLOCKS, statistic="total"),
    "balanced-always": _balanced(ALL_LEVELS, CUBLAS, statistic="share faster"),
    "balanced-over-random": _balanced(_patterns("random"), CUSPARSE_COLUMN, CUSPARSE, "share faster"),
    "balanced-over-block": _balanced(_patterns("block"), BLOCKS, CUSPARSE, "share faster"),
    "balanced-cusparse-crossover": _cusparse(
        Quantity(CUSPARSE_COLUMN, CUBLAS, of("16384 × 8192, batch 8, random zeros", r"random_(b8_keep\d+)_"), "crossover"),
        (CUSPARSE, DENSE),
    ),
    "balanced-ideal-1": _ideal(1),
    "balanced-ideal-8": _ideal(8),
    "direct-vgg-last": _conv(LAST),
    "direct-vgg-last-half": _conv(LAST, half=True),
    "direct-vgg-share": _conv(VGG, "share faster"),
    "direct-vgg-half-share": _conv(VGG, "share faster", half=True),
    "direct-half-over-single": judged(DIRECT_WORDS, Quantity(DIRECT_F16, DIRECT, VGG, "share faster")),
    "direct-cudnn-half": judged(
        CUDNN_WORDS, Quantity(CUDNN_DEFAULT, CUDNN_DEFAULT_F16, VGG, "share faster"), today=(CUDNN, CUDNN_F16)
    ),
    "direct-pointwise": _conv(POINTWISE),
    "direct-pointwise-half": _conv(POINTWISE, half=True),
    **{
        f"direct-1d-{size}-{level}{'-half' * half}": _conv_1d(size, level, half)
        for size in (2, 3)
        for level in ("77", "83", "87.5")
        for half in (False, True)
    },
    "direct-1d-autoencoder": "Whole autoencoders are not part of this suite.",
    "direct-no-sub-batch": _sub_batch("paper_sbs1", "vgg16"),
    "direct-whole-batch": _sub_batch("paper_whole", "vgg16"),
    "direct-no-sub-batch-1x1": _sub_batch("paper_sbs1", "resnet50"),
    "direct-whole-batch-1x1": _sub_batch("paper_whole", "resnet50"),
    "direct-no-sub-batch-1d": _sub_batch("paper_sbs1", "cnn1d"),
    "direct-whole-batch-1d": _sub_batch("paper_whole", "cnn1d"),
    "direct-unified-count": _unified(),
    "direct-quantised": "The paper does not say what the reduction is of.",
    "direct-streams": "Every time of this suite is of one stream.",
    "eie-gpu-1": _eie(1),
    "eie-gpu-64": _eie(64),
    "eie-mobile-1": _eie(1),
    "eie-mobile-64": _eie(64),
    **dict.fromkeys(("eie-accelerator", "eie-accelerator-mobile", "ese-accelerator"), _CHIP),
    "ese-gpu": _ese(),
    "nm-half": _two_four(of("GEMMs of n of about 10K", r"(a100_.*)"), "i8", "largest", also="f16"),
    "nm-tf32": _two_four(of("layers of BERT, 1:2", r"(bert_.*)"), "tf32", "largest"),
    "nm-bert": _two_four(of("layers of BERT, fp16", r"(bert_.*)"), "f16", "geometric mean"),
    **{f"patdnn-{name}": _PHONE for name in ("tflite", "tvm", "mnn", "reorder", "loads", "tuning")},
    **{f"flash-llm-cublas-{level}": _flash(level, CUBLAS_F16, FP16) for level in (70, 80, 90)},
    **{f"flash-llm-sputnik-{level}": _flash(level, SPUTNIK_RULE_F16) for level in (70, 80, 90)},
    **{f"flash-llm-sparta-{level}": _SPARTA for level in (70, 80, 90)},
    **dict.fromkeys(("flash-llm-deepspeed", "flash-llm-fastertransformer", "spinfer-models"), _MODELS),
    "spinfer-flash-llm": judged(SPINFER_WORDS, Quantity(SPINFER, FLASH, LLAMA, "largest")),
    "spinfer-sparta": _SPARTA,
    "spinfer-cublas-from": judged(
        SPINFER_WORDS, Quantity(SPINFER, CUBLAS_F16, LLAMA_70B, "crossover"), today=(SPINFER, FP16)
    ),
}
"""By the claim's id: its rule, or why no record of this project can judge it."""
