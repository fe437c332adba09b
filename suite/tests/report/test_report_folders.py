"""`report` reads and writes below the folder it was given, and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from click.testing import Result
from commands import invoke
from draft_figures import pages_alone

from nnzbench.core import paths
from nnzbench.report.render import clocks
from nnzbench.results.records.beside import MEMORY, Memory
from nnzbench.results.result_set import load
from nnzbench.site import coverage
from nnzbench.site.index import page as index_page
from nnzbench.site.index.headlines import write_headline

HEADLINE = "<!-- nnzbench:headline -->\nold\n<!-- /nnzbench:headline -->\n"


def report(*arguments: str | Path) -> Result:
    return invoke("report", *arguments)


def recorded(reports: Path, gpu: str = "nvidia-h200") -> Path:
    """Three problems: what is written where is the same of any number."""
    rows = fake_records.table1(policies=["hot"])
    few = set(sorted({row.problem for row in rows})[:3])
    kept = [dataclasses.replace(row, gpu=gpu) for row in rows if row.problem in few]
    return fake_records.write(reports / gpu / "sparsert_table1", kept)


def tree(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.figures(kind="svg")
def test_only_what_lies_below_the_folder_changes_and_the_readme_when_asked(tmp_path: Path) -> None:
    """Links in the places of pages are replaced, and not written through."""
    folder = recorded(tmp_path / "x")
    readme = tmp_path / "README.md"
    readme.write_text(HEADLINE)
    places = [folder / name for name in ("README.md", "facts.csv", "speedup.svg")]
    places += [folder.parent / name for name in ("claims.csv", "claims.md", "coverage.csv", "coverage.md")]
    for place in (*places, tmp_path / "x" / "index.html"):
        target = tmp_path / f"kept-{place.name}"
        target.write_text("kept")
        place.symlink_to(target)
    before = tree(tmp_path)
    done = report("sparsert_table1", "--reports", tmp_path / "x")
    assert done.exit_code == 0, done.output
    after = tree(tmp_path)
    changed = {path for path, content in after.items() if before.get(path) != content}
    assert changed >= {folder / "README.md", folder / "facts.csv", tmp_path / "x" / "index.html"}
    assert all(path.is_relative_to(tmp_path / "x") for path in changed)
    assert not any(path.is_symlink() for path in after)
    with pages_alone():  # the others are there
        asked = report("sparsert_table1", "--reports", tmp_path / "x", "--readme")
    assert asked.exit_code == 0, asked.output
    assert "(x/nvidia-h200/sparsert_table1/README.md)" in readme.read_text()


def test_gpus_come_by_what_is_recorded_and_tuned_then_by_their_memory() -> None:
    cells = {"nvidia-l4": (3, 19), "nvidia-a100-sxm4-80gb": (20, 1), "nvidia-h200": (17, 6), "tesla-t4": (20, 20)}
    counted = {  # of 1,000: 2, 2, 2 and 4 percent
        gpu: pd.DataFrame({"expected": [500, 500], "missing": [1, missing], "untuned": [0, untuned]})
        for gpu, (missing, untuned) in cells.items()
    }
    counted["an-unlisted-gpu"] = pd.DataFrame({"expected": [100], "missing": [3], "untuned": [0]})
    counted["nothing-is-expected-of-it"] = pd.DataFrame({"expected": [], "missing": [], "untuned": []})
    order = sorted(counted, key=lambda gpu: coverage.rank(gpu, counted[gpu]))
    fastest_first = ["nvidia-h200", "nvidia-a100-sxm4-80gb", "nvidia-l4"]
    assert order == [*fastest_first, "an-unlisted-gpu", "tesla-t4", "nothing-is-expected-of-it"]


def test_the_readme_and_index_html_show_the_first_gpu_first(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(HEADLINE)
    order = ["nvidia-l4", "nvidia-h200", "tesla-t4"]
    folders = [recorded(tmp_path / "x", gpu) for gpu in sorted(order)]
    assert write_headline(tmp_path / "x", ["not-recorded", *order])
    assert "(x/nvidia-l4/sparsert_table1/README.md)" in readme.read_text()
    entries = {folder: index_page.entry_of(folder) for folder in folders}
    names = ["sparsert_table1"]
    html = index_page.write(tmp_path / "x", names, {"sparsert_table1": folders}, entries, order).read_text()
    assert list(dict.fromkeys(re.findall(r'href="([\w-]+)/sparsert_table1', html))) == order


def test_checks_of_the_processor_are_drawn_too(tmp_path: Path) -> None:
    blank = dict.fromkeys(("median_us", "q1_us", "q3_us", "samples", "sm_clock_mhz", "limit_us", "floor_us"))
    rows = [
        dataclasses.replace(row, device="cpu", gpu="cpu", policy="check", selected=False, **blank)
        for row in fake_records.table1(policies=["hot"])
    ]
    folder = fake_records.write(tmp_path / "cpu" / "sparsert_table1", rows)
    drawn = report("sparsert_table1", "--reports", tmp_path, "--json")
    assert drawn.exit_code == 0, (drawn.output, drawn.exception)
    assert [row["page"] for row in json.loads(drawn.stdout)] == [str(folder / "README.md")]
    assert (tmp_path / "index.html").is_file()
    mine = tmp_path / "mine"
    fake_records.write(mine / "cpu" / "sparsert_table1", [row for row in rows if row.kernel == "sputnik"])
    with pages_alone():
        alone = report("sparsert_table1", "--reports", mine)  # as --kernel sputnik records: no rival, no answer
    assert alone.exit_code == 0, (alone.output, alone.exception)
    best = tmp_path / "best"  # what `best --device cpu` leaves: no experiment, and no time to draw
    one = [row for row in rows if row.problem == rows[0].problem]
    own = fake_records.write(best / "cpu" / "mine", [dataclasses.replace(row, experiment="mine") for row in one])
    with pages_alone():
        told = report("mine", "--reports", best)
    assert told.exit_code == 0, (told.output, told.exception)
    assert (own / "README.md").is_file()


def test_records_one_level_off_and_none_at_all_are_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "x")
    for folder in (tmp_path / "x" / "nvidia-h200", tmp_path / "x" / "nvidia-h200" / "sparsert_table1"):
        off = report("--reports", folder)
        assert off.exit_code == 2
        assert f"give --reports {tmp_path / 'x'}" in " ".join(off.output.split())
    monkeypatch.setattr(paths, "results", lambda: tmp_path / "results")
    none = report()
    assert none.exit_code == 2
    assert "--reports reports` redraws the published runs" in none.output


@pytest.mark.parametrize("cell", ["../../secret.json", "{root}/secret.json", ".."])
def test_an_environment_cell_leads_nowhere_else(tmp_path: Path, cell: str) -> None:
    (tmp_path / "secret.json").write_text('{"gpu": {"name": "a secret"}}')
    rows = [dataclasses.replace(row, environment=cell.format(root=tmp_path)) for row in fake_records.table1()]
    folder = fake_records.write(tmp_path / "x" / "nvidia-h200" / "sparsert_table1", rows)
    refused = report("sparsert_table1", "--reports", tmp_path / "x")
    assert refused.exit_code == 2
    assert "is not the name of a file beside it" in " ".join(refused.output.split())
    assert not (folder / "README.md").exists()


@pytest.mark.parametrize("name", ["environment.json", "records.csv", "tuning.csv", "", "..", "standin", "peers"])
def test_a_link_is_not_read_through(tmp_path: Path, name: str) -> None:
    folder = recorded(tmp_path / "x")
    link = folder.parent / name if name == "peers" else (folder / name) if name != ".." else folder.parent
    target = tmp_path / "elsewhere"
    if link.exists():
        link.rename(target)
    elif name in ("standin", "peers"):
        fake_records.write(target, fake_records.table1())
    else:
        target.write_text("secret")
    link.symlink_to(target)
    before = tree(target) if target.is_dir() else {target: target.read_bytes()}
    refused = report("sparsert_table1", "--reports", tmp_path / "x")
    assert refused.exit_code == 2, refused.output
    assert "is a link" in refused.output
    assert (tree(target) if target.is_dir() else {target: target.read_bytes()}) == before


def test_a_users_own_matrices_are_answered_by_the_fastest_of_this_projects_kernels(tmp_path: Path) -> None:
    rows = [dataclasses.replace(row, experiment="mine") for row in fake_records.table1(policies=["hot"])]
    folder = fake_records.write(tmp_path / "nvidia-h200" / "mine", rows)
    with pages_alone():
        told = report("mine", "--reports", tmp_path)
    assert told.exit_code == 0, (told.output, told.exception)
    assert "best of ours is **" in (folder / "README.md").read_text()


@pytest.mark.parametrize(("peak", "after", "known"), [(9, 4, True), (9, 9, False), (4, 4, False), (3, 4, False)])
def test_memory_that_was_not_seen_taken_or_moved_meanwhile_is_unknown(
    tmp_path: Path, peak: int, after: int, known: bool
) -> None:
    one = fake_records.record()
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", [one])
    sizes = (4 << 30, peak << 30, after << 30)
    key = (one.problem, one.dtype, one.kernel, one.variant, one.device)
    MEMORY.add(folder, Memory(*key, *sizes))
    taken = load(folder).frame["memory_bytes"].tolist()
    assert taken == pytest.approx([5 << 30 if known else math.nan], nan_ok=True)


def test_the_page_speaks_of_the_last_rows_environment(tmp_path: Path) -> None:
    rows = [fake_records.record(problem=name, environment=f"environment-{name}.json") for name in ("a", "b")]
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    for name in ("a", "b"):
        (folder / f"environment-{name}.json").write_text(f'{{"time": "{name}"}}')
    assert load(folder).environment == {"time": "b"}


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        (("1", "1"), ""),
        (("1", "2"), "on 1 of 2 problems times come from several cards or runs"),
        ((None, None), "on 1 of 2 problems times come from several cards or runs"),
    ],
)
def test_kernels_that_were_measured_on_different_gpus_are_told(tmp_path: Path, workers, told) -> None:
    at = ("environment-1.json", "environment-2.json")
    rows = [
        fake_records.record(kernel=kernel, problem=problem, environment=at[number], selected=True)
        for kernel, problem, number in (
            ("cublas", "a", 0),
            ("sputnik", "a", 1),
            ("cublas", "b", 1),
            ("sputnik", "b", 1),
        )
    ]
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    for name, worker in zip(at, workers, strict=True):
        (folder / name).write_text(json.dumps({"worker": worker} if worker else {}))
    said = clocks(load(folder), "‡")
    assert told in said
    assert ("problems" in said) == bool(told)
    assert said.endswith("‡ marks a ratio that this could turn round.")


def test_parts_of_a_study_that_were_measured_on_different_gpus_are_told(tmp_path: Path) -> None:
    """Its variants are what is compared, also those that are not its fastest; of another kernel the fastest stands."""
    at = ("environment-1.json", "environment-2.json")
    rows = [
        fake_records.record(kernel=kernel, problem=problem, variant=variant, environment=name, selected=variant == "a")
        for kernel, problem in (("sputnik_ablation", "study"), ("sputnik", "other"))
        for variant, name in zip(("a", "b"), at, strict=True)
    ]
    folder = fake_records.write(tmp_path / "nvidia-h200" / "sparsert_table1", rows)
    for name in at:
        (folder / name).write_text(json.dumps({"worker": name}))
    assert "on 1 of 2 problems times come from several cards or runs" in clocks(load(folder), "")
