"""Answers without the GPU: from records whose times follow a law that the estimate has to find."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner
from fake_records import record
from own_files import has_safetensors, write_all

from nnzbench.advise import estimate
from nnzbench.advise import layer as layers
from nnzbench.advise.measured import Question
from nnzbench.advise.model import Sizes
from nnzbench.advise.recorded import load, trial_rows
from nnzbench.cli import main
from nnzbench.matrices import index
from nnzbench.records.record import RecordError, append


def law(kernel, m, k, n, nnz):
    """Microseconds that the invented GPU takes."""
    return 4.0 + 2e-9 * m * k * n if kernel == "cublas" else 2.0 + 2e-8 * nnz * n + 1e-7 * m * n


def records():
    rows = []
    for m in (256, 512, 1024, 2048):
        for k in (256, 1024, 2048):
            for n in (8, 64, 512):
                for level in (0.8, 0.95):
                    nnz = round(m * k * (1 - level))
                    for kernel, variant in (("cublas", "f32_x"), ("sputnik", "v"), ("balanced", "paper_w8")):
                        us = law(kernel, m, k, n, nnz)
                        rows.append(
                            record(
                                experiment="sputnik_rnn", problem=f"{m}x{k}x{n}_{level}", m=m, k=k, n=n, nnz=nnz,
                                sparsity=level, kernel=kernel, variant=variant, selected=True, median_us=us, q1_us=us,
                                q3_us=us,
                            )
                        )  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reports")
    append(path / "nvidia-h200" / "sputnik_rnn" / "records.csv", records())
    return path


@pytest.fixture(scope="module")
def recorded(folder):
    return load("nvidia-h200", [folder])


def test_a_kernel_that_computes_in_tf32_alone_is_no_answer_in_fp32(tmp_path):
    fast = [replace(row, kernel="tensor_spmm_tf32", median_us=row.median_us / 100) for row in records()]
    append(tmp_path / "nvidia-h200/llm_layers/records.csv", [row for row in fast if row.variant == "v"])
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    (layer,) = layers.load(["768x1536@0.9"])
    found = estimate.answer(layer, Question((32,)), load("nvidia-h200", [tmp_path])).widths[0]
    assert (found.entries[0].kernel, found.entries[0].math) == ("tensor_spmm_tf32", "tf32")
    assert found.sparse("f32").kernel == "sputnik"


def test_times_between_those_recorded_are_found(recorded):
    (layer,) = layers.load(["768x1536@0.9"])
    found = estimate.answer(layer, Question((32,)), recorded)
    times = {one.kernel: one.hot_us for one in found.widths[0].entries}
    for kernel in ("cublas", "sputnik"):
        assert times[kernel] == pytest.approx(law(kernel, 768, 1536, 32, layer.matrix.nnz), rel=0.1)
    assert found.estimated
    assert all(one.uncertainty < 0.1 for one in found.widths[0].timed())
    assert found.widths[0].near[0].octaves < 2


def test_a_kernel_whose_times_follow_no_law_gets_no_estimate(tmp_path):
    """Where a problem of the same sizes is recorded, it has those times."""
    wild = np.random.default_rng(0).choice([0.05, 1.0, 20.0], len(records()))
    rows = [
        replace(row, median_us=row.median_us * by) if row.kernel == "sputnik" else row
        for row, by in zip(records(), wild.tolist(), strict=True)
    ]
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", rows)
    (layer,) = layers.load(["768x1536@0.9"])
    found = estimate.answer(layer, Question((32,)), load("nvidia-h200", [tmp_path])).widths[0]
    (sputnik,) = (one for one in found.entries if one.kernel == "sputnik")
    assert (sputnik.us, sputnik.unestimated) == (None, True)
    assert sputnik.reason.startswith("estimates of it are off by ")
    (same,) = layers.load(["512x1024@0.8"])
    found = estimate.answer(same, Question((64,)), load("nvidia-h200", [tmp_path])).widths[0]
    (sputnik,) = (one for one in found.entries if one.kernel == "sputnik")
    (row,) = (row for row in rows if (row.kernel, row.problem) == ("sputnik", "512x1024x64_0.8"))
    assert sputnik.recorded
    assert sputnik.us == pytest.approx(row.median_us, rel=1e-4)


def test_a_networks_step_is_no_product_to_estimate_from(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    quick = [replace(row, experiment="sputnik_mobilenet", median_us=row.median_us / 20) for row in records()]
    steps = [replace(row, shape="bias_relu", problem=f"{row.problem}_step") for row in quick]
    append(tmp_path / "nvidia-h200/sputnik_mobilenet/records.csv", steps)
    (layer,) = layers.load(["768x1536@0.9"])
    found = estimate.answer(layer, Question((32,)), load("nvidia-h200", [tmp_path])).widths[0]
    times = {one.kernel: one.hot_us for one in found.entries}
    assert times["cublas"] == pytest.approx(law("cublas", 768, 1536, 32, layer.matrix.nnz), rel=0.1)


def test_a_kernel_that_refuses_the_pattern_gets_no_time(recorded):
    (layer,) = layers.load(["768x1536@0.9"])
    found = estimate.answer(layer, Question((32,)), recorded)
    assert {one.kernel: one.reason for one in found.widths[0].entries}["balanced"].startswith("not balanced")
    (balanced,) = layers.load(["768x1536@0.9"], pattern="balanced")
    found = estimate.answer(balanced, Question((8,)), recorded)
    assert "balanced" in [one.kernel for one in found.widths[0].timed()]


def test_the_crossover_is_looked_for_where_both_sides_are_recorded(recorded):
    (layer,) = layers.load(["1024x1024@0.5"])
    found = estimate.answer(layer, Question((8,), kernels=("cublas", "sputnik")), recorded)
    truth = [
        n for n in range(8, 513) if law("sputnik", 1024, 1024, n, 1 << 19) >= law("cublas", 1024, 1024, n, 1 << 19)
    ]
    assert found.crossover.n == pytest.approx(truth[0], rel=0.35)
    assert found.curve[0][0] >= 8
    assert found.curve[-1][0] <= 512


def test_a_kernel_that_refuses_a_width_gets_no_time_there(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    for n in (8, 64, 512):  # ASpT's kernels take 32 and 128 columns
        rows = [replace(row, kernel="aspt", median_us=row.median_us / 2) for row in records() if row.n == n]
        append(tmp_path / "nvidia-h200/sputnik_figure1/records.csv", [row for row in rows if row.kernel == "aspt"])
    (layer,) = layers.load(["768x1536@0.9"])
    found = estimate.answer(layer, Question((32, 64)), load("nvidia-h200", [tmp_path]))
    entries = [{one.kernel: one for one in width.entries} for width in found.widths]
    assert entries[0]["aspt"].us
    assert entries[1]["aspt"].us is None
    assert "32 or 128 columns, not 64" in entries[1]["aspt"].reason
    slower = min(point[2] for point in found.curve if point[0] == 64)
    assert slower == pytest.approx(entries[1]["sputnik"].us)


def test_what_was_recorded_for_checking_says_nothing_of_speed(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    slow = [replace(row, experiment="awkward_sizes", median_us=100 * row.median_us) for row in records()]
    append(tmp_path / "nvidia-h200/awkward_sizes/records.csv", slow)
    (layer,) = layers.load(["512x1536@0.9"])
    (width,) = estimate.answer(layer, Question((32,)), load("nvidia-h200", [tmp_path])).widths
    found = {one.kernel: one.hot_us for one in width.entries}
    assert found["sputnik"] == pytest.approx(law("sputnik", 512, 1536, 32, 512 * 1536 / 10), rel=0.2)


def test_times_of_a_blocked_format_are_not_those_of_other_patterns(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    fast = [
        replace(row, experiment="granularity", kernel="cusparse", variant=variant, median_us=row.median_us * factor)
        for row in records()
        if row.kernel == "sputnik"
        for variant, factor in (("csr_alg3_row", 1.0), ("bell32_row", 0.01))
    ]
    append(tmp_path / "nvidia-h200/granularity/records.csv", fast)
    (layer,) = layers.load(["512x1536@0.9"])
    (width,) = estimate.answer(layer, Question((32,)), load("nvidia-h200", [tmp_path])).widths
    found = {one.kernel: one.hot_us for one in width.entries}
    assert found["cusparse"] == pytest.approx(law("sputnik", 512, 1536, 32, 512 * 1536 / 10), rel=0.2)


def test_each_kernel_is_a_guess_by_itself_whatever_is_recorded_of_others(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    rows = [replace(row, kernel="ring", m=64 * row.m) for row in records() if row.kernel == "sputnik"]
    append(tmp_path / "nvidia-h200/llm_layers/records.csv", rows)
    recorded = load("nvidia-h200", [tmp_path])
    (layer,) = layers.load(["512x1536@0.9"])
    near = estimate.answer(layer, Question((32,)), recorded)
    found = {one.kernel: one for one in near.widths[0].entries}
    assert found["sputnik"].guess == ""
    assert found["ring"].us
    assert "within 3 octaves" in found["ring"].guess
    assert near.verdict(near.widths[0]).chosen.kernel == "sputnik"
    (layer,) = layers.load(["16x16@0.5"])
    far = estimate.answer(layer, Question((8,)), recorded)
    assert all(one.guess for one in far.widths[0].timed())
    chosen = far.verdict(far.widths[0]).chosen
    assert chosen is None or chosen.dense


def test_wider_than_anything_recorded_is_a_guess(recorded):
    (layer,) = layers.load(["512x1536@0.9"])
    found = estimate.answer(layer, Question((512, 1024)), recorded)
    assert [one.guess for width in found.widths for one in width.timed()] == [
        *[""] * len(found.widths[0].timed()), *["is recorded up to a width of 512"] * len(found.widths[1].timed())
    ]  # fmt: skip


def test_kernels_asked_for_by_name_and_not_recorded_are_named(recorded):
    (layer,) = layers.load(["512x1536@0.9"])
    found = estimate.answer(layer, Question((32,), kernels=("cusparse", "cublas")), recorded)
    assert {one.kernel: one.reason for one in found.widths[0].entries}["cusparse"] == "not recorded on nvidia-h200"
    with pytest.raises(RecordError, match=r"^no spmm in f32 .* nvidia-h200: cusparse: not recorded on nvidia-h200$"):
        estimate.answer(layer, Question((32,), kernels=("cusparse",)), recorded)
    with pytest.raises(RecordError, match="aspt: no f16 form"):
        estimate.answer(layer, Question((32,), dtype="f16", kernels=("aspt",)), recorded)


def test_kernels_that_take_one_width_alone_stay_in_the_crossover_at_that_width(tmp_path):
    rows = [row for row in records() if row.kernel != "balanced"]
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", rows)
    fast = [replace(row, kernel="aspt", n=32, median_us=1.0) for row in rows if row.kernel == "sputnik" and row.n == 8]
    append(tmp_path / "nvidia-h200/sputnik_figure1/records.csv", fast)
    (layer,) = layers.load(["1024x1024@0.5"])
    found = estimate.answer(layer, Question((64,)), load("nvidia-h200", [tmp_path]))
    curve = {n: sparse for n, _, sparse in found.curve}
    assert curve[32] == pytest.approx(1.0, rel=0.1)  # it was asked about 64 columns, which it does not take
    assert curve[45] > 2


def test_far_from_what_is_recorded_it_is_a_guess_without_a_crossover(recorded):
    (layer,) = layers.load(["16x16@0.5"])
    far = estimate.answer(layer, Question((8,)), recorded)
    assert (far.curve, far.verdict(far.widths[0]).reason) == ((), "guess")
    (layer,) = layers.load(["64x512@0.5"])
    found = estimate.answer(layer, Question((100,)), recorded)
    assert 100 in [n for n, _, _ in found.curve]


def test_one_column_of_dense_is_estimated_from_vectors_where_these_are_nearer(tmp_path):
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    vectors = [
        replace(row, op="spmv", n=1, problem=f"{row.problem}_v", median_us=row.median_us / 2, q1_us=row.median_us / 2)
        for row in records()
        if row.n == 8 and row.kernel == "cublas"
    ]
    append(tmp_path / "nvidia-h200/ese_lstm/records.csv", vectors)
    (layer,) = layers.load(["512x1024@0.9"])
    widths = estimate.answer(layer, Question((1, 8)), load("nvidia-h200", [tmp_path])).widths
    one, eight = ({entry.kernel: entry.us for entry in width.entries} for width in widths)
    half = law("cublas", 512, 1024, 8, 0) / 2
    assert one["cublas"] == pytest.approx(half, rel=0.1)
    assert eight["cublas"] == pytest.approx(2 * half, rel=0.1)
    assert one["sputnik"] < eight["sputnik"] * 1.01


def test_too_few_rows_estimate_nothing_and_a_type_that_is_recorded_is_named(recorded):
    (layer,) = layers.load(["256x256@0.5"])
    with pytest.raises(RecordError, match=r"too little of spmm in bf16 .*--dtype f32$"):
        estimate.answer(layer, Question((8,), dtype="bf16"), recorded)
    with pytest.raises(RecordError, match="too little of sddmm"):
        estimate.answer(layer, Question((8,), op="sddmm"), recorded)


@pytest.mark.parametrize("damage", ["cut", "header", "number", "bytes", "link"])
def test_damaged_records_are_one_sentence(tmp_path, damage):
    path = tmp_path / "nvidia-h200" / "e" / "records.csv"
    append(path, records()[:30])
    text = path.read_text()
    if damage == "cut":
        path.write_text("")
    elif damage == "header":
        path.write_text(text.replace("schema", "x", 1))
    elif damage == "number":
        path.write_text(text.replace(",256,", ",zwei,"))
    elif damage == "bytes":
        path.write_bytes(b"\xff\xfe" + text.encode())
    else:
        path.rename(tmp_path / "elsewhere.csv")
        path.symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(RecordError):
        load("nvidia-h200", [tmp_path])


@pytest.mark.parametrize("damage", ["{", "[]", '{"matrix": "no/such.smtx", "measured": {}}', "link"])
def test_a_damaged_trial_is_one_sentence(tmp_path, damage):
    append(tmp_path / "nvidia-h200" / "e" / "records.csv", records()[:30])
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


def test_no_estimate_is_below_what_a_launch_takes(recorded):
    model = recorded.models("spmm", "f32")["sputnik", "f32", "hot"]
    least = 0.65 * min(law("cublas", 256, 256, 8, 0), law("sputnik", 256, 256, 8, 3277))
    assert model.at([Sizes(1, 1, 1, 0)])[0] >= least


@cache
def invoke(*words):
    return CliRunner().invoke(main, ["best", *words], catch_exceptions=False)


def test_every_format_is_estimated(tmp_path, folder):
    files = write_all(tmp_path, has_safetensors())
    result = invoke(*files.values(), "--n", "8", "--gpu", "nvidia-h200", "--reports", str(folder), "--json")
    assert result.exit_code == 0, result.output
    answers = json.loads(result.stdout)["answers"]
    assert len(answers) == len(files)
    assert all(one["estimated"] and one["widths"][0]["entries"][0]["hot_us"] for one in answers)


def test_rows_of_a_source_can_be_left_out_and_a_trials_times_joined(tmp_path):
    """Invented times of neighbouring widths, a fifth above what is recorded, are believed; other kernels stay."""
    name = next(iter(index.dlmc()))
    rows = [replace(row, source=f"dlmc:{name}" if at < 9 else row.source) for at, row in enumerate(records())]
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
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", records())
    assert load("H200", [tmp_path]).gpu == "nvidia-h200"
    append(tmp_path / "nvidia-a100/sputnik_rnn/records.csv", records())
    with pytest.raises(RecordError, match="may be any of nvidia-a100, nvidia-h200"):
        load("nvidia", [tmp_path])


def test_a_gpu_without_records_is_told_from_one_most_like_it_with_its_error_bar(folder):
    asked = ["best", "512x1024@0.9", "--n", "64", "--dtype", "f32", "--reports", str(folder), "--json", "--gpu"]
    told = {
        gpu: json.loads(CliRunner().invoke(main, [*asked, gpu]).output)["answers"][0]
        for gpu in ("h200", "a100", "2080ti")
    }
    assert (
        "Nothing is recorded on NVIDIA A100-SXM4-40GB: its times are predicted from those of NVIDIA H200"
        in told["a100"]["note"]
    )
    assert told["h200"]["note"] == ""
    entries = {gpu: {one["kernel"]: one for one in answer["widths"][0]["entries"]} for gpu, answer in told.items()}
    for kernel in ("sputnik", "cublas"):
        times = [entries[gpu][kernel]["hot_us"] for gpu in ("h200", "a100", "2080ti")]
        assert times == sorted(times)
        assert entries["a100"][kernel]["held_out_error"] > entries["h200"][kernel]["held_out_error"] + 0.05
    assert entries["a100"].get("balanced", {}).get("hot_us") is None  # nothing tells how far off it is


def test_a_gpu_without_a_data_sheet_is_refused_in_a_sentence(folder):
    for gpu in ("h20", "titan"):
        result = CliRunner().invoke(main, ["best", "512x1024@0.9", "--reports", str(folder), "--gpu", gpu])
        assert result.exit_code == 2
        assert f"nothing is recorded on '{gpu}'" in " ".join(result.output.split())
