"""Decoder blocks of language models in one graph: what pruning gains in tokens a second, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from nnzbench.data.problems.decoder import FEATURES, HEAD, MODELS, Decoder
from nnzbench.report.page import Answer, Lines, Made, Page, Rows, View
from nnzbench.report.text import GAP
from nnzbench.results.groups import Group
from nnzbench.results.result_set import ResultSet, each, percent
from nnzbench.results.selector import Selector, kernel
from nnzbench.results.table import Comparison

DENSE, FP8 = kernel("dense_block", "f16"), kernel("fp8_block", "f8")
SPARSE = kernel("sparse_block", "f16")
ANYWHERE = Selector("sparse block fp16, zeros anywhere", ("sparse_block",), "f16", source="uniform")
TWO_FOUR, TWO_FOUR_F8 = kernel("two_four_block", "f16"), kernel("two_four_block", "f8")
_CASE = r"([\w.]+?_kv\d+_\d+x\d+x\d+)"
_PART = r"(?P<math>f16|f8)_(?P<family>\w+?)_(?P<product>qkv|o|up|down|head)_(?P<by>.+)_b(?P<bytes>\d+)"
HEADS = ("model", "cached", "zeros", "tokens at once", "")
LAUNCHES = 8
"""Of a block: four products, two norms, attention, SwiGLU."""
KINDS = {"nm": ", 2:4", "layers": " by layer"}
"""Of zeros that are not anywhere, in words."""
APART = 0.05
"""Share of the whole from which on the page tells that it is not the sum of its parts."""


def against_dense(level: float, n: int, source: str = "uniform") -> Group:
    """Networks with so many zeros beside those without, at n tokens."""
    words, cases = f"whole models{KINDS.get(source, '')}, 2048 tokens cached,", rf"{_CASE}_{level:g}_{source}"
    return Group(words=words, level=level, columns=n, like="*_kv2048", cases=cases, baseline_cases=rf"{_CASE}_0_")


LEVELS = (50, 60, 70, 80, 90)
COLUMNS = (1, 8, 16, 32, 64)
UNIFORM = tuple(against_dense(level, n) for n in COLUMNS for level in LEVELS)
BY_LAYER = tuple(against_dense(70, n, "layers") for n in (1, 16))
HALVED = tuple(against_dense(50, n, "nm") for n in COLUMNS)
WHOLE = tuple(against_dense(0, n) for n in COLUMNS)


STEPS = {"attention": "attention", "norm": "norms", "swiglu": "SwiGLU"}
"""Steps between products by the name of their rows."""


def _parts(view: View) -> pd.DataFrame:
    """By problem, kernel of the network and arithmetic, where all are recorded: its products alone, each once.

    Columns products_us, bytes (of a block's weights as they hold them) and products (in words); head_us; and what is
    beside them in all blocks, by kind (`STEPS`) and all of it back to back as `steps`, µs.
    """
    timed = view.frame[view.frame["median_us"].notna()]
    steps = timed[timed["kernel"] == "block_steps"]
    steps = steps.assign(step=steps["variant"].str.removeprefix("f16_")).drop_duplicates(["problem", "step"])
    steps = steps.pivot(index="problem", columns="step", values="median_us").reindex(columns=[*STEPS, "steps"]).dropna()
    rows = timed[timed["kernel"] == "block_parts"]
    rows = rows[["problem", "median_us"]].join(rows["variant"].str.extract(_PART)).dropna()
    rows = rows.drop_duplicates(["problem", "family", "math", "product"])  # a resumed run may choose another product
    heads = rows[rows["family"] == HEAD].set_index("problem")["median_us"].rename("head_us")
    words = rows["product"] + " " + rows["by"].str.split(".").str[0]
    own = rows.assign(bytes=rows["bytes"].astype(float), words=words).groupby(["problem", "family", "math"])
    found = own.agg({"median_us": "sum", "bytes": "sum", "words": ", ".join})[own.size() == 4].reset_index()
    found = found.rename(columns={"median_us": "products_us", "words": "products"})
    return found.merge(heads, on="problem").merge(steps, on="problem")


def _networks(view: View) -> Iterator[tuple[Decoder, Any, dict[str, object]]]:
    """Every network that was timed beside its parts, in the table's order: sizes, row, and what `HEADS` are of it."""
    cells = view.cells((DENSE, FP8, TWO_FOUR, TWO_FOUR_F8, SPARSE)).drop(columns="bytes")
    rows = cells.merge(_parts(view).rename(columns={"family": "kernel"}), on=["problem", "kernel", "math"])
    for row in each(rows):
        model, _, cached = row.label.rpartition("_kv")
        zeros = f"{row.level:g} %{KINDS.get(row.kind, '')}"
        if model in MODELS and model != "tiny":  # which is for trying the code
            named = (model, int(cached), zeros, row.n, row.subject)
            yield MODELS[model], row, dict(zip(HEADS, named, strict=True))


def model_us(net: Decoder, whole_us: float, head_us: float) -> float:
    """Of a token of the whole model: what was timed has `blocks` of its `layers` blocks, and the vocabulary once."""
    return (whole_us - head_us) * net.layers / net.blocks + head_us


def _tokens(view: View) -> Rows:
    """What a whole model would do: tokens a second, weights held, and memory left for cached tokens."""
    memory = view.results.environment.get("gpu", {}).get("memory_bytes")
    for net, row, named in _networks(view):
        us = model_us(net, row.median_us, row.head_us)
        tables = 4 * net.vocabulary * net.hidden  # of the vocabulary, in and out
        held, dense = net.layers * int(row.bytes) + tables, 2 * net.layers * net.weights + tables
        token = 4 * net.layers * net.key_heads * FEATURES
        left = f"{(memory - held) / token / 1e6:.2f} M" if memory and memory > held else "none" if memory else ""
        yield {
            **named, "tokens/s": f"{1e6 * row.n / us:,.0f}", "GB of weights": f"{held / 1e9:.2f}",
            "of dense": f"{held / dense:.2f}", "its blocks of dense": f"{row.bytes / (2 * net.weights):.2f}",
            "tokens that fit": left, "products": row.products,
        }  # fmt: skip


def by_model(results: ResultSet) -> pd.DataFrame:
    """Tokens a second: a line for each model, cached tokens and tokens at once, a column for each network.

    Sparse networks are those with zeros anywhere, named by their share. Empty for a set of another experiment.
    """
    if results.experiment != "decoder_block":
        return pd.DataFrame()
    found = pd.DataFrame(_tokens(View(results, decoder_block().attributes)))
    if found.empty:
        return found
    plain = found["zeros"].str.fullmatch(r"[\d.]+ %")
    found = found[plain | (found[""] != SPARSE.label)]
    words = {
        DENSE.label: "dense fp16",
        FP8.label: "dense FP8",
        TWO_FOUR.label: "2:4 fp16",
        TWO_FOUR_F8.label: "2:4 FP8",
    }
    found = found.assign(network=found[""].map(words).fillna(found["zeros"] + " zeros"))
    wide = found.pivot(index=[HEADS[0], HEADS[1], HEADS[3]], columns="network", values="tokens/s")
    order = [name for name in (*words.values(), *(f"{level} % zeros" for level in LEVELS)) if name in wide]
    return wide[order].fillna(GAP).reset_index()


def _sums(view: View) -> Rows:
    """Whole graphs beside the sums of what they are made of, µs."""
    for net, row, named in _networks(view):
        products = net.blocks * row.products_us
        apart = row.median_us - products - row.head_us - row.steps
        mark = "*" if abs(apart) > APART * row.median_us else ""
        times = {"whole": row.median_us, "products": products, "vocabulary": row.head_us}
        times |= {words: getattr(row, kind) for kind, words in STEPS.items()} | {"these steps together": row.steps}
        told = {name: f"{us:.0f}" for name, us in times.items()}
        per_launch = apart / (LAUNCHES * net.blocks)
        yield {**named, **told, "apart": f"{apart:+.0f}{mark}", "a launch": f"{per_launch:+.2f}"}


def decoder_block() -> Page:
    """Its page."""
    firsts = tuple(against_dense(level, n) for n in (1, 16) for level in (50, 70, 90))
    return Page(
        answers=(
            Answer(firsts[2], SPARSE, DENSE, paper_baseline=FP8),
            Answer(firsts[5], SPARSE, DENSE, paper_baseline=FP8),
            Answer(firsts[1], SPARSE, DENSE, paper_baseline=FP8),
        ),
        comparison=Comparison((SPARSE,), (DENSE, FP8), firsts),
        energy=Comparison((SPARSE,), (DENSE, FP8), firsts),
        figures=(
            Lines("times", "µs of the whole graph by the zeros, 2,048 tokens cached",
                  (ANYWHERE, TWO_FOUR, TWO_FOUR_F8, DENSE, FP8), value="time", panels="n",
                  group=Group(like="llama3_8b_kv2048")),
        ),
        tables=(
            Made("Whole models: tokens a second and memory (of 70B the sixteen blocks are scaled to 80)", _tokens,
                 "scales what was timed to the model's number of blocks, and adds up bytes"),
            Made(f"Whole graphs and their parts alone, µs (* more than {percent(APART)} apart)", _sums,
                 "adds times of several rows"),
        ),
        facts=(
            Comparison((SPARSE,), (DENSE, FP8), (*UNIFORM, *BY_LAYER)),
            Comparison((TWO_FOUR, TWO_FOUR_F8), (DENSE, FP8), HALVED),
            Comparison((FP8,), (DENSE,), WHOLE),
        ),
        attributes=r"(?P<network>.+)_kv(?P<cached>\d+)",
        baseline=DENSE,
        arithmetic="fp16 with sums in fp32, but for FP8 rows",
    )  # fmt: skip
