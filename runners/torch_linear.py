"""Replaces one nn.Linear of a PyTorch model by an operator with its pruned weights, and shows time and error.

    python runners/torch_linear.py [--features 4096 11008] [--tokens 32] [--sparsity 0.9] [--dtype f16]

Needs PyTorch with CUDA beside nnzbench's own GPU extra. The layer's weights are pruned by magnitude; the operator then
computes the same product as the layer, and a CUDA graph of each is timed. A Linear has rows of tokens, an operator
columns: inputs are turned once before it and results once after, which is inside the operator's time here.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import nnzbench


def as_module(layer: Any, tokens: int, dtype: str) -> Any:
    """A module that computes what the layer does for `tokens` rows, with the pruned weights packed."""
    import torch

    class SparseLinear(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.operator = nnzbench.operator(layer.weight, tokens, dtype=dtype)  # type: ignore[arg-type]
            self.bias = layer.bias

        def forward(self, x: Any) -> Any:
            result = self.operator(x.t().contiguous()).t()
            return result if self.bias is None else result + self.bias

    return SparseLinear()


def graph_us(run: Callable[[], Any], launches: int = 100, replays: int = 31) -> float:
    """Microseconds of a call in a CUDA graph of many: the median over replays, after some that warm the GPU up."""
    import torch

    run()
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


def main() -> None:
    """Makes the layer, packs it, compares and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs=2, default=(4096, 11008), metavar=("IN", "OUT"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--dtype", choices=["f32", "f16", "bf16"], default="f16")
    arguments = parser.parse_args()
    try:
        import torch
        from torch.nn.utils import prune
    except ImportError:
        parser.error("this example needs PyTorch with CUDA: pip install torch")
    if not torch.cuda.is_available():
        parser.error("this example needs a GPU that PyTorch can use")

    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[arguments.dtype]
    torch.manual_seed(0)
    dense = torch.nn.Linear(*arguments.features, bias=False).to("cuda", kind).requires_grad_(False)
    prune.l1_unstructured(dense, "weight", arguments.sparsity)
    prune.remove(dense, "weight")  # the zeros stay, the mask goes
    torch.cuda.synchronize()
    sparse = as_module(dense, arguments.tokens, arguments.dtype)
    x = torch.randn(arguments.tokens, arguments.features[0], device="cuda", dtype=kind)
    difference = (sparse(x).float() - dense(x).float()).abs().max() / dense(x).float().abs().max()
    facts = sparse.operator.facts
    print(f"kernel {facts.kernel} {facts.variant}: {facts.weights_bytes / 1e6:.1f} MB of weights")
    print(f"largest difference {float(difference):.2e} of the largest output; checked to {facts.relative_error:.2e}")
    times = {name: graph_us(partial(one, x)) for name, one in (("dense", dense), ("sparse", sparse))}
    print(f"nn.Linear {times['dense']:.2f} us, operator {times['sparse']:.2f} us with both transposes")
    b = x.t().contiguous()
    out = torch.empty(facts.m, facts.n, device="cuda", dtype=kind)
    alone = graph_us(lambda: sparse.operator(b, out=out))
    print(
        f"the operator alone {alone:.2f} us in this CUDA graph, {facts.hot_us:.2f} us when it was chosen "
        f"({100 * (alone / facts.hot_us - 1):+.1f} %)"
    )


if __name__ == "__main__":
    main()
