"""index.html agrees with facts: 200 recorded layers, 200 that are not, and 50 cells of its map, also in a browser."""

from __future__ import annotations

import html
import json
import random
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from html_reports import opened

from nnzbench.advise import estimate, grid, recorded
from nnzbench.advise import layer as layers
from nnzbench.advise.layer import Question
from nnzbench.advise.recorded import Recorded
from nnzbench.core import paths
from nnzbench.kernels.registry import about
from nnzbench.results import nearby
from nnzbench.results.data import Data
from nnzbench.results.nearby import cells
from nnzbench.results.records import describe
from nnzbench.results.records.folder import has_records
from nnzbench.results.result_set import load
from nnzbench.results.selector import dense_of
from nnzbench.results.table import Comparison, compare
from nnzbench.site.index import page

SETS = ("llm_layers", "sparsert_table1", "balanced_figure4", "nm_sparsity", "sputnik_figure1", "granularity")
COUNT, PRESSED = 200, 50
SIZES = ["rows", "inner", "columns"]
COMPARED = [*SIZES, "zeros", "experiment", "problem"]
SCRIPT = Path(page.__file__).parents[2] / "report" / "static" / "asked.js"
ASK = """
const ask = (layers, questions) => questions.map(({ kind, asked }) =>
  nearestLayer(layers.filter((one) => Object.entries(kind).every(([name, value]) => one[name] === value)), asked));
"""
PRESS = """
const press = ({ math, policy, rows, inner, columns, level }) => {
  const choose = (select, value) => { select.value = value; select.dispatchEvent(new Event("change")); };
  choose(document.getElementById("map-math"), math);
  choose(document.getElementById("map-policy"), policy);
  const size = `${rows} × ${inner}`;
  const has = (panel) => [...panel.querySelector("select").options].some((option) => option.value === size);
  const panel = [...document.querySelectorAll(".panel")].find(has);
  choose(panel.querySelector("select"), size);
  const at = [...panel.querySelectorAll("tfoot th")].findIndex((one) => one.textContent === String(columns));
  const line = [...panel.querySelectorAll("tbody tr")].find((one) => one.cells[0].textContent === `${level} %`);
  const button = line.cells[at].querySelector("button");
  button.click();
  const box = document.getElementById("cell");
  const timesOf = (row) => [row.className, row.cells[1].textContent, row.cells[2].textContent];
  const text = (inside, tag) => inside.querySelector(tag).textContent;
  return {
    ratio: text(button, "b"), mark: text(button, "i"), winner: text(button, "span"), said: text(box, "p"),
    command: text(box, "code"), shown: !box.hidden && panel.contains(box),
    times: [...box.querySelectorAll("tbody tr")].map(timesOf),
  };
};
"""
SAY = """
const say = (rows) => {
  const field = document.getElementById("ask-rows");
  field.value = rows;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  return document.getElementById("answer-words").textContent;
};
"""
PROBE = f"""<script>{ASK}{PRESS}{SAY}
const shown = (text) => Object.assign(document.createElement("pre"), {{ id: "result", textContent: text }});
const told = (text) => document.body.append(shown(text));
const errors = [];
const answer = ({{ layers }}) => {{
  const found = {{ answers: ask(layers, QUESTIONS), pressed: CELLS.map(press), words: [8192, 9000].map(say) }};
  told(JSON.stringify({{ ...found, errors, over: document.documentElement.scrollWidth - innerWidth }}));
}};
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("load", () => ready.then(answer).catch(told));
</script>"""


@pytest.fixture(scope="module", name="sets")
def recorded_sets() -> list[Data]:
    folder = paths.reports() / "nvidia-h200"
    found = [Data(load(folder / name)) for name in SETS if has_records(folder / name)]
    if not found:
        pytest.skip("no records are published here")
    return found


@pytest.fixture(scope="module", name="table")
def table_of_layers(sets):
    return pd.concat(map(nearby.layers, sets), ignore_index=True)


@pytest.fixture(scope="module", name="questions")
def questions_of(table) -> list[dict]:
    """Recorded layers first, then such with other sizes and zeros."""
    draw = random.Random(0)
    names = [*SIZES, "zeros"]
    rows = table.drop_duplicates([*nearby.KIND, *names]).sample(COUNT, random_state=0).to_dict("records")
    keys = {"kind": nearby.KIND, "asked": names}
    known = [{key: {name: row[name] for name in some} for key, some in keys.items()} for row in rows]

    def moved(asked: dict) -> dict:
        sizes = {one: max(1, round(asked[one] * draw.choice((0.2, 0.6, 0.8, 1, 1, 1, 1.5, 3)))) for one in SIZES}
        zeros = min(99.9, max(0, asked["zeros"] + draw.choice((-8, -3, -1.5, 0, 0.4, 2, 4))))
        return {**sizes, "zeros": round(zeros, 3)}

    return [*known, *({**one, "asked": moved(one["asked"])} for one in known)]


