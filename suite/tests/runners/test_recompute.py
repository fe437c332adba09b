"""The check of first screens outside the package: it agrees with what is drawn, and with nothing else."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import fake_records
import pytest
from draft_figures import draft, pages_alone

from nnzbench.facts.results import load
from nnzbench.kernels.registry import known
from nnzbench.papers.balanced import leads as balanced_leads
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.papers.lecture import leads as lecture_leads
from nnzbench.papers.sparsert import leads as sparsert_leads
from nnzbench.papers.sputnik import leads
from nnzbench.problems import tables
from nnzbench.records.selection import select
from nnzbench.report.draw import style
from nnzbench.report.text import lead
from nnzbench.site import build, readme

ROOT = Path(__file__).resolve().parents[3]
MARKERS = "<!-- nnzbench:headline -->\n<!-- /nnzbench:headline -->\n"


@pytest.fixture(scope="module")
def recompute() -> ModuleType:
    sys.path.insert(0, str(ROOT / "runners"))
    try:
        return importlib.import_module("recompute")
    finally:
        sys.path.remove(str(ROOT / "runners"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn")
    fake_records.write(root / "reports" / "nvidia-h200" / "sparsert_table1", fake_records.table1())
    (root / "README.md").write_text(MARKERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", draft)
        build.build(root / "reports", ["sparsert_table1"])
    assert readme.write_headline(root / "reports")
    return root


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a run that tuned all but cuSPARSE, and this project's `row_stream` at 95 % zeros."""
    root = tmp_path_factory.mktemp("marked")
    place = fake_records.write(root / "reports" / "nvidia-h200" / "sparsert_table1", fake_records.table1())
    cut = {"cusparse": 0.0, "row_stream": 0.94}
    fake_records.tuned(place, lambda row: ("first",) if row.sparsity > cut.get(row.kernel, 1) else ("first", "all"))
    (root / "README.md").write_text(MARKERS)
    with pytest.MonkeyPatch.context() as patch, pages_alone():
        patch.setattr(style, "save", draft)
        build.build(root / "reports", ["sparsert_table1"])
    assert readme.write_headline(root / "reports")
    return root


