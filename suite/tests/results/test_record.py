import csv
import dataclasses
import errno
import itertools
import os

import pytest
from fake_records import failed, record

from nnzbench.results.records.record import COLUMNS, RecordError, append, read_records, rewrite, to_row

FIXED = (
    "schema,experiment,problem,op,m,k,n,shape,dtype,sparsity,nnz,pattern,source,kernel,variant,selected,device,gpu,arch,"
    "policy,status,reason,median_us,q1_us,q3_us,samples,sm_clock_mhz,flops,bytes,limit_us,floor_us,prepare_ms,compile_ms,"
    "registers,shared_bytes,spill_bytes,code_bytes,relative_error,environment,label,level,kind,batch,count,model,place,step,"
    "pattern_hash,role,math,layout,choice,weights,work,part,settled,throttled,captured,search,metric"
)


def spoilt(path, **cells):
    """A records file of two good rows and a third with the given cells changed."""
    append(path, [record(problem="a"), record(problem="b")])
    row = dict(zip(COLUMNS, to_row(record(problem="c")), strict=True)) | cells
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(row.values())
    return path


def test_the_columns_that_other_tools_read_stay_as_they_are():
    assert ",".join(COLUMNS) == FIXED


@pytest.mark.parametrize("status", ["wrong", "unsupported", "compile-error", "launch-error", "timeout"])
def test_only_an_ok_row_can_hold_a_time_or_be_selected(status):
    blank = failed(record(), status, "why")
    for change in ({"median_us": 1.0}, {"q1_us": 1.0}, {"q3_us": 1.0}, {"selected": True}):
        with pytest.raises(RecordError, match=f"'{status}' can't hold a time"):
            dataclasses.replace(blank, **change)
    with pytest.raises(RecordError, match="needs a reason"):
        dataclasses.replace(blank, reason="")


def test_an_ok_row_needs_the_finite_error_of_its_check_and_times_that_are_some():
    for error in (None, float("nan"), float("inf")):
        with pytest.raises(RecordError, match="finite error of its check"):
            record(relative_error=error)
    for column, time in itertools.product(("median_us", "q1_us", "q3_us"), (float("nan"), float("inf"), 0.0, -1.0)):
        with pytest.raises(RecordError, match="above zero"):
            record(**{column: time})


def test_a_reason_of_several_lines_is_one_cell_and_numbers_keep_six_digits(tmp_path):
    rows = [failed(record(), "compile-error", "line 1\n  line 2\r\n"), record(median_us=12.3456789, flops=123456789.0)]
    append(tmp_path / "records.csv", rows)
    one, two = read_records(tmp_path / "records.csv")
    assert one.reason == "line 1 line 2"
    assert (tmp_path / "records.csv").read_bytes().count(b"\n") == 3
    assert (two.median_us, two.flops) == (12.3457, 1.23457e8)


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("median_us", "nan inf 1e-320"), ("q3_us", "1e300"), ("sparsity", "NaN"), ("flops", "1e999 -1"),
        ("limit_us", "-inf -0.5"), ("m", "64.5 -1"), ("nnz", f"many {2**64}"), ("selected", "True"),
        ("schema", "nnzbench/0"), ("samples", "-5 0"), ("relative_error", "-1e-9"), ("sm_clock_mhz", "-1"),
        ("compile_ms", "-1"),
    ],
)  # fmt: skip
def test_a_bad_cell_is_named_by_file_line_and_column(tmp_path, column, cells):
    for cell in (*cells.split(), *([""] if column == "m" else [])):
        path = spoilt(tmp_path / f"{cell.replace('/', '')}.csv", **{column: cell})
        said = "times must be" if cell in ("1e-320", "1e300") else f"column '{column}'"
        with pytest.raises(RecordError, match=rf"\.csv, line 4: {said}"):
            read_records(path)


