"""The check of first screens: which recorded rows it counts, and what it says where there is nothing to count."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import fake_records
import pytest

from nnzbench.facts.results import load
from nnzbench.papers.balanced import leads as balanced_leads
from nnzbench.papers.sparsert import leads
from nnzbench.records.record import FAILURES, Record
from nnzbench.records.selection import select
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead
from nnzbench.site.build import build

RUNNERS = Path(__file__).resolve().parents[3] / "runners"
PROBLEM = "magnitude_0.9_512x512x32_90_dlmc"
GPU = "nvidia-h200"


@pytest.fixture(scope="module")
def recompute() -> ModuleType:
    sys.path.insert(0, str(RUNNERS))
    try:
        return importlib.import_module("recompute")
    finally:
        sys.path.remove(str(RUNNERS))


def timed(kernel: str, us: float, **changes: object) -> Record:
    return fake_records.timed(kernel, us, **{"problem": PROBLEM, **changes})


def screen_of(folder: Path, rows: list[Record], unfinished: str = "", asked: Lead = leads.TABLE1) -> str:
    """The first screen of records of which a run tuned all kernels but one to the end."""
    fake_records.write(folder, select(rows))
    header = "problem,dtype,kernel,device,policies,candidates,ok,seconds,scope"
    done = {(one.problem, one.kernel, one.device) for one in rows if one.kernel != unfinished}
    lines = [f"{problem},f32,{kernel},{device},hot,1,1,0.5,all" for problem, kernel, device in sorted(done)]
    (folder / "tuning.csv").write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    shown = lead.screen(asked, lead.cells_of(asked, load(folder).frame, ["hot"]), ["hot"])
    return f"**Answer.** {shown.answer}\n\n**Where it does not hold.** {shown.limits}\n\n{shown.table}\n"


ROWS = [
    timed("sparsert_paper", 4.0),
    timed("ring", 2.0),
    timed("cublas", 8.0, variant="f32_default_nn"),
]


@pytest.mark.parametrize(
    ("more", "unfinished"),
    [
        (timed("row_stream", 0.1), "row_stream"),
        (timed("ring", 0.1, device="pycuda"), ""),
    ],
    ids=["not finished", "of another device"],
)
def test_rows_that_are_not_drawn_are_not_counted(recompute, tmp_path, more, unfinished):
    folder = tmp_path / "sparsert_table1"
    text = screen_of(folder, [*ROWS, more], unfinished)
    assert "`sparsert_paper` is **2.00×** as fast as" in text
    assert "| this project's kernels | at 90 % zeros (" in text
    assert recompute.check(folder, text) == []


def test_a_stand_in_s_time_counts_where_the_kernel_did_not_run_on_the_pattern(recompute, tmp_path):
    standin = timed("ring", 1.0, problem=PROBLEM.replace("dlmc", "standin"), source="standin:x")
    folder = tmp_path / "sparsert_table1"
    text = screen_of(folder, [ROWS[0], standin, ROWS[2]])
    assert "this project's kernels 8.00×" in text
    assert recompute.check(folder, text) == []


def test_a_stand_in_s_time_does_not_count_beside_the_pattern_s(recompute, tmp_path):
    standin = timed("ring", 0.1, problem=PROBLEM.replace("dlmc", "standin"), source="standin:x")
    folder = tmp_path / "sparsert_table1"
    text = screen_of(folder, [*ROWS, standin])
    assert "this project's kernels 4.00×" in text
    assert recompute.check(folder, text) == []


def test_the_paper_s_mapping_is_no_design_of_this_project(recompute, tmp_path):
    at = {"problem": "vgg16_conv1_1_balanced_64x64x64_90_balanced", "source": "balanced:0"}
    times = (("balanced", "paper_w8", 1.0), ("balanced", "async2_w16", 2.0), ("cublas", "f32_rowmajor", 8.0))
    rows = [timed(kernel, us, variant=variant, **at) for kernel, variant, us in times]
    folder = tmp_path / "balanced_models"
    text = screen_of(folder, rows, asked=balanced_leads.MODELS)
    assert "`balanced`, the paper's mapping is **8.00×** as fast as cuBLAS" in text
    assert "this project's kernels 4.00×" in text
    assert recompute.check(folder, text) == []


def test_layers_that_one_side_lacks_have_no_sum(recompute, tmp_path):
    names = [f"vgg16_{layer}_balanced_64x64x64_90_balanced" for layer in ("conv1_1", "conv1_2")]
    rows = [timed("cublas", 8.0, problem=name, variant="f32_rowmajor", source="balanced:0") for name in names]
    rows.append(timed("balanced", 1.0, problem=names[0], variant="paper_w8", source="balanced:0"))
    folder = tmp_path / "balanced_models"
    text = screen_of(folder, rows, asked=balanced_leads.MODELS)
    assert "together" not in text
    assert recompute.check(folder, text) == []
    sides = ("hot", "`balanced`, the paper's mapping", "cuBLAS fp32")
    assert recompute.ratio(folder, "of all layers of VGG-16 together", *sides) is None
    assert recompute.ratio(folder, "of VGG-16, each layer once", *sides).value == pytest.approx(8)


def told(recompute: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    words = ["recompute.py", "--readme", str(root / "README.md"), "--reports", str(root / "reports")]
    monkeypatch.setattr(sys, "argv", words)
    return recompute.main(), capsys.readouterr().err


def test_nothing_to_check_is_no_success(recompute, tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text("")
    status, error = told(recompute, tmp_path, monkeypatch, capsys)
    assert (status, "no records" in error) == (2, True)


def test_records_without_a_page_are_named(recompute, tmp_path, monkeypatch, capsys):
    fake_records.write(tmp_path / "reports" / GPU / "sparsert_table1", ROWS)
    (tmp_path / "README.md").write_text("")
    status, error = told(recompute, tmp_path, monkeypatch, capsys)
    assert status == 1
    assert f"{Path('sparsert_table1') / 'README.md'}: there are records and no page" in error


def test_candidates_are_counted_once_for_all_policies_and_every_failure_is_one(recompute, tmp_path):
    at = {"experiment": "awkward_sizes", "problem": "row_1x64x8_50_uniform"}
    rows = [timed("sputnik", 1.0, policy=policy, **at) for policy in ("hot", "cold")]
    for status in (*sorted(FAILURES), "unsupported"):
        rows.append(fake_records.failed(timed("ring", 1.0, variant=status, **at), status, "why"))
    folder = fake_records.write(tmp_path / GPU / "awkward_sizes", rows)
    (built,) = build(tmp_path, ["awkward_sizes"])
    text = built.page.read_text()
    said = "**1 candidates of 1 kernels on 1 problems were right, 3 were wrong or failed.**"
    assert said in text
    assert recompute.check(folder, text) == []
    assert len(recompute.check(folder, text.replace("right, 3", "right, 1"))) == 1


def test_the_verdicts_of_today_are_the_papers_where_its_rival_is_that_already(recompute, tmp_path):
    verdicts = [("reproduced", "weaker"), ("reproduced", ""), ("contradicted", ""), ("not measurable", "")]
    lines = "".join(f"{verdict},{today}\n" for verdict, today in verdicts)
    (tmp_path / "claims.csv").write_text(f"verdict,verdict_today\n{lines}")
    said = (
        "**4 claims, 3 judged**: as the papers compare 2 reproduced, 0 stronger, 0 weaker, 1 contradicted; against the "
        "best of today {} reproduced, 0 stronger, {} weaker, {} contradicted. 0 are not comparable and 1 not"
    )
    for counts, wrong in (((1, 1, 1), 0), ((0, 1, 0), 1)):
        (tmp_path / "claims.md").write_text(said.format(*counts))
        assert len(list(recompute.counted(tmp_path))) == wrong


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The first screen of two sides that are behind every rival, some by little."""
    sides = (("sparsert_paper", "v", 4.0), ("ring", "v", 5.0))
    dense = (("f32_default_nn", "f32", 3.9), ("tf32_default_nn", "f32", 2.0), ("f16_default_nn", "f16", 1.0))
    rows = [timed(kernel, us, variant=variant) for kernel, variant, us in sides]
    rows += [timed("cublas", us, variant=variant, dtype=dtype) for variant, dtype, us in dense]
    folder = tmp_path_factory.mktemp("behind") / "sparsert_table1"
    fake_records.write(folder, select(rows))
    shown = lead.screen(leads.TABLE1, lead.cells_of(leads.TABLE1, load(folder).frame, ["hot"]), ["hot"])
    return folder, f"**Answer.** {shown.answer}\n\n**Where it does not hold.** {shown.limits}\n\n{shown.table}\n"


