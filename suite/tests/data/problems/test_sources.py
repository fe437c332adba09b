"""Real matrices as they are loaded: compared with the index, and looked for in every data folder."""

import dataclasses
import hashlib
import importlib.util
import os
from pathlib import Path

import pytest
from own_files import K, M, matrix, smtx

from nnzbench.data.matrices import index
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.sources import load_sparse

NAME = "rn50/magnitude_pruning/0.9/mine.smtx"
PROBLEM = Problem("mine", "p", "spmm", M, K, 1, 0.7, f"dlmc:{NAME}")
OTHER = matrix()[::-1].copy()
"""Of the same sizes and as many nonzeros: only the checksum tells it from the collection's."""


@pytest.fixture
def roots(tmp_path, monkeypatch):
    """Two data folders, and an index that knows one matrix."""
    text = smtx(matrix())
    known = next(iter(index.dlmc().values()))
    entry = dataclasses.replace(
        known, path=NAME, rows=M, cols=K, nnz=int((matrix() != 0).sum()),
        sha256=hashlib.sha256(text.encode()).hexdigest(), layer_kind="conv1x1",
    )  # fmt: skip
    monkeypatch.setattr(index, "dlmc", lambda: {NAME: entry})
    both = [tmp_path / "a", tmp_path / "b"]
    monkeypatch.setenv("NNZBENCH_DATA", os.pathsep.join(map(str, both)))
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "none"))
    for root in both:
        (root / "dlmc" / NAME).parent.mkdir(parents=True)
    return [root / "dlmc" / NAME for root in both]


def test_the_file_of_the_index_is_loaded(roots):
    roots[0].write_text(smtx(matrix()))
    assert ((load_sparse(PROBLEM).to_dense() != 0) == (matrix() != 0)).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (smtx(OTHER), "SHA-256 differs"),
        (smtx(matrix() * (matrix() > 0)), "another file than the collection's"),
        (smtx(matrix())[:80], "truncated|malformed|holds|numbers"),
    ],
)
def test_another_file_in_its_place_is_refused(roots, text, words):
    roots[0].write_text(text)
    with pytest.raises(MatrixError, match=words):
        load_sparse(PROBLEM)


def test_where_the_first_folders_file_is_damaged_the_next_ones_counts(roots):
    roots[0].write_text(smtx(OTHER))
    roots[1].write_text(smtx(matrix()))
    assert load_sparse(PROBLEM).nnz == (matrix() != 0).sum()
    roots[1].write_text("no matrix")
    with pytest.raises(MatrixError, match="SHA-256 differs"):
        load_sparse(PROBLEM)


def test_one_damaged_matrix_does_not_end_the_check_of_the_collection(roots, monkeypatch):
    """What `pytest -m gpu` runs over every real matrix, with the processor in the GPU's place."""
    path = Path(__file__).resolve().parents[2] / "gpu" / "test_gpu_collection.py"
    spec = importlib.util.spec_from_file_location("gpu_collection", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    roots[0].write_text(smtx(OTHER))
    whole = Problem("mine", "whole", "spmm", M, K, 1, 0.7, "uniform:0")
    monkeypatch.setattr(module, "real_problems", lambda: [PROBLEM, whole])
    tried = []
    monkeypatch.setattr(module, "outcomes", lambda gpu, kernel, problem, *rest: tried.append(problem.name) or [])
    with pytest.raises(AssertionError, match="SHA-256 differs"):
        module.test_right_on_every_real_matrix(None, "spmm", "f32", ("row_stream",))
    assert tried == ["whole"]
