"""`nnzbench validate`: every rule is broken once, on a set of a second, invented GPU."""

import dataclasses
import json

import fake_records
import pytest
from commands import invoke
from fake_records import replace_all, select
from fit_set import ENTRY, GPU, PROBLEM, SNAPSHOT, SPARSITY, faults, fit_rows, row

from nnzbench.core import paths
from nnzbench.data.matrices import generate
from nnzbench.data.problems import tables
from nnzbench.results.records.beside import MEMORY, Memory
from nnzbench.results.records.record import append
from nnzbench.site.contribute.validate import validate


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch):
    """Where published records lie: none, and not those of this project, whose matrices have other patterns."""
    monkeypatch.setattr(paths, "reports", lambda: tmp_path / "published")
    return tmp_path / "published"


@pytest.fixture
def rows():
    return fit_rows()


@pytest.fixture
def folder(tmp_path, rows):
    return fake_records.write(tmp_path / GPU / "sparsert_table1", rows, SNAPSHOT)


def notes(folder):
    return [finding.sentence for finding in validate(folder) if not finding.fault]


def command(*arguments):
    return invoke("validate", *arguments)


def test_a_good_set_has_no_faults_and_names_what_it_lacks(folder):
    assert faults(folder) == []
    (missing,) = [note for note in notes(folder) if "problems" in note]
    assert missing.startswith("27 of 31 problems of sparsert_table1 are missing: `03_128x512x784_90`")
    assert any("`cublas`" in note and "`row_stream`" in note for note in notes(folder))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu": "tesla-t4"}, "of gpu 'nvidia-b100' and its rows are of `tesla-t4`"),
        ({"experiment": "sparsert_table3"}, "of experiment 'sparsert_table1' and its rows are of `sparsert_table3`"),
        ({"device": "cpu"}, "1 rows are from the processor"),
        ({"m": 65, "nnz": 1664}, "disagree on what it is: `01_64x256x3136_90_dlmc`"),
        ({"pattern_hash": "feedbeef"}, "disagree on what it is"),
        ({"variant": "b"}, "1 rows are there more than once"),
        ({"selected": True}, "`selected` does not mark"),
        ({"environment": "environment-9.json"}, "'environment-9.json' is missing"),
        ({"environment": "../environment.json"}, "line 2: `environment` is '../environment.json', which no"),
        ({"kernel": "no_such_kernel"}, "no kernel `no_such_kernel` in this version"),
        ({"problem": "99_64x256x3136_90_dlmc"}, "sparsert_table1 has no problem `99_64x256x3136_90_dlmc`"),
        ({"sparsity": 0.91}, f"line 2: `sparsity` is 0.91 and {ENTRY.nnz} nonzeros make {SPARSITY:g}"),
        ({"op": "bmm"}, "line 2: `op` is 'bmm', which is none of conv1d"),
        ({"dtype": "f64"}, "line 2: `dtype` is 'f64', which is none of"),
        ({"device": "tpu"}, "line 2: `device` is 'tpu', which is none of"),
        ({"policy": "warm"}, "line 2: `policy` is 'warm', which is none of"),
        ({"arch": "sm_95"}, "line 2: `arch` is 'sm_95', which is none of sm_70"),
        ({"n": 0}, "line 2: `n` is 0"),
        ({"nnz": 20_000}, "line 2: 20000 nonzeros do not fit a matrix of 16384 elements"),
        ({"flops": 1e6}, "line 2: `flops` is 1e+06 where"),
        ({"median_us": 0.04, "q1_us": 0.039, "q3_us": 0.041}, "line 2: the median 0.04 us is below the time"),
        ({"limit_us": 0.1}, "line 2: the limit 0.1 us is below the time of an empty kernel"),
        ({"limit_us": 17.0}, "line 2: the median 4 us is below a quarter of what this GPU could take, 17 us"),
        ({"floor_us": 0.7}, "environment.json has a hot floor of 0.5 us, and its rows say 0.7 us"),
        ({"source": "dlmc:rn50/nosuch.smtx"}, "dlmc:rn50/nosuch.smtx is not in the index of that collection"),
        ({"q3_us": 3.95}, "line 2: the median 4 us is not between its quartiles 3.9 and 3.95"),
        ({"median_us": None, "q1_us": None, "q3_us": None}, "line 2: a row with status 'ok' has no time"),
        ({"reason": "ptxas /opt/ada/x.cu: no"}, "line 2: `reason` or `variant` holds a path"),
    ],
)
def test_each_fault_of_a_row_is_found(folder, rows, change, sentence):
    replace_all(folder / "records.csv", [dataclasses.replace(rows[0], **change), *rows[1:]])
    assert any(sentence in fault for fault in faults(folder)), faults(folder)


