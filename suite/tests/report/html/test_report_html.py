"""reports/index.html as a page: what it links and names as missing, how it looks, and that it stands alone."""

from __future__ import annotations

import dataclasses
import html as stdlib_html
import json
import re

import fake_records
import numpy as np
import pandas as pd
import pytest
from html_reports import (  # noqa: F401
    H200,
    OTHER,
    data_of,
    on,
    opened,
    page_of_reports,
    put,
    rendered,
    reports_folder,
    visible,
)
from matplotlib.colors import to_hex

from nnzbench.kernels.registry import known
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.report.draw import style
from nnzbench.results.records import sanitise
from nnzbench.results.selector import DEFAULT, Selector, written_here
from nnzbench.site.build import build
from nnzbench.site.index import data as html_data
from nnzbench.site.index import page as html

FEW = fake_records.table1()[:52]
"""Two problems, where it does not matter which."""


def test_report_writes_the_page_beside_the_recordings(tmp_path):
    put(tmp_path, rows=FEW)
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
    for name in html.SCRIPTS:
        assert "</script" not in html._static(name).lower()
        assert "<!--" not in html._static(name)
    assert "</style" not in html._static("index.css").lower()


def test_missing_experiments_are_named(tmp_path, page):
    rows = re.findall(r"<tr><th scope=\"row\"><code>(\w+)</code></th>(.*?)</tr>", page, re.DOTALL)
    missing = {name for name, rest in rows if "not recorded yet" in rest}
    assert missing == set(EXPERIMENTS) - {"sparsert_table1"}
    put(tmp_path, rows=[dataclasses.replace(row, experiment="my_layers") for row in FEW])
    text = rendered(tmp_path)
    assert "Small pruned layers" not in visible(text)
    assert 'href="nvidia-h200/my_layers/README.md"' in text