def by_node(expression: str, **values: str) -> list:
    """What the page's script makes of values in JSON."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    told = "".join(f"const {name} = {value};" for name, value in values.items())
    code = (
        f"const {{ nearestLayer, estimatedLayer }} = require({json.dumps(str(SCRIPT))});{ASK}{told}"
        f"console.log(JSON.stringify({expression}));"
    )
    done = subprocess.run(["node", "-"], input=code, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module", name="answers")
def answers_of_the_script(table, questions) -> list[dict | str]:
    layers = table.to_json(orient="records", double_precision=15)
    return by_node("ask(layers, questions)", layers=layers, questions=json.dumps(questions))


def test_recorded_layers_are_their_facts(sets, table, questions, answers):
    """By the table of facts itself, which knows nothing of layers."""
    facts = {}
    for data in sets:
        for math in nearby.INSTEAD:
            for subject, baselines in (
                (nearby.sparse(math), tuple(dense_of(one) for one in nearby.INSTEAD[math])),
                (nearby.sparse(math, "cusparse"), (nearby.cusparse(math),)),
            ):
                found = compare(data, Comparison((subject,), baselines, by=("problem",)))
                names = ["experiment", "problem", "baseline", "policy", "ratio", "tuned"]
                facts |= {(math, *key): (ratio, tuned) for *key, ratio, tuned in found[names].to_numpy()}
    for one, found in zip(questions, answers[:COUNT], strict=False):
        kind = one["kind"]
        wanted = facts[kind["math"], found["experiment"], found["problem"], kind["baseline"], kind["policy"]]
        assert (found["ratio"], found["tuned"]) == pytest.approx(wanted)


def test_other_layers_are_answered_by_the_nearest_or_said_to_be_missing(table, questions, answers):
    found = answers[COUNT:]
    assert {one for one in found if isinstance(one, str)} == {"size", "columns", "zeros"}
    for question, one in zip(questions[COUNT:], found, strict=True):
        asked, mine = question["asked"], table
        for name, value in question["kind"].items():
            mine = mine[mine[name] == value]
        off = [np.log2(mine[name] / asked[name]).abs() for name in SIZES]
        nonzeros = np.log2((100 - mine["zeros"]).clip(lower=1e-4) / (100 - asked["zeros"])).abs()
        points = (mine["zeros"] - asked["zeros"]).abs()
        near = mine[(np.maximum.reduce(off) <= 1) & (points <= 5) & (nonzeros <= 1)]
        if isinstance(one, str):
            assert near.empty
            continue
        order = pd.DataFrame(
            {"size": off[0] + off[1], "width": off[2], "points": points // 1, "cut": ~mine["tuned"], "off": points}
        )
        best = order.loc[near.index].sort_values(list(order), kind="stable").index[0]
        assert {name: one[name] for name in COMPARED} == near.loc[best, COMPARED].to_dict()


@pytest.fixture(scope="module", name="pressed")
def cells_pressed(table) -> pd.DataFrame:
    """Of every arithmetic and policy, whatever the sizes."""
    return cells(table).sample(PRESSED, random_state=0)


@pytest.fixture(scope="module", name="told")
def told_by_the_page(sets, questions, pressed, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("page")
    asked = pressed[["math", "policy", "rows", "inner", "columns", "level"]].to_json(orient="records")
    probe = PROBE.replace("QUESTIONS", json.dumps(questions)).replace("CELLS", asked)
    path = folder / "index.html"
    text = page.render([page.entry_of(one.results.folder) for one in sets], SETS)
    path.write_text(text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{probe}'), encoding="utf-8")
    found = re.search(r'<pre id="result">(.*?)</pre>', opened(path, "--window-size=500,900").stdout, re.DOTALL)
    assert found, "the page did not get ready"
    return json.loads(html.unescape(found[1]))


def test_the_page_answers_in_a_browser(told, answers):
    assert len(told["answers"]) == len(answers) == 2 * COUNT
    for one, other in zip(told["answers"], answers, strict=True):
        if isinstance(other, str):
            assert one == other
        else:
            assert {name: one[name] for name in COMPARED} == {name: other[name] for name in COMPARED}
            assert one["ratio"] == pytest.approx(other["ratio"], 1e-4)


def test_the_page_says_whose_size_an_answer_is_of(told):
    recorded, other = told["words"]
    assert "nearest layer" not in recorded
    assert "Recorded at 8192 × 8192" in other
    assert "at yours)" in other


def test_cells_pressed_in_a_browser_tell_their_facts(told, table, pressed):
    assert len(told["pressed"]) == len(pressed) == PRESSED
    assert told["errors"] == []
    assert told["over"] <= 0  # nothing to scroll sideways
    keys = ["experiment", "problem", "math", "baseline", "policy"]
    ratios = {tuple(key): ratio for *key, ratio in table[[*keys, "ratio"]].to_numpy()}
    for row, one in zip(pressed.to_dict("records"), told["pressed"], strict=True):
        assert one["shown"]
        assert float(one["ratio"]) == pytest.approx(row["ratio"], abs=0.051 if row["ratio"] > 9.9 else 0.0051)
        assert one["mark"] == ("" if row["tuned"] else "†")
        assert one["winner"] == ("dense" if row["ratio"] < 1 else about(row["kernel"]).label)
        parts = re.findall(r"([\d.]+)×†?(?: as fast)? (hot|cold|stream)", one["said"])
        said = {policy: float(ratio) for ratio, policy in parts}
        beside = ("hot", "cold") if row["policy"] != "stream" else ("stream",)
        wanted = {policy: ratios.get((*(row[name] for name in keys[:-1]), policy)) for policy in beside}
        assert said == pytest.approx({policy: ratio for policy, ratio in wanted.items() if ratio}, abs=0.0051)
        assert one["command"] == f"nnzbench run {row['experiment']} --problem {row['problem']}"
        if row["policy"] == "stream":  # whose times the page does not list
            continue
        at = 1 + beside.index(row["policy"])
        times = [(line[0], float(line[at].rstrip("†"))) for line in one["times"] if line[at] != "–"]
        assert min(time for work, time in times if work == "sparse") == pytest.approx(row["us"], rel=1e-3)
        assert min(time for work, time in times if work == "dense") == pytest.approx(row["baseline_us"], rel=1e-3)


@cache
def known() -> Recorded:
    return recorded.load("nvidia-h200", [paths.reports()])


@cache
def grids(dtype: str) -> str:
    return json.dumps(grid.grids(known(), dtype))


def estimated(dtype: str, asked: list[dict]) -> list[dict | None]:
    told = {"points": json.dumps(grid.POINTS), "grids": grids(dtype), "asked": json.dumps(asked)}
    return by_node("asked.map((one) => estimatedLayer(points, grids, one))", **told)


@pytest.mark.parametrize("dtype", grid.DTYPES)
def test_estimates_of_any_layer_are_those_of_best(dtype):
    """The same winner, or about even, and times within a tenth: of nine in ten."""
    draw = np.random.default_rng(5)
    drawn = 2 ** draw.uniform([8, 8, 0], [11, 11, 12], (16, 3))
    asked = [dict(zip(SIZES, map(int, one), strict=True)) | {"zeros": round(draw.uniform(50, 99), 1)} for one in drawn]
    right = 0
    for one, found in zip(asked, estimated(dtype, asked), strict=True):
        (layer,) = layers.load([f"{one['rows']}x{one['inner']}@{one['zeros']}%"])
        told = estimate.answer(layer, Question((one["columns"],), dtype=dtype, crossover=False), known(), every=False)
        (width,), verdict = told.widths, told.verdict(told.widths[0])
        sides = {"dense": width.baseline(dtype), "sparse": width.sparse(dtype)}
        near = [abs(found[side]["us"] / it.us - 1) < 0.1 for side, it in sides.items() if found[side] and not it.guess]
        same = (found["verdict"] == "sparse") != verdict.chosen.dense
        right += all(near) and (same or "even" in (verdict.reason, found["verdict"]))
    assert right >= 0.9 * len(asked) - 1


def test_nothing_is_estimated_beyond_the_points():
    changes = [{}, {"zeros": 30}, {"zeros": 55, "columns": 128}, {"rows": 40000}, {"columns": 5000}, {"zeros": 99.5}]
    found = estimated("f16", [{"rows": 8192, "inner": 8192, "columns": 16, "zeros": 90} | one for one in changes])
    assert [one and one["verdict"] for one in found] == ["sparse", "few zeros", "dense", None, None, None]


def test_patterns_of_a_kind():
    kinds = {"dlmc:a/b": "unstructured", "uniform:1": "unstructured", "nm:2:4:0": "2:4", "nm:1:2:0": "1:2",
             "nm:1:8:0": "1:8", "vnm:64:2:8:0": "64:2:8", "codebook_balanced:3": "balanced",
             "block:8": "block"}  # fmt: skip
    assert {source: describe.pattern_of(source) for source in kinds} == kinds
