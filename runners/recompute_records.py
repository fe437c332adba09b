"""What the words of pages stand for, read from records by plain pandas; `recompute.py` checks pages with it."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
MATHS = {"fp32": "f32", "TF32": "tf32", "fp16": "f16", "bf16": "bf16", "INT8": "i8"}
CLASSES = {"f32", "tf32", "f16", "bf16", "i8", "winograd"}
DENSE = ["cublas", "cublaslt"]
OWN = [
    *("balanced", "delta_spmv", "direct_conv", "eie", "panel", "ring", "ring_sddmm", "row_stream"),
    *("row_stream_bias_relu", "sparsert", "sparsert_conv", "tensor_spmm", "tensor_spmm_tf32"),
]
"""This project's designs; rows of the papers' mappings among them are left out (`PAPERS`)."""
IN_CODE = ["direct_conv", "sparsert", "sparsert_conv"]
NOTHING_TO_TUNE = [
    *("aspt", "aspt_sddmm", "dense_attention", "dense_mobilenet", "dense_transformer", "sparsert_fixed", "untuned"),
]
"""Kernels all of whose candidates are first choices."""
STEP = {
    "Sputnik's kernels": ["sputnik", "sputnik_transposed", "sputnik_sddmm"],
    "the fastest sparse kernels": [
        *("sputnik", "sputnik_transposed", "sputnik_sddmm", "merge_spmm", "ring_sddmm", "aspt_sddmm"),
    ],
}
"""Kernels that do a training step together."""
STUDIES = ("`sputnik_ablation`, ",)
"""What begins the name of a side that is one candidate alone, a kernel without one of its parts."""
PAPERS = {"balanced": r"paper(_w\d+)?$", "direct_conv": "paper_"}
CHOICES = {
    "its heuristic": r"(.*[_-])?(default|heuristic)([_-]|$)",
    "the paper's mapping": r"paper(_w\d+)?$|paper_sbs[248]$",
    "the paper's mapping in sub-batches": "paper_sbs",
    "the paper's mapping of the whole batch": "paper_whole",
    "this project's mapping": "staged",
    "4-bit weights": "codebook_sbs",
    "at its own best tiling": "",
    "complete": "complete",
    "complete on even rows": "complete",
    "rows in their own order": "no_load_balancing",
    "without load balancing": "no_load_balancing",
    "without vector loads": "no_vector",
    "without unrolled residues": "no_residue_unroll",
    "without scaled indices": "no_prescale",
}
"""What stands behind a kernel's name: the beginning of its variants."""
SAME = ", at the same tiling"
"""Behind a rival that is taken at the variant that is the side's fastest."""
OPS = {"SpMM": "spmm", "SDDMM": "sddmm", "SpMV": "spmv", "convolution": "conv2d"}
WORDS = {
    "of figure 10": (r"(sddmm_)?(rnn|gru|lstm).*", ""),
    "with uneven rows against even ones": (r"cov1\.7", "cov0"),
    "with half as uneven rows against even ones": (r"cov0\.75", "cov0"),
    "SpMM of ResNet-50 at the large batch, each layer once": (r"rn50_.*_b256", ""),
    "SpMM of ResNet-50 at batch one, each layer once": (r"rn50_.*_b1", ""),
    "SpMM of the Transformer at the large batch, each layer once": (r"tf_.*_b8", ""),
    "SpMM of the Transformer at batch one, each layer once": (r"tf_.*_b1", ""),
    "with the sparse mask": ("attention", ""),
    "with the sparse mask against the causal one": ("attention", "causal"),
    "of the Transformer": ("transformer", ""),
    "of MobileNetV1 at equal accuracy": (r"sparse_w1\.5", r"dense_w1\.2"),
    "of balanced zeros": (r"balanced.*", ""),
    "of balanced zeros at batch one": (r"balanced_b1_.*", ""),
    "of balanced zeros at batch eight": (r"balanced_b8_.*", ""),
    "of PTB's LSTM": ("ptb_balanced", ""),
    "of VGG-16, each layer once": (r"vgg16_.*_balanced", ""),
    "of all layers of VGG-16 together": (r"vgg16_.*_balanced", r"vgg16_.*_balanced"),
    "of both products of a step": (r".*_b\d+", r".*_b\d+"),
    "with equal counts per channel": (r".*_equal", ""),
    "with equal counts per channel in the last layers": ("08_equal", ""),
    "with equal counts per channel on images of 32x32": (r".*_32_equal", ""),
    "with zeros anywhere": (r".*_uniform", ""),
    "with equal counts and a filter of two": ("filter2", ""),
    "with equal counts and a filter of three": ("filter3", ""),
    "of VGG-16": (r"vgg16_.*", ""),
    "of ResNet-50": (r"resnet50_.*", ""),
    "in one dimension": (r"cnn1d_.*", ""),
    "at batch one": (r".*_b1", ""),
    "at batch eight": (r".*_b8", ""),
    "at batch 64": (r".*_b64", ""),
    "on 8192×8192": ("llama_70b_qo", ""),
    "of the A100 figure": ("a100", ""),
    "of BERT": (r"bert_.*", ""),
    "of cubes": ("cube", ""),
    "pruned to 90 % zeros": (r".*\.0\.9\..*", ""),
    "pruned to 50 % zeros": (r".*\.0\.5\..*", ""),
    "pruned to 98 % zeros": (r".*\.0\.98\..*", ""),
    "forward": (r".*_forward", ""),
    "for the gradient of the input": (r".*_input", ""),
    "for the gradient of the weights": (r".*_weights", ""),
    "of single weights": (r"unstructured_87\.5", ""),
    "of PatDNN's patterns": (r"pattern_87\.5", ""),
    "of 3x3 kernels": (r"kernel_87\.5", ""),
    "of rows of kernels": (r"vector_87\.5", ""),
    "of 1 in 8": (r"nm_87\.5", ""),
    "of blocks of 32x32": (r"block_87\.5", ""),
}
"""Labels of the problems that words stand for; of the rival's, where these are others and sums are compared."""
PARTS = {"of a whole step": ("forward", "input", "weights")}
"""How the labels of what is done one after another end; `dense_` before it where dense does more, at any level."""
NAME = re.compile(
    r"(?P<label>.+?)_(?P<sizes>\d+x\d+x\d+|n\d+_c\d+_h\d+_w\d+_d\d+_r\d+_s\d+(?:_[a-z]+\d+)*)"
    r"_(?P<level>[0-9.]+)_(?P<kind>[a-z_]+?)(?:_(?P<dtype>f16|bf16|i8))?"
)
REAL = {"dlmc", "weights"}


