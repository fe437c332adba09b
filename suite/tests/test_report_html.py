"""reports/index.html: the numbers it carries, what it names as missing, and that it stands alone."""

from __future__ import annotations

import dataclasses
import html as stdlib_html
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import fake_records
import numpy as np
import pytest
from matplotlib.colors import to_hex

from nnzbench.record import Record, read_records
from nnzbench.report import baselines, claims, html, html_answer, html_data, html_looks, sparsert, style
from nnzbench.report.build import EXPERIMENTS, build, find
from nnzbench.report.claims import Verdict
from nnzbench.report.frames import load
from nnzbench.report.html_data import Recorded
from nnzbench.report.series import BEST, Series
from nnzbench.selection import math_class

H200, OTHER = "nvidia-h200", "nvidia-l4"
SNAPSHOT = {
    "gpu": {"name": "NVIDIA H200", "driver": "580.95"},
    "recorded_at": "2026-01-02T03:04:05",
    "peaks": {"copy_gbs": 3987.928561, "l2_gbs": 8862.87, "fp32_tflops": 63.975, "floor_hot_us": 0.51},
}


def on(gpu: str, rows: list[Record], **changes: str) -> list[Record]:
    return [dataclasses.replace(row, gpu=gpu, **changes) for row in rows]


def put(reports: Path, gpu: str = H200, rows: list[Record] | None = None, name: str = "NVIDIA H200") -> Path:
    rows = fake_records.table1() if rows is None else rows
    environment = {**SNAPSHOT, "gpu": {"name": name, "driver": "580.95"}}
    return fake_records.write(reports / gpu / rows[0].experiment, on(gpu, rows), environment)


def rendered(reports: Path) -> str:
    return html.write(reports, EXPERIMENTS, find(reports)).read_text(encoding="utf-8")


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def visible(text: str) -> str:
    """The page's text without scripts and styles."""
    bare = re.sub(r"(?s)<(script|style).*?</\1>", "", text)
    return " ".join(stdlib_html.unescape(re.sub(r"<[^>]*>", " ", bare)).split())


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GPUs, one of which is slower with sparse kernels."""
    folder = tmp_path_factory.mktemp("reports")
    put(folder)
    put(folder, OTHER, fake_records.table1(seed=1, scale=4.0), "NVIDIA L4")
    return folder


@pytest.fixture(autouse=True)
def no_claims(monkeypatch):
    """Judging takes seconds and has tests of its own; the page of the module's fixture has it."""
    monkeypatch.setattr(claims, "judge", lambda reports, gpu: [])


@pytest.fixture(scope="module")
def page(reports: Path) -> str:
    return rendered(reports)


@pytest.fixture(scope="module")
def data(page: str) -> dict:
    return data_of(page)


def test_report_writes_the_page_beside_the_recordings(tmp_path):
    put(tmp_path)
    build(tmp_path, ["eie_table4"])  # not recorded: nothing but the page is drawn
    first = (tmp_path / "index.html").read_bytes()
    assert b"</html>" in first
    build(tmp_path, ["eie_table4"])
    assert (tmp_path / "index.html").read_bytes() == first


def test_no_page_where_nothing_is_recorded(tmp_path):
    build(tmp_path)
    assert not (tmp_path / "index.html").exists()


def test_page_stands_alone(page):
    assert "default-src 'none'" in page
    bare = re.sub(r"(?s)<script.*?</script>", "", page)
    targets = re.findall(r"""(?:src|href|action|data|poster)=["']([^"']*)["']""", bare)
    assert targets
    assert not [target for target in targets if "//" in target or target.startswith("/")]
    assert not re.search(r"@import|url\((?!data:)", bare)
    assert not re.search(r"<(img|iframe|link(?! rel=\"icon\" href=\"data:)|object|embed|script [^>]*src)", bare)
    assert not re.search(
        r"""fetch\(["']|importScripts|XMLHttpRequest\(\)""", html._static("index.js") + html._static("plots.js")
    )


def test_no_part_of_the_page_ends_its_own_element():
    for name in ("d3.min.js", "plot.umd.min.js", "plots.js", "index.js"):
        assert "</script" not in html._static(name).lower()
        assert "<!--" not in html._static(name)
    assert "</style" not in html._static("index.css").lower()


