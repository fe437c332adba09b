"""PyTorch: linear layers of a model by packed kernels. Needs PyTorch, `nnzbench[torch]`.

* `sparsify(model, packed)`: the model's linear layers by what `nnzbench best model.safetensors --save packed` chose.
* `SparseLinear.from_linear(linear, tokens)`: one layer, its kernels chosen now.

The product with packed weights is an operator of PyTorch's (`packed_linear`), which compilers and CUDA graphs take.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

try:
    import torch
    from torch import nn
except ImportError:
    raise ImportError("nnzbench.torch needs PyTorch: pip install 'nnzbench[torch]'") from None

from nnzbench.advise import api
from nnzbench.advise.layer import BUDGET_S, PACKED_WIDTHS
from nnzbench.advise.operators import archive
from nnzbench.advise.operators.archive import Archive, Saved
from nnzbench.advise.operators.arrays import ALIGNMENT, OperatorError
from nnzbench.advise.operators.make import Family, families, family
from nnzbench.advise.operators.operator import Operator
from nnzbench.data.problems.problem import DType
from nnzbench.kernels import registry

__all__ = ["SparseLinear", "Swapped", "sparsify"]

_KINDS: dict[DType, torch.dtype] = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


_families: weakref.WeakValueDictionary[int, Family] = weakref.WeakValueDictionary()
"""By the number that stands for them in a graph; layers keep them alive."""
_numbers = itertools.count(1)


def number_of(family: Family) -> int:
    """A number for `packed_linear`, good as long as the family lives."""
    number = next(_numbers)
    _families[number] = family
    return number


@torch.library.custom_op("nnzbench::packed_linear", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
def packed_linear(x: torch.Tensor, family: int, features: int, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`x` (tokens, k) times the transposed weights (features, k), and `bias` (features): (tokens, features).

    Raises `OperatorError` for another type, shape or device.
    """
    x = x.contiguous()
    if x.data_ptr() % ALIGNMENT:
        x = x.clone()
    if bias is not None and bias.data_ptr() % ALIGNMENT:
        bias = bias.clone()
    rows = x.shape[0]
    out = x.new_empty((rows, features))
    for operator, start, end in _families[family].pieces(rows):
        whole = end - start == rows
        multiply(operator, x if whole else x[start:end], out if whole else out[start:end], bias)
    return out


def _backward(context: Any, *gradients: torch.Tensor) -> None:
    raise OperatorError("packed weights are for inference and give no gradients: train the dense layer first")


packed_linear.register_autograd(_backward)


@packed_linear.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(x: torch.Tensor, family: int, features: int, bias: torch.Tensor | None = None) -> torch.Tensor:
    return x.new_empty((x.shape[0], features))


def multiply(operator: Operator, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """Writes the product of rows of tokens that an operator takes at once, and adds the bias."""
    if bias is not None and not operator.adds_bias:
        multiply(operator, x, out)
        out += bias
        return
    n, rows = operator.facts.n, x.shape[0]
    if rows < n and not operator.fewer:
        padded = torch.nn.functional.pad(x, (0, 0, 0, n - rows))
        result = out.new_empty((n, out.shape[1]))
        multiply(operator, padded, result, bias)
        out.copy_(result[:rows])
    elif x.is_cuda:
        aligned = x.data_ptr() % ALIGNMENT == 0 and out.data_ptr() % ALIGNMENT == 0
        if aligned:
            operator(x, out=out, bias=bias)
        else:  # a piece between rows whose length is no multiple
            out.copy_(operator(x.clone(), bias=bias))
    else:  # NumPy has no bf16: there its numbers are kept as float32

        def array(one: torch.Tensor) -> Any:
            return (one.float() if one.dtype == torch.bfloat16 else one).detach().numpy()

        out.copy_(torch.from_numpy(operator(array(x), bias=None if bias is None else array(bias))))


class SparseLinear(nn.Module):  # type: ignore[misc,unused-ignore]
    """`torch.nn.Linear` with packed weights, for inference: x (..., in_features) gives (..., out_features).

    Where dense was faster for as many tokens, it multiplies by the dense `weight`. Without one, the packed weights
    multiply any number of tokens, in pieces of the most that they are for. Packed weights lie on the GPU that they were
    made on and are no part of the state dict: one with other weights is refused. They give no gradients.
    """

    def __init__(self, packed: Family, bias: nn.Parameter | None = None, weight: nn.Parameter | None = None) -> None:
        """`packed` are the operators of one layer; `weight` (out_features, in_features), dense, is kept as it is."""
        super().__init__()
        self.out_features, self.in_features = packed.m, packed.k
        self.register_parameter("bias", bias)
        self.register_parameter("weight", weight)
        self._packed, self._kind = packed, _KINDS[packed.dtype]
        self._number = number_of(packed)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        tokens: int | Sequence[int] = PACKED_WIDTHS,
        *,
        budget: float = BUDGET_S,
        keep_dense: bool = True,
    ) -> SparseLinear:
        """Chooses kernels for the layer's weights, where they lie, by at most so many `tokens`.

        Choices are made within `budget` seconds, and kept on disk by pattern, tokens, GPU and driver. Raises
        `OperatorError` where dense is faster for all of them, and for what is no linear layer.
        """
        if not isinstance(linear, nn.Linear):
            raise OperatorError(f"a {type(linear).__name__} is no torch.nn.Linear")
        device = "cpu" if linear.weight.device.type == "cpu" else None
        chosen = api.packed_layer(linear.weight, tokens, budget=budget, device=device)
        return cls(family(*chosen, api.open_device(device), registry.kernels()), *_kept(linear, keep_dense))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product, with the bias added. Raises `OperatorError` for other features or another type."""
        if not x.dim() or x.shape[-1] != self.in_features:
            raise OperatorError(
                f"an input of shape {tuple(x.shape)} has not the layer's {self.in_features} features last"
            )
        if x.dtype != self._kind:
            raise OperatorError(f"the layer was packed for {self._kind}, and its input holds {x.dtype}")
        rows = x.numel() // self.in_features
        if self.weight is not None and self._packed.dense(rows):
            return nn.functional.linear(x, self.weight, self.bias)
        result = packed_linear(x.reshape(rows, self.in_features), self._number, self.out_features, self.bias)
        return result.reshape(*x.shape[:-1], self.out_features)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        own, loaded = self.weight, state_dict.get(f"{prefix}weight")
        same = own is None or loaded is None or own.is_meta or torch.equal(loaded.to(own), own)
        if same:
            super()._load_from_state_dict(state_dict, prefix, *others)
        else:
            others[-1].append(f"the weights of '{prefix[:-1]}' are not those that were packed: pack them anew")

    def extra_repr(self) -> str:
        """Sizes, and the kernel for each number of tokens."""
        chosen = [(n, one.facts.kernel if one else "dense") for n, one in sorted(self._packed.operators.items())]
        by = ", ".join(f"{kernel} up to {n}" for n, kernel in chosen)
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, tokens: {by}"


@dataclass
class Swapped:
    """What `sparsify` did to a model, by its layers' names."""

    packed: list[str] = field(default_factory=list)
    dense: list[str] = field(default_factory=list)
    """Those that stay as they are, because dense was chosen for them."""
    absent: list[str] = field(default_factory=list)
    """Packed ones that are no `torch.nn.Linear` of this model."""
    weights_bytes: int = 0
    """Of packed weights on the GPU."""