def told(recompute: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    words = ["recompute.py", "--readme", str(root / "README.md"), "--reports", str(root / "reports")]
    monkeypatch.setattr(sys, "argv", words)
    return recompute.main(), capsys.readouterr().err


@contextmanager
def changed(path: Path, match: re.Match[str], other: str) -> Iterator[None]:
    """The file with other words in place of the first group of a match in it."""
    path.write_text(match.string[: match.start(1)] + other + match.string[match.end(1) :])
    try:
        yield
    finally:
        path.write_text(match.string)


def test_what_is_drawn_is_what_the_records_say(recompute, drawn, monkeypatch, capsys):
    assert told(recompute, drawn, monkeypatch, capsys) == (0, "")


@pytest.mark.parametrize(
    ("file", "found", "named"),
    [
        ("page", r"(?:is|are) \*\*(\d\.\d\d)×\*\* as fast", "At 90 % zeros: "),
        ("page", r"faster on (\d+) of 20", "At 90 % zeros: "),
        ("page", r"the paper: (3\.4)×", "sparsert-spmm-90"),
        ("page", r"\| this project's kernels \| at 95 % zeros \(11\) \| (\d\.\d\d)×", "| at 95 % zeros (11) |"),
        ("page", r"hot and (\d\.\d\d)× cold", "over"),
        ("headline", r"\| this project's kernels \| (\d\.\d\d)×", "Small pruned layers"),
        ("headline", r"(ahead) of", "Small pruned layers"),
        ("claims", r"\*\*(\d+) claims", "claims.md"),
        ("coverage", r"Of ([\d,]+) cells", "coverage.md"),
    ],
)
def test_a_changed_number_is_named(recompute, drawn, monkeypatch, capsys, file, found, named):
    gpu = drawn / "reports" / "nvidia-h200"
    places = {"page": gpu / "sparsert_table1" / "README.md", "headline": drawn / "README.md"}
    path = places.get(file, gpu / f"{file}.md")
    text = path.read_text()
    match = re.search(found, text)
    assert match, found
    other = {"ahead": "behind"}.get(match[1]) or re.sub(r"\d$", lambda digit: str((int(digit[0]) + 1) % 10), match[1])
    with changed(path, match, other):
        status, error = told(recompute, drawn, monkeypatch, capsys)
    assert status == 1
    assert named in error


def test_marks_are_what_the_records_say(recompute, marked, monkeypatch, capsys):
    assert told(recompute, marked, monkeypatch, capsys) == (0, "")


@pytest.mark.parametrize(
    ("file", "found", "other"),
    [
        ("page", r"\(hot, (before tuning, )faster on \d+ of 11\)", ""),
        ("page", r"\(hot, ()faster on \d+ of 20\)", "before tuning, "),
        ("page", r"\| at 95 % zeros \(11\) \| \d\.\d\d×(†)", ""),
        ("page", r"\| at 90 % zeros \(20\) \| \d\.\d\d×()", "†"),
        ("page", r"`cusparse` on (31) of 31 problems", "30"),
        ("page", r"(?m)^(† .*)$", ""),
        ("headline", r"best cuSPARSE fp32(†)", ""),
        ("headline", r"(?m)\d×(†) \(\d+\) \|$", ""),
        ("headline", r"(?m)^(† .*)$", ""),
    ],
)
def test_a_changed_mark_is_named(recompute, marked, monkeypatch, capsys, file, found, other):
    page = marked / "reports" / "nvidia-h200" / "sparsert_table1" / "README.md"
    path = page if file == "page" else marked / "README.md"
    text = path.read_text()
    match = re.search(found, text)
    assert match, found
    with changed(path, match, other):
        status, error = told(recompute, marked, monkeypatch, capsys)
    assert (status, error.count("the text says")) == (1, 1)


def named(recompute, screen: tuple[Path, str], said: str, other: str) -> None:
    """Asserts that a first screen (its records, its text) has one fault once it says something other."""
    folder, text = screen
    assert said in text
    assert len(recompute.check(folder, text.replace(said, other, 1))) == 1


@pytest.fixture(scope="module")
def over_two_layouts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The first screen of recurrent layers of a run that tuned this project's kernel on no problem."""
    variants = {"csr_default_col": 60.0, "csr_default_row": 30.0, "csr_alg2_row": 20.0}
    times = {
        **{("cusparse", variant): time for variant, time in variants.items()},
        ("sputnik", "heuristic_x32"): 10.0,
        ("ring", "t4"): 5.0,
    }
    rows = [
        fake_records.record(
            experiment="sputnik_rnn", problem=f"{label}_8192x2048x32_{level}_uniform", source="uniform:0", n=32,
            sparsity=level / 100, kernel=kernel, variant=variant, median_us=time,
        )
        for label in ("rnn1k_b32", "lstm1k_b32")
        for level in (70, 90)
        for (kernel, variant), time in times.items()
    ]  # fmt: skip
    folder = fake_records.write(tmp_path_factory.mktemp("layouts") / "sputnik_rnn", select(rows))
    fake_records.tuned(folder, lambda row: ("first",) if row.kernel == "ring" else ("all",))
    cells = lead.cells_of(leads.RNN, load(folder).frame, ["hot"])
    screen = lead.screen(leads.RNN, cells, ["hot"])
    limits = f"**Where it does not hold.** {screen.limits}"
    return folder, f"**Answer.** {screen.answer}\n\n{limits}\n\n{screen.table}\n\n{screen.mark}\n"


def test_the_paper_s_number_stands_beside_the_rival_that_it_was_measured_against(recompute, over_two_layouts):
    folder, text = over_two_layouts
    assert (
        "`sputnik`, its heuristic is **6.00×** as fast as cuSPARSE's column-major default fp32 (hot, faster on 4 of "
        "4), this project's kernels 12.00× before tuning; the paper over cuSPARSE of CUDA 10.1: 3.47× on V100 "
        "(`sputnik-rnn-cusparse`); measured over cuSPARSE's default fp32 in its best layout: 3.00×, this project's "
        "kernels 6.00× before tuning."
    ) in text
    assert recompute.check(folder, text) == []


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ("**6.00×**", "**3.00×**"),
        ("layout: 3.00×", "layout: 6.00×"),
        ("layout: 3.00×", "layout: 3.00× before tuning"),
        ("layout: 3.00×, this project's kernels 6.00×", "layout: 3.00×, this project's kernels 6.01×"),
        ("kernels 6.00× before tuning.", "kernels 6.00×."),
        ("layout: 3.00×, this project's kernels 6.00×", "layout: 3.00×, `untuned` 6.00×"),
    ],
)
def test_a_changed_number_over_the_second_rival_is_named(recompute, over_two_layouts, said, other):
    named(recompute, over_two_layouts, said, other)


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The first screen of figure 1 at three levels, of a run that tuned this project's kernel at none."""
    rows = [
        fake_records.record(
            experiment="sputnik_figure1", problem=f"lstm_8192x2048x128_{level}_uniform", source="uniform:0", n=128,
            sparsity=level / 100, kernel=kernel, variant=variant, median_us=time,
        )
        for level, left in ((50, 0.5), (80, 0.2), (90, 0.1))
        for kernel, variant, time in (
            ("cublas", "f32_default_nn", 100.0),
            ("sputnik", "heuristic_x32", 800 * left),
            ("ring", "t4", 1600 * left**2),
        )
    ]  # fmt: skip
    folder = fake_records.write(tmp_path_factory.mktemp("crossed") / "sputnik_figure1", select(rows))
    fake_records.tuned(folder, lambda row: ("first",) if row.kernel == "ring" else ("all",))
    cells = lead.cells_of(leads.FIGURE1, load(folder).frame, ["hot"])
    return folder, f"**Answer.** {lead.screen(leads.FIGURE1, cells, ['hot']).answer}\n"