def test_rows_are_the_records(reports, data):
    rows, problems = data["rows"], data["problems"]
    assert len({len(column) for column in rows.values()}) == 1
    recorded = {
        (record.gpu, record.problem, record.policy, record.kernel, record.variant): record
        for gpu in (H200, OTHER)
        for record in read_records(reports / gpu / "sparsert_table1" / "records.csv")
    }
    seen = set()
    for i, problem in enumerate(rows["problem"]):
        series = data["series"][rows["series"][i]]
        gpu = data["gpus"][data["sets"][problems["set"][problem]]["gpu"]]["slug"]
        variant, policy = data["variants"][rows["variant"][i]], data["policies"][rows["policy"][i]]
        record = recorded[gpu, problems["name"][problem], policy, series["kernel"], variant]
        assert rows["us"][i] == record.median_us
        assert (rows["q1"][i], rows["q3"][i]) == (record.q1_us, record.q3_us)
        assert rows["share"][i] == pytest.approx(record.limit_us / record.median_us, rel=1e-3)
        assert rows["gflops"][i] == pytest.approx(record.flops / record.median_us / 1e3, rel=1e-3)
        assert rows["intensity"][i] == pytest.approx(record.flops / record.bytes, rel=1e-3)
        if not series["hollow"]:  # hollow are defaults, beside the selected
            seen.add((gpu, problems["name"][problem], policy, series["kernel"], series["math"]))
    assert seen == {(r.gpu, r.problem, r.policy, r.kernel, math_class(r)) for r in recorded.values() if r.selected}


def test_speedups_divide_the_rivals_time_of_the_same_gpu_problem_and_policy(reports, data):
    rows, problems = data["rows"], data["problems"]
    times: dict = {}
    for gpu in (H200, OTHER):
        for r in read_records(reports / gpu / "sparsert_table1" / "records.csv"):
            math_mode = r.variant.split("_")[0] if r.kernel.startswith("cublas") else "f32"
            times.setdefault((gpu, r.problem, r.policy), {}).setdefault((r.kernel, math_mode), []).append(r.median_us)
    rivals = [
        [("cublas", "f32")],
        [("cublaslt", "f32")],
        [("cublas", "tf32"), ("cublaslt", "tf32")],
        [("cublas", "f16"), ("cublaslt", "f16")],
        [("cusparse", "f32")],
    ]
    for i in range(0, len(rows["problem"]), 7):
        problem = rows["problem"][i]
        gpu = data["gpus"][data["sets"][problems["set"][problem]]["gpu"]]["slug"]
        mine = times[gpu, problems["name"][problem], data["policies"][rows["policy"][i]]]
        for number, names in enumerate(rivals):
            least = min(time for name in names for time in mine[name])
            assert rows[f"over{number}"][i] == pytest.approx(least / rows["us"][i], rel=1e-3)


def test_means_are_those_of_the_page(reports, data):
    table = sparsert.table1(load(reports / H200 / "sparsert_table1"))
    expected = {
        (row.policy, row.level, row.series_label): (row.geometric_mean, row.count, row.faster)
        for row in table.means.itertuples()
    }
    means = data["means"]
    found = {
        (data["policies"][p], level, data["series"][s]["label"]): (mean, count, wins)
        for st, p, level, s, rival, mean, count, wins in zip(
            *(means[n] for n in ("set", "policy", "level", "series", "rival", "mean", "count", "wins")), strict=True
        )
        if rival == 0 and data["gpus"][data["sets"][st]["gpu"]]["slug"] == H200
    }
    assert set(found) == set(expected)
    for key, (mean, count, wins) in expected.items():
        assert found[key] == (pytest.approx(mean, rel=1e-3), count, wins)


def test_best_marks_one_own_row_per_problem_and_policy(data):
    rows = data["rows"]
    best = [i for i, flag in enumerate(rows["best"]) if flag]
    keys = {(rows["problem"][i], rows["policy"][i]) for i in best}
    assert len(best) == len(keys) == 2 * 31 * 2
    for i in best:
        series = data["series"][rows["series"][i]]
        assert series["own"]
        assert series["math"] == "f32"
        others = [
            rows["us"][j]
            for j, (problem, policy) in enumerate(zip(rows["problem"], rows["policy"], strict=True))
            if (problem, policy) == (rows["problem"][i], rows["policy"][i]) and data["series"][rows["series"][j]]["own"]
        ]
        assert rows["us"][i] == min(others)