class Wrong(Exception):
    """A sentence, or a line of a table, that does not say what the records say."""


@dataclass(frozen=True)
class Ratio:
    """A geometric mean, how often the ratio is above 1, and of how many problems."""

    value: float
    wins: int
    count: int
    problems: frozenset[str] = frozenset()
    """Without their types."""
    cut: frozenset[tuple[str, str, str]] = frozenset()
    """Scope, kernel and problem of what competes in it and was not tuned there."""

    @property
    def mark(self) -> str:
        """Behind a number that stands on kernels which were not tuned."""
        return "†" if self.cut else ""


def read(folder: Path) -> pd.DataFrame:
    """Every row of the records in the folder."""
    if (folder / "records.parquet").is_file():
        return pd.read_parquet(folder / "records.parquet")
    frame = pd.read_csv(folder / "records.csv", dtype={"variant": str}, low_memory=False)
    return frame.fillna({"variant": ""})


@functools.cache
def rows(folder: Path) -> pd.DataFrame:
    """Timed rows with `math`, `label`, `level`, `stem`; stand-ins under the name of the real pattern beside them."""
    frame = read(folder)
    device = next((name for name in ("cupy", "pycuda", "cuda-core") if name in set(frame["device"])), None)
    frame = frame[frame["device"] == device] if device else frame
    frame = finished(frame, folder / "tuning.csv")
    frame["scope"] = scopes(frame, folder / "tuning.csv")
    frame = of_one_pattern(frame)
    frame = frame[(frame["status"] == "ok") & frame["median_us"].notna()]
    first = frame["variant"].str.partition("_")[0]
    parts = frame["problem"].map(lambda name: NAME.fullmatch(name))
    return frame.assign(
        math=first.where(first.isin(CLASSES), frame["dtype"]).mask(frame["kernel"] == "tensor_spmm_tf32", "tf32"),
        label=[found["label"] if found else "" for found in parts],
        level=[float(found["level"]) if found else math.nan for found in parts],
        zeros=100 * frame["sparsity"],
        stem=[stem(name) for name in frame["problem"]],
    )