def test_the_share_of_zeros_from_which_on_a_side_is_faster_is_computed(recompute, crossed):
    folder, text = crossed
    said = "`sputnik`, its heuristic is faster than cuBLAS fp32 from **87.5 %** zeros on (hot)"  # 800 x is 100 at 1/8
    assert f"All problems: {said}, this project's kernels from 75.0 % before tuning; the paper: 71 % zeros on V" in text
    assert recompute.check(folder, text) == []


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ("**87.5 %**", "**87.4 %**"),
        ("**87.5 %** zeros on (hot)", "**87.5 %** zeros on (hot, before tuning)"),
        ("from 75.0 % before tuning", "from 75.0 %"),
        ("from 75.0 %", "from below 50 %"),
        ("71 % zeros", "72 % zeros"),
    ],
)
def test_a_changed_share_of_zeros_is_named(recompute, crossed, said, other):
    named(recompute, crossed, said, other)


def test_the_headline_sets_fp16_kernels_against_dense_fp16(recompute, tmp_path):
    """fp32 kernels are behind it, those with fp16 values ahead: both are told, and both are computed."""
    times = {("ring", "f32"): 4.0, ("cublas", "f32"): 8.0, ("ring", "f16"): 1.0, ("cublas", "f16"): 2.0}
    rows = [
        fake_records.record(
            experiment="sputnik_rnn", problem="rnn1k_b32_1024x1024x32_90_uniform", source="uniform:0", n=32,
            sparsity=0.9, dtype=dtype, kernel=kernel, variant=f"{dtype}_rowmajor", median_us=time,
        )
        for (kernel, dtype), time in times.items()
    ]  # fmt: skip
    place = tmp_path / "reports" / "nvidia-h200"
    fake_records.write(place / "sparsert_table1", fake_records.table1())
    fake_records.write(place / "sputnik_rnn", select(rows))
    path = tmp_path / "README.md"
    path.write_text(MARKERS)
    assert readme.write_headline(tmp_path / "reports")
    said = "behind best dense fp16; with fp16 values ahead of best dense fp16."
    assert f"* **Large recurrent layers**: this project's kernels ahead of cuBLAS fp32; {said}" in path.read_text()
    assert recompute.headline(path) == []
    for other in (said.replace("values ahead of", "values behind"), said.partition("; with")[0] + "."):
        path.write_text(path.read_text().replace(said, other))
        assert len(recompute.headline(path)) == 1
        path.write_text(path.read_text().replace(other, said))


def test_the_headline_names_the_policy_under_which_a_kernel_is_ahead(recompute, tmp_path):
    times = {("sparsert", "hot"): 2.0, ("cublas", "hot"): 4.0, ("sparsert", "cold"): 6.0, ("cublas", "cold"): 5.0}
    rows = [
        fake_records.record(
            problem="magnitude_0.9_512x512x32_90_real", source="uniform:0", sparsity=0.9, policy=policy, kernel=kernel,
            variant="rowmajor", median_us=time,
        )
        for (kernel, policy), time in times.items()
    ]  # fmt: skip
    fake_records.write(tmp_path / "reports" / "nvidia-h200" / "sparsert_table1", select(rows))
    path = tmp_path / "README.md"
    path.write_text(MARKERS)
    assert readme.write_headline(tmp_path / "reports")
    said = "this project's kernels ahead when hot but behind when cold against cuBLAS fp32."
    assert said in path.read_text()
    assert recompute.headline(path) == []
    path.write_text(
        path.read_text().replace(said, said.replace("hot", "icy").replace("cold", "hot").replace("icy", "cold"))
    )
    assert len(recompute.headline(path)) == 1


def screen_of(folder: Path, asked: lead.Lead, times: list[tuple[dict[str, object], float]]) -> tuple[Path, str]:
    """The first screen that rows with these fields and times have under the hot policy."""
    rows = [fake_records.record(experiment=folder.name, median_us=us, **fields) for fields, us in times]
    fake_records.write(folder, select(rows))
    shown = lead.screen(asked, lead.cells_of(asked, load(folder).frame, ["hot"]), ["hot"])
    return folder, f"**Answer.** {shown.answer}\n\n**Where it does not hold.** {shown.limits}\n\n{shown.table}\n"


