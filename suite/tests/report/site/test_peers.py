"""The times of the original codes, and the page that sets them beside the records of the same problems."""

from __future__ import annotations

import re

import fake_records
import pandas as pd
import pytest
from fake_claim_records import AUTHORS_GPU as GPU
from fake_claim_records import row
from fake_records import write

from nnzbench.kernels.registry import about
from nnzbench.papers.claims import peers
from nnzbench.papers.claims.quantities import Records
from nnzbench.site import peers_page

REAL = next(match for match in peers.MATCHES if match.session == "table1_real")


def session(name: str, **which: str) -> pd.DataFrame:
    times = peers.read()[2]
    kept = times["session"] == name
    for column, value in which.items():
        kept &= times[column] == value
    return times[kept]


def recorded(gain: float, dense: float = 1.0, count: int = 99):
    """Records on the session's real problems: `sputnik` is `gain` times as fast as the original's own choice."""
    original = session("table1_real", code="sputnik", choice="heuristic").head(count)
    libraries = session("table1_real", code="cublas")
    rows = []
    for place, ((_, mine), (_, other)) in enumerate(zip(original.iterrows(), libraries.iterrows(), strict=False)):
        same = {
            "problem": f"p{place}",
            "source": mine["source"],
            "sparsity": mine["sparsity"],
            "experiment": "sparsert_table1",
        }
        same |= {name: int(mine[name]) for name in ("m", "k", "n")}
        rows += [
            row(kernel="sputnik", us=mine["median_us"] / gain, variant="heuristic_y4", **same),
            row(kernel="cublas", us=other["median_us"] * dense, variant="f32_rowmajor", **same),
            row(kernel="ring", us=0.5, variant="m32", **same),
        ]
    return rows


def first_block(tmp_path, rows):
    write(tmp_path / GPU / "sparsert_table1", rows)
    (block,) = peers.blocks_of(Records(tmp_path, GPU).data, REAL, peers.read()[2])
    return block


def told(block, at: int = 0):
    """The facts of a pair by kind, and its verdict."""
    facts = peers.facts_of(block, at)
    return facts.set_index("kind"), peers.verdict(facts)


@pytest.mark.parametrize(
    ("gain", "dense", "verdict"),
    [(1.2, 1.0, "better"), (1.0, 1.0, "as good"), (0.8, 1.0, "worse"), (1.0, 0.5, "not settled"), (3.0, 0.5, "better")],
)
def test_a_verdict_holds_through_the_dense_products_and_from_the_times(tmp_path, gain, dense, verdict):
    block = first_block(tmp_path, recorded(gain, dense))
    facts, word = told(block)
    assert (word, set(facts["n"])) == (verdict, {30})
    assert facts["ratio"]["dense"] == pytest.approx(dense)
    assert facts["ratio"]["gain"] == pytest.approx(gain * dense)
    assert facts["ratio"]["plain"] == facts["ratio"]["paired"] == pytest.approx(gain)
    assert facts["wins"]["plain"] == (30 if gain > 1 else 0) or gain == 1


@pytest.mark.parametrize(
    ("code", "policy", "other"), [("flash_llm", "cold", "hot"), ("spinfer", "cold", "hot"), ("macko", "stream", "hot")]
)
def test_codes_for_layers_of_language_models_are_set_beside_records_of_such(tmp_path, code, policy, other):
    match = next(match for match in peers.MATCHES if match.code == code)
    original = session(f"llm_{code}", code=code, policy=policy, status="ok")
    rows = []
    for place, one in enumerate(original.itertuples()):
        sizes = {"m": int(one.m), "k": int(one.k), "n": int(one.n), "sparsity": float(one.sparsity)}
        same = {
            "problem": f"p{place}",
            "experiment": match.experiments[0],
            "source": "uniform:0",
            "dtype": "f16",
            **sizes,
        }
        rows.append(row(kernel=code, us=one.median_us / 2, variant="split", policy=policy, **same))
        rows.append(row(kernel="cublas", us=30.0, variant="f16_rowmajor_bcol", policy=policy, **same))
    write(tmp_path / GPU / match.experiments[0], rows)
    blocks = {block.policy: block for block in peers.blocks_of(Records(tmp_path, GPU).data, match, peers.read()[2])}
    facts, word = told(blocks[policy])
    assert facts["n"]["here"] == len(original) == facts["wins"]["plain"]
    assert word in ("better", "not settled")
    assert told(blocks[other])[1] == "not known"
    assert blocks[policy].title.rpartition(", ")[2] == {"cold": "cold", "stream": "streamed"}[policy]