@pytest.mark.parametrize("change", [{"role": "own"}, {"weights": "unpruned"}, {"math": "f16"}, {"work": "dense"}])
def test_a_row_can_not_claim_to_be_of_another_kind_of_kernel(folder, rows, change):
    """Whose a row is decides which claims it judges."""
    first, *rest = select(rows)
    assert all(getattr(first, name) != value for name, value in change.items())
    (folder / "records.csv").unlink()
    append(folder / "records.csv", [dataclasses.replace(first, **change), *rest])
    ((name, value),) = change.items()
    assert any(f"have the {name} '{value}', which is" in fault for fault in faults(folder)), faults(folder)


def replaced(folder, rows, **changes):
    """All rows with changes, as a source or a count must be in all of them to be wrong."""
    replace_all(folder / "records.csv", [dataclasses.replace(one, **changes) for one in rows])
    return faults(folder)


def test_counts_and_sizes_are_those_of_the_index(folder, rows):
    count = ENTRY.nnz - 1
    found = replaced(folder, rows, nnz=count, sparsity=1 - count / (64 * 256), flops=2.0 * count * 3136)
    assert any(f"has {ENTRY.nnz} nonzeros, and 01_64x256x3136_90_dlmc has {count}" in fault for fault in found)
    found = replaced(folder, rows, m=32, nnz=100, sparsity=1 - 100 / (32 * 256), flops=2.0 * 100 * 3136)
    assert any("is 64 x 256, and 01_64x256x3136_90_dlmc has 32 x 256" in fault for fault in found)
    mixed = [*rows[:3], *(dataclasses.replace(one, pattern_hash="feedbeef") for one in rows[3:])]
    replace_all(folder / "records.csv", mixed)
    assert any("has two patterns, 0123abcd and feedbeef" in fault for fault in faults(folder))


def published_as(reports, rows, pattern, experiment="sputnik_dlmc", gpu="nvidia-h200"):
    changed = [dataclasses.replace(one, pattern_hash=pattern, experiment=experiment, gpu=gpu) for one in rows]
    return fake_records.write(reports / gpu / experiment, changed, SNAPSHOT)


def test_patterns_of_real_matrices_are_those_of_published_records_of_any_gpu(folder, rows, reports):
    published_as(reports, rows, rows[0].pattern_hash)
    assert faults(folder) == []
    published_as(reports, rows, "feedbeef", gpu="tesla-t4")
    assert faults(folder) == [
        f"the pattern of 1 of its 1 real matrices is not that of published records: `dlmc:{ENTRY.path}` is 0123abcd "
        "here and feedbeef in tesla-t4/sputnik_dlmc"
    ]
    assert command(folder).exit_code == 1
    made = {"source": "standin:x", "pattern_hash": "0" * 16}
    assert not any("published" in fault for fault in replaced(folder, rows, **made)), "only a real one is a given one"


