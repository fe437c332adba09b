"""GPUs side by side: what is joined, what is not, and numbers recomputed by hand. The second GPU is invented."""

from __future__ import annotations

import dataclasses
import json
import math

import fake_records
import pandas as pd
import pytest
from commands import invoke
from draft_figures import pages_alone
from fake_records import replace_all

from nnzbench.core.gpus import data_sheets, sheet_peaks
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import geometric_mean
from nnzbench.site.generations import comparison as generations
from nnzbench.site.generations import page as generations_page
from nnzbench.site.generations import published
from nnzbench.site.generations.summary import Summary, compare

T4, H200 = "tesla-t4", "nvidia-h200"
NAMES = ("01_64x256x3136_90_dlmc", "02_256x64x3136_90_dlmc", "03_128x512x784_90_dlmc")
PEAKS = {
    T4: {"copy_gbs": 250.0, "l2_gbs": 1000.0, "fp32_tflops": 8.0, "l2_bytes": 4 << 20, "floor_hot_us": 1.0},
    H200: {"copy_gbs": 4000.0, "l2_gbs": 8000.0, "fp32_tflops": 64.0, "tf32_tflops": 350.0, "f16_tflops": 750.0}
    | {"l2_bytes": 50 << 20, "floor_hot_us": 0.5},
}
TIMES = {  # kernel, variant, dtype: microseconds on both
    ("cublas", "f32_default_nn", "f32"): (80.0, 8.0),
    ("sparsert", "r8", "f32"): (20.0, 4.0),
    ("sputnik", "x64", "f32"): (40.0, 5.0),
    ("cusparse", "csr_alg2", "f32"): (10.0, 2.0),
}
TENSOR = {("cublas", "tf32_default_nn", "f32"): 2.0, ("cublas", "f16_default_nn", "f16"): 1.0}


def environment(gpu):
    return {"gpu": {"name": gpu.upper(), "slug": gpu}, "peaks": PEAKS[gpu], "source": {"commit": "ab" * 20}}


