"""Forged result sets: each lie is one sentence of `nnzbench validate`, and no damage is a traceback or a hang.

30 damaged sets are tried, or as many as `NNZBENCH_HOSTILE` says (`NNZBENCH_HOSTILE=400`).
"""

import dataclasses
import json
import os
import tempfile
import time
from functools import cache
from pathlib import Path

import fake_records
import pyarrow as pa
import pytest
from fake_records import replace_all, select
from fit_set import GPU, SNAPSHOT, faults, fit_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnzbench.core import paths
from nnzbench.results.records import record, table_files
from nnzbench.results.records.record import read_table
from nnzbench.results.records.table_files import write_parquet
from nnzbench.site.contribute import kit, snapshots
from nnzbench.site.contribute.validate import validate

SETS = max(30, int(os.environ.get("NNZBENCH_HOSTILE") or 0))
TUNING = "problem,dtype,kernel,device,policies,candidates,ok,seconds,scope,gpu_seconds,untuned\n"
TUNED = "01_64x256x3136_90_dlmc,f32,sputnik,cupy,hot+cold,2,2,0.5,all,0.25,a b\n"


@pytest.fixture(autouse=True)
def _nothing_published(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(paths, "reports", lambda: tmp_path_factory.getbasetemp() / "nowhere")


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path)


def write(root):
    made = fake_records.write(root / GPU / "sparsert_table1", fit_rows(), SNAPSHOT)
    (made / "tuning.csv").write_text(TUNING + TUNED)
    return made


def scaled(one, by, *names):
    return dataclasses.replace(one, **{name: getattr(one, name) * by for name in names if getattr(one, name)})


TIMES = ("median_us", "q1_us", "q3_us")