def test_pages_of_no_single_gpu_are_linked(tmp_path):
    put(tmp_path, rows=FEW)
    assert "generations/README.md" not in rendered(tmp_path)
    for name in ("generations", "sputnik_figure2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text("a page")
    text = rendered(tmp_path)
    assert 'href="generations/README.md"' in text
    assert re.search(r'sputnik_figure2</code></th>.*?<a href="sputnik_figure2/README.md">page</a>', text)


def test_links_lead_to_the_pages_of_each_recording_and_to_facts_that_are_there(tmp_path):
    for gpu in (H200, OTHER):
        put(tmp_path, gpu, FEW)
    (tmp_path / H200 / "sparsert_table1" / "facts.csv").write_text("drawn")
    page = rendered(tmp_path)
    for gpu in (H200, OTHER):
        for name in ("README.md", "records.csv", "facts.csv"):
            assert (f'href="{gpu}/sparsert_table1/{name}"' in page) == ((gpu, name) != (OTHER, "facts.csv"))


def test_refused_records_are_named_and_the_rest_is_drawn(tmp_path):
    put(tmp_path, rows=FEW)
    broken = tmp_path / H200 / "eie_table4"
    fake_records.write(broken, on(H200, FEW[:20], experiment="eie_table4"))
    path = broken / "records.csv"
    path.write_text(path.read_text().rstrip("\n"))
    text = rendered(tmp_path)
    assert "NVIDIA H200: records refused, nnzbench report eie_table4 tells why" in visible(text)
    assert [one["name"] for one in data_of(text)["experiments"]] == ["sparsert_table1"]


@pytest.mark.parametrize("alike", [True, False])
def test_names_are_escaped(tmp_path, monkeypatch, alike):
    """By the page itself, and whether or not what it reads is inert."""
    if not alike:
        monkeypatch.setattr(sanitise, "inert", str)
    evil = "</script><script>alert(1)</script><b>"
    rows = [dataclasses.replace(row, variant=row.variant + evil) for row in FEW]
    put(tmp_path, rows=rows, name=f"GPU {evil}")
    text = rendered(tmp_path)
    assert "<script>alert" not in text
    assert "</script><b>" not in text
    data = data_of(text)
    assert data["gpus"][0]["name"] == f"GPU {sanitise.inert(evil)}"
    assert all(variant.endswith(sanitise.inert(evil)) for variant in data["variants"])


def test_claims_stand_as_their_table_has_them(tmp_path):
    put(tmp_path, rows=FEW)
    claims = pd.DataFrame(
        [["a", "A paper", "`panel` is 2 times as fast & <b>more", "figure 1", "x", 2.0, "V100", 1.5, "weaker"],
         ["b", "A paper", "it needs training", "figure 2", "%", None, "", None, "not measurable"]],
        columns=["id", "paper", "claim", "where", "unit", "published", "published_gpu", "measured", "verdict"],
    )  # fmt: skip
    claims.to_csv(tmp_path / H200 / "claims.csv", index=False)
    words = visible(rendered(tmp_path))
    assert "panel is 2 times as fast & <b>more (figure 1) 2.00×, V100 1.50× weaker" in words
    assert "1 not measurable , 1 weaker" in words
    assert "Of 2 claims 1 are judged on at least one GPU: 1 on NVIDIA H200." in words


def test_looks_are_those_of_the_figures():
    for kernel, said in known().items():
        found = html_data.look(Selector("k", (kernel,)))
        if said.work == "sparse":  # the dense ones go by their arithmetic
            assert to_hex(found["light"]) == to_hex(style.look(kernel).colour)
        assert html_data.contrast(found["dark"], html_data.DARK_GROUND) >= html_data.LEAST_CONTRAST
        assert all(-0.75 <= value <= 0.75 for point in found["shape"] for value in point)
    hollow = html_data.look(Selector("k", ("sputnik",), variants=DEFAULT))
    assert hollow["hollow"]
    assert to_hex(hollow["light"]) == to_hex(style.look("sputnik").colour)
    assert html_data.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert not html_data.look(written_here())["hollow"]
    dense = [Selector("k", (kernel,), math) for kernel in ("cublas", "cublaslt") for math in ("f32", "tf32", "f16")]
    assert len({html_data.look(one)["light"] for one in dense}) == len(dense)


@pytest.mark.parametrize("kernel", ["sputnik", "ring", "cusparse", "cusparselt", "direct_conv"])
def test_no_two_types_of_one_kernel_share_a_mark(kernel):
    looks = [html_data.look(Selector("k", (kernel,), math)) for math in ("f32", "tf32", "f16", "bf16", "i8")]
    assert len({str(look["shape"]) for look in looks}) == len(looks)
    integers = html_data.look(Selector("k", ("cublas",), "i8"))
    assert integers["shape"] != html_data.look(Selector("k", ("cublas",), "f32"))["shape"]


def test_a_thousand_problems_stay_below_two_megabytes(tmp_path):
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
    data = len(re.search(r'id="data">(.*?)</script>', text)[1])
    assert len(data_of(text)["rows"]["us"]) == len(rows)
    assert len(text.encode()) + 4 * data < 2e6


PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("load", () => ready.then(() => {
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
  choose("baseline", "3");
  result.fp16 = caption();
  all("#rows thead button").find((one) => one.textContent === "speed-up").click();
  result.sorted = all("#rows tbody tr").slice(0, 9).map((row) => parseFloat(row.cells[2].textContent));
  byId("none").click();
  result.none = count();
  byId("all").click();
  const named = (one) => one.labels?.length || one.textContent.trim();
  result.unlabelled = all("select, input, button").filter((one) => !named(one)).length;
  Object.assign(result, { scroll: document.documentElement.scrollWidth, inner: innerWidth, errors });
  parent.postMessage(JSON.stringify(result), "*");
}));
</script>"""
FRAME = """<!doctype html><script>addEventListener("message", (event) => {
  const told = Object.assign(document.createElement("pre"), { id: "result", textContent: event.data });
  document.body.append(told);
});</script><body><iframe src="index.html" width="%d" height="900" style="border: 0"></iframe>"""
"""A window is no narrower than 500 pixels, a frame is."""


@pytest.mark.parametrize("width", [375, 1280])
def test_page_works_in_a_browser(page, tmp_path, width):
    path = tmp_path / "index.html"
    path.write_text(page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{PROBE}'), encoding="utf-8")
    framed = tmp_path / "framed.html"
    framed.write_text(FRAME % width, encoding="utf-8")
    run = opened(framed, "--enable-logging=stderr", "--window-size=1400,1000")
    assert "CONSOLE" not in run.stderr
    result = json.loads(stdlib_html.unescape(re.search(r'<pre id="result">(.*?)</pre>', run.stdout)[1]))
    assert result["errors"] == []
    assert result["figures"] == 3  # means by level, problems, one roofline
    assert result["start"] > result["level"] > 0
    assert "cuBLAS fp32" in result["fp32"]
    assert result["gpus"] == 2 * result["level"]
    assert "best dense library fp16" in result["fp16"]
    assert result["sorted"] == sorted(result["sorted"], reverse=True)
    assert result["none"] == 0
    assert result["unlabelled"] == 0
    assert result["scroll"] <= result["inner"] == width
