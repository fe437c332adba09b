"""What the tile configurations of both ring kernels share: the shape of a block, and its ring of chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.ring import order
from nnzbench.kernels.ring.order import Layout, Strands
from nnzbench.plans.plan import Unsupported
from nnzbench.plans.tiles import TileConfiguration

_MOST_STAGES, _LEAST_STAGES = 16, 6
T = TypeVar("T", bound="RingTiling")


@dataclass(frozen=True)
class RingTiling(TileConfiguration):
    """Lanes of a row, what each holds, and the ring; the names are the defines of the `.cu` files."""

    CHUNKS: ClassVar[tuple[int, ...]]
    """Rows of B per chunk, the largest first."""
    LEAST_CHUNKS: ClassVar[int]
    """With fewer, a block waits for much of B before it starts."""
    MOST_AHEAD: ClassVar[int]
    """Chunks in flight where all of B stays."""

    lanes: int
    vec: int
    warps: int
    row_steps: int
    block_k: int = 0
    window: int = 0
    """Chunks that can be used in a step."""
    ahead: int = 0
    """Chunks in flight behind the window."""
    stages: int = 0
    """Chunks in shared memory: `window + ahead`, and where warps drift those that they may drift apart; or all of B."""

    @property
    def sub(self) -> int:
        """Rows that one warp advances side by side."""
        return 32 // self.lanes

    @property
    def block_n(self) -> int:
        """Columns of C per block, or length of the dot products."""
        return self.lanes * self.vec

    @property
    def row_bytes(self) -> int:
        """A row of B in the ring."""
        return 4 * self.block_n

    def chunks(self, columns: int) -> int:
        """Chunks that a block goes through."""
        return -(-columns // self.block_k)

    def with_ring(self: T, columns: int, budget: int, apart: bool = False, most_rows: int = 1 << 30) -> T | None:
        """The same with the ring of the largest chunks that fit `budget` bytes; None where no ring does.

        `apart`: stages are kept for warps to drift apart. A window has at most `most_rows` rows of B.
        """
        for block_k in self.CHUNKS:
            ring = replace(self, block_k=block_k)
            chunks = ring.chunks(columns)
            if chunks < self.LEAST_CHUNKS and block_k > self.CHUNKS[-1]:
                continue
            stages = min((budget - self.row_bytes) // (block_k * self.row_bytes), _MOST_STAGES)
            window, ahead = chunks, min(chunks, self.MOST_AHEAD)
            if stages < chunks:
                ahead = 2 if stages < 8 else 3
                window = stages - ahead - (ahead - 1) * apart
            if stages >= min(chunks, _LEAST_STAGES):
                return replace(ring, window=min(window, most_rows // block_k), ahead=ahead, stages=min(stages, chunks))
        return None

    def layout(
        self,
        strands: Strands,
        landed: NDArray[np.int64],
        bundles: NDArray[np.int64],
        first: int,
        progress: NDArray[np.float64],
        unit: int,
    ) -> Layout:
        """The stream of `strands` that advance in `bundles`; `landed` is theirs, the rest as for `order.schedule`.

        Raises `Unsupported` where a row has more nonzeros in one step than a byte can count units.
        """
        blocks = len(bundles) // (self.warps * self.row_steps)
        units, taken = order.schedule(
            order.in_bundles(landed, bundles),
            order.deadlines(progress.size, self.window, first),
            progress,
            order.warp_phases(blocks, self.warps, self.row_steps),
            unit,
        )
        if units.max(initial=0) > order.MOST_UNITS:
            raise Unsupported(
                f"a row has over {unit * order.MOST_UNITS} nonzeros in {self.window * self.block_k} columns"
            )
        return order.lay_out(units, taken, bundles, strands.lengths, self.row_steps, unit)
