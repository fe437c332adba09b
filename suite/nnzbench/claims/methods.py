"""What rules of claims are written in: kernels that judge, the problems that papers speak of, and what few share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nnzbench.claims.quantities import Measured, Quantity, Statistic
from nnzbench.facts import selector as of
from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUBLAS, CUSPARSE, DEFAULT, DENSE, MATHS, Selector, kernel
from nnzbench.papers.sputnik import ablations

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
    readings: tuple[Quantity, ...] = ()
    """What else the paper may mean, where it leaves something open: one verdict of all of them is the claim's."""
    gpus: tuple[str, str] | tuple[()] = ()
    """Two GPUs as their folders' names have them: on the first the ratio is larger, on what percent of the problems."""
    printed: str = ""
    """A published table with the columns problem, sparsity and speedup, whose geometric mean the claim's number is:
    of the authors' own times some problems may be missing, and are then left out of both."""

    def on(self, experiment: str) -> Rule:
        """The rule of a claim about that experiment, which every quantity is of that names no other."""

        def named(one: Quantity) -> Quantity:
            return one if one.experiment else replace(one, experiment=experiment)

        today, beside = self.today and named(self.today), {name: named(one) for name, one in self.beside.items()}
        readings = tuple(map(named, self.readings))
        return replace(self, quantity=named(self.quantity), today=today, beside=beside, readings=readings)


@dataclass(frozen=True)
class Method:
    """What judges claims, and makes rules for them."""

    words: str
    subject: Selector
    others: tuple[Selector, ...] = ()
    """Whose numbers against the best baseline stand beside."""

    def __call__(
        self,
        group: Group,
        baseline: Selector | None,
        today: Selector | Sides | None = None,
        statistic: Statistic = "geometric mean",
        beside: Mapping[str, Sides] | None = None,
    ) -> Rule:
        """The rule on these problems. `today` is the best of today's baselines, with another subject or this one."""
        quantity = Quantity(self.subject, baseline, group, statistic)
        mine, best = today if isinstance(today, tuple) else (self.subject, today or baseline)
        now = replace(quantity, subject=mine, baseline=best) if today else None
        found = {
            f"{one.label} against {best.label}": replace(quantity, subject=one, baseline=best)
            for one in self.others
            if best
        }
        found |= {name: replace(quantity, subject=one, baseline=best) for name, (one, best) in (beside or {}).items()}
        return Rule(self.words, quantity, now, found)


def on(scope: str, cases: str, baseline_cases: str = "") -> Group:
    """The problems, in words and by what their names begin with; what the pattern's groups match pairs them."""
    return Group(words=scope, cases=cases, baseline_cases=baseline_cases)


def half(one: Selector) -> Selector:
    """The same in fp16."""
    return replace(one, math="f16", label=one.label.replace("fp32", "fp16"))


OURS, OURS_F16 = of.written_here(), of.written_here("f16")
COLUMN, COLUMN_F16, CUSPARSE_F16 = of.CUSPARSE_COLUMN, half(of.CUSPARSE_COLUMN), of.CUSPARSE_F16
CUBLAS_F16, CUDNN_F16, NCHW, NCHW_F16 = half(CUBLAS), of.CUDNN_F16, of.CUDNN_DEFAULT, half(of.CUDNN_DEFAULT)

# SparseRT took the best of its baselines' algorithms, so they are today's best of the same arithmetic.
RULE, RULE_F16 = kernel("sputnik", variants=DEFAULT), kernel("sputnik", "f16", DEFAULT)
PAPER = kernel("sparsert_paper")
CUDA_10_1 = Selector(
    "the fastest of cuSPARSE's algorithms of CUDA 10.1", ("cusparse",), variants=r"(csr_alg1|coo_alg[123])_col$"
)
"""On column-major operands: its generic interface had no other order, and no later algorithm."""
sparsert = Method("`sparsert_paper`, the paper's tilings and code generated anew", PAPER, (kernel("sparsert"), OURS))
sparsert_alone = replace(sparsert, others=())
conv = Method(
    "`sparsert_conv_paper`, the paper's convolution generated anew",
    kernel("sparsert_conv_paper"),
    (kernel("sparsert_conv"),),
)


