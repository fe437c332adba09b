"""The folder of a run: what is gone on with, what is kept after an end, and that one run at a time writes there."""

import datetime
from dataclasses import replace

import pytest
from fakes import FakeDevice, FakeKernel, Silent
from small_sweeps import PEAKS, Notes, experiment, rows, sweep

from nnzbench.bench.session import Session
from nnzbench.bench.sweep import Choice, run_experiment
from nnzbench.core import paths
from nnzbench.kernels import registry
from nnzbench.results.records import older
from nnzbench.results.records.beside import MEMORY, TUNING, Memory, Tuning
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import RecordError


def test_resume_repairs_a_line_that_a_crash_cut_off(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, "")})
    sweep(tmp_path, kernel)
    path = tmp_path / "out" / "records.csv"
    whole = path.read_text()
    path.write_text(whole[:-40])
    (tmp_path / "out" / "tuning.csv").unlink()
    progress = Notes()
    sweep(tmp_path, kernel, choice=Choice(resume=True), progress=progress)
    assert any("cut off" in note for note in progress.notes)
    assert len(rows(tmp_path)) == 4


@pytest.mark.parametrize(
    ("lost", "cut"),
    [(1, 30), (2, 30), (3, 0), (4, 30), (5, 0), (6, 0), (7, 30), (8, 0), (9, 30), (11, 0), (15, 0), (15, 30)],
)  # 1 and 2 are reasons alone, which leave no trace where the whole line is lost
def test_resume_brings_back_rows_that_are_lost_each_once(tmp_path, lost, cut):
    """Off the end, as of a disk that was full or a copy that was not: tuning.csv has them all."""
    ends = FakeKernel(name="ends", variants={"v1": (5.0, ""), "v2": (1.0, "unsupported")})
    none = FakeKernel(name="none", ops=frozenset({"sparse_softmax"}))
    kernels = (FakeKernel(variants={"a": (5.0, ""), "b": (6.0, "")}), none, ends)
    sweep(tmp_path, *kernels)
    path = tmp_path / "out" / "records.csv"
    before, lines = rows(tmp_path), path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-lost]) + (lines[-lost][:-cut] if cut else ""))
    progress = Notes()
    summary = sweep(tmp_path, *kernels, choice=Choice(resume=True), progress=progress)
    assert sum(summary.counts.rows.values()) == lost
    assert sorted(map(identity, rows(tmp_path))) == sorted(map(identity, before))
    assert len({tuning.key for tuning in TUNING.read(tmp_path / "out")}) == len(TUNING.read(tmp_path / "out")) == 6
    assert any("they are run again" in note for note in progress.notes)
    for kernel in kernels:
        kernel.prepared.clear()
    assert sweep(tmp_path, *kernels, choice=Choice(resume=True)).counts.rows == {}
    assert not any(kernel.prepared for kernel in kernels)


def test_a_row_that_says_why_no_more_came_stands_for_no_candidate_that_is_lost(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, ""), "b": (6.0, ""), "c": (1.0, "unsupported")})
    sweep(tmp_path, kernel)
    path = tmp_path / "out" / "records.csv"
    before, lines = rows(tmp_path), path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if ",fake,a," not in line))
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {"ok": 4}
    assert sorted(map(identity, rows(tmp_path))) == sorted(map(identity, before))


def test_what_is_wholly_tuned_stays_so_whatever_else_is_told_of_it(tmp_path):
    with Results(tmp_path, True, False, {}, print) as results:
        for scope in ("first", "all", "some"):
            results.add_tuning(Tuning("p", "f32", "fake", "cupy", "hot", 1, 1, 1.0, scope))
        assert set(results.tuned.values()) == {"all"}


@pytest.mark.parametrize("timed", [True, False])
def test_tuning_names_the_policies_that_it_was_under(tmp_path, timed):
    sweep(tmp_path, FakeKernel(), device=FakeDevice(timed), choice=Choice(policies=("cold",)))
    assert {row.policies for row in TUNING.read(tmp_path / "out")} == {"cold" if timed else "check"}


def identity(row):
    return row.key, row.status, row.reason


