from __future__ import annotations

import contextlib
import csv
import json
import threading

import pytest
from fakes import FakeDevice, FakeKernel, Silent

from nnzbench.build.cache import CompileError, CompileTimeout
from nnzbench.devices import DeviceLost
from nnzbench.kernels.registry import VendorKernel, kernels
from nnzbench.measure import watchdog
from nnzbench.measure.peaks import Peaks
from nnzbench.measure.session import Session
from nnzbench.measure.sweep import QUICK_PROBLEMS, Choice, plan_work, run_experiment
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.experiment import Experiment
from nnzbench.problems.problem import Problem
from nnzbench.records.folder import Results, read_tuning
from nnzbench.records.record import RecordError, read_records

PEAKS = Peaks(
    copy_gbs=4000.0, l2_gbs=8000.0, fp32_tflops=50.0, floor_hot_us=1.0, floor_cold_us=3.0, l2_bytes=50_000_000
)


class Small(Experiment):
    """Two small problems on uniform patterns, or as many as `count` says."""

    count = 2

    def problems(self, real=None):
        return [Problem("small", f"p{i}", "spmm", 8 + i, 16, 4, 0.5, f"uniform:{i}") for i in range(self.count)]


class Notes(Silent):
    def __init__(self):
        self.notes, self.steps, self.total = [], 0, 0

    def start(self, title, steps):
        self.total = steps

    def advance(self):
        self.steps += 1

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))


def experiment(*kernels, dtypes=("f32",), policies=("hot", "cold")):
    return Small("small", "", "", "", {kernel.name: dtypes for kernel in kernels}, policies=policies)


def sweep(tmp_path, *kernels, device=None, choice=None, progress=None, exp=None):
    device = device or FakeDevice()
    session = Session(
        device,
        {kernel.name: kernel for kernel in kernels},
        PEAKS,
        {"driver": "1"},
        device.timer.clock if device.timer else lambda: 0.0,
    )
    return run_experiment(
        exp or experiment(*kernels), session, tmp_path / "out", choice or Choice(), progress or Silent()
    )


def rows(tmp_path):
    return read_records(tmp_path / "out" / "records.csv")


def test_every_candidate_is_checked_timed_and_the_fastest_selected(tmp_path):
    kernel = FakeKernel(variants={"slow": (20.0, ""), "fast": (5.0, "")})
    progress = Notes()
    summary = sweep(tmp_path, kernel, progress=progress)
    found = rows(tmp_path)
    assert len(found) == 2 * 2 * 2
    assert {(r.variant, r.selected) for r in found} == {("slow", False), ("fast", True)}
    assert {r.policy: r.floor_us for r in found} == {"hot": 1.0, "cold": 3.0}
    fast = next(r for r in found if r.variant == "fast" and r.policy == "hot")
    assert fast.median_us == pytest.approx(5.0)
    assert fast.limit_us > 1.0
    assert fast.relative_error == 0.0
    assert (fast.prepare_ms, fast.compile_ms, fast.sm_clock_mhz) == (1.0, 2.0, 1980.0)
    assert fast.environment == "environment.json"
    assert json.loads((tmp_path / "out" / "environment.json").read_text()) == {"driver": "1"}
    assert kernel.open_count == 0
    assert summary.statuses == {"ok": 8}
    assert not summary.failed
    assert progress.steps == progress.total == 2


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("wrong", "wrong", "outside the f32 tolerance"),
        ("stale", "wrong", "after timing"),
        ("launch", "launch-error", "too many resources"),
        (CompileError("no such intrinsic"), "compile-error", "no such intrinsic"),
        (CompileTimeout("stopped after 60 s"), "timeout", "stopped after 60 s"),
        (Unsupported("needs sm_90"), "unsupported", "needs sm_90"),
        (MemoryError("out of memory"), "launch-error", "MemoryError: out of memory"),
    ],
)
def test_a_failure_is_a_row_with_its_reason_and_the_run_goes_on(tmp_path, fault, status, reason):
    kernel = FakeKernel(variants={"bad": (1.0, fault), "good": (9.0, "")})
    summary = sweep(tmp_path, kernel)
    bad = [r for r in rows(tmp_path) if r.variant == "bad"]
    assert {(r.status, r.policy, r.median_us, r.selected) for r in bad} == {
        (status, "hot", None, False),
        (status, "cold", None, False),
    }
    assert all(reason in r.reason for r in bad)
    assert all(r.selected for r in rows(tmp_path) if r.variant == "good")
    assert summary.failed == (status in ("wrong", "compile-error", "launch-error"))
    assert kernel.open_count == 0