def test_published_sets_agree_on_the_pattern_of_a_real_matrix(rows, reports):
    sets = [published_as(reports, rows, "0123abcd", name) for name in ("sparsert_table1", "sputnik_dlmc")]
    assert not any("published" in fault for one in sets for fault in faults(one))
    replace_all(sets[1] / "records.csv", [dataclasses.replace(one, pattern_hash="feedbeef") for one in rows])
    told = [fault for one in sets for fault in faults(one) if "published" in fault]
    assert [fault.rpartition(" in ")[2] for fault in told] == [
        "nvidia-h200/sputnik_dlmc",
        "nvidia-h200/sparsert_table1",
    ]
    (sets[1] / "records.csv").write_text("schema,\n\0")
    assert not any("published" in fault for fault in faults(sets[0])), "a broken file is a fault of its own"


def test_generated_patterns_are_made_again(folder, rows):
    made = generate.uniform(64, 256, 0.9, 3)
    facts = {"nnz": made.nnz, "sparsity": made.sparsity, "flops": 2.0 * made.nnz * 3136, "source": "uniform:3"}
    good = {**facts, "pattern_hash": made.pattern_hash()}
    assert replaced(folder, rows, **good) == []
    assert any("makes the pattern" in fault for fault in replaced(folder, rows, **{**good, "pattern_hash": "0" * 16}))
    count = {"nnz": 1000, "sparsity": 1 - 1000 / (64 * 256), "flops": 2.0 * 1000 * 3136}
    assert any(f"makes {made.nnz} nonzeros for" in fault for fault in replaced(folder, rows, **{**good, **count}))


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (",4,3.9,", ",4,1_000,", "line 2: column 'q1_us': '1_000' is not a plain number"),
        (",30,1980,", ", 30,1980,", "line 2: column 'samples': ' 30' is not a plain number"),
        (",hot,", ",h\0t,", "line 2: it holds a NUL byte"),
        (",ok,", ",fine,", "line 2: status 'fine' is not one of"),
    ],
)
def test_a_file_that_breaks_the_schema_is_unfit_and_named_by_line(folder, before, after, sentence):
    path = folder / "records.csv"
    path.write_text(path.read_text().replace(before, after, 1))
    assert any(sentence in fault for fault in faults(folder)), faults(folder)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("gpu", {}, "does not describe the GPU"),
        ("gpu", {"name": "Tesla T4", "slug": "tesla-t4"}, "is of GPU 'tesla-t4' and its rows are of 'nvidia-b100'"),
        ("schema", "other/1", "of schema 'other/1'"),
        ("host", {"hostname": "n017"}, "holds a name of the machine in 'host.hostname'"),
        ("host", {"processor": "node3.cluster.local"}, "holds a host name in 'host.processor'"),
        ("overrides", {"cuda_cache": "/opt/ada/cache"}, "holds a path in 'overrides.cuda_cache'"),
        ("host", {"system": "10.1.2.3"}, "holds a network address in 'host.system'"),
        ("gpu", {"name": "B100", "id": "GPU-0123abcd-ffff"}, "holds a serial number in 'gpu.id'"),
    ],
)
def test_each_fault_of_a_snapshot_is_found(folder, key, value, sentence):
    (folder / "environment.json").write_text(json.dumps({**SNAPSHOT, key: value}))
    assert any(sentence in fault for fault in faults(folder)), faults(folder)


def test_what_readers_should_know_is_a_note_and_no_fault(folder):
    changed = {**SNAPSHOT, "source": {"commit": "cd" * 20, "dirty": True}}
    (folder / "environment.json").write_text(json.dumps(changed))
    (folder / "environment-2.json").write_text("{}")
    assert faults(folder) == []
    assert any("differed from commit cdcdcdcdcdcd" in note for note in notes(folder))
    assert any("no row refers to the snapshot 'environment-2.json'" in note for note in notes(folder))


def test_sparsity_is_of_the_pattern_whatever_the_op(folder):
    count = ENTRY.nnz
    of_pattern = [
        row(op="sddmm", k=32, n=256, flops=64.0 * count),
        row("02_256x64x3136_90_dlmc", op="sparse_softmax", k=256, n=1, flops=4.0 * count),
    ]
    replace_all(folder / "records.csv", select(of_pattern))
    assert not any("nonzeros make" in fault for fault in faults(folder))
    replace_all(folder / "records.csv", select([row(op="sddmm", k=256, n=32, flops=512.0 * count)]))
    assert any(f"nonzeros make {1 - count / (64 * 32):g}" in fault for fault in faults(folder))


