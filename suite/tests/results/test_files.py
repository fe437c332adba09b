"""The two forms of records: which file counts, and that nothing is lost or added between them."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import invoke
from fake_records import failed, record

from nnzbench.results.records.beside import (
    ENERGY,
    MEMORY,
    TABLES,
    TUNING,
    Environment,
    Memory,
    Tuning,
    Window,
    beside,
)
from nnzbench.results.records.folder import export, folders, has_records, records_file
from nnzbench.results.records.record import RecordError, append, read_frame, read_records, read_table
from nnzbench.results.records.table_files import MOST_BYTES, schema_of, write_parquet
from nnzbench.results.result_set import load, read_environment

TABLE = {table.file: table for table in (TUNING, MEMORY)}
ROWS = [
    record(selected=True, reason='ended early, "clearly" behind', shape="n1_c2", sparsity=0.9),
    failed(record(problem="ü, with a comma", registers=None, compile_ms=None), "unsupported", "no sm_75 form"),
    record(policy="check", device="cpu", median_us=None, q1_us=None, q3_us=None, samples=None),
]


@pytest.fixture
def folder(tmp_path):
    append(tmp_path / "gpu" / "experiment" / "records.csv", ROWS)
    return tmp_path / "gpu" / "experiment"


def test_a_journal_comes_back_from_parquet_byte_for_byte(folder):
    journal = (folder / "records.csv").read_bytes()
    published = export(folder, "parquet")
    assert [path.name for path in folder.iterdir()] == ["records.parquet"]
    assert read_records(published) == ROWS
    once = published.read_bytes()
    assert export(folder, "csv").read_bytes() == journal
    assert export(folder, "parquet").read_bytes() == once


def beside_all(folder):
    """Every table beside the rows, as a run writes them."""
    key = ("p", "f32", "sputnik", "a", "cupy")
    tuned = [Tuning("p", "f32", "sputnik", "cupy", "hot+cold", 3, 2, 0.1237, "some", 0.05, "a b"),
             Tuning("p", "f32", "cublas", "cupy", "hot", 1, 1, 1.0)]  # fmt: skip
    TUNING.add(folder, *tuned)
    MEMORY.add(folder, Memory(*key, 1, 1 << 40, 3))
    ENERGY.add(
        folder, Window(*key, 1, 2, "ok", "", 9, 0.5, 3.25, 3.5, 100.0, 80.0, None, 1980.0, "", "environment.json")
    )
    (folder / "environment.json").write_text('{"gpu": {"name": "ü"},\n "a": 1}\n', encoding="utf-8")
    (folder / "environment-2.json").write_text("{}")


def test_the_tables_beside_the_rows_change_their_form_with_them_and_say_the_same(folder):
    beside_all(folder)
    plain = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = [table.read(folder) for table in TABLES]
    export(folder, "parquet")
    names = ["energy", "environments", "memory", "records", "tuning"]
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.parquet" for name in names]
    assert [table.read(folder) for table in TABLES] == said
    assert read_environment(folder, "environment-2.json") == {}
    export(folder, "csv")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == plain


def test_a_published_set_of_before_is_read_and_one_that_a_crash_left_half_way_is_put_right(folder):
    """With CSV and JSON beside the Parquet file; and with both forms of a table, the second written whole."""
    beside_all(folder)
    said = [table.read(folder) for table in TABLES]
    plain = {path.name: path.read_bytes() for path in beside(folder)}
    write_parquet(folder / "records.parquet", read_table(folder / "records.csv"))
    (folder / "records.csv").unlink()
    assert [table.read(folder) for table in TABLES] == said
    export(folder, "parquet")
    for name, data in plain.items():
        (folder / name).write_bytes(data)
    for form in ("parquet", "csv"):
        export(folder, form)
        assert [table.read(folder) for table in TABLES] == said
        assert len(beside(folder)) == (4 if form == "parquet" else len(plain))


@pytest.mark.parametrize("name", ["../environment.json", "records.csv", "environment/a.json"])
def test_a_published_environment_is_written_nowhere_else(folder, name):
    found = pa.table({"name": [name], "text": ["{}"]}, schema_of(Environment))
    write_parquet(folder / "environments.parquet", found)
    with pytest.raises(RecordError, match="is not the name of a snapshot"):
        export(folder, "csv")


def test_a_link_in_the_place_of_a_table_is_not_followed(folder, tmp_path):
    (tmp_path / "elsewhere").write_text("secret")
    for name in ("tuning.csv", "environment.json", "memory.parquet"):
        (folder / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(RecordError, match="is a link"):
            export(folder, "csv" if name.endswith("parquet") else "parquet")
        (folder / name).unlink()


def test_an_empty_number_is_null_and_an_empty_word_is_not(folder):
    table = pq.read_table(export(folder, "parquet"))
    assert table["median_us"].null_count == 1 + 1
    assert table["variant"].null_count == table["reason"].null_count == 0
    assert (table.schema.field("nnz").type, table.schema.field("selected").type) == (pa.int64(), pa.bool_())
    assert table.schema.metadata is None


def test_the_published_file_is_read_where_there_is_no_journal_and_both_are_refused(folder):
    assert (records_file(folder).name, folders(folder.parents[1], "*/*")) == ("records.csv", [folder])
    journal = (folder / "records.csv").read_bytes()
    export(folder, "parquet")
    assert (records_file(folder).name, folders(folder.parents[1])) == ("records.parquet", [folder])
    (folder / "records.csv").write_bytes(journal)
    with pytest.raises(RecordError, match="delete the other"):
        records_file(folder)
    assert not has_records(folder.parent)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("status", "fine", "row 2: status 'fine'"),
        ("m", -1, "row 2: column 'm': -1 is not a count"),
        ("median_us", 3.0, "row 2: a row with status 'unsupported' can't hold a time"),
        ("flops", float("inf"), "row 2: column 'flops': 'inf' is not a finite number"),
        ("schema", "nnzbench/0", "row 2: column 'schema'"),
        ("kernel", None, "column 'kernel'"),
    ],
)
def test_a_row_of_parquet_that_breaks_the_schema_is_named(folder, column, value, said):
    table = read_table(folder / "records.csv")
    cells = table[column].to_pylist()
    cells[1] = value
    at = table.schema.get_field_index(column)
    spoilt = table.set_column(at, pa.field(column, table.schema.field(at).type), [cells])
    pq.write_table(spoilt, folder / "records.parquet")
    with pytest.raises(RecordError, match=rf"records\.parquet(, |: ){said}"):
        read_table(folder / "records.parquet")


def test_another_parquet_file_or_none_at_all_is_one_sentence(tmp_path):
    path = tmp_path / "records.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(RecordError, match="not the nnzbench/2 column list"):
        read_table(path)
    path.write_bytes(b"schema,experiment")
    with pytest.raises(RecordError, match="not a readable Parquet file"):
        read_table(path)


def test_a_set_without_rows_keeps_its_columns(tmp_path):
    append(tmp_path / "records.csv", [])
    assert list(read_frame(export(tmp_path, "parquet"))) == list(read_table(tmp_path / "records.parquet").column_names)


def test_what_contradicts_a_row_of_parquet_is_named_by_its_row(tmp_path):
    append(tmp_path / "records.csv", [record(), record(problem="q"), record()])
    export(tmp_path, "parquet")
    with pytest.raises(RecordError, match=r"records\.parquet, row 3, column 'variant': repeats row 1$"):
        load(tmp_path)


def test_the_command_converts_every_set_below_a_folder_in_place(folder):
    append(folder / "standin" / "records.csv", ROWS)
    result = invoke("export", folder.parents[1], "--to", "parquet")
    assert (result.exit_code, result.stdout.split(" as ")[0]) == (0, "2 result sets")
    assert {path.name for path in folder.rglob("records.*")} == {"records.parquet"}


def test_the_command_leaves_the_sets_alone_where_it_writes_elsewhere(folder, tmp_path):
    out = tmp_path / "out"
    assert invoke("export", folder.parents[1], "--to", "csv", "--out", out).exit_code == 0
    assert (out / "gpu/experiment/records.csv").read_bytes() == (folder / "records.csv").read_bytes()


def test_the_command_refuses_what_holds_no_records_and_two_sets_for_one_place(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    nothing = invoke("export", tmp_path / "empty", "--to", "csv")
    assert (nothing.exit_code, "holds no records" in nothing.output) == (2, True)
    append(tmp_path / "other" / "records.csv", ROWS)
    both = invoke("export", folder, tmp_path / "other", "--to", "csv", "--out", tmp_path / "out")
    assert (both.exit_code, "would both be written" in both.output) == (2, True)
    assert not (tmp_path / "out").exists()


def test_the_file_is_on_disk_before_it_stands_under_its_name(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append((folder / "records.parquet").exists()))
    write_parquet(folder / "records.parquet", read_table(folder / "records.csv"))
    assert synced == [False]


@pytest.mark.parametrize("kind", ["long", "pipe", "device"])
@pytest.mark.parametrize("command", ["compare", "export"])
def test_what_is_no_plain_file_of_a_fit_size_is_one_sentence_and_not_read(folder, tmp_path, kind, command):
    """Reading them takes all memory, or waits for ever."""
    other = tmp_path / "other" / "records.csv"
    append(other, ROWS)
    path = folder / "records.csv"
    if kind == "long":
        os.truncate(path, MOST_BYTES + 1)  # sparse
    else:
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    call = {
        "compare": ("compare", str(path), str(other)),
        "export": ("export", str(folder), "--to", "parquet", "--out", str(tmp_path / "out")),
    }[command]
    done = invoke(*call)
    assert done.exit_code == 2, done.output
    with pytest.raises(RecordError):  # as a report reads it
        load(folder)
    assert "is longer than" in done.output or "is not a plain file" in done.output or "is a link" in done.output


@pytest.mark.parametrize("name", ["tuning.csv", "memory.csv", "environment.json"])
def test_what_lies_beside_records_is_held_to_a_size_too(folder, name):
    (folder / name).touch()
    os.truncate(folder / name, MOST_BYTES + 1)
    with pytest.raises(RecordError, match="is longer than"):
        read_environment(folder, name) if name.endswith("json") else TABLE[name].read(folder)