def test_a_kernel_without_this_op_or_dtype_gets_an_unsupported_row(tmp_path):
    other = FakeKernel(name="softmax_only", ops=frozenset({"sparse_softmax"}))
    late = FakeKernel(name="late", variants={"v1": (5.0, ""), "v2": (1.0, "unsupported")})
    sweep(tmp_path, other, late)
    found = rows(tmp_path)
    (reason,) = {r.reason for r in found if r.kernel == "softmax_only"}
    assert reason == "softmax_only does not compute spmm"
    assert {(r.variant, r.status) for r in found if r.kernel == "late"} == {("v1", "ok"), ("", "unsupported")}


def test_a_launch_that_takes_too_long_is_a_timeout_and_is_not_timed(tmp_path):
    device = FakeDevice()
    kernel = FakeKernel(variants={"slow": (5e6, "")})

    def dispatch():
        device.timer.clock.now += 5.0

    kernel.after_prepare = dispatch
    original = kernel._prepare

    def slow(*args):
        prepared = original(*args)
        run = prepared.run

        def runs_for_seconds():
            device.timer.clock.now += 5.0
            run()

        prepared.run = runs_for_seconds
        return prepared

    kernel._prepare = slow
    sweep(tmp_path, kernel, device=device)
    assert {r.status for r in rows(tmp_path)} == {"timeout"}
    assert not [call for call in device.timer.calls if call[0] in ("capture", "cold")]


def test_a_lost_device_stops_the_run_and_keeps_what_was_measured(tmp_path):
    kernel = FakeKernel(variants={"good": (5.0, ""), "crash": (5.0, "lost"), "never": (5.0, "")})
    with pytest.raises(DeviceLost, match="--resume"):
        sweep(tmp_path, kernel)
    found = rows(tmp_path)
    assert {(r.variant, r.status, r.selected) for r in found} == {
        ("good", "ok", True),
        ("crash", "launch-error", False),
    }
    # a new process goes on after the crash
    kernel.prepared.clear()
    kernel.variants["crash"] = (5.0, "")
    sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert kernel.prepared == ["never", "good", "crash", "never"]


def test_resume_runs_only_what_is_missing(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, ""), "b": (6.0, "")})
    sweep(tmp_path, kernel)
    before = (tmp_path / "out" / "records.csv").read_text()
    kernel.prepared.clear()
    summary = sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert kernel.prepared == []
    assert summary.statuses == {}
    assert (tmp_path / "out" / "records.csv").read_text() == before


def test_resume_with_another_policy_adds_that_policy_alone(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, "")})
    sweep(tmp_path, kernel, choice=Choice(policies=("hot",)))
    sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert sorted((r.problem, r.policy) for r in rows(tmp_path)) == [
        ("p0", "cold"),
        ("p0", "hot"),
        ("p1", "cold"),
        ("p1", "hot"),
    ]


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
    assert [tuning.scope for tuning in read_tuning(tmp_path / "out" / "tuning.csv")] == 2 * ["some"] + 2 * ["all"]


def test_records_that_are_there_are_not_touched_without_being_told(tmp_path):
    kernel = FakeKernel()
    sweep(tmp_path, kernel)
    before = (tmp_path / "out" / "records.csv").read_text()
    with pytest.raises(RecordError, match="--resume to go on or --overwrite"):
        sweep(tmp_path, kernel)
    assert (tmp_path / "out" / "records.csv").read_text() == before
    kernel.variants = {"other": (1.0, "")}
    sweep(tmp_path, kernel, choice=Choice(overwrite=True))
    assert {r.variant for r in rows(tmp_path)} == {"other"}


def test_another_environment_gets_a_snapshot_of_its_own(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, "")})
    sweep(tmp_path, kernel)
    kernel.variants["b"] = (4.0, "")
    (tmp_path / "out" / "tuning.csv").unlink()
    session = Session(FakeDevice(), {"fake": kernel}, PEAKS, {"driver": "2"})
    run_experiment(experiment(kernel), session, tmp_path / "out", Choice(resume=True), Silent())
    assert {(r.variant, r.environment) for r in rows(tmp_path)} == {
        ("a", "environment.json"),
        ("b", "environment-2.json"),
    }
    assert {r.variant for r in rows(tmp_path) if r.selected} == {"b"}