def test_problems_are_matched_by_their_very_pattern(tmp_path):
    rows = recorded(1.0, count=3)
    block = first_block(tmp_path, rows)
    assert (block.rows["problem"] != "").sum() == 3
    assert set(block.rows["own"].dropna()) == {0.5}
    other = [row.__class__(**{**vars(row), "source": "standin:elsewhere"}) for row in rows]
    write(tmp_path / "b" / GPU / "sparsert_table1", other)
    (block,) = peers.blocks_of(Records(tmp_path / "b", GPU).data, REAL, peers.read()[2])
    assert not (block.rows["problem"] != "").any()
    assert told(block)[1] == "not known"


def test_this_projects_own_designs_are_never_judged(tmp_path):
    """Neither by name nor by variant: where a kernel has a paper's mapping and ours, the row's role tells."""
    for match in peers.MATCHES:
        for pair in match.pairs:
            assert about(pair.kernel).role == "paper" or about(pair.kernel).paper_variants
    (match,) = (match for match in peers.MATCHES if match.code == "escoin")
    rows = []
    for mine in session("table6", code="escoin", dtype="f32").itertuples():
        same = {"source": "equal_rows:0", "op": "conv2d", "shape": mine.shape, "sparsity": mine.sparsity}
        same |= {"problem": mine.shape, "m": mine.m, "k": mine.k, "n": mine.n, "experiment": "direct_conv_table6"}
        rows += [
            row(kernel="direct_conv", us=100.0, variant="paper_sbs4", **same),
            row(kernel="direct_conv", us=1.0, variant="staged_r16", **same),
        ]
    write(tmp_path / GPU / "direct_conv_table6", rows)
    block = peers.blocks_of(Records(tmp_path, GPU).data, match, peers.read()[2])[0]
    assert set(block.rows["here0"]) == {100.0}
    assert set(block.rows["own"]) == {1.0}


def test_the_page_is_written_twice_alike_and_names_every_code(tmp_path):
    write(tmp_path / GPU / "sparsert_table1", recorded(1.1))
    page = peers_page.write(Records(tmp_path, GPU))
    first = page.read_bytes()
    assert not re.search(r"\d\.\d{7}", (page.parent / "facts.csv").read_text("utf-8")), "more than six digits"
    assert peers_page.write(Records(tmp_path, GPU)).read_bytes() == first
    text = first.decode()
    codes = peers.read()[0]
    for code in codes[codes["repository"] != ""].itertuples():
        assert f"[{code.name}]({code.repository})" in text
    assert "**better** | 30 of 30 | 1.00" in text
    assert "wrong" in text  # Flash-LLM at 50 % zeros
    assert "| 75 % zeros (128:2:8) | 75 % zeros (64:2:8) |" in text
    assert "| 8192×8192, 1 column | 2.30 / 2.17 |" in text  # Marlin's one dense product, whatever its level
    assert "speed-up over cuBLAS in fp32 of the same session, hot / stream" in text
    assert {path.name for path in page.parent.iterdir()} == {"README.md", "facts.csv", "peers.csv"}
    assert peers_page.write(Records(tmp_path, "nvidia-a100")) is None


def test_times_are_of_listed_codes_and_sessions_and_there_where_the_result_was_right():
    codes, sessions, times = peers.read()
    assert set(times["code"]) <= set(codes["code"])
    assert set(times["session"]) <= set(sessions["session"])
    assert ((times["status"] == "ok") == times["median_us"].notna()).all()