def test_a_folder_whose_records_are_all_lost_is_begun_anew(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, "")})
    sweep(tmp_path, kernel)
    (tmp_path / "out" / "records.csv").write_text("")
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {"ok": 4}


def test_a_run_of_few_candidates_is_gone_on_with_by_a_whole_one(tmp_path):
    kernel = FakeKernel(variants={f"v{i}": (5.0, "") for i in range(4)})
    sweep(tmp_path, kernel, choice=Choice(candidates=3))
    tried = len(kernel.prepared)
    sweep(tmp_path, kernel, choice=Choice(candidates=3, resume=True))
    assert len(kernel.prepared) == tried
    sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert {r.variant for r in rows(tmp_path)} == {"v0", "v1", "v2", "v3"}
    assert len(rows(tmp_path)) == len({r.key for r in rows(tmp_path)}) == 16
    done = len(kernel.prepared)
    sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert len(kernel.prepared) == done
    assert [tuning.scope for tuning in TUNING.read(tmp_path / "out")] == 2 * ["some"] + 2 * ["all"]


def test_resume_runs_the_variant_that_a_study_got_after_it_was_recorded(tmp_path, monkeypatch):
    kernel = FakeKernel(variants={"whole_v4": (5.0, ""), "no_vector_v1": (6.0, "")})
    named = ["whole", "no_vector"]
    monkeypatch.setitem(registry._registry, kernel.name, kernel)
    monkeypatch.setitem(
        registry._about, kernel.name, registry.About("paper", study=True, study_variants=lambda _: tuple(named))
    )
    sweep(tmp_path, kernel)
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {}
    named.append("paper")
    kernel.variants["paper_v4"] = (5.5, "")
    assert sweep(tmp_path, kernel, choice=Choice(candidates=2, resume=True)).counts.rows == {}
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {"ok": 4}
    assert {row.variant for row in rows(tmp_path)} == {*kernel.variants}
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {}


def test_resume_goes_on_where_a_later_run_knew_another_first_choice(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, "")})
    sweep(tmp_path, kernel)
    kernel.variants["b"] = (6.0, "")
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {}
    (line, *_) = TUNING.read(tmp_path / "out")
    TUNING.add(tmp_path / "out", replace(line, policies="hot", scope="some", untuned="b"))
    again = sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert {(row.variant, row.problem) for row in rows(tmp_path)} >= {("b", line.problem)}
    assert sum(again.counts.rows.values()) == 2  # of one problem, both policies
    assert sweep(tmp_path, kernel, choice=Choice(resume=True)).counts.rows == {}


def test_another_environment_gets_a_snapshot_of_its_own(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, "")})
    sweep(tmp_path, kernel)
    kernel.variants["b"] = (4.0, "")
    (tmp_path / "out" / "tuning.csv").unlink()
    session = Session(FakeDevice(), {"fake": kernel}, PEAKS, {"driver": "2"})
    run_experiment(experiment(kernel), session, tmp_path / "out", Choice(resume=True), Silent())
    named = {(r.variant, r.environment) for r in rows(tmp_path)}
    assert named == {("a", "environment.json"), ("b", "environment-2.json")}
    assert {r.variant for r in rows(tmp_path) if r.selected} == {"b"}


def test_rows_of_another_machine_with_the_gpu_are_told_of_once(tmp_path):
    def notes(*cold_us):
        found = []
        with Results(tmp_path, True, False, {}, found.append) as results:
            for us in cold_us:
                results.add_environment({"gpu": {"name": "a GPU"}, "peaks": {"floor_cold_us": us}})
        return found

    assert notes(3.1, 3.3, None) == []
    assert [note.split(": ", 1)[1].split(",")[0] for note in notes(4.6, 4.7)] == ["an empty launch takes 4.6 us here"]
    (tmp_path / "environment.json").write_text("{}")
    (tmp_path / "environment-2.json").write_text('{"peaks": {}}')
    assert notes(4.65) == []


