import dataclasses

import pytest
from fake_records import failed, record, select, timed

from nnzbench.results.records.record import frame_of
from nnzbench.results.records.selection import superseded


def row(variant, us, **changes):
    return timed(us=us, variant=variant, selected=False, **{"kernel": "sputnik", **changes})


def chosen(rows):
    return [r.variant for r in select(rows) if r.selected]


def test_a_wrong_row_is_never_selected_and_an_old_choice_is_forgotten():
    stale = dataclasses.replace(row("slow", 9.0), selected=True)
    assert chosen([failed(row("fast", 1.0), "wrong", "error"), stale, row("good", 5.0)]) == ["good"]


def test_dense_times_over_the_unpruned_matrix_stand_where_there_are_some():
    """The pruned matrix takes less power: its time is kept and stands for nothing, on that problem."""
    names = [("cublas", "f16_a"), ("cublas", "f16_a_unpruned"), ("cublaslt", "f16_b"), ("tensor_spmm", "f16_c")]
    rows = [row(variant, us, kernel=kernel) for us, (kernel, variant) in enumerate(names, 1)]
    assert chosen(rows) == ["f16_a_unpruned", "f16_b", "f16_c"]
    more = [*rows, row("f16_a", 1.0, kernel="cublas", problem="q")]
    assert chosen(more) == ["f16_a_unpruned", "f16_b", "f16_c", "f16_a"]
    assert superseded(frame_of(rows)).tolist() == [True, False, False, False], "another library's time stands"


def test_math_class_of_a_kernel_with_one_class_alone_is_that():
    """`tensor_spmm_tf32` takes fp32 and rounds it: never a rival of fp32."""
    assert row("n32_m256", 1.0, kernel="tensor_spmm_tf32").math == "tf32"
    assert row("n32_m256", 1.0, kernel="ring").math == "f32"


def test_math_class_is_the_dtype_where_the_variant_names_none():
    assert row("csr_alg2_preprocess", 1.0, dtype="f16").math == "f16"
    assert row("f32", 1.0).math == "f32"


def test_of_equals_the_first_recorded_stands_and_order_is_kept():
    rows = [row("a", 5.0), row("b", 5.0)]
    assert chosen(rows) == ["a"]
    assert [r.variant for r in select(rows)] == ["a", "b"]


def test_rows_checked_on_the_processor_are_not_selected():
    assert chosen([record(variant="v", policy="check", median_us=None, q1_us=None, q3_us=None, selected=False)]) == []


@pytest.mark.parametrize("change", [{"experiment": "e"}, {"problem": "q"}, {"kernel": "ring"}, {"dtype": "f16"}])
def test_rows_of_another_experiment_problem_kernel_or_type_are_no_rivals(change):
    rows = [row("f16_a", 5.0), row("f16_b", 4.0, **change)]
    assert chosen(rows) == ["f16_a", "f16_b"]
