"""A run of an experiment: which rows it makes of what kernels do, and what a choice leaves of it."""

import contextlib
import json
import threading

import pytest
from fakes import FakeDevice, FakeKernel
from small_sweeps import Notes, Small, experiment, rows, sweep

from nnzbench.bench import attempts
from nnzbench.bench.sweep import QUICK_PROBLEMS, Choice, plan_work
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import DeviceLost
from nnzbench.devices.build.cache import CompileError, CompileTimeout
from nnzbench.kernels.registry import VendorKernel, kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.beside import TUNING


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
    assert summary.counts.rows == {"ok": 8}
    assert not summary.counts.failed
    assert progress.steps == progress.total == 2


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("wrong", "wrong", "outside the f32 tolerance"),
        ("stale", "wrong", "after timing: the output is float64"),
        ("launch", "launch-error", "too many resources"),
        (CompileError("no such intrinsic"), "compile-error", "no such intrinsic"),
        (CompileTimeout("stopped after 60 s"), "timeout", "stopped after 60 s"),
        (TimeoutError("no answer"), "timeout", "no answer"),
        (Unsupported("needs sm_90"), "unsupported", "needs sm_90"),
        (MemoryError("out of memory"), "launch-error", "MemoryError: out of memory"),
        (SystemExit(0), "launch-error", "SystemExit: 0"),
    ],
)
def test_a_failure_is_a_row_with_its_reason_and_the_run_goes_on(tmp_path, fault, status, reason):
    kernel = FakeKernel(variants={"bad": (1.0, fault), "good": (9.0, "")})
    summary = sweep(tmp_path, kernel)
    bad = [r for r in rows(tmp_path) if r.variant == "bad"]
    assert {(r.status, r.policy, r.median_us, r.selected) for r in bad} == {
        (status, policy, None, False) for policy in ("hot", "cold")
    }
    assert all(reason in r.reason for r in bad)
    assert all(r.selected for r in rows(tmp_path) if r.variant == "good")
    assert summary.counts.failed == (status in ("wrong", "compile-error", "launch-error"))
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

    class Slow(FakeKernel):
        def _prepare(self, *arguments):
            prepared = super()._prepare(*arguments)
            poison = prepared.poison

            def poison_and_wait():
                device.timer.clock.now += 5.0  # of the run that follows
                poison()

            prepared.poison = poison_and_wait
            return prepared

    sweep(tmp_path, Slow(variants={"slow": (5e6, "")}), device=device)
    assert {r.status for r in rows(tmp_path)} == {"timeout"}
    assert not [call for call in device.timer.calls if call[0] in ("capture", "cold")]


def test_a_lost_device_stops_the_run_and_keeps_what_was_measured(tmp_path):
    kernel = FakeKernel(variants={"good": (5.0, ""), "crash": (5.0, "lost"), "never": (5.0, "")})
    with pytest.raises(DeviceLost, match="--resume"):
        sweep(tmp_path, kernel)
    found = {(r.variant, r.status, r.selected) for r in rows(tmp_path)}
    assert found == {("good", "ok", True), ("crash", "launch-error", False)}
    # a new process goes on after the crash
    kernel.prepared.clear()
    kernel.variants["crash"] = (5.0, "")
    sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert kernel.prepared == ["never", "good", "crash", "never"]


def test_on_the_processor_rows_are_checked_and_hold_no_time(tmp_path):
    kernel = FakeKernel(variants={"good": (5.0, ""), "bad": (5.0, "wrong")})
    summary = sweep(tmp_path, kernel, device=FakeDevice(timed=False))
    found = rows(tmp_path)
    assert {(r.variant, r.policy, r.status, r.median_us, r.limit_us, r.selected) for r in found} == {
        ("good", "check", "ok", None, None, False),
        ("bad", "check", "wrong", None, None, False),
    }
    assert summary.counts.failed


def test_throttling_and_an_unsettled_median_are_told_in_the_row(tmp_path):
    device = FakeDevice()
    device.timer.reasons = lambda: ("sw_power_cap",)
    sweep(tmp_path, FakeKernel(), device=device)
    assert {r.reason for r in rows(tmp_path)} == {"throttled (sw_power_cap)"}


def test_tuning_is_recorded_with_its_cost(tmp_path):
    kernel = FakeKernel(variants={"a": (5.0, ""), "b": (5.0, "wrong"), "c": (4.0, "")})
    sweep(tmp_path, kernel)
    table = TUNING.read(tmp_path / "out")
    told = [(row.problem, row.kernel, row.policies, row.candidates, row.ok) for row in table]
    assert told == [(problem, "fake", "hot+cold", 3, 2) for problem in ("p0", "p1")]
    assert all(row.seconds >= 0 for row in table)


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


def test_quick_takes_the_smallest_problems_and_few_candidates(tmp_path, monkeypatch):
    kernel = FakeKernel(variants={f"v{i}": (5.0, "") for i in range(30)})
    monkeypatch.setattr(Small, "count", 5)
    sweep(tmp_path, kernel, choice=Choice(quick=True))
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
    monkeypatch.setattr("nnzbench.bench.attempts.os._exit", statuses.append)
    monkeypatch.setattr("nnzbench.bench.attempts.watch", watch)
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


def test_a_block_that_takes_too_long_is_given_up_and_one_in_time_is_left_alone():
    given_up = threading.Event()
    with attempts.watch(given_up.set, 0.01):
        assert given_up.wait(60)
    before = set(threading.enumerate())
    with attempts.watch(lambda: pytest.fail("it was in time"), 3600.0):
        (counting,) = set(threading.enumerate()) - before
    counting.join(60)  # does not go on counting
    assert not counting.is_alive()