@pytest.mark.parametrize("change", [lambda line: line + ",1", lambda line: line.rpartition(",")[0]])
def test_a_row_of_too_many_or_too_few_cells_is_refused(tmp_path, change):
    path = spoilt(tmp_path / "records.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], change(lines[-1])]) + "\n")
    with pytest.raises(RecordError, match=r"records\.csv, line 4: expected 60 cells"):
        read_records(path)


def test_a_last_line_that_was_cut_off_is_refused_wherever_it_was_cut(tmp_path):
    whole = spoilt(tmp_path / "records.csv").read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in (last + 1, (last + len(whole)) // 2, len(whole) - 4, len(whole) - 1):
        (tmp_path / "cut.csv").write_bytes(whole[:end])
        with pytest.raises(RecordError, match=r"cut\.csv, line 4: "):
            read_records(tmp_path / "cut.csv")


@pytest.mark.parametrize(
    ("bytes_", "said"), [(b'"open quote,\n', "unexpected end"), (b"\xff\xfe\n", "UTF-8"), (b"a\n", "line 2")]
)
def test_what_is_no_csv_is_one_sentence_too(tmp_path, bytes_, said):
    path = tmp_path / "records.csv"
    path.write_bytes(FIXED.encode() + b"\n" + bytes_)
    with pytest.raises(RecordError, match=rf"records\.csv.*{said}"):
        read_records(path)


@pytest.mark.parametrize("header", ["", FIXED.replace("median_us", "median_ms"), FIXED + ",note", FIXED[::-1]])
def test_another_header_is_another_schema(tmp_path, header):
    (tmp_path / "records.csv").write_text(header + "\n")
    with pytest.raises(RecordError, match="header is not the nnzbench/2 column list"):
        read_records(tmp_path / "records.csv")


def test_appending_writes_the_header_once_and_flushes_each_time(tmp_path, monkeypatch):
    path, synced = tmp_path / "new" / "records.csv", []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(path.read_bytes().count(b"\n")))
    append(path, [record(problem="a")])
    append(path, [record(problem="b"), record(problem="c")])
    assert synced == [2, 4]  # lines that a reader could see each time
    assert path.read_text().count("schema,") == 1
    assert [row.problem for row in read_records(path)] == ["a", "b", "c"]


def test_marking_the_selected_rows_shows_the_old_ones_until_the_new_are_whole(tmp_path):
    path = tmp_path / "records.csv"
    quoted = record(problem="b", reason='he said "no, 1_000", twice')
    rows = [record(problem="a", selected=True), quoted, failed(record(problem="c"), "wrong", "x")]
    append(path, rows)

    def flags():
        yield False
        assert [row.selected for row in read_records(path)] == [True, False, False]
        yield True
        yield False

    rewrite(path, {"selected": flags()})
    again = tmp_path / "again.csv"
    append(again, [dataclasses.replace(rows[0], selected=False), dataclasses.replace(rows[1], selected=True), rows[2]])
    assert path.read_bytes() == again.read_bytes()

    def broken():
        yield True
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewrite(path, {"selected": broken()})
    with pytest.raises(ValueError, match="shorter"):
        rewrite(path, {"selected": [True]})  # a row more than was looked at
    assert path.read_bytes() == again.read_bytes()
    assert sorted(tmp_path.iterdir()) == [again, path]


def test_the_key_tells_rows_apart_by_what_was_run_and_how():
    same = {"median_us": 9.0, "gpu": "tesla-t4", "environment": "environment-2.json", "selected": True}
    assert record(**same).key == record().key
    for change in ("experiment", "problem", "dtype", "kernel", "variant", "device", "policy"):
        assert record(**{change: "other"}).key != record().key


@pytest.mark.parametrize("there", [True, False])
def test_a_disk_that_fills_up_within_a_row_leaves_the_file_as_it_was(tmp_path, monkeypatch, there):
    path = tmp_path / "records.csv"
    if there:
        append(path, [record(problem="a")])
    before = path.read_bytes() if there else None

    def full(descriptor):  # the text is in the file by now
        assert path.stat().st_size > len(before or b"")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        append(path, [record(problem="b"), record(problem="c")])
    assert (path.read_bytes() if path.exists() else None) == before