def test_rows_of_a_retired_kernel_are_valid(folder, rows):
    replace_all(folder / "records.csv", select([*rows, dataclasses.replace(rows[0], kernel="panel")]))
    assert not any("panel" in fault for fault in faults(folder))


def test_a_kernel_without_a_row_and_a_policy_without_a_row_are_named(folder, rows):
    more = [dataclasses.replace(rows[0], kernel="panel"), dataclasses.replace(rows[0], policy="cold")]
    replace_all(folder / "records.csv", select([*rows, *more]))
    assert any("`panel` (f32) has no row for `02_256x64x3136_90_dlmc`" in note for note in notes(folder))
    assert any("candidates have no cold row, such as sparsert_table1 01_64x256" in note for note in notes(folder))


def test_a_quick_run_is_unfit(folder):
    table = sorted(tables.rows("sparsert_table1"), key=lambda p: p.m * p.k * p.n)[:3]
    replace_all(folder / "records.csv", select([row(problem.name, variant="a") for problem in table]))
    assert any("as a --quick run has" in fault for fault in faults(folder))


def test_real_patterns_do_not_pass_as_stand_ins(folder, rows):
    below = fake_records.write(folder / "standin", rows, SNAPSHOT)
    assert faults(below) == [f"it lies in standin/ and has rows on real patterns: `dlmc:{ENTRY.path}`"]


def test_a_folder_without_records_is_not_a_result_set(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "results", lambda: tmp_path / "none")
    result = command(tmp_path)
    assert result.exit_code == 2
    assert "is not a result set" in result.output
    assert command(tmp_path / "nowhere").exit_code == 2
    assert command().exit_code == 2


def test_a_users_own_matrices_are_no_result_set(tmp_path, rows):
    tree = tmp_path / "tree"
    own = fake_records.write(tree / GPU / "mine", rows, SNAPSHOT)
    alone = command(tree)
    assert alone.exit_code == 2
    assert "your own matrices alone" in alone.output
    assert command(own).exit_code == 1  # named, it is looked at
    fake_records.write(tree / GPU / "sparsert_table1", rows, SNAPSHOT)
    assert f"{own}:" not in command(tree).output


def test_the_command_takes_whole_trees_and_tells_json(folder, tmp_path):
    other = tmp_path / GPU / "sparsert_table3"
    fake_records.write(other, [row(PROBLEM, experiment="sparsert_table3", sparsity=0.5, gpu=GPU)], SNAPSHOT)
    result = command(tmp_path, "--json")
    assert result.exit_code == 1
    good, bad = json.loads(result.output)
    assert (good["fit"], bad["fit"]) == (True, False)
    assert any("`sparsity` is 0.5" in fault for fault in bad["faults"])
    text = command(folder, folder / "records.csv")
    assert text.exit_code == 0
    assert text.output.count(": fit") == 1


def test_memory_is_of_rows_that_are_ok(folder, rows):
    ok, wrong = rows[0], rows[-1]
    MEMORY.add(folder, Memory(ok.problem, ok.dtype, ok.kernel, ok.variant, ok.device, 1, 2, 1))
    assert faults(folder) == []
    MEMORY.add(folder, Memory(wrong.problem, wrong.dtype, wrong.kernel, wrong.variant, wrong.device, 1, 2, 1))
    (fault,) = faults(folder)
    assert fault.startswith(f"memory.csv has memory of what has no row that is ok: `{wrong.problem} f32")
    (folder / MEMORY.file).write_text("problem,dtype\n1,2\n", encoding="utf-8")
    (fault,) = faults(folder)
    assert fault.startswith("memory.csv: not a table of memory")


def test_an_empty_file_is_unfit(folder):
    replace_all(folder / "records.csv", [])
    assert faults(folder) == ["it has no rows"]
