"""Pages drawn of sets that nobody validated: hostile texts in every column reach no page as anything but text."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path

import fake_records
import pandas as pd
import pytest
from html_reports import SNAPSHOT, opened, rendered
from markdown_it import MarkdownIt

from nnzbench.report import render
from nnzbench.results.records import sanitise
from nnzbench.results.records.beside import Tuning
from nnzbench.results.records.record import Record, append
from nnzbench.results.result_set import load
from nnzbench.site.build import build

GPU, OTHER = "nvidia-h200", "nvidia-l4"
RUN = "window.ran=1;document.title='ran'"
HOSTILE = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg/onload={RUN}>",
    f'"onmouseover="{RUN}" autofocus onfocus="{RUN}',
    f"x](javascript:{RUN}) [y](javascript:{RUN})",
    f"`</code><script>{RUN}</script>`",
    f"a|b\\|<iframe srcdoc='<script>parent.{RUN}</script>'>",
    "=HYPERLINK(1)", "@SUM(1)", "+1", "-1", "$(touch ran)`touch ran`;touch ran", r"$\frac{1}$", "{{ 7*7 }}{% raw %}",
    "\u202eevil\u2066", "\x1b[31mred\x07", "\u200b\ufeff", "</style><style>*{display:none}", "]]><!--", "x" * 100_000,
)  # fmt: skip
TEXTS = ("problem", "shape", "pattern", "source", "kernel", "variant", "arch", "policy", "reason", "op")
"""Columns that a forger fills; experiment and GPU are names of folders too."""


def forged(at: int, column: str, rows: list[Record]) -> list[Record]:
    """A third of the rows with a hostile text in a column, made different from one another where rows must be."""
    out = []
    for number, row in enumerate(rows):
        text = HOSTILE[(at + number) % len(HOSTILE)]
        changed = {column: text} if column != "reason" else {}
        made = dataclasses.replace(row, **changed, selected=False) if number % 3 == 0 else row
        out.append(fake_records.failed(made, "wrong", text) if column == "reason" and number % 3 == 0 else made)
    return list({row.key: row for row in out}.values())


def snapshot(name: str) -> dict[str, object]:
    texts = {f"k{at}{text[:30]}": text for at, text in enumerate(HOSTILE)}
    return {
        **SNAPSHOT, "gpu": {"name": name, "driver": HOSTILE[0], **texts}, "software": {"cublas": HOSTILE[1], **texts},
        "source": {"commit": HOSTILE[6][:60], "dirty": HOSTILE[2]}, "recorded_at": HOSTILE[0], **texts,
    }  # fmt: skip


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GPUs and an experiment that nobody knows, each with forged rows, drawn whole."""
    root = tmp_path_factory.mktemp("forged")
    every = fake_records.table1()
    few = {row.problem for row in every[:120]}
    base = [row for row in every if row.problem in few]
    for place, (gpu, experiment) in enumerate([(GPU, "sparsert_table1"), (OTHER, "sparsert_table1"), (GPU, "foreign")]):
        rows = [dataclasses.replace(row, gpu=gpu, experiment=experiment) for row in (base if place else every)]
        parts = [forged(at + place, column, rows[at :: len(TEXTS)]) for at, column in enumerate(TEXTS)]
        rows = [row for part in parts for row in part]
        folder = fake_records.write(root / gpu / experiment, rows, snapshot(HOSTILE[place]))
        header = (*Tuning.__dataclass_fields__,)
        keys = {(row.problem, row.dtype, row.kernel, row.device, row.policy) for row in rows}
        lines = [
            [*key, 1, 1, 0.5, "first" if at % 9 == 0 else "all", 0.1, HOSTILE[2]] for at, key in enumerate(sorted(keys))
        ]
        with (folder / "tuning.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *lines])
    checks = [dataclasses.replace(row, policy="check", arch="sm_75", gpu=GPU) for row in base[:40]]
    wrong = [
        fake_records.failed(dataclasses.replace(row, variant=f"{HOSTILE[at % 9]}{at}"), "wrong", HOSTILE[at % 9])
        for at, row in enumerate(checks)
    ]
    fake_records.write(root / GPU / "sparsert_table1" / "as-sm_75", wrong, snapshot("x"))
    build(root)
    return root


def pages(root: Path, ending: str) -> list[Path]:
    return sorted(path for path in root.rglob(f"*{ending}") if path.name not in ("environment.json", "records.csv"))


def test_no_markup_reaches_a_page_of_markdown(drawn: Path) -> None:
    read = MarkdownIt("gfm-like", {"linkify": False})
    found = pages(drawn, ".md")
    assert {path.name for path in found} >= {"README.md", "coverage.md"}
    assert any(path.parent.name == "generations" for path in found)
    assert any(path.parent.name == "as-sm_75" for path in found)
    for path in found:
        text = path.read_text(encoding="utf-8")
        html = read.render(text)
        tags = {tag.lower() for tag in re.findall(r"<\s*/?([A-Za-z!?][\w-]*)", html)}
        assert not tags & {"script", "svg", "iframe", "style", "object", "embed", "form"}, path
        assert not re.search(r"<[^>]+\son\w+\s*=", html), path
        assert not re.search(r"(href|src)=\"\s*(javascript|data|vbscript):", html, re.IGNORECASE), path
        assert all(one.isprintable() or one == "\n" for one in text), path
        assert "x" * (sanitise.LONGEST + 1) not in text, path
    readme = (drawn / GPU / "foreign" / "README.md").read_text(encoding="utf-8")
    assert "‹script›" in readme, "a hostile text is shown, and not hidden"


def test_no_figure_holds_markup_of_records(drawn: Path) -> None:
    for path in pages(drawn, ".svg"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<\s*(script|iframe|foreignObject|img|a)\b|\son\w+\s*=|javascript:", text), path


def test_no_table_begins_a_cell_with_a_formula(drawn: Path) -> None:
    for path in pages(drawn, ".csv"):
        if path.name != "tuning.csv":
            for name, column in pd.read_csv(path, dtype=str, keep_default_na=False).items():
                texts = [one for one in column if re.match(r"[=@+-](?![\d.])", one)]
                assert not texts, (path, name, texts[:3])


def test_no_script_of_records_runs_in_a_browser(drawn: Path, tmp_path: Path) -> None:
    """Every page: index.html as it is, the others as a viewer of Markdown shows them, raw HTML included."""
    text = (drawn / "index.html").read_text(encoding="utf-8")
    bare = re.sub(r'<script type="application/octet-stream" id="data">.*?</script>', "", text)
    assert RUN not in bare.replace("‹", "")  # the data is compressed; what stands beside it is escaped
    read = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    press = """<script>addEventListener("load", () => setTimeout(() => {
      for (const one of document.querySelectorAll("a[href^='javascript'], button, summary, [onclick]")) one.click();
      for (const one of document.querySelectorAll("select")) for (const option of one.options) {
        one.value = option.value; one.dispatchEvent(new Event("change"));
      }
      const told = document.createElement("pre");
      told.id = "told"; told.textContent = window.ran ? "RAN" : "QUIET";
      document.body.append(told);
    }, 500));</script>"""
    (tmp_path / "index.html").write_text(text.replace("</body>", f"{press}</body>"), encoding="utf-8")
    whole = "".join(read.render(path.read_text(encoding="utf-8")) for path in pages(drawn, ".md"))
    figures = "".join(
        path.read_text(encoding="utf-8").partition("<svg")[2].join(["<svg", ""]) for path in pages(drawn, ".svg")
    )
    (tmp_path / "pages.html").write_text(f"<!doctype html><body>{whole}{figures}{press}</body>", encoding="utf-8")
    for name in ("index.html", "pages.html"):
        assert '<pre id="told">QUIET</pre>' in opened(tmp_path / name).stdout, name


@pytest.mark.parametrize("name", ["javascript:alert(1)", "<b>", "x;ls", "a b", "=1"])
def test_a_folder_that_no_link_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    append(tmp_path / name / "sparsert_table1" / "records.csv", fake_records.table1()[:3])
    with pytest.raises(ValueError, match="no GPU or experiment is called that"):
        build(tmp_path)


def test_a_snapshot_of_other_types_is_drawn_without_them(tmp_path: Path) -> None:
    texts = (
        '{"gpu": ["x"], "peaks": "none", "source": [1], "software": 7, "recorded_at": {}}',
        '{"peaks": {"copy_gbs": NaN, "l2_gbs": -1, "fp32_tflops": "x", "f16_tflops": {}, "l2_bytes": 1e400}}',
        json.dumps({"gpu": {"name": {"a": "b"}}, "source": {"commit": 7, "dirty": []}}),
        '{"host": ' + '{"a":' * 60 + "1" + "}" * 61,
        '{"peaks": {"sms": ' + "9" * 400 + "}}",
    )
    for at, text in enumerate(texts):
        rows = [dataclasses.replace(row, gpu=f"gpu-{at}", experiment="foreign") for row in fake_records.table1()[:26]]
        folder = fake_records.write(tmp_path / f"gpu-{at}" / "foreign", rows)
        (folder / "environment.json").write_text(text)
        results = load(folder)
        assert render.write(render.generic(results), results).is_file(), text
    assert "</html>" in rendered(tmp_path)


def test_a_type_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    rows = [dataclasses.replace(row, dtype=HOSTILE[0]) for row in fake_records.table1()[:3]]
    folder = fake_records.write(tmp_path / GPU / "sparsert_table1", rows)
    with pytest.raises(ValueError, match=r"column 'dtype': '‹script›.* is none of f32, "):
        fake_records.written(folder)
