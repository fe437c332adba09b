"""`nnzbench fit` but for its rules: tables of datasets/ written anew, and what estimates are off by."""

import csv
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from commands import invoke
from fake_records import by_law

from nnzbench.advise import recorded as records
from nnzbench.advise.recorded import WAYS, fastest, held_out, load, widened
from nnzbench.cli import fit as fit_rooms
from nnzbench.core import paths
from nnzbench.data.matrices import encodings
from nnzbench.data.matrices.formats import CSR
from nnzbench.results.records.record import append

TIMES = {
    ("cublas", "f32_x"): lambda m, k, n, nnz: 4 + 2e-8 * m * k * n,
    ("sputnik", "v"): lambda m, k, n, nnz: 2 + 2e-7 * nnz * n,
}


def fit(*words):
    return invoke("fit", *words)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Where tables are written."""
    (tmp_path / "datasets").mkdir()
    monkeypatch.setattr(paths, "datasets", lambda: tmp_path / "datasets")
    return tmp_path / "datasets"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Times that follow a law of sizes."""
    folder = tmp_path_factory.mktemp("reports")
    for experiment, sides in (("sputnik_rnn", (256, 512, 1024)), ("sparsert_table1", (384, 768, 1536))):
        rows = by_law(TIMES, experiment, sides, sides, (8, 32, 128))
        append(folder / "nvidia-h200" / experiment / "records.csv", rows)
    return folder


@pytest.fixture(scope="module")
def recorded(reports):
    return load("nvidia-h200", [reports])


def test_each_part_is_estimated_without_itself(recorded):
    for way in [way for way in WAYS if way.endswith("in turn")]:
        rows = held_out(recorded, way)
        assert len(rows) == 2 * 54
        assert rows["error"].mean() < 0.1
        assert rows["error"].max() > 1e-6


def test_all_narrow_or_all_wide_rows_are_held_out_together(recorded, monkeypatch):
    below, above = (way for way in WAYS if way.endswith("together"))
    rows = held_out(recorded, below)
    assert set(rows["n"]) == {8}
    assert len(rows) == 2 * 18
    assert held_out(recorded, above).empty  # none is that wide
    monkeypatch.setattr(records, "LEFT", 40)
    assert held_out(recorded, below).empty  # of 54 rows 36 are left: too few for an answer


def test_structured_patterns_are_held_out_once_each_and_apart_from_others(recorded):
    """Their times, twice as long at the same sizes, leave estimates of the others as they are."""
    frame = recorded._frame
    structured = frame.assign(experiment="granularity", source="nm:2:4:0", median_us=2 * frame["median_us"])
    sparse = pd.concat([frame, structured[structured["kernel"] == "sputnik"]], ignore_index=True)
    rows = held_out(records.Recorded("nvidia-h200", sparse), next(iter(WAYS)))
    assert len(rows) == 3 * 54
    assert rows.groupby("experiment")["error"].mean().max() < 0.1


def test_the_fastest_of_each_kind_count_once_per_problem():
    rows = pd.DataFrame(
        {"experiment": "e", "problem": "p", "n": 8, "dtype": "f32", "dense": [False, False, True, True]}
    ).assign(median_us=[3.0, 2.0, 5.0, 4.0], error=[0.9, 0.1, 0.9, 0.3])
    assert np.allclose(sorted(fastest(rows)["error"]), [0.1, 0.3])


def test_layer_sizes_stay_together(recorded):
    for model in recorded.models("spmm", "f32").values():
        layers = model.rows.assign(part=model.folds).groupby(["m", "k"])["part"]
        assert layers.nunique().max() == 1
        assert set(model.folds) == set(range(5))


def test_errors_of_estimates_are_a_table_with_a_line_for_each_way(reports):
    lines = fit("estimates", "--reports", reports).output.splitlines()
    kernels = lines[lines.index("") + 3 :]
    assert [line.split(" |")[0] for line in kernels[:3]] == ["| cublas f32", "| sputnik f32", ""]
    assert lines.index("") == 2 + len(WAYS) - 1  # nothing is wide enough for the last of the ways
    assert lines[2].startswith("| a fifth of the layer sizes, each in turn | 108 |")


