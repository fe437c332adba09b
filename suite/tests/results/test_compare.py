import json
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from fake_records import failed as fake_failed
from fake_records import record
from fake_records import write as write_set

from nnzbench.results import runs
from nnzbench.results.records.folder import export
from nnzbench.results.records.record import NOT_TIMED, RecordError, append, frame_of
from nnzbench.results.result_set import each, load


def compared(before, after):
    return runs.compare(frame_of(before), frame_of(after))


def row(us=10.0, spread=0.1, samples=25, clock=1980.0, **changes):
    times = {"median_us": us, "q1_us": us - spread / 2, "q3_us": us + spread / 2, "samples": samples}
    return record(**{**times, "sm_clock_mhz": clock, "selected": False, **changes})


def failed(**changes):
    return fake_failed(row(**changes), "wrong", "relative error 1")


def verdict(before, after):
    return compared([before], [after]).rows["verdict"].item()


def verdicts(rng, policy, before, after):
    """Of two runs' rows as a GPU gives them: a shift of each time, noise with a tail, event steps when cold."""

    def measured(at, us):
        run_to_run = 1 + rng.normal(0, 0.01)  # as seen between runs on an H200
        samples = us * run_to_run * (1 + np.abs(rng.normal(0, 0.01, 21)) + rng.exponential(0.002, 21))
        if policy == "cold":
            samples = np.maximum(np.round(samples / 0.032), 1) * 0.032
        q1, median, q3 = np.quantile(samples, [0.25, 0.5, 0.75])
        times = {"median_us": median, "q1_us": q1, "q3_us": q3, "samples": 21}
        clock = 1980.0 * (1 + rng.normal(0, 0.003))
        return record(problem=f"p{at}", policy=policy, sm_clock_mhz=clock, selected=False, **times)

    old, new = ([measured(at, us) for at, us in enumerate(times)] for times in (before, after))
    return list(compared(old, new).rows["verdict"])


@pytest.mark.parametrize("policy", ["hot", "cold"])
def test_two_runs_of_one_build_are_never_called_different(policy):
    rng = np.random.default_rng(3)
    times = np.exp(rng.uniform(np.log(1.5), np.log(500), 500))
    found = verdicts(rng, policy, times, times)
    assert not {"FASTER", "SLOWER"} & set(found)
    assert found.count("SAME") > 475


@pytest.mark.parametrize("policy", ["hot", "cold"])
def test_a_real_difference_of_thirty_percent_is_found_and_one_of_twelve_is_not_called_same(policy):
    rng = np.random.default_rng(4)
    times = np.exp(rng.uniform(np.log(20.0), np.log(500), 300))
    assert verdicts(rng, policy, times, 1.3 * times).count("SLOWER") > 285
    assert verdicts(rng, policy, 1.3 * times, times).count("FASTER") > 285
    assert verdicts(rng, policy, times, 1.12 * times).count("SAME") < 15


def test_the_change_is_told_with_its_bounds():
    (found,) = each(compared([row(100.0, spread=2.0, samples=25)], [row(150.0, spread=3.0, samples=25)]).rows)
    old = 3.5 * 1.2533 * 2.0 / 1.349 / 5 + 0.025
    new = 3.5 * 1.2533 * 3.0 / 1.349 / 5 + 0.025
    assert found.ratio == pytest.approx(1.5)
    assert (found.low, found.high) == pytest.approx(((150 - new) / (100 + old), (150 + new) / (100 - old)))


def test_a_difference_within_the_noise_or_that_only_the_clock_makes_is_unclear():
    assert verdict(row(10.0, spread=4.0), row(11.0, spread=4.0)) == "UNCLEAR"
    assert verdict(row(100.0, clock=1980.0), row(120.0, clock=1650.0)) == "UNCLEAR"
    assert verdict(row(120.0, clock=1650.0), row(100.0, clock=1980.0)) == "UNCLEAR"
    assert verdict(row(100.0, clock=1980.0), row(120.0, clock=1980.0)) == "SLOWER"
    assert verdict(row(100.0, clock=None), row(120.0, clock=None)) == "SLOWER"


