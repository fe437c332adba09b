"""The product with packed weights as an operator of PyTorch's, which compilers and CUDA graphs take as it is."""

from __future__ import annotations

import itertools
import weakref

import torch

from nnzbench.operators.arrays import ALIGNMENT
from nnzbench.operators.family import Family
from nnzbench.operators.operator import Operator

_families: weakref.WeakValueDictionary[int, Family] = weakref.WeakValueDictionary()
"""By the number that stands for them in a graph; layers keep them alive."""
_numbers = itertools.count(1)


def number_of(family: Family) -> int:
    """A number for `packed_linear`, good as long as the family lives."""
    number = next(_numbers)
    _families[number] = family
    return number


@torch.library.custom_op("nnzbench::packed_linear", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
def packed_linear(x: torch.Tensor, family: int, features: int) -> torch.Tensor:
    """`x` (tokens, k) times the transposed weights (features, k): (tokens, features), by the family's operators.

    Raises `OperatorError` for another type, shape or device.
    """
    x = x.contiguous()
    if x.data_ptr() % ALIGNMENT:
        x = x.clone()
    rows = x.shape[0]
    out = x.new_empty((rows, features))
    for operator, start, end in _families[family].pieces(rows):
        whole = end - start == rows
        multiply(operator, x if whole else x[start:end], out if whole else out[start:end])
    return out


@packed_linear.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(x: torch.Tensor, family: int, features: int) -> torch.Tensor:
    return x.new_empty((x.shape[0], features))


def multiply(operator: Operator, x: torch.Tensor, out: torch.Tensor) -> None:
    """Writes the product of rows of tokens that an operator takes at once."""
    n, rows = operator.facts.n, x.shape[0]
    if rows < n and not operator.fewer:
        padded = torch.nn.functional.pad(x, (0, 0, 0, n - rows))
        result = out.new_empty((n, out.shape[1]))
        multiply(operator, padded, result)
        out.copy_(result[:rows])
    elif x.is_cuda:
        aligned = x.data_ptr() % ALIGNMENT == 0 and out.data_ptr() % ALIGNMENT == 0
        if aligned:
            operator(x, out=out)
        else:  # a piece between rows whose length is no multiple
            out.copy_(operator(x.clone()))
    else:  # NumPy has no bf16: there its numbers are kept as float32
        bf16 = x.dtype == torch.bfloat16
        given = (x.float() if bf16 else x).detach().numpy()
        out.copy_(torch.from_numpy(operator(given)))
