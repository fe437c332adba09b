"""Prunes transformer blocks, packs them by `nnzbench best --save`, swaps their layers, and shows outputs and speed.

    python runners/torch_model.py [--hidden 4096] [--inner 11008] [--blocks 1] [--tokens 1 16] [--sparsity 0.9]

Needs PyTorch beside nnzbench, and its GPU extra for times. Weights are random and pruned by magnitude; `--folder` keeps
the checkpoint and what was packed. Without a GPU (`--hidden 128 --inner 256`) kernels run on the processor: outputs are
compared, and nothing is timed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HEAD = 64
"""Features of an attention head."""


def blocks_of(hidden: int, inner: int, count: int) -> Any:
    """A stack of decoder blocks: attention among the tokens, then a gated MLP, each behind a norm."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=True)
            self.o = nn.Linear(hidden, hidden, bias=False)
            self.gate = nn.Linear(hidden, inner, bias=False)
            self.up = nn.Linear(hidden, inner, bias=False)
            self.down = nn.Linear(inner, hidden, bias=False)
            self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])

        def forward(self, x: Any) -> Any:
            heads = self.qkv(self.norms[0](x)).reshape(-1, 3, hidden // HEAD, HEAD)
            q, k, v = heads.permute(1, 2, 0, 3)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(attended.transpose(0, 1).reshape(-1, hidden))
            normal = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))

    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(count)]).requires_grad_(False)


def prune(model: Any, sparsity: float) -> None:
    """Zeros that share of each linear layer's weights, the smallest."""
    from torch import nn

    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            size = layer.weight.abs().float().flatten()
            layer.weight *= layer.weight.abs() > size.kthvalue(round(sparsity * size.numel())).values


def graph_us(run: Callable[[], Any], launches: int = 20, replays: int = 31) -> float:
    """Microseconds of a call in a CUDA graph of many: the median over replays, after some that warm the GPU up."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(launches):
                run()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
        for _ in range(replays):
            graph.replay()
        for event in events[:-1]:
            event.record(stream)
            graph.replay()
        events[-1].record(stream)
    events[-1].synchronize()
    times = [start.elapsed_time(stop) for start, stop in itertools.pairwise(events)]
    return float(1e3 * statistics.median(times) / launches)


def pack(model: Any, folder: Path, tokens: list[int], budget: float, kernels: list[str], device: str) -> None:
    """What the two commands `save_file` and `nnzbench best` do."""
    from safetensors.torch import save_file

    from nnzbench.cli import main

    save_file(model.state_dict(), folder / "model.safetensors")
    words = [str(folder / "model.safetensors"), "--save", str(folder), "--n", ",".join(map(str, tokens)), "--brief"]
    where = ["--device", "cpu"] if device == "cpu" else []
    named = [f"--kernel={name}" for name in kernels or (["tensor_spmm"] if device == "cpu" else [])]
    main(["best", *words, "--budget", f"{budget:g}s", "--out", str(folder), *where, *named], standalone_mode=False)


def show(dense: Any, sparse: Any, tokens: list[int]) -> None:
    """Largest difference of outputs, and on a GPU the time of both."""
    import torch

    weight = next(dense.parameters())
    for count in tokens:
        x = torch.randn(count, dense[0].o.in_features, device=weight.device, dtype=weight.dtype)
        expected, found = dense(x).float(), sparse(x).float()
        difference = float((found - expected).abs().max() / expected.abs().max())
        text = f"{count} tokens: largest difference {difference:.1e} of the largest output"
        if weight.is_cuda:
            us = [graph_us(partial(model, x)) for model in (dense, sparse)]
            speeds = [1e6 * count / one for one in us]
            text += (
                f"; dense {us[0]:.1f} us ({speeds[0]:,.0f} tokens/s), sparse {us[1]:.1f} us ({speeds[1]:,.0f} tokens/s)"
            )
        print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=11008)
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each matrix")
    parser.add_argument("--kernel", nargs="+", default=[], help="these alone, dense ones too [all there are]")
    parser.add_argument("--folder", type=Path, help="keep the checkpoint and what was packed here")
    arguments = parser.parse_args()
    if arguments.hidden % HEAD:
        parser.error(f"--hidden must be a multiple of {HEAD}, the features of a head")
    try:
        import torch

        import nnzbench.torch
    except ImportError as error:
        parser.error(str(error))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print("no GPU: kernels run on the processor, and nothing is timed")
    dense = blocks_of(arguments.hidden, arguments.inner, arguments.blocks).to(device, torch.float16)
    prune(dense, arguments.sparsity)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        pack(dense, folder, arguments.tokens, arguments.budget, arguments.kernel, device)
        sparse = blocks_of(arguments.hidden, arguments.inner, arguments.blocks).to(device, torch.float16)
        sparse.load_state_dict(dense.state_dict())
        swapped = nnzbench.torch.sparsify(sparse, folder)
    weights = sum(one.weight.nbytes for one in dense.modules() if isinstance(one, torch.nn.Linear))
    print(f"{len(swapped.packed)} layers packed in {swapped.weights_bytes / 1e6:.1f} MB, dense {weights / 1e6:.1f} MB")
    print(sparse[0])
    show(dense, sparse, arguments.tokens)


if __name__ == "__main__":
    main()