def test_where_it_does_not_hold_is_all_that_is_below_1_the_lowest_first(recompute, behind):
    folder, text = behind
    limits = text.partition("hold.** ")[2].partition("\n")[0]
    assert recompute.check(folder, text) == []
    assert limits.endswith("; 4 more are in the table.")
    assert limits.startswith("This project's kernels over best dense fp16, at 90 % zeros: 0.20× hot; ")
    little = "`sparsert_paper` over cuBLAS fp32, at 90 % zeros: 0.97× hot"
    named = limits.partition("; ")[2].partition("; ")[0]
    for other in (
        limits.replace("4 more", "3 more"),
        limits.replace(named, little),
        "Nowhere in geometric mean, against the rivals below.",
    ):
        assert len(recompute.check(folder, text.replace(limits, other))) == 1, other


def test_a_ratio_just_below_1_is_a_loss(recompute, tmp_path):
    rows = [timed("sparsert_paper", 4.0), timed("cublas", 3.9, variant="f32_default_nn")]
    folder = tmp_path / "sparsert_table1"
    text = screen_of(folder, rows)
    limits = text.partition("hold.** ")[2].partition("\n")[0]
    assert limits.startswith("`sparsert_paper` over best dense fp32, at 90 % zeros: 0.97× hot")
    assert recompute.check(folder, text) == []
    nowhere = "Nowhere in geometric mean, against the rivals below."
    assert len(recompute.check(folder, text.replace(limits, nowhere))) == 1