def test_times_of_this_suite_before_tuning_have_the_mark(tmp_path):
    """`sputnik` is asked for its rule's choice, which no tuning changes; cuBLAS was not tuned on one problem."""
    rows = recorded(1.0)
    folder = write(tmp_path / GPU / "sparsert_table1", rows)
    cut = {("cublas", "p3"), ("sputnik", "p4"), ("ring", "p5")}
    fake_records.tuned(folder, lambda row: ("first",) if (row.kernel, row.problem) in cut else ("all",))
    blocks = peers.blocks_of(Records(tmp_path, GPU).data, REAL, peers.read()[2])
    rule = next(at for at, pair in enumerate(REAL.pairs) if pair.choice == "heuristic")
    rows = blocks[0].rows.set_index("problem")
    assert list(rows.index[~rows["dense_here_tuned"]]) == ["p3"]
    assert list(rows.index[~rows["own_tuned"]]) == ["p5"]
    assert rows[f"here{rule}_tuned"].all()
    facts, _ = told(blocks[0], rule)
    assert set(facts.index[~facts["tuned"]]) == {"here", "dense", "gain"}
    assert "†" in peers_page.write(Records(tmp_path, GPU)).read_text(encoding="utf-8")


def test_a_page_of_tuned_kernels_has_no_mark(tmp_path):
    fake_records.tuned(write(tmp_path / GPU / "sparsert_table1", recorded(1.0)), lambda row: ("all",))
    assert "†" not in peers_page.write(Records(tmp_path, GPU)).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("side", "where"), [("dense_theirs", "the original's session"), ("dense_here", "`sparsert_table1`")]
)
def test_what_has_no_dense_time_is_told_with_the_times_that_there_are(tmp_path, monkeypatch, side, where):
    """Problems that a verdict leaves out may be those that speak against it: here two that are slower."""
    rows, times = recorded(0.8), peers.read()
    original = session("table1_real", code="sputnik", choice="heuristic").head(2)
    gone = {(one.m, one.k, one.n, one.sparsity) for one in original.itertuples()}
    if side == "dense_here":
        rows = [one for one in rows if one.kernel != "cublas" or one.problem not in ("p0", "p1")]
    else:
        keys = zip(*(times[2][name] for name in ("m", "k", "n", "sparsity")), strict=True)
        kept = [code != "cublas" or key not in gone for code, key in zip(times[2]["code"], keys, strict=True)]
        monkeypatch.setattr(peers_page, "read", lambda: (*times[:2], times[2][kept]))
    write(tmp_path / GPU / "sparsert_table1", rows)
    text = peers_page.write(Records(tmp_path, GPU)).read_text(encoding="utf-8")
    assert "| 28 of 30 |" in text
    assert f"Sputnik on real pruned layers, of 30 problems: no dense time in {where}: 2." in text
    facts = pd.read_csv(tmp_path / GPU / "peers" / "facts.csv")
    plain = facts[facts["baseline"] == "original, the library's own choice, sessions apart"]
    assert plain["n"].tolist()[0] == 30


def test_every_problem_that_a_comparison_lacks_is_counted_under_a_reason(tmp_path):
    """On the original's wrong results too, which have no time."""
    write(tmp_path / GPU / "sparsert_table1", recorded(1.0, count=20))
    match = next(match for match in peers.MATCHES if match.code == "flash_llm")
    rows = []
    for place, one in enumerate(session("llm_flash_llm", code="flash_llm").itertuples()):
        sizes = {"m": int(one.m), "k": int(one.k), "n": int(one.n), "sparsity": float(one.sparsity)}
        same = {"problem": f"p{place}", "experiment": "llm_layers", "source": "uniform:0", "dtype": "f16", **sizes}
        rows += [
            row(kernel="flash_llm", us=9.0, variant="split", policy="hot", **same),
            row(kernel="cublas", us=30.0, variant="f16_rowmajor_bcol", policy="hot", **same),
        ]
    write(tmp_path / GPU / "llm_layers", rows)
    page = peers_page.write(Records(tmp_path, GPU))
    text = page.read_text(encoding="utf-8")
    assert "Sputnik on real pruned layers, of 30 problems: not recorded here: 10." in text
    wrong = session("llm_flash_llm", code="flash_llm", policy="hot", status="wrong")
    assert f"no right result of the original ({match.pairs[0].theirs}): {len(wrong)}" in text