def rows(gpu, **changes):
    at = (T4, H200).index(gpu)
    times = {key: both[at] for key, both in TIMES.items()} | (TENSOR if gpu == H200 else {})
    sizes = {name: tuple(map(int, name.split("_")[1].split("x"))) for name in NAMES}
    return [
        fake_records.record(
            **{
                "problem": name, "gpu": gpu, "kernel": kernel, "variant": variant, "dtype": dtype, "median_us": time,
                "q1_us": time, "q3_us": time, "m": m, "k": k, "n": n, "nnz": m * k // 10, "sparsity": 0.9,
                "flops": 2.0 * (m * k // 10) * n, "bytes": 2e6, "limit_us": time / 2, "floor_us": 0.5, **changes,
            }
        )
        for name, (m, k, n) in sizes.items()
        for (kernel, variant, dtype), time in times.items()
    ]  # fmt: skip


def put(tmp_path, gpu, records, experiment="sparsert_table1"):
    return fake_records.write(tmp_path / gpu / experiment, records, environment(gpu))


@pytest.fixture
def two(tmp_path):
    for gpu in (T4, H200):
        put(tmp_path, gpu, rows(gpu))
    return tmp_path


@pytest.fixture(scope="module", name="both")
def frame_and_facts_of_both(tmp_path_factory):
    """The table of both GPUs and what is compared, as tests read them that change no record."""
    folder = tmp_path_factory.mktemp("both")
    for gpu in (T4, H200):
        put(folder, gpu, rows(gpu))
    return generations.tabulate(generations.load_sets(folder)), compared(folder).facts


def report(folder, *arguments):
    return invoke("report", "--reports", folder, *arguments)


def pick(frame, **wanted):
    for name, value in wanted.items():
        frame = frame[[one == value for one in frame[name]]]
    return frame


def compared(folder) -> Summary:
    sets = generations.load_sets(folder)
    frame = generations.tabulate(sets)
    return compare(frame, generations_page.names_of(frame, sets))


def on(gpu, kind="measured"):
    return (gpu, kind)


def test_every_published_row_belongs_to_a_problem():
    printed = published.rows()
    counts = pd.Series([row.paper for row in printed]).value_counts().to_dict()
    assert counts == {"SparseRT": 39, "Balanced Sparsity": 108, "Direct sparse convolution": 64, "EIE": 36}
    one = next(row for row in printed if row.problem.label == "08_equal" and row.kernel == "direct_conv")
    assert (one.gpu, one.time_us) == ("tesla-v100-sxm2-32gb", pytest.approx(4230.0))
    assert (one.baseline, math.isnan(one.speedup)) == ("cudnn", True)
    batch = next(row for row in printed if row.problem.label == "alexnet_fc6_b64" and row.kernel == "cusparse")
    assert batch.time_us == pytest.approx(64 * 94.6)
    assert all(math.isnan(row.time_us) for row in printed if row.paper == "SparseRT")


def test_least_work_of_a_published_product_by_hand():
    row = next(row for row in published.rows() if row.problem.label == "01")
    problem, sparse, dense_product = row.problem, row.work, dataclasses.replace(row, kernel="cublas").work
    assert (problem.m, problem.k, problem.n, problem.sparsity) == (64, 256, 3136, 0.9)
    nnz, dense = 1638, 256 * 3136 + 64 * 3136
    assert (sparse.flops, sparse.bytes) == (2 * nnz * 3136, 4 * (nnz + 65 + nnz + dense))
    assert (dense_product.flops, dense_product.bytes) == (2 * 64 * 256 * 3136, 4 * (64 * 256 + dense))


def test_shares_and_speedups_of_a_measured_row_by_hand(both):
    case = pick(both[0], case="01_64x256x3136_90", gpu=H200, policy="hot")
    ours = pick(case, kernel="sparsert").iloc[0]
    assert ours["speedup"] == pytest.approx(8.0 / 4.0)
    assert (ours["baseline"], ours["role"]) == ("cublas-f32", "best")
    assert ours["share_of_bandwidth"] == pytest.approx(2e6 / 4e-6 / 8000e9)
    assert ours["share_of_flops"] == pytest.approx(2 * 1638 * 3136 / 4e-6 / 64e12, rel=1e-5)
    dense = pick(case, kernel="cublas", math="f32").iloc[0]
    assert dense["share_of_flops"] == pytest.approx(2 * 64 * 256 * 3136 / 8e-6 / 64e12, rel=1e-3)
    assert pick(case, math="tf32").iloc[0]["share_of_flops"] == pytest.approx(
        2 * 64 * 256 * 3136 / 2e-6 / 350e12, rel=1e-3
    )


def test_gains_and_means_from_one_gpu_to_the_next_by_hand(both):
    facts = pick(both[1], policy="hot")
    gains = pick(facts, older=on(T4)).set_index("fact")
    assert set(gains["gpu"]) == {on(H200)}
    assert set(gains["n"]) == {3}
    assert gains["ratio"][["dense", "sparse", "quotient"]].tolist() == pytest.approx([10.0, 5.0, 2.0])
    sheet = 2e6 / 320e9 / max(2 * 64 * 256 // 10 * 3136 / 66.9e12, 2e6 / 4800e9)
    assert gains["ratio"]["sparse sheet"] == pytest.approx(sheet, rel=0.35)
    assert 8.2 < gains["ratio"]["dense sheet"] <= 15.0
    paper = pick(facts, older=on(T4, "published"))
    assert not set(paper["fact"]) & {"dense", "sparse"}  # it prints no times
    speedups = pick(facts, fact="speed-up").set_index("gpu")
    assert speedups["ratio"][on(T4, "published")] == pytest.approx(geometric_mean([4.3, 2.5, 4.0]))
    mine = speedups.loc[[on(T4)]].iloc[0]
    assert (mine["ratio"], mine["n"], mine["wins"]) == (pytest.approx(4.0), 3, 3)
    one = pick(facts, fact="problem", subject="sparsert on NVIDIA-H200")
    assert one["ratio"].tolist() == pytest.approx([2.0] * 3)


def test_the_sparse_kernel_is_set_against_each_arithmetic_of_the_dense_one(both):
    found = pick(both[1], fact="arithmetic")
    got = {(row.gpu[0], row.baseline.split()[2]): row.ratio for row in found.itertuples()}
    want = {(T4, "fp32"): 4.0, (H200, "fp32"): 2.0, (H200, "TF32"): 0.5, (H200, "fp16"): 0.25}
    assert got == pytest.approx(want)


def test_other_patterns_under_the_same_name_are_not_compared_and_said_so(two):
    other = rows(T4, pattern_hash="feedbeef")
    replace_all(two / T4 / "sparsert_table1" / "records.csv", other)
    found = compared(two)
    assert pick(found.facts, older=on(T4)).empty
    assert pick(found.facts, gpu=on(T4), fact="speed-up").empty
    assert "3 problems of sparsert_table1 were run on other patterns" in found.gaps[0]


def test_a_problem_without_a_baseline_enters_no_mean(two):
    missing = [r for r in rows(T4) if not (r.kernel == "cublas" and r.problem == NAMES[0])]
    replace_all(two / T4 / "sparsert_table1" / "records.csv", missing)
    assert pick(compared(two).facts, gpu=on(T4), fact="speed-up")["n"].tolist() == [2]


def test_gpus_are_ordered_by_generation_and_have_colours_of_their_own():
    order = generations.gpu_order([H200, "unheard-of", T4, "nvidia-a100-sxm4-80gb", "nvidia-h100-80gb-hbm3", "unnamed"])
    assert order == ["unnamed", T4, "nvidia-a100-sxm4-80gb", "nvidia-h100-80gb-hbm3", H200, "unheard-of"]
    looks = {generations_page.gpu_colour(gpu) for gpu in data_sheets()}
    assert len(looks) == len(data_sheets())


def test_the_yardstick_is_of_the_row_s_arithmetic(tmp_path):
    """An fp16 product, whose operations tensor cores do, gains what bandwidth did; the fp32 rate is no yardstick."""
    for gpu in (T4, H200):
        single = [row for row in rows(gpu) if row.dtype == "f32" and not row.variant.startswith("tf32")]
        made = [dataclasses.replace(row, dtype="f16", problem=f"{row.problem}_f16") for row in single]
        put(tmp_path, gpu, [dataclasses.replace(row, variant=row.variant.replace("f32", "f16")) for row in made])
    gains = pick(compared(tmp_path).facts, older=on(T4), fact="dense sheet")
    sheets = sheet_peaks(T4), sheet_peaks(H200)
    assert gains["ratio"].tolist() == pytest.approx([sheets[1].copy_gbs / sheets[0].copy_gbs])


CUT = [
    ("sputnik", {"sputnik"}, {"sparsert": "sputnik"}, True),  # it competes with the fastest, and may become it
    ("sparsert", {"sparsert"}, {"sparsert": "sparsert"}, True),
    ("cublas", {"cublas"}, {"cublas": "cublas"}, True),
    ("cusparse", {"cusparse"}, {}, False),  # competes with nothing where this project has a time
]


@pytest.mark.parametrize(("kernel", "own", "roles", "speedup"), CUT)
def test_a_speedup_stands_on_what_competes_on_either_side(two, kernel, own, roles, speedup):
    folder = two / H200 / "sparsert_table1"
    fake_records.tuned(folder, lambda r: ("first",) if (r.kernel, r.problem) == (kernel, NAMES[0]) else ("all",))
    frame = generations.tabulate(generations.load_sets(two))
    here = pick(frame, gpu=H200, kind="measured", math="f32")
    cut = here[here["untuned"] != ""]
    assert set(cut["problem"]) == {NAMES[0]}
    assert {row.kernel: row.untuned for row in cut[cut["role"] != ""].itertuples()} == roles
    assert own <= set(cut["kernel"])
    best = pick(here, role="best").set_index("problem")["speedup_untuned"]
    assert best.to_dict() == dict.fromkeys(NAMES, False) | {NAMES[0]: speedup}
    assert not pick(frame, gpu=T4)["speedup_untuned"].any()
    assert not pick(frame, kind="published")["speedup_untuned"].any()


def test_facts_say_what_was_not_tuned(two):
    folder = two / H200 / "sparsert_table1"
    fake_records.tuned(folder, lambda r: ("first",) if (r.kernel, r.problem) == ("sparsert", NAMES[0]) else ("all",))
    found = compared(two)
    cut = found.facts[~found.facts["tuned"]]
    assert set(cut["fact"]) == {"speed-up", "problem", "sparse", "quotient", "arithmetic"}
    assert set(cut["gpu"]) == {on(H200)}
    assert len(pick(cut, fact="problem")) == 1
    shares = found.shares[~found.shares["tuned"]]
    assert {(row.gpu_key, row.role) for row in shares.itertuples()} == {(on(H200), "best")}
    page = generations_page.write(two)
    assert page is not None
    assert "`sparsert_table1` 1 of 3" in page.read_text()


@pytest.mark.figures("generations", kind="svg")
def test_the_report_draws_the_page_twice_alike_and_with_every_number_in_a_file(two):
    with pages_alone():
        result = report(two, "--json")
    assert result.exit_code == 0, result.output
    folder = two / generations_page.FOLDER
    last = json.loads(result.stdout)[-1]
    assert (last["experiment"], last["page"]) == ("generations", str(folder / "README.md"))
    drawn = {"speedup.svg", "sparse_products.svg", "narrow_products.svg"}
    assert {path.name for path in folder.iterdir()} == drawn | {"README.md", "facts.csv", "shares.csv"}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "†" not in before["README.md"].decode()  # all were tuned
    generations_page.write(two)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    facts = pd.read_csv(folder / "facts.csv")
    assert set(facts.loc[facts["policy"] == "hot", "ratio"].round(3)) >= {2.0, 4.0, 5.0, 10.0, 0.5, 0.25}


def test_one_measured_gpu_stands_beside_the_published_ones(tmp_path):
    put(tmp_path, H200, rows(H200))
    generations_page.write(tmp_path)
    page = (tmp_path / "generations" / "README.md").read_text()
    assert "| Tesla T4 (SparseRT paper) → NVIDIA-H200 | hot | 3 |" in page
    assert "`direct_conv_table6`" in page.partition("## What is missing")[2]


def test_beside_a_published_time_stands_the_papers_method(tmp_path):
    """Not this project's faster kernel, which the best sparse kernel still is; elsewhere the best is compared."""
    methods = [
        dataclasses.replace(row, kernel="sparsert_paper", variant="mb8", median_us=6.0, q1_us=6.0, q3_us=6.0)
        for row in rows(H200)
        if row.kernel == "sparsert" and row.problem != NAMES[2]
    ]
    put(tmp_path, H200, [*rows(H200), *methods])
    frame = generations.tabulate(generations.load_sets(tmp_path))
    mine = frame[(frame["gpu"] == H200) & frame["case"].isin([generations.case_of(name) for name in NAMES])]
    assert mine.loc[mine["role"] == "best", "kernel"].tolist() == ["sparsert"] * 3
    assert sorted(mine.loc[mine["alike"], "kernel"]) == ["sparsert", "sparsert_paper", "sparsert_paper"]
    found = compare(frame, generations_page.names_of(frame, generations.load_sets(tmp_path)))
    (mean,) = pick(found.facts, gpu=on(H200), policy="hot", fact="speed-up")["ratio"]
    assert mean == pytest.approx(geometric_mean([8 / 6, 8 / 6, 8 / 4]))
    (over_fp32,) = pick(found.facts, policy="hot", baseline="fastest dense fp32 on NVIDIA-H200")["ratio"]
    assert over_fp32 == pytest.approx(2.0)


def test_without_any_measured_gpu_there_is_no_page(tmp_path):
    put(tmp_path, H200, rows(H200, device="cpu", policy="check"))
    assert generations_page.write(tmp_path) is None


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (",80,80,80,", ",nan,80,80,", "line 2: column 'median_us': 'nan' is not a finite number"),
        ("tesla-t4,", "tesla-t5,", "comparisons need one gpu"),
    ],
)
def test_a_set_that_breaks_the_schema_is_refused_in_one_sentence(two, before, after, sentence):
    path = two / T4 / "sparsert_table1" / "records.csv"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    result = report(two, "--gpu", T4)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    with pytest.raises(RecordError, match="records"):
        generations.tabulate(generations.load_sets(two))


def test_rows_twice_and_rows_in_a_foreign_folder_are_refused(two):
    path = two / T4 / "sparsert_table1" / "records.csv"
    good = path.read_text()
    path.write_text(good + good.splitlines()[1] + "\n")
    result = report(two, "--gpu", T4)
    assert (result.exit_code, "repeats line 2" in " ".join(result.output.split())) == (2, True)
    path.write_text(good)
    (two / T4).rename(two / "tesla-t5")
    result = report(two, "--gpu", "tesla-t5")
    assert result.exit_code == 2
    assert "and the folder is tesla-t5/sparsert_table1" in " ".join(result.output.split())


def test_missing_and_extra_problems_are_named_on_the_page(tmp_path):
    extra = [dataclasses.replace(r, problem="extra_1x2x3_90_dlmc", m=65) for r in rows(H200) if r.problem == NAMES[0]]
    folder = put(tmp_path, H200, [*rows(H200), *extra])
    with pages_alone():
        result = report(tmp_path, "sparsert_table1")
    assert result.exit_code == 0, result.output
    page = (folder / "README.md").read_text()
    assert "28 of the 31 problems of sparsert_table1 are not recorded: `" in page
    assert "The table of sparsert_table1 does not have `extra_" in page