def sparsert_conv(group: Group, baseline: Selector, statistic: Statistic = "geometric mean") -> Rule:
    """Of its table 3, which prints each layer's speed-up."""
    printed = "sparsert_table3_conv" if statistic == "geometric mean" else ""
    return replace(conv(group, baseline, statistic=statistic), printed=printed)


PADDED = replace(conv, subject=kernel("sparsert_conv_padded"), others=())
"""What tests for padding cost, which an image that is padded already does not need."""
cublas = Method("no kernel of this project: cuBLAS", DENSE)


def table1(first: int, last: int, level: str) -> Group:
    """Problems of SparseRT's table 1."""
    numbers = "|".join(f"{number:02}" for number in range(first, last + 1))
    return on(
        f"problems {first} to {last} of its table 1 at {level.replace('|', ' and ')} %",
        rf"((?:{numbers})_.*_(?:{level}))$",
    )


def table3(level: str) -> Group:
    """Problems of its table 3."""
    return on(f"its table 3 at {level.replace('|', ' and ')} %", rf"(.*_(?:{level}))$")


HALVED = on("95 over 90 %, problems 1 to 11 of its table 1", r"(0[1-9]|1[01])_.*_95$", r"(0[1-9]|1[01])_.*_90$")
ROWS_LAST = Selector("cuBLAS fp32, the weights transposed", ("cublas",), variants="f32_colmajor(_unpruned)?$")
ROWS_FIRST = Selector("cuBLAS fp32, the weights not transposed", ("cublas",), variants="f32_rowmajor(_unpruned)?$")
INSTANCES = on("every matrix of the sizes of its table 1", r"(\d\d_\d\d_.*)")
FIGURE8 = on("its figure 8's problems at 90 %", "(.*)")


ROLLED = Quantity(PAPER, kernel("sparsert_rolled"), FIGURE8, "largest")

# Sputnik: at the paper's heuristic, against the algorithm that the paper calls, then against today's best.
SPUTNIK_WORDS = "`sputnik`, the paper's kernel written anew, at the paper's heuristic"
sputnik = Method(SPUTNIK_WORDS, RULE, (kernel("sputnik", words="best tile"), OURS))
sputnik_f16 = Method(SPUTNIK_WORDS, RULE_F16, (kernel("sputnik", "f16", words="best tile"), OURS_F16))
sddmm = Method(
    "`sputnik_sddmm`, the paper's kernel written anew, at the paper's heuristic",
    kernel("sputnik_sddmm", variants=DEFAULT),
    (OURS,),
)
UNPREPARED = Selector("best cuSPARSE fp32 without preprocessing", ("cusparse",), variants="(?!.*preprocess)")
SDDMM_DEFAULT = Selector("cuSPARSE's default SDDMM fp32", ("cusparse",), variants="sddmm_default")
SAMPLE = replace(on("SpMM of the sample of the collection", r"((?!sddmm_).*)$"), by_matrix=True)
SAMPLE_SDDMM = replace(on("SDDMM of the sample of the collection", r"(sddmm_.*)$"), by_matrix=True)
RNN = on("RNN, GRU and LSTM layers", r"((?:rnn|gru|lstm).*)$")
RNN_SDDMM = on("SDDMM of RNN, GRU and LSTM layers", r"(sddmm_(?:rnn|gru|lstm).*)$")
FIGURE1 = on("M = 8192, K = 2048, N = 128", "(.*)")
NONZEROS = Quantity(RULE, CUBLAS, FIGURE1, "nonzeros", second=COLUMN)
MERGE, ASPT = kernel("merge_spmm", variants=DEFAULT), kernel("aspt")


def read_as(rule: Rule, *groups: Group) -> Rule:
    """The rule, where the paper may mean other problems."""
    return replace(rule, readings=tuple(replace(rule.quantity, group=one) for one in groups))