def sparsify(model: nn.Module, packed: str | Path | Archive, *, keep_dense: bool = True) -> Swapped:
    """Puts a `SparseLinear` in the place of each linear layer that was packed, in the model itself.

    `packed` is what `nnzbench best FILE --save` wrote. The model's weights must be those that were packed, unless they
    are on the `meta` device. With `keep_dense=False` dense weights are dropped, and the packed ones multiply any number
    of tokens.
    Raises `OperatorError`, before anything is swapped, for other weights or another GPU, or where no layer is found.
    """
    found = packed if isinstance(packed, Archive) else archive.load(packed)
    swapped, made = Swapped(), {}
    linears: dict[str, nn.Linear] = {}
    for name, layer in found.layers.items():
        place = name.removesuffix(".weight")
        linear = _linear(model, place)
        if layer.dense:
            swapped.dense.append(place)
        elif linear is None:
            swapped.absent.append(place)
        else:
            where = linear.weight.device.type
            if where == "cpu" and found.gpu != "cpu":
                raise OperatorError(
                    f"'{place}' is on the processor, and was packed for {found.gpu}: move the model there"
                )
            linears[name] = linear
    if not linears:
        shown = ", ".join([*swapped.absent, *swapped.dense][:3])
        raise OperatorError(f"the model has no linear layer that was packed ({shown or 'none was'})")
    device = api.open_device("cpu" if found.gpu == "cpu" else None)
    given = [(found.layers[name], partial(found.saved, name)) for name in linears]
    for (name, linear), one in zip(linears.items(), families(given, device, registry.kernels()), strict=True):
        place = name.removesuffix(".weight")
        _require_same(place, linear, next(each.packed.saved for each in one.operators.values() if each))
        made[place] = SparseLinear(one, *_kept(linear, keep_dense))
    for place, one in made.items():
        one.train(model.training)
        parent, _, last = place.rpartition(".")
        setattr(model.get_submodule(parent), last, one)
        swapped.packed.append(place)
        swapped.weights_bytes += one._packed.weights_bytes
    return swapped


def _linear(model: nn.Module, place: str) -> nn.Linear | None:
    try:
        found = model.get_submodule(place)
    except AttributeError:
        return None
    return found if isinstance(found, nn.Linear) else None


def _kept(linear: nn.Linear, keep_dense: bool) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Bias and dense weights of a layer that packed ones replace."""
    return linear.bias, linear.weight if keep_dense and not linear.weight.is_meta else None


def _require_same(place: str, linear: nn.Linear, saved: Saved) -> None:
    """Raises `OperatorError` where the layer's weights are not those that were packed."""
    facts, kind = saved.facts, _KINDS[saved.facts.dtype]
    if tuple(linear.weight.shape) != (facts.m, facts.k) or linear.weight.dtype != kind:
        shape = f"{tuple(linear.weight.shape)} in {linear.weight.dtype}"
        raise OperatorError(f"'{place}' has weights of {shape}, and ({facts.m}, {facts.k}) in {kind} were packed")
    if linear.weight.is_meta:
        return
    matrix, device = saved.matrix, linear.weight.device
    starts, columns, values = (
        torch.from_numpy(one).to(device) for one in (matrix.offsets, matrix.indices, matrix.values)
    )
    rows = torch.arange(facts.m, device=device).repeat_interleave(starts.diff())
    dense = torch.zeros((facts.m, facts.k), dtype=kind, device=device)
    dense[rows, columns.long()] = values.to(kind)
    if not torch.equal(dense, linear.weight.detach()):
        raise OperatorError(f"the weights of '{place}' are not those that were packed: pack this model's own")
