"""Dealing rows of a sparse matrix to the warps of a grid, so that all carry near-equal work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def deal_rows(lengths: NDArray[np.int64], hands: int, cards: int) -> NDArray[np.int64]:
    """Deals rows to `hands` warps of `cards` rows each so that all carry near-equal nonzeros: (hands, cards), -1 empty.

    Rows go out by falling length in a snake order, which pairs each long row with a short one.
    """
    order = np.argsort(-lengths, kind="stable")
    padded = np.full(hands * cards, -1, dtype=np.int64)
    padded[: order.size] = order
    rounds = padded.reshape(cards, hands)
    rounds[1::2] = rounds[1::2, ::-1]
    return rounds.T.copy()


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
    hands = deal_rows(longest, groups, warps * row_sets).reshape(groups, row_sets, warps)
    hands[:, 1::2] = hands[:, 1::2, ::-1]
    return rows[hands.transpose(0, 2, 1)]