def lied(lie):
    """Rows and snapshot of a set that is fit but for one lie."""
    rows, snapshot = fit_rows(), json.loads(json.dumps(SNAPSHOT))
    peaks = snapshot["peaks"]
    timed = [one for one in rows if one.median_us]
    if lie == "everything / 100":
        rows = [scaled(one, 0.01, *TIMES, "limit_us", "floor_us") for one in rows]
        peaks.update(floor_hot_us=0.005, floor_cold_us=0.005)
    elif lie == "times, floors and limits / 100, peaks * 100":
        rows = [scaled(one, 0.01, *TIMES, "limit_us", "floor_us") for one in rows]
        peaks.update({name: value * (0.01 if "floor" in name else 100) for name, value in peaks.items()})
    elif lie == "limits are the floor":
        rows = [dataclasses.replace(one, limit_us=one.floor_us) if one.limit_us else one for one in rows]
    elif lie == "no peaks":
        snapshot["peaks"] = {"floor_hot_us": 0.5}
    elif lie == "clock":
        snapshot["gpu"]["sm_clock_max_mhz"] = 1500
    elif lie == "hot above cold":
        cold = [dataclasses.replace(scaled(one, 0.5, *TIMES), policy="cold") for one in timed]
        rows = [*rows, *cold]
    elif lie == "copied":
        rows = [dataclasses.replace(one, median_us=450.5, q1_us=449.25, q3_us=451.5) for one in timed]
    elif lie == "no quartiles":
        rows = [dataclasses.replace(one, q1_us=None, q3_us=None) for one in rows]
    elif lie == "wrong said ok":
        rows[0] = dataclasses.replace(rows[0], relative_error=0.3)
    return select(rows), snapshot


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ("everything / 100", "an empty kernel of 0.005 us, and no GPU is so fast"),
        ("times, floors and limits / 100, peaks * 100", "and no such GPU does more than"),
        ("limits are the floor", "limit of 8 rows is below what their work takes at the peaks"),
        ("no peaks", "lacks the peaks copy_gbs, "),
        ("clock", "8 rows ran above the highest clock in environment.json, at 1980 MHz"),
        ("hot above cold", "8 candidates are far slower hot than cold"),
        ("copied", "8 rows of several problems have the same median and quartiles, such as 450.5 us"),
        ("no quartiles", "there is a median, and no `q1_us`, `q3_us`"),
        ("wrong said ok", "line 2: the error 0.3 is above 4e-05, and the row says 'ok'"),
    ],
)
def test_what_physics_refuses(tmp_path, lie, sentence):
    rows, snapshot = lied(lie)
    folder = fake_records.write(tmp_path / GPU / "sparsert_table1", rows, snapshot)
    assert any(sentence in fault for fault in faults(folder)), faults(folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"variant": "<img src=x onerror=alert(1)>"}, "`variant` is '<img"),
        ({"source": "dlmc:`x`"}, "`source` is"),
        ({"pattern_hash": "0123ABCD"}, "`pattern_hash` is"),
        ({"gpu": "nvidia b100"}, "`gpu` is"),
        ({"experiment": "=cmd"}, "'=cmd' is not an experiment"),
        ({"reason": "<script>alert(1)</script>"}, "`reason` holds markup"),
        ({"reason": "see [this](javascript:alert(1))"}, "`reason` holds markup"),
        ({"reason": "\x1b[31mred"}, "`reason` holds control characters"),
        ({"reason": "\u202etxt"}, "`reason` holds control characters"),
        ({"reason": "a" * 1000}, "`reason` holds 1000 characters"),
        ({"sm_clock_mhz": 99999.0}, "`sm_clock_mhz` is 99999"),
        ({"m": 2**40}, "`m` is"),
        ({"samples": 10**9}, "`samples` is 1e+09"),
        ({"registers": 2**40}, "`registers` is"),
    ],
)
def test_what_is_not_in_the_alphabet_of_its_column(folder, change, sentence):
    first, *rest = fit_rows()
    replace_all(folder / "records.csv", [dataclasses.replace(first, **change), *rest])
    assert any(sentence in fault for fault in faults(folder)), faults(folder)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps({**SNAPSHOT, "source": {}}), "names no commit"),
        (json.dumps({**SNAPSHOT, "source": {"commit": "<b>"}}), "names no commit"),
        (json.dumps({**SNAPSHOT, "gpu": ["B100"]}), "has 'gpu', which is no table"),
        (json.dumps({**SNAPSHOT, "gpu": {**SNAPSHOT["gpu"], "slug": 7}}), "has 'gpu.slug' 7"),
        (json.dumps({**SNAPSHOT, "schema": {"a": 1}}), "has 'schema', which is a table"),
        (json.dumps({**SNAPSHOT, "peaks": {"copy_gbs": float("nan")}}), "has 'peaks.copy_gbs' nan"),
        (json.dumps({**SNAPSHOT, "peaks": {"copy_gbs": -1}}), "has 'peaks.copy_gbs' -1"),
        (json.dumps({**SNAPSHOT, "peaks": {"copy_gbs": "4000"}}), "has 'peaks.copy_gbs' 4000"),
        (json.dumps({**SNAPSHOT, "host": {"system": "<svg onload=x>"}}), "holds markup in 'host.system'"),
        (json.dumps({**SNAPSHOT, "host": {"<b>": "x"}}), "has a name 'host.<b>'"),
        (json.dumps({**SNAPSHOT, "gpu": {**SNAPSHOT["gpu"], "name": "NVIDIA T4"}}), "of GPU 'nvidia-t4'"),
        ('{"gpu":' + "[" * 100_000, "is not valid JSON"),
        ('{"host":' + '{"a":' * 700 + "1" + "}" * 701, "is nested too deeply|not valid JSON"),
        ('{"peaks":{"sms":' + "9" * 500 + "}}", "has 'peaks.sms'"),
        ("[]", "is not a JSON object"),
    ],
)
def test_what_a_snapshot_may_not_be(folder, text, sentence):
    (folder / "environment.json").write_text(text)
    found = faults(folder)
    assert any(word in fault for fault in found for word in sentence.split("|")), found


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (TUNED.replace("2,2,0.5", "2,2,-0.5"), "`seconds` is -0.5"),
        (TUNED.replace("2,2,0.5", "2,2,nan"), "`seconds` is nan"),
        (TUNED.replace("2,2,", "2,3,"), "more came out"),
        (TUNED.replace("a b", "<script>"), "`untuned` is '<script>'"),
        (TUNED.replace("all", "none"), "`scope` is 'none'"),
        (TUNED.replace("sputnik", "nosuch"), "there is no kernel `nosuch`"),
        ("a,b\n", "not a tuning table"),
        ('"' + "x" * 200_000 + "\n", "not a tuning table"),
    ],
)
def test_what_tuning_may_not_be(folder, line, sentence):
    (folder / "tuning.csv").write_text(TUNING + line)
    assert any(sentence in fault for fault in faults(folder)), faults(folder)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("records.csv", "pipe"), ("tuning.csv", "link"), ("memory.csv", "device"), ("environment.json", "folder")],
)
def test_what_is_no_plain_file_is_never_opened(folder, name, kind):
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/etc/passwd")
    assert faults(folder) == [f"{name} is not a plain file"]