def test_on_the_processor_a_later_date_alone_is_no_snapshot_of_its_own(tmp_path):
    def opened(date, commit="a", gpu=None):
        facts = {"recorded_at": date, "source": {"commit": commit}, "gpu": gpu or {"missing": "the cpu is no GPU"}}
        return Results(tmp_path, True, False, facts, print).environment

    assert opened("2026-01-01") == opened("2026-01-02") == "environment.json"
    assert opened("2026-01-03", "b") == "environment-2.json"
    assert opened("2026-01-04") == "environment.json"
    timed = [opened(date, gpu={"name": "a GPU"}) for date in ("2026-01-05", "2026-01-06")]
    assert timed == ["environment-3.json", "environment-4.json"]  # a session of times is told from another
    assert opened("2026-01-06", gpu={"name": "a GPU"}) == "environment-4.json"  # the same session, here again
    (tmp_path / "environment-2.json").unlink()
    before = (tmp_path / "environment-4.json").read_text()
    assert opened("2026-01-07", gpu={"name": "a GPU"}) == "environment-2.json"  # not one that rows may name
    assert (tmp_path / "environment-4.json").read_text() == before


def test_an_interrupt_keeps_the_rows_with_their_selection(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, ""), "b": (6.0, KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, kernel)
    assert {(r.variant, r.selected) for r in rows(tmp_path)} == {("a", True)}


@pytest.mark.parametrize("cache", ["cache", "another cache"])
def test_two_runs_never_write_to_one_folder_whatever_their_caches(tmp_path, monkeypatch, cache):
    kernel, refused = FakeKernel(), []

    def second():
        monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / cache))
        with pytest.raises(RecordError, match="another run is writing"):
            sweep(tmp_path, FakeKernel(), choice=Choice(resume=True))
        refused.append(True)

    kernel.after_prepare = second
    sweep(tmp_path, kernel)
    assert refused
    keys = [row.key for row in rows(tmp_path)]
    assert len(keys) == len(set(keys))


def test_the_lock_is_no_link(tmp_path):
    sweep(tmp_path, FakeKernel())
    lock, victim = tmp_path / "out" / ".lock", tmp_path / "victim"
    victim.write_text("mine")
    lock.unlink()
    lock.symlink_to(victim)
    with pytest.raises(RecordError, match=r"\.lock is a link"):
        sweep(tmp_path, FakeKernel(), choice=Choice(resume=True))
    assert victim.read_text() == "mine"


MONDAY, TUESDAY, WEDNESDAY = (datetime.datetime(2026, 11, day, tzinfo=datetime.timezone.utc) for day in (2, 3, 4))
AGAIN = Choice(resume=True, before=TUESDAY, kernels=("fake",))


def recorded_on(tmp_path, day, kernel, *others, choice=None):
    exp = experiment(kernel, *others)
    return sweep(tmp_path, kernel, *others, exp=exp, choice=choice, recorded_at=day.isoformat())


def times(tmp_path):
    """By problem, kernel, variant and policy; each row once."""
    found = {row.key[1:2] + row.key[3:5] + row.key[6:]: row.median_us for row in rows(tmp_path)}
    assert len(found) == len(rows(tmp_path))
    return found


def test_what_was_recorded_before_a_time_is_measured_again_once(tmp_path):
    """Of the kernels that are asked for, whose candidates may be others now; what is left is told of as before."""
    mine, other = FakeKernel(variants={"a": (5.0, ""), "b": (6.0, "")}), FakeKernel("other", {"v": (3.0, "")})
    recorded_on(tmp_path, MONDAY, mine, other)
    for variant in "ab":
        MEMORY.add(tmp_path / "out", Memory("p0", "f32", "fake", variant, "cupy", 0, 2, 1))
    before, mine.variants = times(tmp_path), {"b": (4.0, ""), "c": (7.0, "")}
    assert recorded_on(tmp_path, WEDNESDAY, mine, other, choice=AGAIN).counts.rows == {"ok": 8}
    wanted = {key: us for key, us in before.items() if key[1] == "other"}
    wanted |= {
        (p, "fake", v, policy): us
        for p in ("p0", "p1")
        for v, us in (("b", 4.0), ("c", 7.0))
        for policy in ("hot", "cold")
    }
    assert times(tmp_path) == wanted
    assert {row.variant for row in rows(tmp_path) if row.selected and row.kernel == "fake"} == {"b"}
    assert len(TUNING.read(tmp_path / "out")) == 4
    assert not MEMORY.read(tmp_path / "out")
    assert not (tmp_path / "out" / older.OLDER).exists()
    for choice in (AGAIN, Choice(resume=True)):
        assert recorded_on(tmp_path, WEDNESDAY, mine, other, choice=choice).counts.rows == {}


