"""The comparison with public Python calls, how it is run and the page it leaves: fake kernels and fake calls."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from fake_fairness import Device, calls_module, fairness_module, on_path, session_of  # noqa: F401
from fakes import FakeKernel

from nnzbench import paths
from nnzbench.devices import DeviceLost
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import make_operands
from nnzbench.problems.reference import reference
from nnzbench.site.build import find


def public(fairness, calls, device, us, name="torch.mm", off=0.0, fault=None):
    """A maker of one call that takes `us` and is `off` the truth."""

    def make_calls(libraries, problem, operands):
        def make():
            if fault is not None:
                raise fault
            device.timer.enqueued_us += us
            return reference(problem, operands).value + off

        return [calls.Call(name, lambda math: calls.prepared(device, make, contextlib.nullcontext, np.asarray))]

    return make_calls


def case(fairness, make_calls, kernels=("cublas", "cublaslt"), maths=("f32",)):
    return fairness.Case(fairness.problem("p", "spmm", (8, 12, 4), 0.5), kernels, maths, make_calls)


def test_a_call_is_compared_with_the_fastest_correct_row_of_its_arithmetic(fairness, calls):
    device = Device()
    session = session_of(
        device,
        cublas={"default": (10.0, ""), "tf32_row": (2.0, "")},
        cublaslt={"algo1": (8.0, ""), "algo2": (1.0, "wrong"), "algo3": (1.0, "stale")},
    )
    (row,) = fairness.compare(case(fairness, public(fairness, calls, device, 12.0)), session, None)
    assert (row.problem, row.math, row.call) == ("p", "f32", "torch.mm")
    assert (row.kernel, row.variant, row.theirs_us, row.ours_us, row.ratio) == ("cublaslt", "algo1", 12.0, 8.0, 1.5)
    assert row.graph is True
    assert row.reason == ""
    assert session.kernels["cublaslt"].open_count == 0


def test_ours_is_measured_again_after_theirs_and_the_faster_time_counts(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"v": (10.0, "")})
    kernel = session.kernels["cublas"]
    prepare = kernel._prepare
    times = iter([10.0, 7.5])
    kernel._prepare = lambda p, o, d, v, us, fault: prepare(p, o, d, v, next(times), fault)
    (row,) = fairness.compare(case(fairness, public(fairness, calls, device, 9.0), ("cublas",)), session, None)
    assert (row.ours_us, row.ratio) == (7.5, 1.2)


def test_each_arithmetic_class_has_its_own_rival(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"default": (10.0, ""), "tf32_row": (2.0, "")})
    chosen = case(fairness, public(fairness, calls, device, 4.0), ("cublas",), ("f32", "tf32"))
    rows = list(fairness.compare(chosen, session, None))
    assert [(row.math, row.variant, row.ratio) for row in rows] == [("f32", "default", 0.4), ("tf32", "tf32_row", 2.0)]
    assert "FASTER THAN OURS" in fairness.told(rows[0])
    assert "FASTER" not in fairness.told(rows[1])


@pytest.mark.parametrize("refusal", [NotImplementedError("no cuSPARSE during capture"), RuntimeError("capture")])
def test_a_call_that_refuses_capture_is_timed_as_a_loop(fairness, calls, refusal):
    device = Device(refusal)
    session = session_of(device, cusparse={"v": (10.0, "")})
    chosen = case(fairness, public(fairness, calls, device, 30.0, "cupyx csr @ dense"), ("cusparse",))
    device.timer.calls.clear()
    (row,) = fairness.compare(chosen, session, None)
    assert (row.graph, row.theirs_us, row.ratio, row.reason) == (False, 30.0, 3.0, "")
    assert "(no graph)" in fairness.told(row)


def test_a_device_that_is_lost_ends_the_comparison(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"v": (10.0, "lost")})
    with pytest.raises(DeviceLost):
        list(fairness.compare(case(fairness, public(fairness, calls, device, 9.0), ("cublas",)), session, None))


def test_wrong_and_failing_calls_are_rows_with_a_reason_and_no_time(fairness, calls):
    device = Device()
    session = session_of(device, cublas={"v": (10.0, "")})
    wrong = case(fairness, public(fairness, calls, device, 1.0, off=1.0), ("cublas",))
    failing = case(fairness, public(fairness, calls, device, 1.0, fault=NotImplementedError("not\nhere")), ("cublas",))
    for chosen, reason in ((wrong, "outside the f32 tolerance"), (failing, "NotImplementedError: not here")):
        (row,) = fairness.compare(chosen, session, None)
        assert (row.theirs_us, row.ratio) == (None, None)
        assert reason in row.reason
        assert row.reason in fairness.told(row)


def test_without_a_row_of_ours_the_reason_is_told(fairness, calls):
    device = Device()
    session = session_of(device, cudnn={"v": (10.0, "unsupported")})
    (row,) = fairness.compare(case(fairness, public(fairness, calls, device, 1.0), ("cudnn",)), session, None)
    assert (row.ratio, row.reason) == (None, "the suite has no row; cudnn: no such device")


def test_operands_that_a_library_cannot_make_are_a_row_too(fairness):
    def make_calls(libraries, problem, operands):
        raise AttributeError("no to_sparse_semi_structured")

    (row,) = fairness.compare(case(fairness, make_calls), session_of(Device()), None)
    assert row.reason == "AttributeError: no to_sparse_semi_structured"


def test_every_case_has_operands_of_its_sizes_and_kernels_that_compute_it(fairness):
    known = fairness.kernels()
    for one in fairness.cases():
        for name in one.kernels:
            assert one.problem.op in known[name].ops
            assert one.problem.dtype in known[name].dtypes
        c = one.problem.conv
        if c is not None:
            assert (one.problem.m, one.problem.k) == (c.filters, c.channels * c.r * c.s)
    small = [
        *fairness.dense(8, 12, 4),
        fairness.sparse(8, 12, 1, 0.5),
        fairness.sampled(8, 6, 5, 0.5),
        *fairness.convolution(fairness.ConvShape(2, 3, 1, 8, 4, 1, 3)),
        fairness.structured(8, 16, 4),
    ]
    for one in small:
        operands = make_operands(one.problem)
        assert reference(one.problem, operands).value.size
    assert (np.diff(make_operands(small[-1].problem).sparse.offsets) == 8).all()


def test_files_are_written_after_each_case_and_hold_every_row(fairness, calls, monkeypatch, tmp_path):
    device = Device()
    first = case(fairness, public(fairness, calls, device, 12.0), ("cublas",), ("f32", "tf32"))

    def breaks(libraries, problem, operands):
        raise KeyboardInterrupt

    second = fairness.Case(fairness.problem("q", "spmm", (4, 4, 4), 0.5), ("cublas",), ("f32",), breaks)
    monkeypatch.setattr(fairness, "cases", lambda: [first, second])
    monkeypatch.setattr(fairness, "kernels", lambda: {"cublas": FakeKernel("cublas", {"v": (10.0, "")})})
    monkeypatch.setattr(fairness.Session, "warm_up", lambda self, run: None)
    with pytest.raises(KeyboardInterrupt):
        fairness.run(device, None, {"gpu": "Fake GPU", "torch_cudnn": "91900"}, tmp_path / "out")
    frame = pd.read_csv(tmp_path / "out" / "fairness.csv")
    assert list(frame.columns) == importlib.import_module("fairness_page").COLUMNS
    assert list(frame["ratio"].fillna(0)) == [1.2, 0]
    assert frame["reason"][1] == "the suite has no row"
    page = (tmp_path / "out" / "README.md").read_text()
    assert "# Public Python calls against the vendor rows on Fake GPU" in page
    assert "**1.200** (torch.mm, p, f32); none is below 0.95" in page
    assert "* torch.mm on p (tf32): the suite has no row" in page
    assert "* q (f32): no row" in page
    assert "| torch cudnn | 91900 |" in page
    assert "Fairly: of 1 comparison on 1 problem the lowest" in page
    assert page.index("**Answer.**") < page.index("| call |") < page.index("* q (f32)") < page.index("| torch cudnn |")
    assert f" Of {page.count(chr(10) + '* ')} cases there is [no time](#not-measured)." in page


def test_a_fairness_page_answers_by_its_lowest_ratio(fairness):
    page = importlib.import_module("fairness_page")
    for ratios, answer in (
        ([], "**Answer.** Nothing was compared."),
        ([1.0, 0.94], "**Answer.** Not everywhere: of 2 comparisons on 1 problem the lowest ratio is **0.940** "),
        ([1.0, 0.96], "**Answer.** Fairly: of 2 comparisons on 1 problem the lowest ratio is **0.960** "),
    ):
        rows = [asdict(page.Row("p", "f32", "torch.mm", graph=True, ratio=one)) for one in ratios]
        text = page.page(pd.DataFrame(rows, columns=page.COLUMNS), {"gpu": "Fake GPU"}, [("p", "f32")][: len(rows)])
        assert answer in text
        assert "Nothing is missing." in text


def test_a_fairness_page_says_why_cases_have_no_row(fairness):
    """The rows tell that a run ended early, as cases are taken in their order; of a hole in between they don't."""
    page = importlib.import_module("fairness_page")
    planned = [(name, "f32") for name in "pqrs"]

    def text(*have):
        rows = [asdict(page.Row(name, "f32", "torch.mm", graph=True, ratio=1.0)) for name in have]
        return page.page(pd.DataFrame(rows, columns=page.COLUMNS), {"gpu": "Fake GPU"}, planned)

    assert "*No row*: these are the last 2 of the 4 cases in the order in which a run takes them" in text("p", "q")
    assert "*No row*: this is the last of the 4 cases" in text("p", "q", "r")
    assert "no library that was installed has a call for it; the rows do not tell which." in text("p", "r", "s")
    assert "*No row*" not in text("p", "q", "r", "s")


