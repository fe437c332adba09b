"""What estimates are made from: records and a trial's times as they are read, and what is refused of them."""

from dataclasses import replace

import pandas as pd
import pytest
from fake_records import failed, record
from law_records import RECORDS

from nnzbench.advise.recorded import load, trial_rows
from nnzbench.data.matrices import index
from nnzbench.papers.predict.estimator import Sizes
from nnzbench.results.records.folder import export, records_file
from nnzbench.results.records.record import RecordError, append, read_frame, read_some


@pytest.mark.parametrize(
    "damaged",
    [
        lambda text: b"",
        lambda text: text.replace(b"schema", b"x", 1),
        lambda text: text.replace(b",256,", b",zwei,"),
        lambda text: b"\xff\xfe" + text,
    ],
)
def test_damaged_records_are_one_sentence(tmp_path, damaged):
    path = tmp_path / "nvidia-h200" / "e" / "records.csv"
    append(path, RECORDS[:30])
    path.write_bytes(damaged(path.read_bytes()))
    with pytest.raises(RecordError):
        load("nvidia-h200", [tmp_path])


@pytest.mark.parametrize("published", [False, True])
def test_some_columns_are_those_of_the_rows_that_count(tmp_path, published):
    columns = ["kernel", "variant", "median_us", "floor_us", "nnz"]
    append(tmp_path / "records.csv", [*RECORDS[:30], failed(RECORDS[31], "unsupported", "no GPU")])
    if published:
        export(tmp_path, "parquet")
    path = records_file(tmp_path)
    whole = read_frame(path)
    wanted = whole[whole["selected"] & (whole["status"] == "ok")][columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(read_some(path, columns).reset_index(drop=True), wanted)


@pytest.mark.parametrize("name", ["records.csv", "tuning.csv"])
def test_a_linked_file_is_refused(tmp_path, name):
    folder = tmp_path / "nvidia-h200" / "e"
    append(folder / "records.csv", RECORDS[:30])
    (folder / "tuning.csv").write_text("problem,dtype,kernel,device,policies,candidates,ok,seconds,scope\n")
    load("nvidia-h200", [tmp_path])
    (folder / name).rename(tmp_path / "elsewhere.csv")
    (folder / name).symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(RecordError):
        load("nvidia-h200", [tmp_path])


@pytest.mark.parametrize("damage", ["{", "[]", '{"matrix": "no/such.smtx", "measured": {}}', "link"])
def test_a_damaged_trial_is_one_sentence(tmp_path, damage):
    append(tmp_path / "nvidia-h200" / "e" / "records.csv", RECORDS[:30])
    path = tmp_path / "nvidia-h200" / "best_trial" / "trial.jsonl"
    path.parent.mkdir()
    if damage == "link":
        path.symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").write_text("")
    else:
        path.write_text(damage + "\n")
    with pytest.raises(RecordError, match=r"trial\.jsonl"):
        load("nvidia-h200", [tmp_path])


def test_tf32_is_told_from_fp32_by_what_its_kernel_says(tmp_path):
    rows = [record(kernel=kernel, variant="n32", selected=True) for kernel in ("tensor_spmm_tf32", "ring")]
    append(tmp_path / "nvidia-h200" / "e" / "records.csv", rows)
    found = load("nvidia-h200", [tmp_path])._frame
    assert dict(zip(found["kernel"], found["math"], strict=True)) == {"tensor_spmm_tf32": "tf32", "ring": "f32"}
    tried = {"matrix": next(iter(index.dlmc())), "dtype": "f32", "n": 32, "measured": {"tensor_spmm_tf32": 5.0}}
    assert list(trial_rows([tried])["math"]) == ["tf32"]


def test_rows_of_a_source_can_be_left_out_and_a_trials_times_joined(tmp_path):
    """Invented times of neighbouring widths, a fifth above what is recorded, are believed; other kernels stay."""
    name = next(iter(index.dlmc()))
    rows = [replace(row, source=f"dlmc:{name}" if at < 9 else row.source) for at, row in enumerate(RECORDS)]
    append(tmp_path / "nvidia-h200" / "sputnik_rnn" / "records.csv", rows)
    everything = load("nvidia-h200", [tmp_path])
    left = load("nvidia-h200", [tmp_path], frozenset([f"dlmc:{name}"]))
    assert len(left._frame) == len(everything._frame) - 9
    before, entry = left.models("spmm", "f32"), index.dlmc()[name]
    widths = (24, 28, 36, 40)
    said = before["cublas", "f32", "hot"].at([Sizes(entry.rows, entry.cols, n, entry.nnz) for n in (*widths, 32)])
    tried = [
        {"matrix": name, "dtype": "f32", "n": n, "measured": {"cublas": 1.2 * float(us)}}
        for n, us in zip(widths, said, strict=False)
    ]
    here = left.joined(trial_rows(tried)).models("spmm", "f32")
    (found,) = here["cublas", "f32", "hot"].at([Sizes(entry.rows, entry.cols, 32, entry.nnz)])
    assert float(found) == pytest.approx(1.2 * float(said[-1]), rel=0.07)
    assert here["sputnik", "f32", "hot"] is before["sputnik", "f32", "hot"]
    with pytest.raises(ValueError, match="is no time"):
        trial_rows([{**tried[0], "measured": {"cublas": -1.0}}])


def test_a_gpu_is_found_by_some_words_of_its_name(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", RECORDS)
    assert load("H200", [tmp_path]).gpu == "nvidia-h200"
    append(tmp_path / "nvidia-a100/sputnik_rnn/records.csv", RECORDS)
    with pytest.raises(RecordError, match="may be any of nvidia-a100, nvidia-h200"):
        load("nvidia", [tmp_path])


def test_the_refusal_names_the_gpus_that_can_be_predicted(tmp_path):
    append(tmp_path / "nvidia-h200" / "e" / "records.csv", RECORDS[:30])
    with pytest.raises(RecordError, match=r"there are records of nvidia-h200\), .*: did you mean nvidia-l4\?$"):
        load("l40s", [tmp_path])


@pytest.mark.parametrize("gpu", ["nvidia-a100-sxm4-80gb", "cpu"])
def test_runs_without_any_time_are_no_records_to_estimate_from(tmp_path, gpu):
    """Such as a run on the processor, or one in which everything was refused."""
    here, folder = tmp_path / "here", tmp_path / "published"
    append(folder / "nvidia-h200" / "sputnik_rnn" / "records.csv", RECORDS)
    refused = [failed(row, "unsupported", "no GPU") for row in RECORDS[:2]]
    append(here / gpu / "mine" / "records.csv", refused)
    if gpu == "cpu":
        with pytest.raises(RecordError, match=r"nothing is recorded on 'cpu' \(there are records of nvidia-h200\)"):
            load(gpu, [here, folder])
    else:
        assert load(gpu, [here, folder]).target
    with pytest.raises(RecordError, match=f"nothing is recorded on '{gpu}'"):
        load(gpu, [here])