def other_paper(baseline: Selector, statistic: Statistic = "geometric mean") -> Rule:
    """Beside it what that makes of cuSPARSE, as figure 10 shows."""
    beside = {f"{baseline.label} against {COLUMN.label}": (baseline, COLUMN)}
    return replace(sputnik, others=sputnik.others[:1])(RNN, baseline, None, statistic, beside)


ABLATED = ablations.KERNELS
COMPLETE = ablations.WHOLE
SCALAR = Selector("the kernel without vector", ABLATED, variants="no_vector")


def imbalance(variant: str, words: str) -> Rule:
    """Same nonzeros in both matrices, so times stand for throughput."""
    uneven = Selector(f"the kernel with rows {words}", ABLATED[:1], variants=variant)
    words = "M = 8192, K = 2048, N = 128, 75 % zeros; rows' variation {} over 0"
    first, second = (on(words.format(cov), rf"cov{re.escape(cov)}_", r"cov0_") for cov in ("1.7", "1.5"))
    return read_as(Method(SPUTNIK_WORDS, uneven)(first, COMPLETE, None, "mean percent"), second)


def table2(part: str, model: str, batch: int, sampled: bool) -> Rule:
    """One cell of table II; `sampled` are the cells of the sampled product."""
    name = {"rn50": "ResNet-50", "tf": "the Transformer"}[model]
    scope = f"{name} at batch {batch}{', SDDMM' * sampled}, one matrix per shape and level for all that have them"
    lesser = Selector(f"the kernel without {part.replace('_', ' ')}", ABLATED, variants=f"no_{part}")
    group = on(scope, rf"({'sddmm_' * sampled}{model}_.*_b{batch}_.*)")
    whole = ablations.AS_PUBLISHED.get(("sddmm" if sampled else "spmm", f"-{part}"), COMPLETE)
    beside = {f"against {COMPLETE.label}": (lesser, COMPLETE)} if whole is not COMPLETE else None
    return Method(sddmm.words if sampled else SPUTNIK_WORDS, lesser)(group, whole, None, "mean percent", beside)


HEURISTIC, OUR_RULE, TOGETHER = r"[a-z0-9]+_heuristic$", r"[a-z0-9]+_rule$", r"[a-z0-9]+_(heuristic|default)_together$"
"""Variants of whole networks: tiles as the paper chooses, or as a rule of this project; scores of all heads held."""


def network(name: str, sparse: Selector, dense: Selector, group: Group) -> Rule:
    """Of a whole network, at the paper's heuristics; at this project's rule's tiles beside it."""
    method = Method(f"`sparse_{name}`: the paper's kernels written anew, at its heuristics", sparse)
    return method(group, dense, beside={"at this project's rule's tiles": (replace(sparse, variants=OUR_RULE), dense)})


def mobilenet(sparse: str, dense: str) -> Rule:
    """Networks of these widths."""
    chosen = Selector(f"the sparse network of width {sparse}", ("sparse_mobilenet",), variants=HEURISTIC)
    whole = Selector(f"the dense network of width {dense}", ("dense_mobilenet",))
    group = on("one image through the whole network", rf"sparse_w{sparse}_\d", rf"dense_w{dense}_\d")
    return network("mobilenet", chosen, whole, group)


TRANSFORMER = on("the Transformer's layers as a whole", "transformer_")
SPARSE_TRANSFORMER = Selector("the sparse Transformer fp32", ("sparse_transformer",), variants=HEURISTIC)
DENSE_TRANSFORMER = Selector("the dense Transformer fp32", ("dense_transformer",))


def transformer_memory() -> Rule:
    """With the scores of all heads held at a time."""
    rule = network("transformer", SPARSE_TRANSFORMER, DENSE_TRANSFORMER, TRANSFORMER)
    sparse, dense = (replace(one, variants=TOGETHER) for one in (SPARSE_TRANSFORMER, DENSE_TRANSFORMER))
    group = replace(TRANSFORMER, words=f"{TRANSFORMER.words}, scores of all heads held")
    return replace(rule, quantity=Quantity(sparse, dense, group, "memory"), beside={})


