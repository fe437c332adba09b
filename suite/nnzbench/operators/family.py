"""One layer's operators for several numbers of tokens, and which of them multiplies how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnzbench.devices import Device
from nnzbench.kernels.registry import AnyKernel
from nnzbench.operators.archive import Packing
from nnzbench.operators.arrays import OperatorError
from nnzbench.operators.make import remake
from nnzbench.operators.operator import Operator
from nnzbench.operators.packed import Saved


def choice(widths: Sequence[int], rows: int) -> int | None:
    """The narrowest of `widths` (ascending) that takes so many rows; None: they are more than any takes."""
    return next((n for n in widths if n >= rows), None)


@dataclass(eq=False)
class Family:
    """A layer's operators by the most tokens that each takes; None where dense is chosen. A copy is the same one."""

    m: int
    k: int
    operators: Mapping[int, Operator | None]
    widths: tuple[int, ...] = field(init=False)
    packed: tuple[int, ...] = field(init=False)
    """Widths that have an operator."""

    def __post_init__(self) -> None:
        self.widths = tuple(sorted(self.operators))
        self.packed = tuple(n for n in self.widths if self.operators[n] is not None)
        if not self.packed:
            raise OperatorError("nothing of this layer is packed: it stays dense")

    def __deepcopy__(self, memo: Any) -> Family:
        return self

    def dense(self, rows: int) -> bool:
        """Whether dense is chosen for so many tokens: where that was faster, and for more than any choice is for."""
        n = choice(self.widths, rows)
        return n is None or n not in self.packed

    def pieces(self, rows: int) -> Iterator[tuple[Operator, int, int]]:
        """Operators with the first and last row of tokens that each multiplies: one, or many of the widest."""
        start = 0
        while start < rows:
            n = choice(self.packed, rows - start) or self.packed[-1]
            operator = self.operators[n]
            assert operator is not None
            yield operator, start, min(rows, start + n)
            start += n

    @property
    def weights_bytes(self) -> int:
        """Device memory of all operators, which share arrays that are one on the host."""
        arrays = {id(one): one for each in self.operators.values() if each for one in each.packed.buffers.values()}
        return sum(one.nbytes for one in arrays.values())

    def close(self) -> None:
        """Frees the device memory, once the GPU is idle."""
        for one in self.operators.values():
            if one is not None:
                one.close()


def family(layer: Packing, saved: Mapping[int, Saved], device: Device, known: Mapping[str, AnyKernel]) -> Family:
    """The layer's operators, packed and compiled on this device, and checked where that was not done there before.

    `saved` is `Archive.saved`. Raises `OperatorError` for a layer that stays dense, and as `remake` does.
    """
    made = {n: remake(saved[n], device, known, check=True) if n in saved else None for n in layer.widths}
    return Family(layer.m, layer.k, made)
