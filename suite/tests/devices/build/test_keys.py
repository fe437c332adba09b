"""What names a program: everything that changes the machine code or the GPU that it runs on, and nothing twice."""

from dataclasses import replace

import pytest

from nnzbench.devices.build import toolchain
from nnzbench.devices.build.cache import Job, Program

JOB = Job("cuda", "k.cu", "sm_80", {"TILE": 4})
PROGRAM = Program("cuda", "k.cu", '#include "nnz.cuh"\n', "sm_80", ["-DTILE=4"], {"nnz.cuh": "a", "other.cuh": "a"})


@pytest.mark.parametrize(
    "change", [{"language": "ptx"}, {"source": "l.cu"}, {"arch": "sm_90"}, {"defines": {"TILE": 8}}, {"link": "sm_90"}]
)
def test_jobs_that_differ_in_anything_are_not_compiled_as_one(change):
    assert replace(JOB, **change).identity() != JOB.identity()
    assert replace(JOB).identity() == JOB.identity()


@pytest.fixture
def _compilers(monkeypatch):
    monkeypatch.setattr(toolchain, "compiler_id", lambda language: f"a compiler of {language}")
    monkeypatch.setattr(toolchain, "cuda_include", lambda: "include")
    monkeypatch.setattr(toolchain, "knows", lambda arch: True)


@pytest.mark.usefixtures("_compilers")
@pytest.mark.parametrize(("language", "options"), [("cuda", "CUDA_OPTIONS"), ("ptx", "PTX_OPTIONS")])
def test_the_compilers_own_options_are_in_the_key(language, options, monkeypatch):
    program = replace(PROGRAM, language=language)
    before = program.key()
    monkeypatch.setattr(toolchain, options, [*getattr(toolchain, options), "--another"])
    assert program.key() != before


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"text": "//\n"}, False),
        ({"arch": "sm_90"}, False),
        ({"options": []}, False),
        ({"headers": {"nnz.cuh": "b", "other.cuh": "a"}}, False),
        ({"headers": {"nnz.cuh": "a", "other.cuh": "b"}}, True),  # which the program does not read
    ],
)
def test_ptx_made_elsewhere_is_of_the_same_text_headers_and_options(change, same):
    assert (replace(PROGRAM, **change).ptx_key() == PROGRAM.ptx_key()) == same
