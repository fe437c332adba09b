"""Answers without the GPU: from records whose times follow a law that the estimate has to find."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import invoke
from fake_records import described, tuned
from law_records import RECORDS, law
from own_files import has_safetensors, write_all

from nnzbench.advise import estimate
from nnzbench.advise import layer as layers
from nnzbench.advise.layer import Question
from nnzbench.advise.recorded import Recorded, load
from nnzbench.papers.predict.estimator import Sizes
from nnzbench.results.records.record import RecordError, append

OF_SPUTNIK = [row for row in RECORDS if row.kernel == "sputnik"]


def scaled(rows, by=1.0, **changes):
    """Other rows with so many times their times."""
    return [replace(row, median_us=by * row.median_us, **changes) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reports")
    append(path / "nvidia-h200" / "sputnik_rnn" / "records.csv", map(described, RECORDS))
    return path


@pytest.fixture(scope="module")
def recorded(folder):
    return load("nvidia-h200", [folder])


@pytest.fixture
def beside(tmp_path):
    """A function: what is recorded where an experiment has rows beside the usual ones (or others in their place)."""

    def recorded(experiment, rows, usual=RECORDS):
        append(tmp_path / "nvidia-h200" / "sputnik_rnn" / "records.csv", map(described, usual))
        append(tmp_path / "nvidia-h200" / experiment / "records.csv", map(described, rows))
        return load("nvidia-h200", [tmp_path])

    return recorded


def ask(recorded, text, *ns, pattern="uniform", **question):
    (layer,) = layers.load([text], pattern=pattern)
    return estimate.answer(layer, Question(ns, **question), recorded)


def entries(width):
    return {one.kernel: one for one in width.entries}


def test_a_kernel_that_computes_in_tf32_alone_is_no_answer_in_fp32(beside):
    fast = beside("llm_layers", scaled(OF_SPUTNIK, 0.01, kernel="tensor_spmm_tf32"))
    (found,) = ask(fast, "768x1536@0.9", 32).widths
    assert (found.entries[0].kernel, found.entries[0].math) == ("tensor_spmm_tf32", "tf32")
    assert found.sparse("f32").kernel == "sputnik"


def test_times_between_those_recorded_are_found(recorded):
    found = ask(recorded, "768x1536@0.9", 32)
    for kernel in ("cublas", "sputnik"):
        wanted = law(kernel, 768, 1536, 32, found.nnz)
        assert entries(found.widths[0])[kernel].hot_us == pytest.approx(wanted, rel=0.1)
    assert found.estimated
    assert all(one.within < 0.2 for one in found.widths[0].timed())
    assert found.widths[0].near[0].octaves < 2


def test_a_kernel_whose_times_follow_no_law_gets_no_estimate(tmp_path):
    """Where a problem of the same sizes is recorded, it has those times."""
    wild = np.random.default_rng(0).choice([0.05, 1.0, 20.0], len(RECORDS)).tolist()
    rows = [
        replace(row, median_us=row.median_us * by) if row.kernel == "sputnik" else row
        for row, by in zip(RECORDS, wild, strict=True)
    ]
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", map(described, rows))
    recorded = load("nvidia-h200", [tmp_path])
    sputnik = entries(ask(recorded, "768x1536@0.9", 32).widths[0])["sputnik"]
    assert (sputnik.us, sputnik.unestimated) == (None, True)
    assert sputnik.reason.startswith("estimates of it are off by ")
    sputnik = entries(ask(recorded, "512x1024@0.8", 64).widths[0])["sputnik"]
    (row,) = (row for row in rows if (row.kernel, row.problem) == ("sputnik", "512x1024x64_0.8"))
    assert sputnik.recorded
    assert sputnik.us == pytest.approx(row.median_us, rel=1e-4)


@pytest.mark.parametrize(
    ("experiment", "by", "changes"),
    [
        ("sputnik_mobilenet", 0.05, {"shape": "bias_relu", "experiment": "sputnik_mobilenet"}),  # a network's step
        ("awkward_sizes", 100, {"experiment": "awkward_sizes"}),  # recorded for checking, and says nothing of speed
    ],
)
def test_what_is_no_product_or_was_recorded_for_checking_is_not_estimated_from(beside, experiment, by, changes):
    (width,) = ask(beside(experiment, scaled(RECORDS, by, **changes)), "768x1536@0.9", 32).widths
    for kernel in ("cublas", "sputnik"):
        assert entries(width)[kernel].us == pytest.approx(law(kernel, 768, 1536, 32, 768 * 1536 / 10), rel=0.1)


def test_times_of_a_blocked_format_are_not_those_of_other_patterns(beside):
    fast = [
        row
        for variant, by in (("csr_alg3_row", 1.0), ("bell32_row", 0.01))
        for row in scaled(OF_SPUTNIK, by, experiment="granularity", kernel="cusparse", variant=variant)
    ]
    (width,) = ask(beside("granularity", fast), "512x1536@0.9", 32).widths
    assert entries(width)["cusparse"].us == pytest.approx(law("sputnik", 512, 1536, 32, 512 * 1536 / 10), rel=0.2)


@pytest.mark.parametrize(("kernel", "by"), [("cusparse", 1.0), ("sputnik", 3.0)])
def test_a_librarys_times_before_tuning_are_left_out_where_others_are_known(tmp_path, kernel, by):
    """Untuned, a layer is recorded at three times its law: of our kernels that may be all that is known there."""
    slow = [row for row in OF_SPUTNIK if (row.m, row.k) == (2048, 2048)]
    rows = [row for row in OF_SPUTNIK if row not in slow] + scaled(slow, 3.0)
    folder = tmp_path / "nvidia-h200" / "sputnik_rnn"
    append(folder / "records.csv", map(described, [replace(row, kernel=kernel) for row in rows]))
    tuned(folder, lambda row: ["first"] if (row.m, row.k) == (2048, 2048) else ["all"])
    (width,) = ask(load("nvidia-h200", [tmp_path]), "2048x2048@0.8", 64, dtype="f32").widths
    wanted = by * law("sputnik", 2048, 2048, 64, 2048 * 2048 / 5)
    assert entries(width)[kernel].us == pytest.approx(wanted, rel=0.2)


def test_times_of_a_structured_pattern_are_its_own(beside):
    """A few rows tell, at other sizes too; a pattern without any has the times of others, which are a guess."""
    few = [row for row in OF_SPUTNIK if row.n == 64][::4]
    slow = beside("granularity", scaled(few, 2.0, experiment="granularity", source="nm:2:4:0"))
    plain, two_four, balanced = (
        entries(ask(slow, "768x1536@0.5", 32, pattern=pattern).widths[0])["sputnik"]
        for pattern in ("uniform", "2:4", "balanced")
    )
    assert plain.us == pytest.approx(law("sputnik", 768, 1536, 32, 768 * 1536 / 2), rel=0.1)
    assert two_four.us == pytest.approx(2 * plain.us, rel=0.15)
    assert balanced.us == pytest.approx(plain.us, rel=0.05)
    assert (plain.guess, two_four.guess, balanced.guess) == ("", "", "is not recorded on balanced patterns")
    assert plain.within < two_four.within < 1.0


def test_a_file_that_is_pruned_2_of_4_has_the_times_of_that_pattern(beside, tmp_path):
    slow = beside("granularity", scaled(OF_SPUTNIK, 2.0, experiment="granularity", source="nm:2:4:0"))
    times = {}
    for pattern in ("uniform", "2:4"):
        (layer,) = layers.load(["512x1024@0.5"], pattern=pattern)
        np.save(tmp_path / "w.npy", layer.matrix.to_dense())
        times[pattern] = entries(ask(slow, str(tmp_path / "w.npy"), 64).widths[0])["sputnik"].us
    assert times["2:4"] == pytest.approx(2 * times["uniform"], rel=0.1)


def test_a_recorded_problem_of_another_pattern_is_not_the_same(beside):
    """Three times are too few to estimate from."""
    (row, *_) = (one for one in OF_SPUTNIK if (one.m, one.k, one.n) == (512, 1024, 64))
    both = beside(
        "granularity",
        [
            replace(row, kernel="ring", nnz=1 << 18, policy=policy, source=source, median_us=us)
            for policy, source, us in (("hot", "uniform:0", 5.0), ("cold", "uniform:0", 6.0), ("hot", "nm:2:4:0", 7.0))
        ],
    )
    uniform, two_four = (
        entries(ask(both, "512x1024@0.5", 64, pattern=pattern).widths[0])["ring"] for pattern in ("uniform", "2:4")
    )
    assert (uniform.hot_us, uniform.cold_us) == (5.0, 6.0)
    assert (two_four.hot_us, two_four.cold_us) == (7.0, None)


def test_a_kernel_that_refuses_the_pattern_gets_no_time(recorded):
    assert entries(ask(recorded, "768x1536@0.9", 32).widths[0])["balanced"].reason.startswith("not balanced")
    assert entries(ask(recorded, "768x1536@0.9", 8, pattern="balanced").widths[0])["balanced"].us


def test_the_crossover_is_looked_for_where_both_sides_are_recorded(recorded):
    found = ask(recorded, "1024x1024@0.5", 8, kernels=("cublas", "sputnik"))
    sizes = [(1024, 1024, n, 1 << 19) for n in range(8, 513)]
    truth = next(one[2] for one in sizes if law("sputnik", *one) >= law("cublas", *one))
    assert found.crossover.n == pytest.approx(truth, rel=0.35)
    assert found.curve[0][0] >= 8
    assert found.curve[-1][0] <= 512


def test_a_kernel_that_refuses_a_width_gets_no_time_there(beside):
    aspt = beside("sputnik_figure1", scaled(OF_SPUTNIK, 0.5, kernel="aspt"))  # its kernels take 32 and 128 columns
    found = ask(aspt, "768x1536@0.9", 32, 64)
    taken, refused = map(entries, found.widths)
    assert taken["aspt"].us
    assert refused["aspt"].us is None
    assert "32 or 128 columns, not 64" in refused["aspt"].reason
    assert min(point[2] for point in found.curve if point[0] == 64) == pytest.approx(refused["sputnik"].us)


def test_each_kernel_is_a_guess_by_itself_whatever_is_recorded_of_others(beside):
    recorded = beside("llm_layers", [replace(row, kernel="ring", m=64 * row.m) for row in OF_SPUTNIK])
    near = ask(recorded, "512x1536@0.9", 32)
    found = entries(near.widths[0])
    assert found["sputnik"].guess == ""
    assert found["ring"].us
    assert "within 3 octaves" in found["ring"].guess
    assert near.verdict(near.widths[0]).chosen.kernel == "sputnik"
    far = ask(recorded, "16x16@0.5", 8)
    assert all(one.guess for one in far.widths[0].timed())
    chosen = far.verdict(far.widths[0]).chosen
    assert chosen is None or chosen.dense


def test_wider_than_anything_recorded_is_a_guess(recorded):
    known, wider = ask(recorded, "512x1536@0.9", 512, 1024).widths
    assert {one.guess for one in known.timed()} == {""}
    assert {one.guess for one in wider.timed()} == {"is recorded up to a width of 512"}


def test_kernels_asked_for_by_name_and_not_recorded_are_named(recorded):
    (width,) = ask(recorded, "512x1536@0.9", 32, kernels=("cusparse", "cublas")).widths
    assert entries(width)["cusparse"].reason == "not recorded on nvidia-h200"
    with pytest.raises(RecordError, match=r"^no spmm in f32 .* nvidia-h200: cusparse: not recorded on nvidia-h200$"):
        ask(recorded, "512x1536@0.9", 32, kernels=("cusparse",))
    with pytest.raises(RecordError, match="aspt: no f16 form"):
        ask(recorded, "512x1536@0.9", 32, dtype="f16", kernels=("aspt",))


def test_kernels_that_take_one_width_alone_stay_in_the_crossover_at_that_width(beside):
    rows = [row for row in RECORDS if row.kernel != "balanced"]
    fast = [replace(row, kernel="aspt", n=32, median_us=1.0) for row in OF_SPUTNIK if row.n == 8]
    curve = {n: us for n, _, us in ask(beside("sputnik_figure1", fast, rows), "1024x1024@0.5", 64).curve}
    assert curve[32] == pytest.approx(1.0, rel=0.1)  # it was asked about 64 columns, which it does not take
    assert curve[45] > 2


def test_far_from_what_is_recorded_it_is_a_guess_without_a_crossover(recorded):
    far = ask(recorded, "16x16@0.5", 8)
    assert (far.curve, far.verdict(far.widths[0]).reason) == ((), "guess")
    assert 100 in [n for n, _, _ in ask(recorded, "64x512@0.5", 100).curve]


def test_one_column_of_dense_is_estimated_from_vectors_where_these_are_nearer(beside):
    vectors = [
        replace(row, op="spmv", n=1, problem=f"{row.problem}_v", median_us=row.median_us / 2)
        for row in RECORDS
        if row.n == 8 and row.kernel == "cublas"
    ]
    one, eight = map(entries, ask(beside("ese_lstm", vectors), "512x1024@0.9", 1, 8).widths)
    half = law("cublas", 512, 1024, 8, 0) / 2
    assert one["cublas"].us == pytest.approx(half, rel=0.1)
    assert eight["cublas"].us == pytest.approx(2 * half, rel=0.1)
    assert one["sputnik"].us < eight["sputnik"].us * 1.01


def test_one_column_of_a_structured_pattern_is_not_estimated_from_vectors_of_others(beside):
    """Though these have its sizes, and rows of one column with that pattern are an octave away."""
    narrow = [replace(row, kernel="cusparse", n=1) for row in OF_SPUTNIK if row.n == 8]
    others = [
        *scaled([row for row in narrow if row.m != 512], 3.0, source="nm:2:4:0"),
        *[replace(row, op="spmv", problem=f"{row.problem}_v") for row in narrow],
    ]
    asked = beside("ese_lstm", [replace(row, experiment="ese_lstm") for row in others])
    plain, two_four = (
        entries(ask(asked, "512x1024@0.5", 1, pattern=pattern).widths[0])["cusparse"] for pattern in ("uniform", "2:4")
    )
    assert two_four.us > 2 * plain.us
    assert two_four.guess == ""


def test_half_precision_of_either_kind_is_estimated_from_fp16_and_too_little_of_a_type_is_told(recorded, beside):
    halves = scaled(OF_SPUTNIK, 0.5, kernel="tensor_spmm", dtype="f16", experiment="llm_layers")
    both = beside("llm_layers", halves)
    times = [entries(ask(both, "768x1536@0.9", 32, dtype=dtype).widths[0]) for dtype in ("f16", "bf16")]
    assert times[0]["tensor_spmm"].us == times[1]["tensor_spmm"].us
    assert times[1]["tensor_spmm"].math == "bf16"
    older = Recorded(both.gpu, both._frame.assign(arch="sm_75"))
    assert older.models("spmm", "f16")
    assert not older.models("spmm", "bf16")  # it has no such tensor cores
    with pytest.raises(RecordError, match=r"too little of spmm in bf16 .*--dtype f32$"):
        ask(recorded, "256x256@0.5", 8, dtype="bf16")
    with pytest.raises(RecordError, match="too little of sddmm"):
        ask(recorded, "256x256@0.5", 8, op="sddmm")


def test_no_estimate_is_below_what_a_launch_takes(recorded):
    model = recorded.models("spmm", "f32")["sputnik", "f32", "hot"]
    least = 0.65 * min(law("cublas", 256, 256, 8, 0), law("sputnik", 256, 256, 8, 3277))
    assert model.at([Sizes(1, 1, 1, 0)])[0] >= least


def test_every_format_is_estimated(tmp_path, folder):
    files = write_all(tmp_path, has_safetensors())
    words = ["best", *files.values(), "--n", "8", "--gpu", "nvidia-h200", "--reports", str(folder), "--json"]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    answers = json.loads(result.stdout)["answers"]
    assert len(answers) == len(files)
    assert all(one["estimated"] and one["widths"][0]["entries"][0]["hot_us"] for one in answers)


def test_a_gpu_without_records_is_told_from_one_most_like_it_with_its_error_bar(folder):
    asked = ["best", "512x1024@0.9", "--n", "64", "--dtype", "f32", "--reports", str(folder), "--json", "--gpu"]
    told = {gpu: json.loads(invoke(*asked, gpu).output)["answers"][0] for gpu in ("h200", "a100", "2080ti")}
    assert (
        "Nothing is recorded on NVIDIA A100-SXM4-40GB: its times are predicted from those of NVIDIA H200"
        in told["a100"]["note"]
    )
    assert told["a100"]["note"].endswith("; packing is as recorded there.")
    assert told["h200"]["note"] == ""
    entries = {gpu: {one["kernel"]: one for one in answer["widths"][0]["entries"]} for gpu, answer in told.items()}
    for kernel in ("sputnik", "cublas"):
        times = [entries[gpu][kernel]["hot_us"] for gpu in ("h200", "a100", "2080ti")]
        assert times == sorted(times)
        (low, high), (lower, higher) = (entries[gpu][kernel]["interval_us"] for gpu in ("h200", "a100"))
        assert higher / lower > 1.1 * high / low
        assert lower < entries["a100"][kernel]["hot_us"] < higher
    assert entries["a100"].get("balanced", {}).get("hot_us") is None  # nothing tells how far off it is


def test_dense_does_not_win_where_the_kernel_that_wins_on_its_like_has_no_time(tmp_path):
    fast = scaled(OF_SPUTNIK, 0.05, kernel="tensor_spmm", dtype="f16", experiment="llm_layers")
    dense = scaled([row for row in RECORDS if row.kernel == "cublas"], kernel="cublas", dtype="f16", variant="f16_x")
    slow = scaled(OF_SPUTNIK, 20.0, dtype="f16")
    append(tmp_path / "nvidia-h200" / "llm_layers" / "records.csv", map(described, [*fast, *dense, *slow]))
    known, like, other = (
        ask(load(gpu, [tmp_path]), "768x1536@0.9", 32, dtype="f16") for gpu in ("h200", "h100", "a100")
    )
    for answer in (known, like):
        assert answer.verdict(answer.widths[0]).chosen.kernel == "tensor_spmm"
    found = other.verdict(other.widths[0])
    assert (found.chosen, found.other.kernel, found.other.us, found.reason) == (None, "tensor_spmm", None, "unknown")
    assert str(other).startswith("Not known which is faster at 32 columns: tensor_spmm fp16 is on NVIDIA H200, and")
    few = ask(load("a100", [tmp_path]), "768x1536@0.3", 32, dtype="f16")
    assert few.verdict(few.widths[0]).chosen.dense  # with few zeros no estimate says otherwise


def test_streamed_times_rank_where_both_sides_have_them_and_fewer_bits_stand_beside(beside):
    """Hot, sputnik is the faster; streamed, dense is. FP8 takes half of that, and INT4 what memory takes."""
    streamed = [
        replace(row, policy="stream", median_us=row.median_us * by, dtype=dtype, kernel=kernel, experiment="llm_layers")
        for row in RECORDS
        if row.policy == "hot"
        for kernel, dtype, by in (
            [("sputnik", "f32", 8.0)] if row.kernel == "sputnik" else [("cublas", "f32", 1.0), ("cublaslt", "f8", 0.5)]
        )
    ]
    usual, both = ask(beside("few", []), "768x1536@0.9", 32), ask(beside("llm_layers", streamed), "768x1536@0.9", 32)
    assert usual.verdict(usual.widths[0]).chosen.kernel == "sputnik"
    (width,) = both.widths
    found = entries(width)
    assert both.verdict(width).chosen.kernel == "cublas"
    assert found["sputnik"].us == found["sputnik"].stream_us == pytest.approx(8 * found["sputnik"].hot_us, rel=0.1)
    fp8, int4 = width.beside
    assert (fp8.math, fp8.kernel, int4.math, int4.kernel) == ("f8", "cublaslt", "i4", "")
    assert fp8.dense_us < 0.75 * found["cublas"].us
    assert fp8.zeros > 0.9
    assert f"{100 * fp8.zeros:.0f} % zeros" in fp8.text or "at none" in fp8.text
    assert "FP8 dense takes about" in fp8.text
    assert "by its bytes alone" in int4.text
    (layer,) = layers.load(["768x1536@0.9"])
    known = beside("again", streamed)
    assert estimate.beside(layer, Question((32,)), "f32", known, 32)[0].math == "f8"  # beside what is measured


@pytest.mark.parametrize("gpu", ["h200", "a100", "RTX4090", "L4"])
def test_no_estimate_is_shorter_than_its_bytes_take_from_memory(folder, gpu):
    recorded = load(gpu, [folder])
    for text in ("4096x11008@0.8", "2048x2048@0.9"):
        answer = ask(recorded, text, 1, 512, dtype="f32")
        for width in answer.widths:
            for one in width.timed():
                stored = answer.m * answer.k if one.dense else answer.nnz
                moved = 4 * (stored + width.n * (answer.m + answer.k))
                assert one.cold_us is None or one.cold_us >= 0.999e-3 * moved / recorded.sheet.bandwidth_gbs
                assert one.hot_us >= 0.999e-3 * (moved - recorded.sheet.l2_mb * 2**20) / recorded.sheet.bandwidth_gbs


def test_a_gpu_without_a_data_sheet_is_refused_in_a_sentence(folder):
    for gpu in ("h20", "titan"):
        result = invoke("best", "512x1024@0.9", "--reports", folder, "--gpu", gpu)
        assert result.exit_code == 2
        assert f"nothing is recorded on '{gpu}'" in " ".join(result.output.split())