def test_answer_names_every_rival_policy_and_gpu(reports, page):
    words = visible(page)
    for gpu, name in ((H200, "NVIDIA H200"), (OTHER, "NVIDIA L4")):
        results = load(reports / gpu / "sparsert_table1")
        table = sparsert.table1(results)
        found = html_answer.answer(results, table)
        assert found.gpu == name
        assert [row.rival for row in found.rows] == [rival.label for rival in baselines.RIVALS]
        for row, rival in zip(found.rows, baselines.RIVALS, strict=True):
            assert row.rival in words
            for cell, (level, policy) in zip(row.cells, found.columns, strict=True):
                ratios = baselines.ratios(table, policy, rival)
                values = ratios.loc[ratios["level"] == level, "ratio"]
                assert cell is not None
                assert cell.mean == pytest.approx(math.exp(np.log(values).mean()))
                assert f"{cell.mean:.2f}× {cell.wins} of {cell.count}" in words
    assert "90 % zeros, hot" in words
    assert "90 % zeros, cold" in words


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([1.4, 1.2], "yes"), ([1.05], "yes"), ([0.9, 0.95], "no"), ([1.0, 1.04], "even"),
        ([1.4, 0.8], "it depends"), ([1.4, 1.0], "it depends"), ([], "not recorded"),
    ],
)  # fmt: skip
def test_verdict_of_the_answer(means, expected):
    assert html_answer.verdict(means) == expected


def test_sparse_kernels_that_lose_are_told_to_lose(tmp_path):
    put(tmp_path, rows=fake_records.table1(scale=20.0))
    words = visible(rendered(tmp_path))
    assert f"no against {baselines.RIVALS[0].label}" in words
    assert f"yes against {baselines.RIVALS[0].label}" not in words


def test_missing_experiments_are_named(tmp_path, page):
    rows = re.findall(r"<tr><th scope=\"row\"><code>(\w+)</code></th>(.*?)</tr>", page, re.DOTALL)
    missing = {name for name, rest in rows if "not recorded yet" in rest}
    assert missing == set(EXPERIMENTS) - {"sparsert_table1"}
    put(tmp_path, rows=[dataclasses.replace(row, experiment="my_layers") for row in fake_records.table1()[:40]])
    text = rendered(tmp_path)
    assert "sparsert_table1 , which answers this, is not recorded yet" in visible(text)
    assert 'href="nvidia-h200/my_layers/README.md"' in text