# Balanced Sparsity: the paper's mapping judges; all of ours stand beside.
balanced = Method(
    "the `paper` variants of `balanced`, the paper's mapping written anew",
    kernel("balanced", variants="paper", words="the paper's mapping"),
    (kernel("balanced", words="all variants"),),
)
BLOCKS = replace(CUSPARSE, label="cuSPARSE on 8 × 8 blocks")
RANDOM = on("16384 × 8192, batch 8, random zeros", r"random_(b8_keep\d+)_")


def lstm(model: str, pattern: str = "balanced") -> Group:
    """`pattern` is of the matrix that the baseline runs on: its own, or the dense product of the balanced one."""
    return on(f"gate matrices of the {model.upper()} LSTM", rf"({model})_balanced_", rf"({model})_{pattern}_")


def timit(rule: Callable[[Group], Rule], pattern: str = "balanced") -> Rule:
    """The paper prints no width of the input: one matrix of each direction, or a first layer's, or a further one's."""
    return read_as(
        rule(lstm("timit", pattern)), *(rule(lstm(f"timit{layer}", pattern)).quantity.group for layer in (1, 2))
    )


def vgg16(pattern: str = "balanced") -> Group:
    """The same of VGG-16's products."""
    return on("products of VGG-16, im2col not timed", r"vgg16_(.*)_balanced_\d+x", rf"vgg16_(.*)_{pattern}_\d+x")


def figure4(pattern: str = "balanced", batch: str = "[18]") -> Group:
    """The same of figure 4's matrices."""
    scope = f"16384 × 8192, eleven sparsities, batch {batch.replace('[18]', '1 and 8')}, {pattern} zeros"
    return on(scope, rf"balanced_(b{batch}_keep\d+)_", rf"{pattern}_(b{batch}_keep\d+)_")


# Libraries, where claims are about them.
cusparse = Method("no kernel of this project: cuSPARSE", COLUMN, (OURS,))
cudnn = Method("no kernel of this project: cuDNN", NCHW)
WINOGRAD, OTHERS = (
    Selector(f"cuDNN fp32 {words} Winograd's transform", ("cudnn",), variants=variants)
    for words, variants in (("with", ".*_winograd"), ("without", "(?!.*_winograd)"))
)


def step(batch: int, part: str = "gates|projection") -> Group:
    """Products of a step of ESE's LSTM."""
    words = "both products" if "|" in part else f"the product of the {part}"
    return on(f"{words} of a step at batch {batch}", rf"({part})_b{batch}_")


def step_measured(of: Measured, statistic: Statistic) -> Rule:
    """ESE's step at batch 32 by what `nnzbench energy` measured in the place of times."""
    rule = cusparse(step(32), CUBLAS, None, statistic)
    rule = replace(rule, quantity=replace(rule.quantity, of=of), beside={})
    return read_as(rule, step(32, "gates"), step(32, "projection"))


EIE_1, EIE_64 = (on(f"nine layers at batch {batch}", rf"(.*_b{batch}_.*)") for batch in (1, 64))


def two_four(group: Group, math: str, statistic: Statistic, also: str = "") -> Rule:
    """Both sides on tensor cores already, so there is no other arithmetic to judge by; `also` stands beside."""
    library = {one: replace(CUBLAS, math=one, label=f"cuBLAS {MATHS[one]}") for one in (math, also) if one}
    beside = {f"in {MATHS[also]}": (kernel("cusparselt", also), library[also])} if also else {}
    method = Method("no kernel of this project: cuSPARSELt", kernel("cusparselt", math))
    return method(group, library[math], of.best_dense(math), statistic, beside)