@pytest.mark.parametrize(
    ("policy", "change", "word"),
    [("hot", 1.039, "SAME"), ("hot", 1.05, "UNCLEAR"), ("cold", 1.069, "SAME"), ("cold", 1.08, "UNCLEAR"),
     ("stream", 1.05, "UNCLEAR")],
)  # fmt: skip
def test_what_is_the_same_is_wider_for_cold_times(policy, change, word):
    for us in (100.0 * change, 100.0 / change):
        assert verdict(row(100.0, policy=policy), row(us, policy=policy)) == word


@pytest.mark.parametrize(
    ("policy", "word", "times"),
    [("hot", "SLOWER", (115.0, 115.1)), ("hot", "FASTER", (86.95, 86.85)), ("cold", "SLOWER", (115.5, 115.6)),
     ("cold", "FASTER", (86.55, 86.45)), ("loop", "SLOWER", (115.0, 115.1))],
)  # fmt: skip
def test_what_is_different_is_so_by_fifteen_percent_beyond_half_a_step_of_the_timer(policy, word, times):
    found = [verdict(row(100.0, 0.0, policy=policy), row(us, 0.0, policy=policy)) for us in times]
    assert found == ["UNCLEAR", word]


def test_another_machine_of_a_gpu_says_of_how_many_of_the_fastest_it_has_the_same(tmp_path):
    ratios = {("hot", "a"): 1.039, ("hot", "b"): 1 / 1.039, ("hot", "c"): 1.0395, ("hot", "d"): 1.041}
    ratios |= {("cold", "a"): 1.069, ("cold", "b"): 1 / 1.071, ("cold", "c"): 1.0, ("hot", "slow"): 1.0}
    folders = [tmp_path / name / "nvidia-h200" / "sparsert_table1" for name in ("", runs.REPEATED)]
    for at, folder in enumerate(folders):
        made = [
            row(20.0 if name == "slow" else 10.0 * ratio**at, policy=policy, variant="slow" if name == "slow" else "v",
                problem="a" if name == "slow" else name, selected=name != "slow")
            for (policy, name), ratio in ratios.items()
        ]  # fmt: skip
        write_set(folder, [*made[:-2], fake_failed(made[-2], "wrong", "why") if at else made[-2], made[-1]])
    results = load(folders[0])
    again, of, same = runs.reproduced(results)
    assert (again.folder, of, same) == (folders[1], 6, 4)
    assert runs.reproduced(again) is None


def test_a_kernel_that_stopped_being_correct_is_failed_and_a_regression():
    result = compared([row()], [failed()])
    assert list(result.rows["verdict"]) == ["FAILED"]
    assert result.regressed


def test_a_candidate_that_the_second_run_did_not_time_for_being_far_behind_is_no_failure():
    behind = fake_failed(row(), "unsupported", f"{NOT_TIMED}over 4 times as slow as another candidate")
    result = compared([row()], [behind])
    assert (len(result.rows), result.only_before, result.regressed) == (0, 1, False)


def test_rows_of_one_run_only_are_counted_not_compared():
    result = compared(
        [row(), row(variant="gone")], [row(), row(variant="new1"), row(variant="new2"), failed(variant="new3")]
    )
    assert (len(result.rows), result.only_before, result.only_after) == (1, 1, 2)


def test_the_fastest_of_each_kernel_is_counted_once_by_arithmetic_and_policy():
    times = {"a": 10.0, "b": 9.0, "tf32_a": 8.0}
    before = [
        row(us, kernel="cublas", variant=name, policy=one) for name, us in times.items() for one in ("hot", "cold")
    ]
    after = [
        row(2 * us if name == "b" else 5.0, kernel="cublas", variant=name, policy=one)
        for name, us in times.items()
        for one in ("hot", "cold")
    ]
    result = compared(before, after)
    assert result.counts == {"SLOWER": 2, "FASTER": 4}
    assert result.fastest == {"SLOWER": 2, "FASTER": 2}