def test_the_exit_status_tells_findings(fairness, calls, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["fairness.py", str(tmp_path)])
    device = Device()
    monkeypatch.setattr(fairness, "open_device", lambda name: device)
    monkeypatch.setattr(fairness, "find_libraries", lambda device: (calls.Libraries(object()), {"torch": "2.0"}))
    monkeypatch.setattr(fairness, "versions_of", lambda device: {"gpu": "Fake GPU"})
    for ratio, status in ((0.96, 0), (0.94, 1), (None, 0)):
        monkeypatch.setattr(fairness, "run", lambda *a, ratio=ratio: [fairness.Row("p", "f32", "c", ratio=ratio)])
        assert fairness.main() == status
    assert device.closed
    assert "lowest ratio 0.940; 1 of 1 below 0.95" in capsys.readouterr().out


def test_without_gpu_or_libraries_it_says_so_in_one_sentence(fairness, calls, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["fairness.py", str(tmp_path)])

    def none(name):
        raise Unsupported("CuPy finds no CUDA GPU")

    monkeypatch.setattr(fairness, "open_device", none)
    assert fairness.main() == 2
    assert capsys.readouterr().err == "no GPU: CuPy finds no CUDA GPU\n"
    monkeypatch.setattr(fairness, "open_device", lambda name: Device())
    monkeypatch.setattr(fairness, "find_libraries", lambda device: (calls.Libraries(), {}))
    assert fairness.main() == 2
    assert capsys.readouterr().err == "nothing to compare: install PyTorch or CuPy\n"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sys, "argv", ["fairness.py", "--quick"])
    assert fairness.main() == 2
    assert capsys.readouterr().err.startswith("usage: ")


RECORDED = sorted(path.parent for path in paths.reports().glob("*/fairness/fairness.csv"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.parent.name)
def test_a_recorded_page_says_what_its_rows_say(fairness, folder):
    page = importlib.import_module("fairness_page")
    frame = pd.read_csv(folder / "fairness.csv")
    versions = json.loads((folder / "versions.json").read_text())
    planned = [(one.problem.name, math) for one in fairness.cases() for math in one.maths]
    assert (folder / "README.md").read_text() == page.page(frame, versions, planned)
    timed = frame[frame["ratio"].notna()]
    assert (abs(timed["theirs_us"] / timed["ours_us"] - timed["ratio"]) < 1e-3 * timed["ratio"]).all()
    assert set(zip(frame["problem"], frame["math"], strict=True)) <= set(planned)
    assert frame.loc[frame["ratio"].isna(), "reason"].notna().all()


def test_a_fairness_folder_is_no_result_set():
    assert RECORDED
    assert "fairness" not in find(paths.reports())