def test_a_part_is_left_out_at_the_tiling_of_the_whole(recompute, tmp_path):
    """Not at its own fastest, which stands in a column of its own."""
    times = [("sparsert_paper", "mb4", 2.0), ("sparsert_paper", "mb8", 3.0)]
    times += [("sparsert_rolled", "mb4", 30.0), ("sparsert_rolled", "mb8", 12.0)]
    rows = [({"kernel": kernel, "variant": variant}, us) for kernel, variant, us in times]
    folder, text = screen_of(tmp_path / "sparsert_ablation", sparsert_leads.ABLATION, rows)
    assert "`sparsert_paper` is **15.00×** as fast as `sparsert_rolled`, at the same tiling (hot" in text
    assert "| 15.00× (1) | 6.00× (1) |" in text
    assert recompute.check(folder, text) == []
    named(recompute, (folder, text), "**15.00×**", "**6.00×**")


def test_layers_together_are_sums_and_only_of_all_of_them(recompute, tmp_path):
    """Twice as fast on the long layer and a tenth as fast on the short one: 12 / 15."""
    names = [f"vgg16_{layer}_balanced_64x64x64_90_balanced" for layer in ("conv1_1", "conv1_2")]
    rows = [
        ({"problem": name, "kernel": kernel, "variant": variant, "source": "balanced:0"}, us)
        for kernel, variant, both in (("balanced", "paper", (5.0, 10.0)), ("cublas", "f32_rowmajor", (10.0, 2.0)))
        for name, us in zip(names, both, strict=True)
    ]
    folder, text = screen_of(tmp_path / "a" / "balanced_models", balanced_leads.MODELS, rows)
    assert "Of all layers of VGG-16 together: `balanced`, the paper's mapping is **0.80×** as fast as cuBLAS" in text
    assert recompute.check(folder, text) == []
    folder, text = screen_of(tmp_path / "b" / "balanced_models", balanced_leads.MODELS, rows[1:])
    assert "together" not in text
    assert recompute.check(folder, text) == []


def test_where_the_told_side_holds_everywhere_others_are_told(recompute, tmp_path):
    """Of the same arithmetic alone: fp16 behind dense fp16, not behind dense INT8."""
    times = {("cusparselt", "i8"): 1.0, ("cublas", "i8"): 2.0, ("cusparselt", "f16"): 4.0, ("cublas", "f16"): 3.0}
    rows = [
        ({"problem": f"a100_64x64x64_50_nm_{dtype}", "dtype": dtype, "kernel": kernel, "variant": f"{dtype}_x"}, us)
        for (kernel, dtype), us in times.items()
    ]
    folder, text = screen_of(tmp_path / "nm_sparsity", lecture_leads.NM_SPARSITY, rows)
    assert "hold.** `cusparselt` fp16 over best dense fp16, of the A100 figure: 0.75× hot.\n" in text
    assert recompute.check(folder, text) == []
    named(recompute, (folder, text), "fp16, of the A100 figure: 0.75×", "INT8, of the A100 figure: 0.50×")


def test_a_sentence_that_nothing_computes_is_named(recompute, drawn, monkeypatch, capsys):
    path = drawn / "reports" / "nvidia-h200" / "sparsert_table1" / "README.md"
    text = path.read_text()
    path.write_text(text.replace("**Answer.** ", "**Answer.** It is 7 times as fast on Sundays. "))
    try:
        status, error = told(recompute, drawn, monkeypatch, capsys)
    finally:
        path.write_text(text)
    assert (status, "on Sundays" in error) == (1, True)


def test_both_halves_mean_the_same_kernels_and_problems(recompute):
    records = importlib.import_module("recompute_records")
    own = {name: one for name, one in known().items() if one.role == "own" and not one.study}
    assert set(records.OWN) == set(own)
    assert set(records.IN_CODE) == {name for name, one in own.items() if one.weights_in_code}
    assert {name: one.paper_variants for name, one in own.items() if one.paper_variants} == records.PAPERS
    assert set(records.NOTHING_TO_TUNE) == {name for name, one in known().items() if one.nothing_to_tune}
    assert records.sample() == {entry.path for entry in tables.dlmc_sample()}
    nothing, studies = fake_frame(records), set[str]()
    for name, experiment in EXPERIMENTS.items():
        asked = page_of(name).lead
        assert asked is not None or not experiment.kernels, name
        for group in asked.groups if asked else ():
            assert recompute.label_of(group.label[0].upper() + group.label[1:]) == group.label
            assert (records.Group(group.label).rival != "") == bool(group.rival_like)
        for one in (*asked.sides, *asked.rivals) if asked else ():
            assert records.side(nothing, one.label).empty
            studies |= {f"`{one.kernel}`, "} if one.variants and known()[one.kernel].study else set()
    assert studies == set(records.STUDIES)


def fake_frame(records: ModuleType):
    return records.pd.DataFrame({"kernel": [], "math": [], "variant": []}, dtype=str)