@pytest.mark.parametrize("left_out", [{"problems": ("p1",)}, {"policies": ("cold",)}, {"dtypes": ("f16",)}])
def test_other_rows_of_before_a_time_stay(tmp_path, left_out):
    mine = FakeKernel(variants={"a": (5.0, "")})
    recorded_on(tmp_path, MONDAY, mine)
    before, mine.variants = times(tmp_path), {"a": (4.0, "")}
    recorded_on(tmp_path, WEDNESDAY, mine, choice=replace(AGAIN, **left_out))
    problems, policies = left_out.get("problems", ("p0", "p1")), left_out.get("policies", ("hot", "cold"))
    asked = {key for key in before if key[0] in problems and key[3] in policies and "dtypes" not in left_out}
    assert times(tmp_path) == {key: 4.0 if key in asked else us for key, us in before.items()}
    assert recorded_on(tmp_path, WEDNESDAY, mine, choice=Choice(resume=True)).counts.rows == {}


@pytest.mark.parametrize("after", range(5))
def test_a_run_that_ends_while_it_measures_again_loses_no_row(tmp_path, after):
    mine = FakeKernel(variants={"a": (5.0, ""), "b": (6.0, "")})
    recorded_on(tmp_path, MONDAY, mine)
    before, tried = times(tmp_path), len(mine.prepared)
    mine.variants = {"a": (3.0, ""), "b": (4.0, "")}

    def interrupt():
        if len(mine.prepared) > tried + after:
            raise KeyboardInterrupt

    mine.after_prepare = interrupt
    if after < 4:
        with pytest.raises(KeyboardInterrupt):
            recorded_on(tmp_path, WEDNESDAY, mine, choice=AGAIN)
    there = times(tmp_path)
    assert there.keys() == before.keys()
    assert sum(us < 5.0 for us in there.values()) == (2 * after if after < 4 else 0)
    mine.after_prepare = lambda: None
    assert recorded_on(tmp_path, WEDNESDAY, mine, choice=AGAIN).counts.rows == {"ok": 8 - 2 * after if after < 4 else 8}
    assert set(times(tmp_path).values()) == {3.0, 4.0}


@pytest.mark.parametrize("written", range(10))
def test_a_crash_while_rows_are_moved_loses_none_and_leaves_none_twice(tmp_path, monkeypatch, written):
    mine = FakeKernel(variants={"a": (5.0, "")})
    recorded_on(tmp_path, MONDAY, mine)
    MEMORY.add(tmp_path / "out", Memory("p0", "f32", "fake", "a", "cupy", 0, 2, 1))
    before, count, replacing = times(tmp_path), 0, paths.replacing

    def crash(path):
        nonlocal count
        count += 1
        if count > written:
            raise OSError("the disk is gone")
        return replacing(path)

    monkeypatch.setattr(paths, "replacing", crash)
    mine.variants = {"a": (4.0, "")}
    crashed = False
    try:
        recorded_on(tmp_path, WEDNESDAY, mine, choice=AGAIN)
    except OSError:
        crashed = True
    monkeypatch.setattr(paths, "replacing", replacing)
    recorded_on(tmp_path, WEDNESDAY, mine, choice=Choice(resume=True))
    assert times(tmp_path).keys() == before.keys()
    assert crashed or set(times(tmp_path).values()) == {4.0}
    assert not (tmp_path / "out" / older.OLDER).exists()


def test_rows_set_aside_come_back_where_the_journal_is_gone(tmp_path):
    kernel = FakeKernel()
    recorded_on(tmp_path, MONDAY, kernel)
    journal, before = tmp_path / "out" / "records.csv", times(tmp_path)
    older.set_aside(journal, lambda row: True)
    journal.unlink()
    assert recorded_on(tmp_path, WEDNESDAY, kernel, choice=Choice(resume=True)).counts.rows == {}
    assert times(tmp_path) == before
