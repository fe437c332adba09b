"""Rows of the first schema are read as those of today."""

import csv

import pyarrow.parquet as pq
import pytest
from fake_records import failed, table1, tuned

from nnzbench.results.records import schema1
from nnzbench.results.records.record import COLUMNS, append, read_records, read_table, renewed, to_row
from nnzbench.results.records.table_files import write_parquet

SAID = {"settled": "median not settled within the time limit", "throttled": "throttled (sw_power_cap)"}


@pytest.fixture
def rows():
    return [*table1()[:40], failed(table1()[0], "timeout", "no answer")]


def as_first_schema(row):
    cells = dict(zip(COLUMNS, to_row(row), strict=True))
    reason = "; ".join(
        [SAID["throttled"]] * bool(row.throttled) + [SAID["settled"]] * bool(row.median_us and not row.settled)
    )
    cells |= {"schema": schema1.SCHEMA, "pattern": row.pattern_hash, "reason": row.reason or reason}
    return [cells[name] for name in schema1.COLUMNS]


def test_names_and_sentences_become_columns_in_either_form(tmp_path, rows):
    append(tmp_path / "new.csv", rows)
    with (tmp_path / "records.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([schema1.COLUMNS, *map(as_first_schema, rows)])
    found = read_records(tmp_path / "records.csv")
    assert found == read_records(tmp_path / "new.csv")
    write_parquet(tmp_path / "records.parquet", read_table(tmp_path / "records.csv"))
    assert read_records(tmp_path / "records.parquet") == found
    old = read_table(tmp_path / "records.csv").select(schema1.COLUMNS)
    at = old.column_names.index
    old = old.set_column(at("schema"), old.schema.field("schema"), [[schema1.SCHEMA] * len(rows)])
    pq.write_table(old, tmp_path / "old.parquet")
    assert [one.label for one in read_records(tmp_path / "old.parquet")] == [one.label for one in found]
    renewed(tmp_path / "records.csv")
    assert (tmp_path / "records.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()


def test_searches_are_taken_from_the_table_beside_the_rows(tmp_path, rows):
    append(tmp_path / "records.csv", rows)
    tuned(tmp_path, lambda row: ["first"] if row.kernel == "sparsert" else ["all"] if row.kernel != "ring" else [])
    with (tmp_path / "records.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([schema1.COLUMNS, *map(as_first_schema, rows)])
    assert {(row.kernel == "sparsert", row.search) for row in read_records(tmp_path / "records.csv")} == {
        (True, "first"),
        (False, "all"),
    }