def test_on_the_processor_a_later_date_alone_is_no_snapshot_of_its_own(tmp_path):
    def opened(date, commit="a", gpu=None):
        facts = {"recorded_at": date, "source": {"commit": commit}, "gpu": gpu or {"missing": "the cpu is no GPU"}}
        return Results(tmp_path, True, False, facts, print).environment

    assert opened("2026-01-01") == opened("2026-01-02") == "environment.json"
    assert opened("2026-01-03", "b") == "environment-2.json"
    assert opened("2026-01-04") == "environment.json"
    timed = [opened(date, gpu={"name": "a GPU"}) for date in ("2026-01-05", "2026-01-06")]
    assert timed == ["environment-3.json", "environment-4.json"]  # a session of times is told from another
    (tmp_path / "environment-2.json").unlink()
    before = (tmp_path / "environment-4.json").read_text()
    assert opened("2026-01-07", gpu={"name": "a GPU"}) == "environment-2.json"  # not one that rows may name
    assert (tmp_path / "environment-4.json").read_text() == before


def test_an_interrupt_keeps_the_rows_with_their_selection(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, ""), "b": (6.0, KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, kernel)
    assert {(r.variant, r.selected) for r in rows(tmp_path)} == {("a", True)}


def test_two_runs_never_write_to_one_folder(tmp_path):
    kernel = FakeKernel()
    refused = []

    def second():
        try:
            sweep(tmp_path, FakeKernel(), choice=Choice(resume=True))
        except RecordError as error:
            refused.append(str(error))

    kernel.after_prepare = second
    sweep(tmp_path, kernel)
    assert refused
    assert "another run is writing" in refused[0]


def test_the_lock_holds_across_caches_and_is_no_link(tmp_path, monkeypatch):
    kernel = FakeKernel()
    refused = []

    def second():
        monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "another cache"))
        try:
            sweep(tmp_path, FakeKernel(), choice=Choice(resume=True))
        except RecordError as error:
            refused.append(str(error))

    kernel.after_prepare = second
    sweep(tmp_path, kernel)
    assert refused
    assert "another run is writing" in refused[0]
    keys = [row.key for row in rows(tmp_path)]
    assert len(keys) == len(set(keys))
    lock, victim = tmp_path / "out" / ".lock", tmp_path / "victim"
    victim.write_text("mine")
    lock.unlink()
    lock.symlink_to(victim)
    with pytest.raises(RecordError, match=r"\.lock is a link"):
        sweep(tmp_path, FakeKernel(), choice=Choice(resume=True))
    assert victim.read_text() == "mine"


def test_on_the_processor_rows_are_checked_and_hold_no_time(tmp_path):
    kernel = FakeKernel(variants={"good": (5.0, ""), "bad": (5.0, "wrong")})
    summary = sweep(tmp_path, kernel, device=FakeDevice(timed=False))
    found = rows(tmp_path)
    assert {(r.variant, r.policy, r.status, r.median_us, r.limit_us, r.selected) for r in found} == {
        ("good", "check", "ok", None, None, False),
        ("bad", "check", "wrong", None, None, False),
    }
    assert summary.failed


def test_throttling_and_an_unsettled_median_are_told_in_the_row(tmp_path):
    device = FakeDevice()
    device.timer.reasons = lambda: ("sw_power_cap",)
    sweep(tmp_path, FakeKernel(), device=device)
    assert {r.reason for r in rows(tmp_path)} == {"throttled (sw_power_cap)"}


def test_tuning_is_recorded_with_its_cost(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, ""), "b": (5.0, "wrong"), "c": (4.0, "")})
    sweep(tmp_path, kernel)
    with (tmp_path / "out" / "tuning.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(r["problem"], r["kernel"], r["policies"], r["candidates"], r["ok"]) for r in table] == [
        ("p0", "fake", "hot+cold", "3", "2"),
        ("p1", "fake", "hot+cold", "3", "2"),
    ]
    assert all(float(r["seconds"]) >= 0 for r in table)


def test_a_kernel_that_is_not_in_this_version_is_skipped_with_a_note(tmp_path):
    kernel = FakeKernel()
    exp = Small("small", "", "", "", {"fake": ("f32",), "future": ("f32",)})
    progress = Notes()
    sweep(tmp_path, kernel, exp=exp, progress=progress)
    assert {r.kernel for r in rows(tmp_path)} == {"fake"}
    assert any("future" in note for note in progress.notes)


def test_choices_narrow_the_run(tmp_path):
    one, two = FakeKernel("one", dtypes=frozenset({"f32", "f16"})), FakeKernel("two")
    exp = Small("small", "", "", "", {"one": ("f32", "f16"), "two": ("f32",)})
    choice = Choice(policies=("cold",), kernels=("one",), dtypes=("f16",), problems=("p1",))
    sweep(tmp_path, one, two, exp=exp, choice=choice)
    assert [(r.kernel, r.dtype, r.problem, r.policy) for r in rows(tmp_path)] == [("one", "f16", "p1", "cold")]


