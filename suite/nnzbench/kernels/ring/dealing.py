"""Dealing rows of a sparse matrix to the warps of a grid, so that all carry near-equal work."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray


def deal_rows(lengths: NDArray[np.int64], hands: int, cards: int) -> NDArray[np.int64]:
    """Deals rows to `hands` warps of `cards` rows each so that all carry near-equal nonzeros: (hands, cards), -1 empty.

    Rows go out by falling length, each to the warp that carries least and has room.
    """
    dealt = np.full((hands, cards), -1, dtype=np.int64)
    held = [0] * hands
    open_hands = [(0, hand) for hand in range(hands)]
    for row in np.argsort(-lengths, kind="stable").tolist():
        load, hand = open_hands[0]
        dealt[hand, held[hand]] = row
        held[hand] += 1
        if held[hand] < cards:
            heapq.heapreplace(open_hands, (load + int(lengths[row]), hand))
        else:
            heapq.heappop(open_hands)
    return dealt


def bundled(lengths: NDArray[np.int64], bundles: int, sub: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows in `bundles` of `sub` that advance side by side, neighbours in length: (bundles, sub), -1 empty.

    Also the length of each bundle's longest row, (bundles,).
    """
    padded = np.full(bundles * sub, -1, dtype=np.int64)
    padded[: lengths.size] = np.argsort(-lengths, kind="stable")
    rows = padded.reshape(-1, sub)
    return rows, np.append(lengths, 0)[rows].max(axis=1)  # -1 finds the 0, even where there are no rows


def deal_bundles(lengths: NDArray[np.int64], groups: int, warps: int, row_sets: int, sub: int) -> NDArray[np.int64]:
    """Deals bundles of `sub` rows to blocks: (groups, warps, row_sets, sub), -1 empty.

    Blocks, and the warps of a block, carry near-equal work.
    """
    rows, longest = bundled(lengths, groups * warps * row_sets, sub)
    blocks = deal_rows(longest, groups, warps * row_sets)
    dealt: NDArray[np.int64] = np.stack([own[deal_rows(longest[own], warps, row_sets)] for own in blocks])
    return rows[dealt]