def write(path, *rows):
    append(path / "records.csv", rows)
    return str(path)


def test_command_exits_1_on_a_regression_and_says_which_row(tmp_path):
    a, b = write(tmp_path / "a" / "x", row(100.0)), write(tmp_path / "b" / "x", row(150.0))
    result = invoke("compare", a, b)
    assert result.exit_code == 1
    assert "SLOWER" in result.output
    assert "+50.0 %" in result.output
    assert invoke("compare", b, a).exit_code == 0
    assert result.output.splitlines()[1:] == ["1 SLOWER", "of each kernel's fastest: 1 SLOWER"]
    same = invoke("compare", a, a, "--json")
    assert json.loads(same.output)["counts"] == {"SAME": 1, "only_before": 0, "only_after": 0}
    (one,) = json.loads(invoke("compare", a, b, "--json").output)["rows"]
    assert (one["before_us"], one["after_us"], one["verdict"]) == (100.0, 150.0, "SLOWER")
    assert one["ratio"] == pytest.approx(1.5)
    assert one["ratio_low"] < 1.5 < one["ratio_high"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"gpu": "other-gpu"}, "only runs on one GPU compare"), ({"variant": "other"}, "nothing to compare")],
)
def test_runs_on_two_gpus_or_without_a_row_in_common_are_refused(tmp_path, changes, words):
    result = invoke("compare", write(tmp_path / "a", row()), write(tmp_path / "b", row(**changes)))
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_a_run_without_a_counterpart_in_results_is_refused(tmp_path):
    with pytest.raises(RecordError, match="has no run of the experiments and the GPU"):
        runs.compare_with_results(Path(write(tmp_path / "a", row())), tmp_path / "results")


def test_a_file_that_is_no_records_file_is_refused(tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1,2\n")
    result = invoke("compare", bad, bad)
    assert result.exit_code == 2
    assert "bad.csv" in result.output
    assert invoke("compare", tmp_path, tmp_path).exit_code == 2


def told(folder, rows, **versions):
    append(folder / "records.csv", rows)
    said = {"software": {"nvrtc": "12.9", **versions}, "packages": {"numpy": "2.3"}, "gpu": {"driver": "580"}}
    (folder / "environment.json").write_text(json.dumps(said))
    return str(folder)


def test_runs_that_differ_in_one_library_end_in_a_table_of_what_moved(tmp_path):
    kernels = {"cublas": (1.0, 2.0), "sputnik": (1.0, 1.0), "eie": (1.0, 0.25)}
    before, after = (
        [
            row(us=10.0 * times[at] ** sign, kernel=name, problem=f"p{sign}", variant="v")
            for name, times in kernels.items()
            for sign in (1, -1, 0.5)
        ]
        for at in (0, 1)
    )
    old = told(tmp_path / "old", before, cublas="12.9")
    new = told(tmp_path / "new", after, cublas="13.0")
    text = invoke("compare", old, new).output
    export(tmp_path / "old", "parquet")
    assert invoke("compare", old, new).output == text  # published, its snapshots are a table
    assert "What moved with cublas 12.9 -> 13.0" in text
    table = [line for line in text.splitlines() if line.startswith("| ") and "hot" in line]
    assert table == [
        "| eie hot | 3 | 0.794 | 0.250 | 4.000 | 3 |",
        "| cublas hot | 3 | 1.122 | 0.500 | 2.000 | 3 |",
        "| sputnik hot | 3 | 1.000 | 1.000 | 1.000 | 0 |",
    ]
    for name, versions in (("same", {"cublas": "12.9"}), ("two", {"cublas": "13.0", "nvrtc": "13.0"})):
        assert "What moved" not in invoke("compare", old, told(tmp_path / name, after, **versions)).output
