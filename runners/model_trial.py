"""A pruned language model in its real client: `best --save` of its checkpoint, `sparsify`, decode steps of both.

    python runners/model_trial.py [--layers 4] [--zeros 50 70 80 90] [--tokens 1 16] [--budget 60] [--out FOLDER]

A Llama of transformers' with random fp16 weights, each linear layer of its blocks pruned by magnitude to every share of
zeros, is saved, packed by the command, and decodes with a static cache: as plain modules, and under `torch.compile`,
both in a CUDA graph of one step. Dense and sparse have the same weights. The step is of the blocks, without embedding
and head; beside it stand the linear layers alone. Rows go to `trial.csv` in the folder, README.md there sums them up.
Needs PyTorch, transformers and safetensors. Without a GPU (`--hidden 256 --inner 512`) outputs are compared alone.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.bench.session import source
from nnzbench.core import paths
from nnzbench.report.text import document, markdown
from nnzbench.results.records.table_files import append_rows

TABLE = "trial.csv"
PROMPT, CACHE = 64, 512
"""Tokens before the first step, and that the cache holds."""
STEPS, SAMPLES, WARM = 16, 31, 3
"""Replays of a sample, samples, whose median is a step's time, and calls or samples before that warm the GPU up."""
PIECES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Row:
    """A model, its zeros, the sequences that decode at once, and how the client runs a step."""

    gpu: str
    commit: str
    torch: str
    transformers: str
    checkpoint: str
    matrices: int
    zeros: int
    tokens: int
    client: str
    best_s: float
    """What the command took, from reading the checkpoint to the packed file."""
    packed: int
    """Layers that a sparse kernel was chosen for, at one number of tokens at least."""
    dense_us: float
    sparse_us: float
    decode_speedup: float
    dense_products_us: float
    """Of the linear layers alone, in their order, in a graph."""
    sparse_products_us: float
    difference: float
    """Largest one of the blocks' outputs at the first step, over the largest output."""
    dense_mb: float
    packed_mb: float


def model_of(sizes: argparse.Namespace, device: str) -> Any:
    """The client's own model, with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=sizes.hidden, intermediate_size=sizes.inner, num_hidden_layers=sizes.layers,
        num_attention_heads=max(1, sizes.hidden // 128), num_key_value_heads=max(1, sizes.hidden // 512),
        vocab_size=sizes.vocabulary, max_position_embeddings=8192, rope_theta=500000.0, dtype=torch.float16,
        tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        return LlamaForCausalLM(config).to(torch.float16).eval().requires_grad_(False)


def products(model: Any) -> list[Any]:
    """The linear layers of the blocks, or what stands in their places."""
    return [one for name, one in model.model.layers.named_modules() if name.rpartition(".")[2] in PIECES]


def prune(model: Any, zeros: int) -> None:
    """Zeros that share of each layer's weights, the smallest; those of less were zeroed among them."""
    for layer in products(model):
        size = layer.weight.abs().flatten()
        layer.weight *= layer.weight.abs() > size.kthvalue(round(zeros / 100 * size.numel())).values


class Steps:
    """Decode steps of the blocks of one model for so many sequences, each after the same prompt."""

    def __init__(self, model: Any, tokens: int, client: str) -> None:
        import torch
        from transformers import StaticCache

        blocks = model.model
        numbers = torch.Generator().manual_seed(tokens)
        words = torch.randint(0, model.config.vocab_size, (tokens, PROMPT + 1), generator=numbers).to(
            model.lm_head.weight.device
        )
        self._word = words[:, PROMPT:].clone()
        self._cache = StaticCache(config=model.config, max_cache_len=CACHE)
        self._call = torch.compile(blocks, fullgraph=True, dynamic=False) if client == "compile" else blocks
        blocks(words[:, :PROMPT], past_key_values=self._cache, use_cache=True)

    def reset(self) -> None:
        """To the state after the prompt: what a step wrote behind it, the next one writes again."""
        for layer in self._cache.layers:
            layer.cumulative_length.fill_(PROMPT)

    def step(self) -> Any:
        """The last hidden states (tokens, 1, hidden) of one step."""
        return self._call(self._word, past_key_values=self._cache, use_cache=True).last_hidden_state


