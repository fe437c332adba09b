"""The one parser of problem names, over every name that is recorded and every name that a table gives."""

import functools
import re

import pandas as pd
import pytest

from nnzbench.core import paths
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import batch_of, case_of, name_of, parse, stem_of
from nnzbench.results.records.folder import folders, records_file

COLLECTION = re.compile(r"_b(\d+)_\d+x\d+x\d+_")


@functools.cache
def recorded():
    """Names of the records in the repository, by experiment."""
    found: dict[str, set[str]] = {}
    for folder in folders(paths.reports(), "*/*"):
        path = records_file(folder)
        column = pd.read_csv(path)["problem"] if path.suffix == ".csv" else pd.read_parquet(path, columns=["problem"])
        found.setdefault(folder.name, set()).update(column.squeeze())
    return {experiment: frozenset(names) for experiment, names in found.items()}


def every_name():
    return set().union(*recorded().values())


def test_names_of_tables_are_parsed_into_what_they_were_made_of():
    for experiment in tables.experiments_with_tables():
        for real in (True, False):
            for problem in tables.load(experiment, real):
                parts = parse(problem.name)
                assert parts is not None, problem.name
                assert name_of(problem) == problem.name
                assert (parts["label"], parts["dtype"] or "f32") == (problem.label, problem.dtype)
                assert parts["sizes"] == str(problem.conv or f"{problem.m}x{problem.k}x{problem.n}")
                assert float(parts["level"]) == pytest.approx(100 * problem.sparsity, rel=1e-5)
                assert parts["kind"] == problem.source.partition(":")[0]


def test_recorded_names_are_of_the_form_and_matched_by_cases_and_stems():
    names = every_name()
    assert len(names) > 1000
    case = re.compile(r"(.+_[0-9.]+)_[a-z_]+?(_f16|_bf16|_i8|_f8)?")
    for name in names:
        parts, found = parse(name), case.fullmatch(name)
        assert case_of(name) == f"{found[1]}{found[2] or ''}"
        assert stem_of(name) == re.sub(r"(_(?:dlmc|weights|standin))?(_(?:f16|bf16|i8|f8))?$", "", name)
        alike = not parts["dtype"] and parts["kind"] in ("dlmc", "weights", "standin")
        assert (case_of(name) == stem_of(name)) == alike
    assert sum(case_of(name) != stem_of(name) for name in names) > 500
    name = "pw05_512x512x196_90_{}"
    assert case_of(name.format("uniform_f16")) == case_of(name.format("dlmc_f16")) == "pw05_512x512x196_90_f16"
    assert stem_of(name.format("uniform_f16")) == stem_of(name.format("uniform")) == "pw05_512x512x196_90_uniform"
    assert stem_of(name.format("dlmc_f16")) == stem_of(name.format("standin")) == "pw05_512x512x196_90"


def test_labels_and_batches_of_recorded_names():
    for name in recorded()["sputnik_dlmc"]:
        parts, found = parse(name), COLLECTION.search(name)
        assert parts is not None
        assert batch_of(parts["label"]) == (int(found[1]) if found else 0) > 0
    for name in recorded()["sputnik_mobilenet"]:
        assert parse(name)["label"] == "_".join(name.split("_")[:3])


def test_other_text_is_left_alone():
    for text in ("", "t", "a problem", "l_1x2_90_uniform", "_1x2x3_90_uniform", "l_1x2x3_90"):
        assert parse(text) is None
        assert (case_of(text), stem_of(text)) == (text, text)
    words = parse("rnn_b8_n1_c32_h14_w14_d32_r3_s3_ph1_pw1_u2_g32_0_equal_rows_bf16")
    assert words is not None
    assert (*words.group("label", "kind", "dtype"), batch_of(words["label"])) == ("rnn_b8", "equal_rows", "bf16", 8)