def test_a_quick_run_takes_the_smallest_problems_that_some_kernel_of_it_runs():
    granularity, known = EXPERIMENTS["granularity"], kernels()
    own = {name: one for name, one in known.items() if not isinstance(one, VendorKernel)}
    for there in (known, own):  # the smallest of all are dense layers of fewer channels
        work = plan_work(granularity, there, Choice(quick=True))
        assert len({problem.name for problem, _ in work}) == QUICK_PROBLEMS
        assert all(names for _, names in work)


def test_quick_takes_the_smallest_problems_and_few_candidates(tmp_path):
    kernel = FakeKernel(variants={f"v{i}": (5.0, "") for i in range(30)})
    exp = experiment(kernel)
    Small.count, count = 5, Small.count
    try:
        sweep(tmp_path, kernel, exp=exp, choice=Choice(quick=True))
    finally:
        Small.count = count
    assert {r.problem for r in rows(tmp_path)} == {"p0", "p1", "p2"}
    assert len({r.variant for r in rows(tmp_path)}) == 8


def test_a_problem_whose_data_is_missing_is_a_row_not_a_crash(tmp_path):
    class Missing(Small):
        def problems(self, real=None):
            return [Problem("small", "gone", "spmm", 8, 16, 4, 0.5, "dlmc:no/such.smtx")]

    kernel = FakeKernel()
    sweep(tmp_path, kernel, exp=Missing("small", "", "", "", {"fake": ("f32",)}))
    (row,) = {(r.status, r.variant) for r in rows(tmp_path)}
    assert row == ("unsupported", "")
    assert all("no operands" in r.reason for r in rows(tmp_path))


def test_kernels_run_the_ops_they_compute_in_the_dtype_of_the_table(tmp_path):
    class Mixed(Small):
        def problems(self, real=None):
            return [
                Problem("small", "product", "spmm", 8, 16, 4, 0.5, "uniform:0", dtype="f16"),
                Problem("small", "softmax", "sparse_softmax", 8, 16, 1, 0.5, "uniform:0"),
            ]

    both = frozenset({"f32", "f16"})
    product = FakeKernel("product_only", dtypes=both)
    softmax = FakeKernel("softmax_only", ops=frozenset({"sparse_softmax"}), dtypes=both)
    exp = Mixed("small", "", "", "", {"product_only": (), "softmax_only": ()}, policies=("hot",))
    sweep(tmp_path, product, softmax, exp=exp)
    assert [(r.problem, r.kernel, r.dtype, r.status) for r in rows(tmp_path)] == [
        ("product", "product_only", "f16", "ok"),
        ("softmax", "softmax_only", "f32", "ok"),
    ]
    sweep(tmp_path, product, softmax, exp=exp, choice=Choice(problems=("product",), overwrite=True, yes=True))
    assert [(r.problem, r.kernel, r.status) for r in rows(tmp_path)] == [("product", "product_only", "ok")]


def test_a_call_that_does_not_come_back_is_recorded_before_the_process_ends(tmp_path, monkeypatch):
    statuses, waiting = [], []

    @contextlib.contextmanager
    def watch(give_up):
        waiting.append(give_up)
        yield
        waiting.remove(give_up)

    def hang():
        if kernel.prepared[-1] == "hangs":
            other = threading.Thread(target=waiting[-1])  # as the watchdog's, while this one is in the library
            other.start()
            other.join()

    kernel = FakeKernel(variants={"good": (5.0, ""), "hangs": (5.0, "")})
    kernel.after_prepare = hang
    monkeypatch.setattr("nnzbench.measure.attempts.os._exit", statuses.append)
    monkeypatch.setattr("nnzbench.measure.attempts.watch", watch)
    exp = experiment(kernel, policies=("hot",))
    monkeypatch.setattr(Small, "count", 1)
    progress = Notes()
    device = FakeDevice()
    sweep(tmp_path, kernel, exp=exp, progress=progress, device=device)
    assert statuses == [1]
    assert device.abandoned
    assert [(r.variant, r.status, r.reason) for r in rows(tmp_path)] == [
        ("good", "ok", ""),
        ("hangs", "timeout", "no answer within 300 s"),
    ]
    assert any("go on with --resume" in note for note in progress.notes)


def test_a_block_that_takes_too_long_is_given_up_and_one_in_time_is_left_alone(monkeypatch):
    given_up = threading.Event()
    with watchdog.watch(given_up.set, 0.01):
        assert given_up.wait(60)
    started = []
    timer = threading.Timer

    def kept(*arguments):
        started.append(timer(*arguments))
        return started[-1]

    monkeypatch.setattr(threading, "Timer", kept)
    with watchdog.watch(lambda: pytest.fail("it was in time"), 3600.0):
        (counting,) = started
        assert counting.is_alive()
    counting.join(60)  # does not go on counting
    assert not counting.is_alive()