def captured(run: Callable[[], Any], reset: Callable[[], None]) -> Any:
    """A CUDA graph of one call."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            run()
        reset()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run()
    torch.cuda.synchronize()
    return graph


def times_us(graphs: Sequence[tuple[Any, Callable[[], None]]]) -> list[float]:
    """Microseconds of a replay of each, in turns."""
    import torch

    taken: list[list[float]] = [[] for _ in graphs]
    for sample in range(WARM + SAMPLES):
        for (graph, reset), found in zip(graphs, taken, strict=True):
            reset()
            graph.replay()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(STEPS):
                graph.replay()
            stop.record()
            stop.synchronize()
            if sample >= WARM:
                found.append(1e3 * start.elapsed_time(stop) / STEPS)
    return [statistics.median(one) for one in taken]


def pack(model: Any, folder: Path, asked: argparse.Namespace, device: str) -> float:
    """Saves the checkpoint, packs it by the command, and returns what that took in seconds."""
    model.save_pretrained(folder, max_shard_size="4GB")
    index = folder / "model.safetensors.index.json"
    words = [str(index if index.exists() else folder / "model.safetensors"), "--save", str(folder / "packed")]
    words += ["--brief", "--n", ",".join(map(str, asked.tokens)), "--out", str(folder / "rows")]
    words += ["--budget", f"{asked.budget:g}s"] if asked.budget else []
    words += ["--device", "cpu", "--kernel", "tensor_spmm"] if device == "cpu" else []
    started = time.perf_counter()
    if status := subprocess.run([sys.executable, "-m", "nnzbench", "best", *words], check=False).returncode:
        raise SystemExit(status)
    return time.perf_counter() - started


def trial(dense: Any, zeros: int, asked: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """The rows of one share of zeros, each as soon as it is known: `dense` is pruned to it."""
    import torch
    import transformers

    import nnzbench.torch

    device = dense.lm_head.weight.device.type
    prune(dense, zeros)
    best_s = pack(dense, folder, asked, device)
    print(f"{zeros} % zeros: best {best_s:.0f} s", flush=True)
    sparse = copy.deepcopy(dense)
    started = time.perf_counter()
    swapped = nnzbench.torch.sparsify(sparse, folder / "packed")
    print(f"sparsify {time.perf_counter() - started:.0f} s", flush=True)
    matrices = products(dense)
    name = f"Llama of {asked.layers} blocks, {asked.hidden} by {asked.inner}, random weights"
    for tokens in asked.tokens:
        for client in asked.client:
            torch._dynamo.reset()
            both = [Steps(model, tokens, client) for model in (dense, sparse)]
            outputs = []
            for one in both:
                one.reset()
                outputs.append(one.step().float())
            difference = float((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max())
            if device == "cpu":
                print(f"{zeros} % zeros, {tokens} tokens, {client}: largest difference {difference:.1e}", flush=True)
                continue
            alone = [products_alone(model, tokens) for model in (dense, sparse)]
            graphs = [(captured(one.step, one.reset), one.reset) for one in both]
            us = [round(one, 2) for one in times_us([*graphs, *((captured(one, nothing), nothing) for one in alone)])]
            yield Row(
                torch.cuda.get_device_name(), (source()["commit"] or "")[:8], torch.__version__,
                transformers.__version__, name, len(matrices), zeros, tokens, client, round(best_s, 1),
                len(swapped.packed), us[0], us[1],
                round(us[0] / us[1], 4), us[2], us[3], round(difference, 6),
                round(sum(one.weight.nbytes for one in matrices) / 1e6, 1), round(swapped.weights_bytes / 1e6, 1),
            )  # fmt: skip


def products_alone(model: Any, tokens: int) -> Callable[[], None]:
    """A call of each linear layer of the blocks in turn."""
    import torch

    layers = products(model)
    weight = model.lm_head.weight
    inputs = {
        k: torch.randn(tokens, k, device=weight.device, dtype=weight.dtype) for k in {one.in_features for one in layers}
    }

    def run() -> None:
        for one in layers:
            one(inputs[one.in_features])

    return run


def nothing() -> None:
    """A graph without a state has none to reset."""


def summary(rows: pd.DataFrame) -> str:
    """The page beside the table."""
    first, least, most = rows.iloc[0], rows["decode_speedup"].min(), rows["decode_speedup"].max()
    columns = [str(one) for one in rows if one not in ("gpu", "commit", "torch", "transformers", "checkpoint")]
    text = (
        f"Packed by `nnzbench best --save`, a Llama's blocks decode {least:.2f} to {most:.2f} times as fast as dense; "
        "PyTorch's steps between the products are in both.\n\n"
        f"Measured on {first.gpu} by `runners/model_trial.py`, PyTorch {first.torch}, transformers "
        f"{first.transformers}: decode steps of a Llama's blocks, fp16, random weights pruned by magnitude, a static "
        f"cache of {CACHE}, one step a CUDA graph. `graph` runs plain modules, `compile` what `torch.compile` made."
    )
    found = markdown(
        columns, ([f"{one:g}" if not isinstance(one, str) else one for one in row] for row in rows[[*columns]].values)
    )
    return document("# A pruned language model in its client", text, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--zeros", type=int, nargs="+", default=[50, 70, 80, 90], help="percent, ascending")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--client", nargs="+", default=["graph", "compile"], choices=["graph", "compile"])
    parser.add_argument("--budget", type=float, help="seconds for the whole checkpoint [what the command has]")
    parser.add_argument("--out", type=Path, default=Path("build/model_trial"))
    asked = parser.parse_args()
    asked.zeros.sort()
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        parser.error(str(error))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print("no GPU: outputs are compared, and nothing is timed")
        asked.client = ["graph"]
    table = asked.out / TABLE
    asked.out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        dense = model_of(asked, device)
        for zeros in asked.zeros:
            with tempfile.TemporaryDirectory() as folder:
                for row in trial(dense, zeros, asked, Path(folder)):
                    print(row, flush=True)
                    append_rows(table, vars(row), [list(vars(row).values())])
    if device != "cpu":
        paths.write_text(asked.out / "README.md", summary(pd.read_csv(table)))


if __name__ == "__main__":
    main()