def test_times_below_the_narrowest_width_are_set_beside_dense(recorded, reports):
    """Eight columns as 32: of 18 products those count that are surely faster than dense by it."""
    frame = recorded._frame
    told = widened(recorded)
    assert set(told["n"]) == {8}
    assert set(told["narrowest"]) == {16, 32}
    assert (told["median_us"] < told["dense_us"]).all()
    times = frame["median_us"].mask(frame["kernel"] == "cublas", 10 * frame["median_us"])
    slow = times.mask((frame["kernel"] == "sputnik") & (frame["n"] == 8), 1e4)
    for made, slower in ((times, 0), (slow, 2 * 18)):
        told = widened(records.Recorded("nvidia-h200", frame.assign(median_us=made)))
        assert len(told) == 2 * 18
        assert sum(told["median_us"] > told["dense_us"]) == slower
    printed = fit("estimates", "--reports", reports).output.splitlines()[-1]
    said = json.loads(fit("estimates", "--reports", reports, "--json").output)["narrower than recorded"]
    assert f"{said['times']} of them are told to be 1.25 times as fast as dense or more: 0 are slower" in printed


def test_the_loss_by_the_codebook_is_of_pruned_arrays_alone(tables, tmp_path, monkeypatch):
    pruned = np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32) * (np.arange(32) % 4 == 0)
    np.savez(tmp_path / "real_weights.npz", a_weight=pruned, a_dw_weight=pruned, a_bias=pruned)
    monkeypatch.setenv("NNZBENCH_DATA", str(tmp_path))
    assert fit("codebook").exit_code == 0
    row, *others = csv.DictReader((tables / "codebook_loss.csv").open())
    assert [one["quantiser"] for one in (row, *others)] == list(encodings.QUANTISERS)
    lost = encodings.loss(CSR.from_dense(pruned))
    assert row == {
        "array": "a_weight", "rows": "16", "columns": "32", "nonzeros": "128", "quantiser": "codebook",
        "weights_error": f"{lost.weights:.4f}", "outputs_error": f"{lost.outputs:.4f}",
    }  # fmt: skip


def test_costs_are_learnt_from_recorded_tuning(tables, tmp_path):
    recorded = paths.reports() / "nvidia-h200" / "nm_sparsity"
    shutil.copytree(recorded, tmp_path / "reports" / "nvidia-h200" / "nm_sparsity")
    assert fit("costs", tmp_path / "reports").exit_code == 0
    (header, *rows) = (tables / "costs.csv").read_text().splitlines()
    assert header.startswith("experiment,kernel,")
    assert any(row.startswith("nm_sparsity,cublas,") for row in rows)
    refused = fit("costs", tables)
    assert refused.exit_code == 2
    assert "no tuning table lies in <gpu>/<experiment>/" in refused.output


def test_queues_are_simulated_on_the_layers_of_the_tables(tmp_path, monkeypatch):
    """The simulation itself is tested with `matrices.queues`; here two small layers stand for all."""
    shipped = list(csv.DictReader((paths.datasets() / "queues.csv").open()))
    labels = ("nt_we_a100", "balanced_projection_b32")
    chosen = [pair for pair in fit_rooms._interleaved() if pair[0].label in labels]
    assert len({row["label"] for row in shipped}) == len(list(fit_rooms._interleaved()))
    monkeypatch.setattr(fit_rooms, "_interleaved", lambda: iter(chosen))
    monkeypatch.setattr(paths, "datasets", lambda: tmp_path)
    assert fit("queues").exit_code == 0
    rows = list(csv.DictReader((tmp_path / "queues.csv").open()))
    assert [row["elements"] for row in rows[::9]] == ["64", "32"]
    assert all(row in shipped for row in rows)