def test_pages_of_no_single_gpu_are_linked(tmp_path):
    put(tmp_path)
    assert "generations/README.md" not in rendered(tmp_path)
    for name in ("generations", "sputnik_figure2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text("a page")
    text = rendered(tmp_path)
    assert 'href="generations/README.md"' in text
    assert re.search(r'sputnik_figure2</code></th>.*?<a href="sputnik_figure2/README.md">page</a>', text)


def test_links_lead_to_the_pages_of_each_recording(page):
    for gpu in (H200, OTHER):
        for name in ("README.md", "records.csv", "summary.csv"):
            assert f'href="{gpu}/sparsert_table1/{name}"' in page


def test_refused_records_are_named_and_the_rest_is_drawn(tmp_path):
    put(tmp_path)
    broken = tmp_path / H200 / "eie_table4"
    fake_records.write(broken, on(H200, fake_records.table1()[:20], experiment="eie_table4"))
    path = broken / "records.csv"
    path.write_text(path.read_text().rstrip("\n"))
    text = rendered(tmp_path)
    assert "NVIDIA H200: records refused, nnzbench report eie_table4 tells why" in visible(text)
    assert [one["name"] for one in data_of(text)["experiments"]] == ["sparsert_table1"]


def test_names_are_escaped(tmp_path):
    evil = "</script><script>alert(1)</script><b>"
    rows = [dataclasses.replace(row, variant=row.variant + evil) for row in fake_records.table1()]
    put(tmp_path, rows=rows, name=f"GPU {evil}")
    text = rendered(tmp_path)
    assert "<script>alert" not in text
    assert "</script><b>" not in text
    data = data_of(text)
    assert data["gpus"][0]["name"] == f"GPU {evil}"
    assert all(variant.endswith(evil) for variant in data["variants"])


def test_claims_stand_with_their_verdicts(reports):
    verdict = Verdict(
        id="x", paper="A paper", where="figure 1", claim="`panel` is 2 times as fast & more",
        experiment="sparsert_table1", unit="x", published=2.0, published_gpu="V100", measured=1.5, measured_tf32=1.1,
        measured_fp16=math.nan, measured_cold=1.25, verdict="weaker", verdict_tf32="contradicted", verdict_fp16="",
        problems="3 of 4", rule="geometric mean <b>", note="", kernel="panel",
    )  # fmt: skip
    results = load(reports / H200 / "sparsert_table1")
    text = html.render([Recorded(results, html_data.tabulate(results))], EXPERIMENTS, (), {H200: [verdict]})
    words = visible(text)
    assert "panel is 2 times as fast & more (figure 1)" in words
    assert "2.00×, V100 1.50× weaker 1.10× contradicted – 1.25×" in words
    assert "0 reproduced , 0 stronger , 1 weaker" in words
    assert "geometric mean &lt;b&gt;" in text


def test_looks_are_those_of_the_figures():
    for kernel in style.LOOKS:
        found = html_looks.series_look(Series("k", kernel, kernel, "f32"))
        if kernel not in style.VENDORS or kernel == "cusparse":  # the dense ones go by their arithmetic
            assert to_hex(found["light"]) == to_hex(style.look(kernel).colour)
        assert html_looks.contrast(found["dark"], html_looks.DARK_GROUND) >= html_looks.LEAST_CONTRAST
        assert all(-0.75 <= value <= 0.75 for point in found["shape"] for value in point)
    hollow = html_looks.series_look(Series("k", "", "sputnik", "f32", "default"))
    assert hollow["hollow"]
    assert to_hex(hollow["light"]) == to_hex(style.look("sputnik").colour)
    assert html_looks.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert not html_looks.series_look(BEST)["hollow"]


def test_a_thousand_problems_stay_small(tmp_path):
    """Extrapolated from 200 problems with seven kernels under two policies."""
    rng = np.random.default_rng(0)
    kernels = [("cublas", "f32_rowmajor"), ("cublas", "f16_rowmajor"), ("cusparse", "csr_alg2_row"),
               ("sputnik", "y4_x32_w32_v4"), ("row_stream", "n64_v4"), ("panel", "m64"),
               ("sparsert", "r8_g4")]  # fmt: skip
    rows = [
        fake_records.record(
            experiment="sputnik_dlmc", m=m,
            problem=f"transformer.l0.0.8.body_layer_{n}_self_attention_q_b{n}_{m}x512x256_80",
             sparsity=0.8 + 0.05 * (n % 4), kernel=kernel, variant=variant, policy=policy, selected=True,
            median_us=time, q1_us=time, q3_us=time,
        )
        for n in range(200) for m in [64 * (1 + n % 32)] for kernel, variant in kernels for policy in ("hot", "cold")
        for time in [float(f"{rng.uniform(2, 900):.6g}")]
    ]  # fmt: skip
    put(tmp_path, rows=rows)
    text = rendered(tmp_path)
    data = len(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1].encode())
    rest = len(text.encode()) - data
    assert len(data_of(text)["rows"]["us"]) == len(rows)
    assert rest + 5 * data < 3e6


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("load", () => {
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const count = () => Number(byId("status").textContent.split(" ")[0]);
  const caption = () => byId("overview").querySelector("figcaption").textContent;
  const choose = (id, value) => {
    byId(id).value = value;
    byId(id).dispatchEvent(new Event("change"));
    return count();
  };
  const result = { start: count(), figures: all("figure svg[role=img][aria-label]").length };
  result.level = choose("level", "0.95");
  result.fp32 = caption();
  result.gpus = choose("gpu", "");
  choose("rival", "3");
  result.fp16 = caption();
  all("#rows thead button").find((one) => one.textContent === "speed-up").click();
  result.sorted = all("#rows tbody tr").slice(0, 9).map((row) => parseFloat(row.cells[2].textContent));
  byId("none").click();
  result.none = count();
  byId("all").click();
  const named = (one) => one.labels?.length || one.textContent.trim();
  result.unlabelled = all("select, input, button").filter((one) => !named(one)).length;
  Object.assign(result, { scroll: document.documentElement.scrollWidth, inner: innerWidth, errors });
  document.body.innerHTML = "<pre id=result></pre>";
  byId("result").textContent = JSON.stringify(result);
});
</script>"""


@pytest.mark.parametrize("width", [375, 1280])
def test_page_works_in_a_browser(page, tmp_path, width):
    browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if browser is None:
        pytest.skip("no Chromium to look at the page with")
    path = tmp_path / "index.html"
    path.write_text(page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{PROBE}'), encoding="utf-8")
    run = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--enable-logging=stderr", f"--window-size={width},900", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in run.stderr
    result = json.loads(stdlib_html.unescape(re.search(r'<pre id="result">(.*?)</pre>', run.stdout)[1]))
    assert result["errors"] == []
    assert result["figures"] == 5  # two levels twice, one roofline
    assert result["start"] > result["level"] > 0
    assert "cuBLAS fp32, its default algorithm" in result["fp32"]
    assert result["gpus"] == 2 * result["level"]
    assert "cuBLAS fp16" in result["fp16"]
    assert result["sorted"] == sorted(result["sorted"], reverse=True)
    assert result["none"] == 0
    assert result["unlabelled"] == 0
    assert result["scroll"] <= result["inner"]