def test_a_long_text_is_searched_in_linear_time():
    for text in ("a-" * 100_000, "/a" * 100_000, "a.b" * 60_000, "1.1.1." * 40_000, "/" + "a" * 200_000):
        started = time.process_time()
        snapshots.private(text)
        assert time.process_time() - started < 0.5
    assert snapshots.private("ada@host") == "a user at a host"
    assert snapshots.private("n1.cluster.local") == "a host name"


def test_an_archive_has_the_hashes_of_its_files(folder, tmp_path):
    packed = kit.archive(tmp_path, GPU)
    unpacked = tmp_path / "theirs"
    kit.unpack(packed, unpacked)
    theirs = unpacked / GPU / "sparsert_table1"
    assert faults(theirs) == []
    snapshot = theirs / "environment.json"
    snapshot.write_text(snapshot.read_text() + " ")
    assert faults(theirs) == ["environment.json is not the file that the manifest names"]
    (theirs / "tuning.csv").unlink()
    assert "tuning.csv is in the manifest and not in its folder" in faults(theirs)
    (unpacked / GPU / "manifest.json").write_text("[" * 100_000)
    assert faults(theirs) == ["the manifest.json above it is none"]
    (unpacked / GPU / "manifest.json").unlink()
    assert faults(theirs) == [], "archives of before there were hashes"


@pytest.mark.parametrize(
    ("change", "sentence"), [({}, "rows are more than"), ({"reason": "y" * 10_000}, "texts are long")]
)
def test_few_bytes_that_stand_for_much_are_not_unpacked(folder, monkeypatch, change, sentence):
    (folder / "records.csv").unlink()
    monkeypatch.setattr(table_files, "MOST_ROWS", 10_000)
    monkeypatch.setattr(table_files, "MOST_LETTERS", 1 << 20)
    rows = [dataclasses.replace(fit_rows()[0], **change)] * (5_000 if change else 20_000)
    write_parquet(folder / "records.parquet", pa.Table.from_pylist([vars(one) for one in rows], record.TABLE))
    assert (folder / "records.parquet").stat().st_size < 1 << 15
    (fault,) = faults(folder)
    assert sentence in fault


HOSTILE = (
    "", "nan", "-1", "1e308", "9" * 30, "f64", "hot", "true", "<script>alert(1)</script>", "=1+1", "a,b", "../x",
    "\u202e", "nm:0:0:0", "cov:x:1", "balanced:0:0", "uniform:-1", "block:0x0:1", "magnitude:x:0", "codebook_", "dlmc:",
    "weights:..", "transposed:transposed:uniform:0", "mobilenet:1:1:0", "sm_95", "conv2d", "sputnik", "0",
)  # fmt: skip
BYTES = (b"[" * 5000, b'"', b"\0", b"NaN", b"{}", b"null")


@cache
def fit():
    with tempfile.TemporaryDirectory() as root:
        folder = write(Path(root))
        write_parquet(folder / "records.parquet", read_table(folder / "records.csv"))
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@st.composite
def damages(draw):
    """A file of the set and its bytes after a few blows."""
    name = draw(st.sampled_from(sorted(fit())))
    data = fit()[name]
    for _ in range(draw(st.integers(1, 3))):
        if name.endswith(".csv") and draw(st.booleans()):
            lines = [line.split(b",") for line in data.split(b"\n")]
            line = lines[draw(st.integers(0, len(lines) - 1))]
            line[draw(st.integers(0, len(line) - 1))] = draw(st.sampled_from(HOSTILE)).encode()
            data = b"\n".join(b",".join(line) for line in lines)
            continue
        first = max(0, len(data) - 4000) if name.endswith(".parquet") and draw(st.booleans()) else 0  # its footer
        at, end = sorted((draw(st.integers(first, len(data))), draw(st.integers(first, len(data)))))
        put = draw(st.one_of(st.binary(max_size=8), st.sampled_from(BYTES)))
        data = data[:at] + put + data[min(end, at + 20) :]
    return name, data


@settings(max_examples=SETS, suppress_health_check=list(HealthCheck))
@given(damages())
def test_a_damaged_set_ends_in_sentences(damaged):
    with tempfile.TemporaryDirectory() as root:
        folder = write(Path(root))
        if damaged[0] == "records.parquet":
            (folder / "records.csv").unlink()
        (folder / damaged[0]).write_bytes(damaged[1])
        started = time.process_time()
        found = validate(folder)
        assert time.process_time() - started < 5.0
        for one in found:
            assert one.sentence.isprintable()
            assert len(one.sentence) < 1000
