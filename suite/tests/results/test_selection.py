import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fake_records import select, timed

from nnzbench.kernels.registry import known
from nnzbench.results.records.selection import fastest, few, superseded
from nnzbench.results.selector import DEFAULT, Selector, best_dense, kernel, own, pick, rows_of


def row(variant, us, **changes):
    return timed(us=us, variant=variant, selected=False, **{"kernel": "sputnik", **changes})


def chosen(rows):
    return [r.variant for r in select(rows) if r.selected]


def test_math_class_of_a_kernel_with_one_class_alone_is_that():
    """`tensor_spmm_tf32` takes fp32 and rounds it: never a rival of fp32."""
    assert row("n32_m256", 1.0, kernel="tensor_spmm_tf32").math == "tf32"
    assert row("n32_m256", 1.0, kernel="ring").math == "f32"


def test_math_class_is_the_dtype_where_the_variant_names_none():
    assert row("csr_alg2_preprocess", 1.0, dtype="f16").math == "f16"
    assert row("f32", 1.0).math == "f32"


def test_few_words_are_all_told_and_of_many_how_many_more():
    assert [few(["a", "b", "c"], most) for most in (3, 2)] == ["a, b, c", "a, b and 1 more"]


KERNELS = {"cublas": "library", "cublaslt": "library", "sputnik": "paper", "ring": "own"}


def contested(seed):
    """Rows of which many are as fast as another, wrong, or of the pruned matrix beside the unpruned one."""
    rng = np.random.default_rng(seed)
    columns = {
        "experiment": ["e", "f"], "problem": ["p", "q"], "kernel": [*KERNELS], "dtype": ["f32", "f16"],
        "math": ["f32", "tf32", "f16"], "policy": ["hot", "cold"], "variant": ["a_default", "a_x", "b_default", "b"],
        "median_us": [1.0, 2.0, 3.0, np.nan], "status": ["ok", "ok", "wrong"], "source": ["dlmc:x", "dlmc", "dlm:x"],
        "weights": ["pruned", "unpruned"], "selected": [True, False], "superseded": [False, False, True],
    }  # fmt: skip
    frame = pd.DataFrame({name: rng.choice(np.array(some, object), 150) for name, some in columns.items()})
    frame = frame.assign(role=frame["kernel"].map(KERNELS), median_us=frame["median_us"].astype(float))
    frame = frame.assign(work=np.where(frame["role"] == "library", "dense", "sparse")).infer_objects()
    return frame.drop_duplicates([*columns][:7], ignore_index=True)


@pytest.mark.parametrize("seed", range(10))
def test_the_fastest_of_a_contest_is_that_of_brute_force(seed):
    frame = contested(seed)
    every = list(frame.itertuples())
    contest = ("experiment", "problem", "kernel", "dtype", "math", "policy")
    of = {row.Index: tuple(getattr(row, name) for name in contest) for row in every}
    honest = {of[row.Index] for row in every if row.weights == "unpruned" and row.median_us > 0}
    over = [row.work == "dense" and row.weights == "pruned" and of[row.Index] in honest for row in every]
    best = {}
    for row, out in zip(every, over, strict=True):
        if row.status == "ok" and row.median_us > 0 and not out:
            best.setdefault(of[row.Index], []).append((row.median_us, row.Index))
    assert superseded(frame).tolist() == over
    assert set(np.flatnonzero(fastest(frame))) == {min(some)[1] for some in best.values()}


SELECTORS = (
    kernel("cublas"), kernel("sputnik", "f16"), best_dense("tf32"), kernel("cublas", variants=DEFAULT), own(),
    Selector("libraries", ("cublas", "cublaslt", "sputnik"), roles=frozenset({"library"}), also="f16"),
    Selector("papers", roles=frozenset({"paper", "own"}), variants="(a|b_default)"),
    Selector("of a collection", ("cublas", "ring"), source="dlmc"), Selector("b", ("cublaslt",), variants="b"),
    Selector("pruned", ("cublas", "cublaslt"), pruned=True),
)  # fmt: skip


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda one: one.label)
def test_what_stands_for_a_side_is_that_of_brute_force(selector):
    for seed in range(10):
        frame = contested(seed)
        kept = [
            row for row in frame.itertuples()
            if row.math in (selector.math, selector.also) and row.kernel in (selector.kernels or KERNELS)
            and row.role in (selector.roles or KERNELS.values())
        ]  # fmt: skip
        timed = [row for row in kept if row.status == "ok" and row.median_us > 0]
        honest = {(row.problem, row.policy) for row in timed if not row.superseded}

        def stands(row, honest=honest):
            gives_way = row.superseded and (row.problem, row.policy) in honest
            named = not selector.source or row.source.split(":")[0] == selector.source
            pruned = row.superseded if selector.pruned else not gives_way
            return pruned and named and (not selector.variants or re.match(selector.variants, row.variant))

        best = {}
        for row in filter(stands, timed):
            rank = (row.median_us, not row.selected, row.kernel, row.variant, row.Index)
            best.setdefault((row.problem, row.policy), []).append(rank)
        assert rows_of(frame, selector).index.tolist() == [row.Index for row in filter(stands, timed)]
        assert pick(frame, selector).index.tolist() == sorted(min(some)[-1] for some in best.values())
        wrong = [row for row in kept if row.status == "wrong"]
        if not selector.pruned and not any(row.superseded for row in wrong):
            assert rows_of(frame, selector, "wrong").index.tolist() == [row.Index for row in filter(stands, wrong)]


def test_what_a_side_is_follows_from_all_of_its_kernels():
    rule, study = kernel("sputnik", variants=DEFAULT), Selector("s", ("sputnik_ablation",), variants="x")
    mixed, roles = replace(study, kernels=("sputnik_ablation", "sputnik")), Selector("r", roles=frozenset({"own"}))
    sides = (rule, study, replace(study, variants=""), mixed, kernel("sputnik"), replace(roles, variants="x"))
    assert [one.untunable for one in sides] == [True, True, False, False, False, False]
    assert [one.default for one in sides] == [True, *[False] * 5]
    dense = Selector("d", ("cublas", "cudnn"))
    assert [one.dense for one in (dense, replace(dense, kernels=("cublas", "sputnik")), roles)] == [True, False, False]
    for as_data in (False, True):
        ours = {name for name, one in known().items() if one.role == "own" and not one.study}
        assert {*own(as_data=as_data).kernels} == {
            one for one in ours if not (as_data and known()[one].weights_in_code)
        }
