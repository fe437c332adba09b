"""One candidate after another under their policies: what is checked, what is timed, and what the rows then say."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import FakeClock, FakeDevice, FakeKernel, FakeTimer, Silent
from small_sweeps import PEAKS, Small, experiment, rows, sweep

from nnzbench.bench import attempts, trial
from nnzbench.bench import sweep as measure_sweep
from nnzbench.bench.phases import Phases, Work
from nnzbench.bench.session import Session
from nnzbench.bench.steps import Step
from nnzbench.bench.sweep import Choice, opened, rows_left_out, run_experiment
from nnzbench.bench.timing import Measurement
from nnzbench.core.plan import Candidate, Plan, Prepared, Resources, Unsupported
from nnzbench.data.problems.check import TOLERANCE
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.parts import PART_ELEMENTS
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices.gpu import LaunchError
from nnzbench.kernels.copies import over_copies
from nnzbench.results.records.beside import TUNING
from nnzbench.site.contribute.snapshots import private


@pytest.fixture(autouse=True)
def _one_problem(monkeypatch):
    monkeypatch.setattr(Small, "count", 1)


class Reads(FakeKernel):
    """Its nth result is what `results[n]` makes of the right one and of the scale that errors are measured by."""

    def __init__(self, *results):
        super().__init__()
        self.results = results

    def _prepare(self, problem, operands, *rest):
        prepared = super()._prepare(problem, operands, *rest)
        truth, results = reference(problem, operands), iter(self.results)
        prepared.read = lambda: next(results)(truth.value, truth.scale)
        return prepared


def off(share):
    return lambda value, scale: value + share * TOLERANCE["f32"] * scale


@pytest.mark.parametrize(("share", "status"), [(0.9, "ok"), (1.1, "wrong")])
@pytest.mark.parametrize("when", ["first", "last"])
def test_a_result_is_held_to_its_tolerance_before_and_after_timing(tmp_path, share, status, when):
    order = (off(share), off(0.0)) if when == "first" else (off(0.0), off(share))
    sweep(tmp_path, Reads(*order))
    ((found, error),) = {(row.status, row.relative_error) for row in rows(tmp_path)}
    assert found == status
    assert error == pytest.approx(share * TOLERANCE["f32"], rel=1e-4)


def test_a_candidate_may_have_a_tolerance_of_its_own(tmp_path):
    class Rounds(Reads):
        def candidates(self, *asked):
            return (replace(one, tolerance="tf32") for one in super().candidates(*asked))

    sweep(tmp_path, Rounds(off(2.0), off(2.0)))
    assert {(row.status, row.math) for row in rows(tmp_path)} == {("ok", "f32")}


def test_one_bit_of_many_is_another_result():
    """Also where it is that of a sign, and in any of the parts that are compared one by one."""
    one = np.zeros((3, PART_ELEMENTS), np.float32)
    assert trial._same_bits(one, one.copy())
    for row, number in ((0, 1.0), (1, -0.0), (2, np.nan)):
        other = one.copy()
        other[row, 7] = number
        assert not trial._same_bits(one, other)


def test_the_same_bits_at_other_places_are_another_result(tmp_path):
    def turned(value, scale):
        return np.ascontiguousarray(value).ravel().reshape(value.shape, order="F")

    sweep(tmp_path, Reads(off(0.0), turned))
    assert {(row.status, row.reason.partition(":")[0]) for row in rows(tmp_path)} == {("wrong", "after timing")}


def test_the_clock_is_brought_up_before_the_first_policy_alone(tmp_path):
    both, cold = FakeDevice(), FakeDevice()
    sweep(tmp_path / "both", FakeKernel(), device=both)
    sweep(tmp_path / "cold", FakeKernel(), device=cold, choice=Choice(policies=("cold",)))
    assert ("cold", 1) not in both.timer.calls
    assert ("cold", 1) in cold.timer.calls


def test_calls_that_no_graph_holds_are_timed_in_the_stream_and_say_so_where_it_shows(tmp_path):
    kernel, device = FakeKernel(), FakeDevice()
    prepare = kernel._prepare

    def uncapturable(*arguments):
        prepared = prepare(*arguments)
        prepared.capturable = False
        return prepared

    kernel._prepare = uncapturable
    sweep(tmp_path, kernel, device=device)
    assert not [call for call in device.timer.calls if call[0] == "capture"]
    assert {row.policy: row.reason for row in rows(tmp_path)} == {"hot": "stream launches, not a graph", "cold": ""}
    assert not any(row.captured for row in rows(tmp_path))
    sweep(tmp_path / "others", FakeKernel())
    assert {row.policy: row.captured for row in rows(tmp_path / "others")} == {"hot": True, "cold": False}


STREAM = Choice(policies=("hot", "stream"))


@pytest.mark.parametrize(("bytes_each", "copies"), [(100, 10), (300, 4), (5000, 2)])
def test_streamed_weights_are_copied_until_they_take_more_than_the_cache(tmp_path, bytes_each, copies):
    kernel = FakeKernel(weights=np.zeros(bytes_each, np.int8))
    sweep(tmp_path, kernel, choice=STREAM)
    assert kernel.copies == copies - 1 + 1  # the first one is the candidate's own; one for the hot samples
    hot, stream = sorted(rows(tmp_path), key=lambda row: row.policy)
    assert (hot.policy, stream.policy, hot.status, stream.status) == ("hot", "stream", "ok", "ok")
    assert hot.median_us == pytest.approx(10.0) == stream.median_us
    assert stream.floor_us == hot.floor_us
    assert stream.limit_us > hot.limit_us  # its weights come from memory


def test_copies_are_as_many_as_hold_what_l2_does_code_included_from_two_to_a_thousand():
    weights = np.ones((2, 3), np.float16)
    held = {"w": SimpleNamespace(shape=weights.shape, dtype=weights.dtype)}
    prepared = Prepared(
        lambda: None, list, list, list, arrays=held, copied=lambda names: list, resources=Resources(code_bytes=12)
    )
    plan = Plan("v", "ptx", "\n", {}, {"w": weights, "c": np.zeros(2)}, "c", ())
    for language, each in ((None, 12), ("cuda", 12), ("ptx", 24)):
        mine = Candidate("v", "f32", list, replace(plan, language=language) if language else None)
        for flush, count in ((each, 2), (2 * each + 1, 3), (3 * each, 3), (3 * each + 1, 4), (1 << 20, 1000)):
            timer = SimpleNamespace(flush_bytes=flush)
            assert len(over_copies(mine, prepared, Operands(None, {}, ""), timer)) == count


@pytest.mark.parametrize(
    ("policies", "said"),
    [(("hot", "stream"), "over a copy of the weights"), (("hot",), "after timing"), (("cold",), "after timing")],
)
def test_a_result_over_a_copy_is_checked(tmp_path, policies, said):
    sweep(tmp_path, FakeKernel(weights=np.ones(2000, np.int8)), choice=Choice(policies=policies))
    assert {(row.status, row.reason.partition(":")[0]) for row in rows(tmp_path)} == {("wrong", said)}


@pytest.mark.parametrize("at", range(3))
def test_a_result_over_each_copy_is_checked(tmp_path, at):
    sweep(tmp_path, FakeKernel(weights=np.eye(3, 300, dtype=np.int8)[at]), choice=Choice(policies=("stream",)))
    assert [row.reason.partition(":")[0] for row in rows(tmp_path)] == ["over a copy of the weights"]


@pytest.mark.parametrize(("error", "status"), [("out of memory", "ok"), ("an invalid argument", "launch-error")])
def test_weights_lie_at_one_place_where_there_is_no_memory_for_two(tmp_path, error, status):
    kernel = FakeKernel(weights=np.zeros(100, np.int8))

    def refused(names):
        raise LaunchError(error)

    prepare = kernel._prepare
    kernel._prepare = lambda *arguments: replace(prepare(*arguments), copied=refused)
    sweep(tmp_path, kernel)
    assert {row.status for row in rows(tmp_path)} == {status}


def test_what_can_not_be_copied_is_timed_under_the_other_policies_alone(tmp_path):
    sweep(tmp_path, FakeKernel(), choice=STREAM)
    assert {row.policy: (row.status, row.reason) for row in rows(tmp_path)} == {
        "hot": ("ok", ""),
        "stream": ("unsupported", "it can't run over copies of its weights"),
    }


def test_a_row_names_a_file_without_the_folders_of_this_machine(tmp_path):
    said = "a-b.smtx: needs 5 bytes, 3 are free; ~/k.cu(4): see docs/a/b.md and https://c.d/e/f, 1/2/3"
    told = f"{tmp_path}/{said}"
    assert private(told) == "a path"  # which makes a set of results unfit
    assert not private(said)
    sweep(tmp_path, FakeKernel(variants={"a": (1.0, Unsupported(told))}))
    assert {row.reason for row in rows(tmp_path)} == {said}


EARLY = "ended early, clearly behind a faster candidate"


def reasons(tmp_path, variants, device=None, policies=("hot",)):
    kernel = FakeKernel(variants={name: (us, "") for name, us in variants.items()})
    sweep(tmp_path, kernel, device=device, exp=experiment(kernel, policies=policies))
    return {row.variant: row.reason for row in rows(tmp_path)}


def test_candidates_are_measured_against_their_own_arithmetic_alone(tmp_path):
    found = reasons(tmp_path, {"a": 10.0, "tf32_a": 2.0, "b": 11.0, "tf32_b": 9.0, "c": 20.0})
    assert found == {"a": "", "tf32_a": "", "b": "", "tf32_b": EARLY, "c": EARLY}


@pytest.mark.parametrize(
    ("name", "variants"),
    [("cublas", {"f32_default_nn": 1.0, "f32_algo1_nn": 4.0}), ("balanced", {"bulk_w16": 4.0, "paper_w32": 1.0}),
     ("sputnik_ablation", {"no_vector": 1.0})],
)  # fmt: skip
def test_what_papers_divide_by_is_known_as_well_as_what_may_win(tmp_path, monkeypatch, name, variants):
    rules, measure = [], trial.measure

    def told(timer, run, policy, rule, *rest):
        rules.append(rule)
        return measure(timer, run, policy, rule, *rest)

    monkeypatch.setattr(trial, "measure", told)
    kernel = FakeKernel(name, dict.fromkeys(variants, (10.0, "")))
    sweep(tmp_path, kernel, exp=experiment(kernel, policies=("hot",)))
    assert [rule.slower_tolerance / rule.tolerance for rule in rules] == [*variants.values()]


def test_parts_of_a_network_are_no_rivals_of_one_another(tmp_path):
    kernel = FakeKernel("block_parts", {"a": (5.0, ""), "b": (30.0, "")})
    sweep(tmp_path, kernel, exp=experiment(kernel, policies=("hot",)))
    assert {row.variant: row.reason for row in rows(tmp_path)} == {"a": "", "b": ""}
    assert {row.limit_us for row in rows(tmp_path)} == {None}, "nor has one a limit of the whole"


def test_candidates_are_measured_against_their_own_policy_alone(tmp_path):
    class Cold(FakeTimer):
        def cold_us(self, run, samples):
            return [10 * us for us in super().cold_us(run, samples)]

    device = FakeDevice()
    device.timer = Cold()
    assert reasons(tmp_path, {"a": 5.0, "b": 5.0}, device, ("hot", "cold")) == {"a": "", "b": ""}
    assert {(row.policy, row.median_us) for row in rows(tmp_path)} == {("hot", 5.0), ("cold", 50.0)}


@pytest.mark.parametrize(("name", "status"), [("cublas", "unsupported"), ("fake", "ok")])
def test_of_a_library_what_is_far_behind_is_timed_under_the_first_policy_alone(tmp_path, name, status):
    kernel = FakeKernel(name, {"a": (5.0, ""), "b": (25.0, ""), "c": (15.0, ""), "d_default": (25.0, "")})
    sweep(tmp_path, kernel, exp=experiment(kernel, policies=("hot", "cold")))
    found = {(row.variant, row.policy): row for row in rows(tmp_path)}
    assert {key for key, row in found.items() if row.status != "ok"} == ({("b", "cold")} if name == "cublas" else set())
    assert found["b", "cold"].status == status
    assert found["b", "hot"].reason == EARLY


@pytest.mark.parametrize(("name", "again"), [("cublas", {"b": 5.0, "d_default": 25.0, "e": 15.0}), ("fake", None)])
def test_of_a_library_what_is_recorded_as_far_behind_is_not_run_under_a_policy_added_later(tmp_path, name, again):
    times = {"a": (25.0, ""), "b": (5.0, ""), "c": (24.0, ""), "d_default": (25.0, ""), "e": (15.0, "")}
    kernel = FakeKernel(name, times)
    sweep(tmp_path, kernel, exp=experiment(kernel, policies=("hot",)))
    if again:
        kernel.variants = {**times, "a": (25.0, "launch"), "c": (24.0, "launch")}
    sweep(tmp_path, kernel, choice=Choice(resume=True), exp=experiment(kernel, policies=("hot", "cold")))
    cold = {row.variant: row for row in rows(tmp_path) if row.policy == "cold"}
    assert {one: row.median_us for one, row in cold.items() if row.status == "ok"} == (
        again or {one: us for one, (us, _) in times.items()}
    )
    assert {row.reason for row in cold.values() if row.status != "ok"} == (
        {trial.far_behind("hot")} if again else set()
    )
    assert TUNING.read(tmp_path / "out")[-1].ok == len(times)


def test_a_row_is_limited_by_the_peak_of_its_own_arithmetic(tmp_path):
    sweep(tmp_path, FakeKernel(variants={"a": (5.0, ""), "tf32_a": (5.0, "")}))
    found = {(row.variant, row.policy): row.limit_us for row in rows(tmp_path)}
    assert found["tf32_a", "hot"] is None  # no such peak was measured
    assert 1.0 < found["a", "hot"] < 3.0 < found["a", "cold"]


ONE = Problem("small", "p0", "spmm", 8, 16, 4, 0.51, "uniform:0")


def row_of(tmp_path, kernel, problem=ONE):
    class One(Small):
        def problems(self, real=None):
            return [problem]

    sweep(tmp_path, kernel, exp=One("small", "", "", "", {kernel.name: ("f32",)}, policies=("hot",)))
    (row,) = rows(tmp_path)
    return row


def test_a_row_has_the_summary_of_its_samples(tmp_path, monkeypatch):
    measured = Measurement((9.0, 1.0, 3.0, 2.0, 100.0), 1500.0, (), True)
    monkeypatch.setattr(trial, "measure", lambda *_: measured)
    row = row_of(tmp_path, FakeKernel())
    assert (row.q1_us, row.median_us, row.q3_us, row.samples, row.sm_clock_mhz) == (2.0, 3.0, 9.0, 5, 1500.0)


def test_a_row_counts_the_zeros_that_there_are_and_not_those_asked_for(tmp_path):
    row = row_of(tmp_path, FakeKernel())
    assert (row.nnz, row.sparsity) == (63, pytest.approx(1 - 63 / 128, rel=1e-5))


def test_a_dense_library_moves_the_dense_matrix_but_is_told_the_useful_work(tmp_path):
    row = row_of(tmp_path, FakeKernel("cublas"))
    assert row.flops == 2 * 63 * 4
    assert row.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)


@pytest.mark.parametrize(("us", "status"), [(2.0, "ok"), (1.99, "wrong")])
def test_a_median_below_a_quarter_of_the_limit_is_wrong_whatever_slower_samples_there_are(monkeypatch, us, status):
    monkeypatch.setattr(attempts, "roofline_us", lambda *_: 8.0)
    monkeypatch.setattr(attempts, "row_work", lambda *_: None)
    mine, subject = SimpleNamespace(session=SimpleNamespace(peaks=None)), SimpleNamespace(problem=None, operands=True)
    outcome = trial.Outcome("ok", measurements={"hot": Measurement((us, us, 9.0), None, (), True)})
    found = attempts.Attempts._possible(mine, subject, "x", "f32", outcome)
    assert (found.status, len(found.measurements)) == (status, int(status == "ok"))


def test_the_work_of_a_row_is_asked_of_its_variant(tmp_path, monkeypatch):
    asked, real = set(), attempts.row_work
    monkeypatch.setattr(attempts, "row_work", lambda *told: asked.add(told[3]) or real(*told))
    sweep(tmp_path, FakeKernel(variants={"a": (5.0, ""), "f32_winograd": (5.0, "")}))
    assert asked == {"a", "f32_winograd"}


def test_a_step_of_a_network_is_recorded_under_its_product(tmp_path):
    step = Problem("small", "p0", "pointwise", 8, 16, 4, 0.5, "uniform:0")
    row = row_of(tmp_path, FakeKernel(ops=frozenset({"pointwise"})), step)
    assert (row.op, row.shape, row.status) == ("spmm", "bias_relu", "ok")


def test_a_quick_run_takes_fewer_samples(tmp_path):
    sweep(tmp_path / "quick", FakeKernel(), choice=Choice(quick=True))
    sweep(tmp_path / "whole", FakeKernel())
    quick, whole = ({row.samples for row in rows(tmp_path / name)} for name in ("quick", "whole"))
    assert max(quick) < 15 <= min(whole)


def test_what_was_waited_for_other_processes_is_no_price_of_tuning(tmp_path, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(measure_sweep, "time", SimpleNamespace(monotonic=clock))

    @contextmanager
    def turn():
        clock.now += 100.0
        yield

    kernel, device = FakeKernel(), FakeDevice()
    session = Session(device, {"fake": kernel}, PEAKS, {}, device.timer.clock, work=Work(Phases(clock=clock), turn))
    run_experiment(experiment(kernel), session, tmp_path / "out", Choice(), Silent())
    (row,) = TUNING.read(tmp_path / "out")
    assert clock.now > 100.0
    assert 0.0 <= row.seconds < 1.0


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("where", ["planning", "preparing", "stream", "memory"])
def test_no_memory_beside_other_processes_is_no_row_and_alone_it_is_one(tmp_path, monkeypatch, where, shared):
    def fails(*_):
        raise LaunchError("cublas gemm: CUBLAS_STATUS_ALLOC_FAILED")

    monkeypatch.setattr(trial, "PAUSES_S", ())
    kernel, device = FakeKernel(weights=np.zeros(2000, np.int8)), FakeDevice()
    if where == "memory":
        monkeypatch.setattr("nnzbench.bench.memory.OPS", {"spmm"})
        monkeypatch.setattr("nnzbench.bench.memory.measure", fails)
    elif where == "stream":
        monkeypatch.setattr(trial, "over_copies", fails)
    else:
        setattr(kernel, "candidates" if where == "planning" else "_prepare", fails)
    work = Work(turn=lambda: nullcontext()) if shared else Work()
    session = Session(device, {"fake": kernel}, PEAKS, {}, device.timer.clock, work=work)
    run_experiment(experiment(kernel), session, tmp_path / "out", STREAM, Silent())
    assert (tmp_path / "out" / "records.csv").exists() == (not shared)
    if not shared:
        assert [row.status for row in rows(tmp_path)] == ["ok" if where == "memory" else "launch-error"] * 2
    assert len(TUNING.read(tmp_path / "out")) == (not shared)


def test_a_kernel_whose_time_is_over_in_between_is_not_called_tuned(tmp_path):
    kernel, device = FakeKernel(variants=dict.fromkeys("abc", (5.0, ""))), FakeDevice()
    session = Session(device, {"fake": kernel}, PEAKS, {}, device.timer.clock)
    exp = experiment(kernel)
    (problem,) = exp.problems()
    over = iter([False, True, True])
    with opened([exp], session, lambda name: tmp_path / "out", Choice(), Silent()) as ((_, run, _),):
        run.perform(Step("small", "", problem, ("fake",)), Silent(), lambda: next(over))
        assert kernel.prepared == ["a"]  # a kernel that is begun tries one
        assert run.waiting(problem, ["fake"]) == ["fake"]
    assert TUNING.read(tmp_path / "out") == []
    sweep(tmp_path, kernel, choice=Choice(resume=True))
    assert kernel.prepared == ["a", "b", "c"]


def test_rows_beyond_what_a_limited_run_tries_are_left_out_of_it(tmp_path):
    sweep(tmp_path, FakeKernel(variants=dict.fromkeys("abcde", (5.0, ""))))
    found, contests = rows(tmp_path), {("p0", "f32", "fake", policy) for policy in ("hot", "cold")}
    assert rows_left_out(contests, "cupy", None, found) == 0
    assert rows_left_out(contests, "cupy", 5, found) == 0
    assert rows_left_out(contests, "cupy", 3, found) == 4
    assert rows_left_out({("p0", "f32", "fake", "hot")}, "cupy", None, found) == 5
    assert rows_left_out(contests, "pycuda", None, found) == 10


def test_candidates_compete_with_the_fastest_so_far_and_not_with_the_last(tmp_path):
    sweep(tmp_path, FakeKernel(variants={"a": (10.0, ""), "b": (12.0, ""), "c": (13.0, "")}))
    assert {row.variant for row in rows(tmp_path) if "clearly behind" in row.reason} == {"c"}


@pytest.mark.parametrize(("slow", "status"), [([2.0], "ok"), ([2.0, 0.9], "ok"), ([2.0, 1.1], "timeout")])
def test_a_first_launch_that_loads_modules_does_not_say_how_long_one_takes(slow, status):
    """Sixty of a second of 1.1 s would pass the limit of a minute."""
    timer, left, one = FakeTimer(), list(slow), np.ones((1, 1))

    def run():
        timer.clock.now += left.pop(0) if left else 0.0
        timer.enqueued_us += 10.0

    prepared = Prepared(run, one.copy, lambda: None, lambda: None)
    conditions = trial.Conditions(("hot",), clock=timer.clock)
    candidate = Candidate("v", "f32", lambda: prepared)
    outcome = trial.try_candidate(candidate, timer, lambda: Reference(one, one), conditions, lambda run: None)
    assert (outcome.status, outcome.reason[:21]) == (status, "" if status == "ok" else "one launch took 1.1 s")


def test_a_session_warms_the_gpu_up_once(tmp_path, monkeypatch):
    warmed = []
    monkeypatch.setattr("nnzbench.bench.session.warm_up", lambda *_: warmed.append(1))
    sweep(tmp_path, FakeKernel(variants={"wrong": (5.0, "wrong"), "a": (5.0, ""), "b": (5.0, "")}))
    assert warmed == [1]


@pytest.mark.parametrize(("cools", "waits"), [(True, 3.0), (False, 30.0)])
def test_a_gpu_slowed_down_for_its_heat_is_waited_for_so_long_and_no_longer(monkeypatch, cools, waits):
    """Each time until it is as warm as at the start and ten degrees more, and warmed up again, for 300 s in all."""
    device, notes, warmed = FakeDevice(), [], []
    clock, heat = device.timer.clock, {"c": 40.0}

    def sleep(seconds):
        clock.now += seconds
        heat["c"] -= 10 * seconds * cools

    monkeypatch.setattr("nnzbench.bench.session.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("nnzbench.bench.session.warm_up", lambda *_: warmed.append(heat["c"]))
    device.clocks = SimpleNamespace(temperature_c=lambda: heat["c"])
    device.timer.reasons = lambda: ("sw_power_cap", *["sw_thermal_slowdown"] * (heat["c"] > 70))
    session = Session(device, {}, PEAKS, {}, clock, note=notes.append)
    for heats in (40.0, 69.0, *[80.0] * 12):
        heat["c"] = heats
        session.warm_up(device.timer.launch)
    times = 12 if cools else 10
    assert warmed == [40.0, *[50.0 if cools else 80.0] * times]
    assert len(notes) == times
    assert {note.rpartition(" ")[0].rpartition(" ")[0] for note in notes} == {
        f"the GPU was slowed down for its heat (at 80 C, now {warmed[1]:.0f} C): waited"
    }
    assert session.cooled_s == pytest.approx(waits * times, abs=0.6 * times)