def finished(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Without the timed rows of kernels whose candidates a run did not come to the end of."""
    if not path.is_file():
        return frame
    table = pd.read_csv(path)
    done = {
        (problem, dtype, kernel, device, policy)
        for problem, dtype, kernel, device, policies in table[
            ["problem", "dtype", "kernel", "device", "policies"]
        ].itertuples(index=False)
        for policy in str(policies).split("+")
    }
    keys = zip(*(frame[name] for name in ("problem", "dtype", "kernel", "device", "policy")), strict=True)
    return frame[[key in done or status != "ok" for key, status in zip(keys, frame["status"], strict=True)]]


def scopes(frame: pd.DataFrame, path: Path) -> list[str]:
    """Of each row, `first` or `some` where no more of its kernel's candidates were tried, else nothing."""
    table = pd.read_csv(path, dtype=str) if path.is_file() else pd.DataFrame()
    if "scope" not in table:
        return [""] * len(frame)
    on = ["problem", "dtype", "kernel", "device", "policy"]
    table = table.assign(scope=table["scope"].fillna("all"), policy=table["policies"].str.split("+")).explode("policy")
    rank = table["scope"].map({"first": 0, "some": 1, "all": 2})
    most = rank.groupby([table[name] for name in on]).max().map({0: "first", 1: "some", 2: ""}).to_dict()
    keys = zip(*(frame[name] for name in on), strict=True)
    return ["" if key[2] in NOTHING_TO_TUNE else most.get(key, "") for key in keys]


def untuned(frame: pd.DataFrame, words: str, problems: Collection[str]) -> frozenset[tuple[str, str, str]]:
    """Scope, kernel and problem of the rows of a side on these problems that tuning may bring a faster one beside."""
    if words.endswith(", its heuristic") or re.search("'s (column-major )?default", words) or words.startswith(STUDIES):
        return frozenset()
    rows = frame[(frame["scope"] != "") & frame["stem"].isin(problems)]
    return frozenset(rows[["scope", "kernel", "stem"]].itertuples(index=False, name=None))


def before_tuning(found: Collection[Ratio | None]) -> str:
    """What the marks of some numbers stand for, in words; nothing where none of them has one."""
    cut = {one for ratio in found if ratio for one in ratio.cut}
    of = len({problem for ratio in found if ratio for problem in ratio.problems})
    said = []
    for scope, how in (
        ("first", "the run's time was over with the first choices tried, but not all candidates, of"),
        ("some", "`--quick` or `--candidates` let the run try few candidates of"),
    ):
        count = Counter(kernel for one, kernel, _ in cut if one == scope)
        parts = [
            f"{', '.join(f'`{kernel}`' for kernel in sorted(count) if count[kernel] == number)} on {number}"
            for number in sorted(set(count.values()), reverse=True)
        ]
        if parts:
            parts[0] += f" of {of} problem{'' if of == 1 else 's'}"
            said.append(f"{how} {', of '.join(parts)}")
    return "; ".join(said)


def of_one_pattern(frame: pd.DataFrame) -> pd.DataFrame:
    """Stand-ins under the name of the real pattern's problem, without the kernels that were recorded on that too."""
    parts = {name: NAME.fullmatch(name) for name in set(frame["problem"])}
    real = {case(found): name for name, found in parts.items() if found and found["kind"] in REAL}
    names = {
        name: real[case(found)]
        for name, found in parts.items()
        if found and found["kind"] == "standin" and case(found) in real
    }
    on_real = set(frame.loc[frame["problem"].isin(set(names.values())), ["problem", "kernel"]].itertuples(index=False))
    keys = zip(frame["problem"].map(names), frame["kernel"], strict=True)
    frame = frame[[key not in on_real for key in keys]]
    return frame.assign(problem=frame["problem"].replace(names))


def case(found: re.Match[str]) -> tuple[str, ...]:
    """A name without its source."""
    return found["label"], found["sizes"], found["level"], found["dtype"] or ""


def stem(name: str) -> str:
    """The same for a problem in each type, and for a real pattern and its stand-in."""
    found = NAME.fullmatch(name)
    if found is None:
        return name
    kind = "" if found["kind"] in REAL | {"standin"} else found["kind"]
    return f"{found['label']}_{found['sizes']}_{found['level']}_{kind}"


@functools.cache
def sample() -> frozenset[str]:
    """Paths of the collection's representative sample: each fiftieth of the paper's matrices, in order of stratum."""
    index = pd.read_csv(ROOT / "datasets" / "dlmc_index.csv.gz", dtype={"target_sparsity": float})
    least = index["model"].map({"transformer": 20.0, "rn50": 70.0})
    chosen = index[(index["nnz"] > 0) & (index["quality"] > least)]
    chosen = chosen.assign(size=chosen["rows"] * chosen["cols"])
    order = chosen.sort_values(["model", "method", "target_sparsity", "layer_kind", "size", "path"])
    return frozenset(order["path"].iloc[25::50])


def side(frame: pd.DataFrame, words: str) -> pd.DataFrame:
    """The rows of a kernel, of this project's kernels, or of a rival. Raises `Wrong` for words without a meaning."""
    words = words.removesuffix(SAME)
    if found := re.fullmatch(r"this project's kernels(?: (\w+))?(, weights as data)?", words):
        names = [name for name in OWN if not (found[2] and name in IN_CODE)]
        kept = frame["kernel"].isin(names) & (frame["math"] == MATHS[found[1] or "fp32"])
        for kernel, variants in PAPERS.items():
            kept &= ~((frame["kernel"] == kernel) & frame["variant"].str.match(variants))
        return frame[kept]
    if (found := re.fullmatch(r"(.+ kernels)(?: (\w+))?", words)) and found[1] in STEP:
        return frame[frame["kernel"].isin(STEP[found[1]]) & (frame["math"] == MATHS[found[2] or "fp32"])]
    if found := re.fullmatch(r"best dense (\w+)", words):
        return frame[frame["kernel"].isin(DENSE) & (frame["math"] == MATHS[found[1]])]
    if found := re.fullmatch(r"(cuSPARSE)'s( column-major)? default (\w+)(?: in its best layout)?", words):
        mine = frame[(frame["kernel"] == found[1].lower()) & (frame["math"] == MATHS[found[3]])]
        return mine[
            mine["variant"].str.match(r"(csr_default_col|spmv_csr_default)$" if found[2] else CHOICES["its heuristic"])
        ]
    if found := re.fullmatch(r"cuDNN's default (\w+) in NCHW", words):
        mine = frame[(frame["kernel"] == "cudnn") & (frame["math"] == MATHS[found[1]])]
        return mine[mine["variant"].str.match(r"[a-z0-9]+_nchw_.*_default$")]
    if found := re.fullmatch(r"(?:best )?(cuBLAS|cuSPARSE|cuDNN) (\w+)", words):
        return frame[(frame["kernel"] == found[1].lower()) & (frame["math"] == MATHS[found[2]])]
    if found := re.fullmatch(r"`(\w+)`(?: (\w+))?(?:, (.+))?", words):
        kept = (frame["kernel"] == found[1]) & (frame["math"] == MATHS[found[2] or "fp32"])
        if found[3]:
            if found[3] not in CHOICES:
                raise Wrong(f"no rows are known for '{words}'")
            kept &= frame["variant"].str.match(CHOICES[found[3]])
        return frame[kept]
    raise Wrong(f"no rows are known for '{words}'")


class Group:
    """The problems that a group's label stands for. Raises `Wrong` for one that means nothing here."""

    def __init__(self, label: str) -> None:
        rest = label
        self.sample = rest.endswith("in the representative sample")
        rest = rest.removesuffix("in the representative sample").strip()
        columns = re.search(r"(?:^| )with (\d+) columns?$", rest)
        self.columns = int(columns[1]) if columns else None
        rest = rest[: columns.start()] if columns else rest
        level = re.search(r"(?:^| )at ([\d.]+) % zeros$", rest)
        self.level = float(level[1]) if level else None
        rest = (rest[: level.start()] if level else rest).strip()
        self.op, self.like, self.rival = "", "", ""
        self.parts = PARTS.get(rest, ())
        if self.parts:
            self.like = rf"(?P<of>.+?)_(?:dense_)?(?P<part>{'|'.join(self.parts)})"
            return
        if rest not in WORDS and rest.partition(" ")[0] in OPS:
            word, _, rest = rest.partition(" ")
            self.op = OPS[word]
        if rest and rest != "all problems":
            if rest not in WORDS:
                raise Wrong(f"no problems are known for '{label}'")
            self.like, self.rival = WORDS[rest]

    def of(self, frame: pd.DataFrame, rival: bool = False) -> pd.DataFrame:
        """The rows of its problems."""
        other = rival and bool(self.rival)
        like = self.rival if other else self.like
        kept = pd.Series(True, index=frame.index)
        if like:
            kept &= frame["label"].str.fullmatch(like)
        if self.level is not None and not other:
            near = frame["level"].isna() & ((frame["zeros"] - self.level).abs() <= 2.5)
            kept &= (frame["level"] == self.level) | near | (bool(self.parts) & frame["label"].str.contains("_dense_"))
        if self.columns is not None:
            kept &= frame["n"] == self.columns
        if self.op:
            kept &= frame["op"] == self.op
        if self.sample:
            kept &= frame["source"].str.partition(":")[2].isin(sample())
        return frame[kept]

    def whole(self, frame: pd.DataFrame) -> tuple[pd.Series, pd.Index]:
        """Sums of the least times of all parts, where each has one; the problems that they are of."""
        rows = frame.join(frame["label"].str.extract(self.like)) if len(frame) else frame.assign(of="", part="")
        times = rows.pivot_table(index="of", columns="part", values="median_us", aggfunc="min")
        whole = times.dropna().sum(axis=1) if set(self.parts) <= set(times.columns) else pd.Series(dtype=float)
        return whole, pd.Index(rows.loc[rows["of"].isin(whole.index), "stem"].unique())


@functools.cache
def ratio(folder: Path, group: str, policy: str, mine: str, rival: str) -> Ratio | None:
    """Geometric mean of the rival's time over the side's, how often that is above 1, and of how many problems."""
    frame = rows(folder)
    frame = frame[frame["policy"] == policy]
    of = Group(group)
    theirs, ours = side(of.of(frame, rival=True), rival), side(of.of(frame), mine)
    if rival.endswith(SAME):
        best = ours.loc[ours.groupby("problem")["median_us"].idxmin()].set_index("problem")["variant"]
        theirs = theirs[theirs["variant"] == theirs["problem"].map(best)]
    above, below = theirs.groupby("stem")["median_us"].min(), ours.groupby("stem")["median_us"].min()
    if of.rival:
        if above.empty or below.empty or (of.rival == of.like and set(above.index) != set(below.index)):
            return None
        value = float(above.sum() / below.sum())
        cut = untuned(theirs, rival, above.index) | untuned(ours, mine, below.index)
        return Ratio(value, int(value > 1), 1, frozenset(above.index) | frozenset(below.index), cut)
    if of.parts:
        (above, others), (below, those) = of.whole(theirs), of.whole(ours)
        both = (above / below).dropna()
    else:
        both = (above / below).dropna()
        others = those = both.index
    if both.empty:
        return None
    cut = untuned(theirs, rival, others) | untuned(ours, mine, those)
    value = math.exp(sum(map(math.log, both)) / len(both))
    return Ratio(value, int((both > 1).sum()), len(both), frozenset(others) | frozenset(those), cut)


def crossing(folder: Path, group: str, policy: str, mine: str, rival: str) -> tuple[str, bool]:
    """From how many zeros on the side is faster for good; whether any of the ratios is before tuning.

    Between two levels, time is taken for a power of the share of nonzeros. `group` has no level. Raises `Wrong` where
    no problem has both times.
    """
    frame = rows(folder)
    levels = sorted(set(Group(group).of(frame)["level"].dropna()))
    columns = re.search(r" ?with \d+ columns?$", group)
    before, after = (group[: columns.start()], columns[0]) if columns else (group, "")
    before = "" if before == "all problems" else f"{before} "
    every = [(level, ratio(folder, f"{before}at {level:g} % zeros{after}", policy, mine, rival)) for level in levels]
    found = [(level, one) for level, one in every if one]
    if not found:
        raise Wrong("no problem has both times")
    cut = any(one.cut for _, one in found)
    slower = [at for at, (_, one) in enumerate(found) if one.value < 1]
    if not slower:
        return f"below {found[0][0]:g} %", cut
    if slower[-1] == len(found) - 1:
        return f"above {found[-1][0]:g} %", cut
    (low, lost), (high, won) = found[slower[-1]], found[slower[-1] + 1]
    exponent = math.log(won.value / lost.value) / math.log((100 - low) / (100 - high))
    return f"{100 - (100 - low) * lost.value ** (1 / exponent):.1f} %", cut
