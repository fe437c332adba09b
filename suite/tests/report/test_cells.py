"""The cells of the map: one for each layer, width and level, of the right rows of the records."""

from __future__ import annotations

import pandas as pd

from nnzbench.results import nearby
from nnzbench.results.nearby import cells
from nnzbench.results.selector import dense_of


def layer(**changes: object) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys((*nearby.COLUMNS, "level"), 0) | {
        "op": "spmm", "math": "f16", "pattern": "unstructured", "policy": "hot", "baseline": dense_of("f16").label,
        "rows": 8192, "inner": 8192, "columns": 16, "zeros": 90.001, "ratio": 2.0, "tuned": True,
        "kernel": "tensor_spmm", "experiment": "pays_map", "kind": "uniform", "level": 90.0,
    }  # fmt: skip
    return {**row, **changes}


def cells_of(*rows: dict[str, object]) -> pd.DataFrame:
    return cells(pd.DataFrame(list(rows), columns=[*nearby.COLUMNS, "kind", "level"]))


def test_a_cell_has_its_level_its_ratio_and_its_place_among_the_layers():
    found = cells_of(layer(columns=3), layer())
    assert found.index.tolist() == [1]
    assert found[["columns", "level", "ratio", "kernel"]].values.tolist() == [[16, 90.0, 2.0, "tensor_spmm"]]


def test_other_patterns_levels_widths_operations_and_baselines_are_no_cells():
    others = (
        layer(kind="magnitude"),
        layer(level=85.0),
        layer(level=float("nan")),
        layer(columns=2048),
        layer(op="sddmm"),
        layer(baseline=dense_of("f32").label),
        layer(math="tf32"),
    )
    assert cells_of(*others).empty
    assert cells_of().empty


def test_of_two_records_the_tuned_one_counts_and_then_that_of_the_map():
    elsewhere = {"experiment": "llm_layers"}
    assert cells_of(layer(ratio=1.5, **elsewhere), layer()).loc[1, "ratio"] == 2.0
    assert cells_of(layer(tuned=False), layer(ratio=1.5, **elsewhere))["ratio"].tolist() == [1.5]
    assert len(cells_of(layer(), layer(policy="cold"), layer(inner=4096), layer(columns=32))) == 4