# Direct sparse convolution: algorithm 4 judges.
DIRECT_WORDS = "the `paper` variants of `direct_conv`, algorithm 4 written anew, padding not timed"
direct = Method(DIRECT_WORDS, kernel("direct_conv", variants=r"paper_sbs[248]$", words="the paper's"), (OURS,))
# In what half-precision products are added the paper does not say: in fp32, or as pairs of halves, whichever is faster.
direct_f16 = Method(
    DIRECT_WORDS,
    kernel("direct_conv", "f16", r"paper_(half2_)?sbs[248]$", "the paper's, sums in fp32 or fp16"),
    (OURS_F16,),
)
VGG, LAST = on("3x3 layers of VGG-16", r"(\d+_equal_.*)"), on("the last 3x3 layers of VGG-16", r"(08_equal_.*)")


POINTWISE = on("1x1 layers on 32 x 32 images", r"(c\d+_d\d+_32_equal_.*)")
"""Of its table 7, which prints no size of the image."""


def table8(size: int, level: str) -> Group:
    """1-D convolutions."""
    return on(f"filter of {size} at {level} %", rf"(filter{size}_n.*_{level.replace('.', '[.]')}_.*)")


def slower(variant: str, group: Group, ending: str = "$") -> Rule:
    """What another variant loses."""
    other = kernel("direct_conv", variants=variant + ending, words=f"its variant `{variant}`")
    return Method(DIRECT_WORDS, other)(group, direct.subject, None, "mean loss")


def unified() -> Rule:
    """Uneven counts judge: with equal ones nothing is filled up, and only the reading of two row pointers is saved."""
    uneven = on("3x3 layers of VGG-16, random positions", r"(\d+_uniform_.*)")
    rule = slower("paper_counts", uneven, "_sbs[248]$")
    groups = {
        "3x3 layers with equal counts": (VGG, ""),
        "1x1 layers, random positions": (on("1x1 layers", r"(c\d+_d\d+_\d+_uniform_.*)"), "direct_conv_table7"),
        "1-D layers, random positions": (on("1-D layers", r"(filter\d_uniform_.*)"), "direct_conv_table8"),
    }
    beside = {name: replace(rule.quantity, group=one, experiment=other) for name, (one, other) in groups.items()}
    return replace(rule, beside=beside)


# PatDNN: its steps on CUDA, in fp16 as on its phones' GPUs.
PATTERN_WORDS = "`pattern_conv`, the paper's storage, orders and steps on CUDA; the mapping is this project's"
PATTERNS = kernel("pattern_conv", "f16", words="tuned")


def pattern_count(count: int) -> Rule:
    """VGG-16's 13 layers with 8 patterns over those with `count`."""
    subject = replace(PATTERNS, label=f"the same with {count}")
    scope = "VGG-16's 3x3 layers, each as often as it has it"
    group = on(scope, rf"(vgg_L\d)_top{count}_b1_", r"(vgg_L\d)_top8_b1_")
    return Method(PATTERN_WORDS, subject)(group, PATTERNS, None, "total")


# Flash-LLM and SpInfer: uniform patterns on layers of Llama models.
flash = Method(
    "`flash_llm`, the paper's kernel written anew, K in as many parts as are fastest", kernel("flash_llm", "f16")
)
spinfer = Method(
    "`spinfer`, the paper's kernel written anew, K in as many parts as are fastest", kernel("spinfer", "f16")
)
LLAMA_70B = on("8192 x 8192, 16 columns, uniform zeros", r"(llama_70b_qo_8192x8192x16_\d+)")
LLAMA = on(
    "layers of Llama models, 8 to 32 columns, 50 to 70 % uniform zeros",
    r"(llama\d?_\d+b_(?:qkvo|qo|up|down)_\d+x\d+x(?:8|16|32)_(?:50|60|70))",
)


def opt(rule: Callable[[Group], Rule], level: int) -> Rule:
    """On the shapes that Flash-LLM's authors timed; how their number is averaged is open."""
    found = rule(on(f"layers of OPT models, 8 to 64 columns, {level} % uniform zeros", rf"(opt_.*_{level}_.*)"))
    return replace(found, readings=(replace(found.quantity, statistic="total"),))
