"""GPU libraries side by side: the runner over pretended GPUs, and the page from invented times with known answers."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from fake_gpu import FakeBackend, fake_build, fake_nvml

from nnzbench.core.plan import Launch, Plan
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.gpu import GpuDevice
from nnzbench.devices.nvml import Clocks
from nnzbench.results.records.record import RecordError
from nnzbench.site import gpu_libraries


@pytest.fixture(scope="module")
def runner() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[4] / "runners"))
        yield importlib.import_module("studies.devices")


def pretended(name: str, value: int) -> GpuDevice:
    """A GPU whose kernel writes `value`."""
    backend = FakeBackend({"one": lambda fake, grid, block, args, shared: fake.array(args[0], np.int32, 4).fill(value)})
    backend.name = name
    return GpuDevice(backend, fake_build, Clocks(fake_nvml(), "handle"))


def test_every_program_is_measured_through_each_library_in_turns(runner: ModuleType) -> None:
    launch = Launch("one", (1, 1, 1), (4, 1, 1), ("y",))
    plan = Plan("v", "cuda", "x\n", {}, {"y": np.zeros(4, np.int32)}, "y", (launch,))
    problem = Problem("representative", "small", "spmm", 4, 4, 1, 0.5, "uniform:0")
    same = list(runner.measured([pretended("cupy", 3), pretended("pycuda", 3)], "mine", problem, plan))
    assert [(row.library, row.round, row.policy) for row in same] == [
        (library, number, policy)
        for number, order in ((1, ("cupy", "pycuda")), (2, ("pycuda", "cupy")))
        for library in order
        for policy in ("hot", "cold", "stream")
    ]
    assert all(row.median_us > 0 for row in same)
    assert runner.differing(same) == []
    other = list(runner.measured([pretended("cupy", 3), pretended("pycuda", 4)], "mine", problem, plan))
    assert runner.differing(other) == ["mine spmm f32"]
    assert len({row.cubin for row in same + other}) == 1


def test_there_is_a_program_for_every_op_and_type_of_a_kernel(runner: ModuleType) -> None:
    found = [(problem.op, problem.dtype, plan.variant) for _, problem, plan in runner.programs("sm_90", ["balanced"])]
    assert [one[:2] for one in found] == [("spmm", "f16"), ("spmm", "f32"), ("spmv", "f16"), ("spmv", "f32")]
    assert all(variant for *_, variant in found)


def written(runner: ModuleType, reports: Path) -> Path:
    row = gpu_libraries.Timing("ring", "spmm", "f32", "p", "v", "cupy", 1, "c0", "b0", "hot", 10.0, 9.9, 10.1)
    rows = []
    for name, wide, bits in (("ring", 1.0, "b0"), ("sputnik", 1.05, "b1")):
        for library, by in (("cupy", 1.0), ("pycuda", wide)):
            for number, again in ((1, 1.0), (2, 1.01)):
                one = replace(row, kernel=name, library=library, round=number, median_us=10 * by * again)
                rows.append(replace(one, bits=bits if library == "cupy" else "b0"))
    path = reports / "nvidia-h200" / "devices" / "times.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[one.name for one in fields(row)], *map(astuple, rows)])
    return path


def test_the_page_holds_libraries_against_repetition(runner: ModuleType, tmp_path: Path) -> None:
    path = written(runner, tmp_path)
    assert gpu_libraries.write(tmp_path, "nvidia-h200") == path.parent / "README.md"
    text = (path.parent / "README.md").read_text()
    assert (
        "2 programs of 2 kernels through cupy, pycuda: same cubin and same bits for all but sputnik (spmm, f32)" in text
    )
    assert (
        "Between libraries the times of a program differ by 2.5 %, 4.5 %, 5.0 % (median, 9 in 10 below, most)" in text
    )
    assert "and again in the same order" in text
    assert "Hot: against cupy, in the geometric mean, pycuda +2.5 %." in text
    assert "1 of 2 programs differ by more than the largest repetition did: sputnik spmm f32 (5.0 %)." in text
    assert "| ring | spmm | f32 | `v` | 10.05 | 10.05 | 0.0 % | 1.0 % |" in text


def test_a_damaged_table_is_refused(runner: ModuleType, tmp_path: Path) -> None:
    path = written(runner, tmp_path)
    path.write_text(path.read_text().replace("median_us", "us", 1))
    with pytest.raises(RecordError, match="not a table of times"):
        gpu_libraries.write(tmp_path, "nvidia-h200")
    assert gpu_libraries.write(tmp_path, "nvidia-a100") is None


def test_a_program_differs_where_it_is_beyond_the_largest_repetition_of_any() -> None:
    """One program repeats 10 % apart; another differs by 5 % between libraries and repeats alike."""
    times = {("ring", "cupy"): (10.0, 11.0), ("ring", "pycuda"): (10.0, 11.0)}
    times |= {("sputnik", "cupy"): (10.0, 10.0), ("sputnik", "pycuda"): (10.5, 10.5)}
    rows = pd.DataFrame(
        {
            **{"kernel": kernel, "op": "spmm", "inputs": "f32", "problem": "p", "variant": "v", "library": library},
            **{"round": number, "cubin": "c", "bits": "b", "policy": "hot", "median_us": us},
        }
        for (kernel, library), both in times.items()
        for number, us in enumerate(both, 1)
    )
    assert "0 of 2 programs differ by more than the largest repetition did." in gpu_libraries.page(rows, "x", {})
    rows.loc[(rows["kernel"] == "sputnik") & (rows["library"] == "pycuda"), "median_us"] = 12.0
    said = "1 of 2 programs differ by more than the largest repetition did: sputnik spmm f32 (20.0 %)."
    assert said in gpu_libraries.page(rows, "x", {})
