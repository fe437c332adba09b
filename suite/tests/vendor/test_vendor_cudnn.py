"""cuDNN against float64, over a frontend whose engines compute in NumPy."""

import importlib
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_cudnn import Engine, FakeCudnn, Graph, Knob, Note
from fake_gpu import FACTS, FakeDriverError
from on_cpu import conv_layer as make
from on_cpu import matrix
from vendor_candidates import check_all, every_of

from nnzbench.bench.phases import Phases, Work
from nnzbench.bench.session import Session, open_libraries
from nnzbench.bench.trial import enumerate_candidates
from nnzbench.core.plan import Unsupported
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import dense_reference, reference
from nnzbench.devices import DeviceLost
from nnzbench.devices.gpu import LaunchError
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.vendor import cudnn, support
from nnzbench.kernels.vendor.support import before_pruning

every = every_of("cudnn")

SPLIT = {Knob.SPLIT: 3}
ENGINES = [
    Engine("eng0", 90, proposed=({},)),  # the fallback
    Engine("eng1", 40, (Note.TENSOR_CORE,), proposed=(SPLIT, {Knob.SPLIT: 4})),
    Engine("eng2", 30, tiles=3),  # left out by the heuristics
    Engine("eng3", 20, (Note.WINOGRAD,)),
    Engine("eng4", 1, fails="create"),
    Engine("eng5", 2, fails="build"),
    Engine("eng6", 3, (Note.DOWN_CONVERT_INPUTS, Note.TENSOR_CORE), proposed=(SPLIT,)),
    Engine("eng7", 4, workspace=FACTS.memory_bytes),
    Engine("eng8", 5, fails="run"),
    Engine("eng9", 50, (Note.TENSOR_CORE,)),
]
SHAPES = [
    ConvShape(2, 3, 5, 6, 4, 3, 3, 1, 1),
    ConvShape(1, 4, 7, 9, 2, 1, 1, stride=2),
    ConvShape(3, 5, 1, 11, 6, 1, 2),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_plan_computes_the_convolution(dtype, shape, gpu):
    problem, operands = make(shape, dtype)
    found = every(problem, operands, gpu)
    assert len(found) == (10 if dtype == "f32" else 6)
    check_all(found.values(), problem, operands)


def test_a_product_runs_as_the_1x1_convolution_that_it_is(gpu):
    a = matrix(5, 9)
    b = np.linspace(-1, 1, 189, dtype=np.float32).reshape(9, 21)
    problem, operands = Problem("test", "t", "spmm", 5, 9, 21, 0.5, ""), Operands(a, {"b": b}, "")
    whole = dense_reference(before_pruning(a), b)
    found = every_of("cudnn_1x1")(problem, operands, gpu)
    assert len(found) == 10
    assert all(name.endswith("_unpruned") for name in found)  # as cuBLAS's rows that it stands beside
    for one in found.values():
        prepared = one.prepare()
        prepared.run()
        result = prepared.read()
        assert passes(relative_error(result, one.truth()), one.tolerance or one.math)
        assert passes(relative_error(result.reshape(5, 21), whole), one.tolerance or one.math)


def test_rows_are_the_first_choice_and_the_fastest_of_all_engines(gpu):
    found = every(*make(SHAPES[0]), gpu)
    exact = ("plan00_eng0_default", "plan08_eng3_winograd", "plan04_eng2")
    rounded = ("plan01_eng1_default", "plan02_eng1")
    assert [(name, one.math) for name, one in found.items()] == [
        (f"{math}_{layout}_{plan}", math)
        for layout in ("nchw", "nhwc")
        for math, plans in (("f32", exact), ("tf32", rounded))
        for plan in plans
    ]
    assert all((one.tolerance == "winograd") == name.endswith("winograd") for name, one in found.items())


def test_an_engine_that_the_heuristics_leave_out_is_tried_in_every_tile_size(gpu):
    every(*make(SHAPES[0]), gpu)
    assert {"eng2", "eng2_TILE_SIZE=0", "eng2_TILE_SIZE=1", "eng2_TILE_SIZE=2"} <= set(gpu.cudnn.calls)


def test_what_runs_untuned_needs_no_search(gpu):
    problem, operands = make(SHAPES[0])
    defaults = [name for name in every(problem, operands, gpu) if name.endswith("_default")]
    gpu.cudnn.calls.clear()
    found = list(enumerate_candidates(kernels()["cudnn"], problem, operands, gpu, scope="first"))
    assert [one.variant for one in found] == defaults
    assert set(gpu.cudnn.calls) == {"eng0", "eng1_SPLIT=3"}
    for candidate in found:
        prepared = candidate.prepare()
        prepared.run()
        assert passes(relative_error(prepared.read(), reference(problem, operands)), candidate.math)
    gpu.cudnn.engines = ENGINES[-2:-1]  # fails at its run
    reasons = list(enumerate_candidates(kernels()["cudnn"], problem, operands, gpu, scope="first"))
    assert [one.variant for one in reasons] == ["f32_nchw", "tf32_nchw"]


@pytest.mark.parametrize("scope", ["first", "all"])
def test_the_search_runs_nothing_beside_what_other_processes_time(scope, gpu, monkeypatch):
    turns, phases = [], Phases()

    @contextmanager
    def turn():
        turns.append(True)
        try:
            yield
        finally:
            turns.append(False)

    Session(gpu, kernels(), work=Work(phases, turn))
    execute, upload = Graph.execute_plan_at_index, gpu.backend.upload

    def only_in_turn(what):
        def called(*arguments, **more):
            assert turns[-1:] == [True]
            return what(*arguments, **more)

        return called

    monkeypatch.setattr(Graph, "execute_plan_at_index", only_in_turn(execute))
    monkeypatch.setattr(gpu.backend, "upload", only_in_turn(upload))
    found = list(enumerate_candidates(kernels()["cudnn"], *make(SHAPES[0]), gpu, scope=scope, phases=phases))
    assert len(found) == (4 if scope == "first" else 10)
    assert turns[-1] is False
    assert turns[::2] == [True] * (len(turns) // 2)  # never asked for by who has it
    assert phases.seconds["preparing"] > 0.0


def test_a_plan_is_tried_again_where_other_processes_had_the_memory(gpu, monkeypatch):
    monkeypatch.setattr(support, "PAUSES_S", (0.0, 0.0))
    Session(gpu, kernels(), work=Work(turn=lambda: nullcontext()))
    expected = list(every(*make(SHAPES[0]), gpu))
    execute, failed = Graph.execute_plan_at_index, []

    def short(graph, *arguments, **more):
        if len(failed) < 2:
            failed.append(graph)
            raise RuntimeError("CUDNN_STATUS_ALLOC_FAILED")
        return execute(graph, *arguments, **more)

    monkeypatch.setattr(Graph, "execute_plan_at_index", short)
    assert list(every(*make(SHAPES[0]), gpu)) == expected
    assert len(failed) == 2
    failed.clear()
    Session(gpu, kernels())  # alone on the GPU it would fail again
    assert list(every(*make(SHAPES[0]), gpu)) != expected


def test_libraries_are_opened_once_before_anything_is_timed(gpu):
    open_libraries(gpu, ["cudnn", "sputnik", "unheard_of"])
    assert gpu.cudnn.calls[0] == "create"
    assert set(gpu.cudnn.calls[1:]) == {"eng0"}
    gpu.cudnn.calls.clear()
    every(*make(SHAPES[0]), gpu)
    assert "create" not in gpu.cudnn.calls
    gpu.cudnn.engines = [Engine("eng0", 90, proposed=({},), fails="run")]
    open_libraries(gpu, ["cudnn"])  # the first problem says what is the matter


def test_half_precision_may_use_any_engine_that_sums_in_fp32(gpu):
    gpu.cudnn.engines.append(
        Engine("eng10", 1, (Note.TENSOR_CORE, Note.REDUCED_PRECISION_REDUCTION), proposed=(SPLIT,))
    )
    names = list(every(*make(SHAPES[0], "f16"), gpu))
    assert names[:3] == ["f16_nchw_plan00_eng0_default", "f16_nchw_plan09_eng3_winograd", "f16_nchw_plan05_eng2"]


def test_a_mode_without_an_engine_is_a_row_with_the_reason(gpu):
    gpu.cudnn.engines = ENGINES[:1]
    found = every(*make(SHAPES[0]), gpu)
    assert list(found) == ["f32_nchw_plan00_eng0_default", "tf32_nchw", "f32_nhwc_plan00_eng0_default", "tf32_nhwc"]
    with pytest.raises(Unsupported, match="cudnn has no tf32_nchw engine for this convolution"):
        found["tf32_nchw"].prepare()
    gpu.cudnn.engines = []
    with pytest.raises(Unsupported, match=r"no plan for this convolution \(no engine proposed\)"):
        every(*make(SHAPES[0]), gpu)["f32_nhwc"].prepare()


def test_tf32_needs_a_gpu_that_has_it(gpu):
    gpu.backend.facts = replace(FACTS, compute_capability=(7, 5))
    with pytest.raises(Unsupported, match="tf32 needs sm_80"):
        every(*make(SHAPES[0]), gpu)["tf32_nchw"].prepare()


def test_memory_goes_back_with_the_last_candidate(gpu):
    problem, operands = make(SHAPES[0])
    for candidate in candidates(kernels()["cudnn"], problem, operands, gpu):
        candidate.prepare().close()
        del candidate
    held = len(gpu.backend.memory)
    for candidate in candidates(kernels()["cudnn"], problem, operands, gpu):
        candidate.prepare().close()
        del candidate
    assert len(gpu.backend.memory) == held
    gpu.close()
    assert gpu.cudnn.calls.count("create") == gpu.cudnn.calls.count("destroy") == 1


def test_a_plan_that_fails_later_is_a_launch_error_and_a_lost_device_ends_the_search(gpu):
    candidate = every(*make(SHAPES[0]), gpu)["f32_nchw_plan00_eng0_default"]
    gpu.cudnn.engines[0] = Engine("eng0", 90, proposed=({},), fails="run")
    with pytest.raises(LaunchError, match="cudnn f32_nchw plan 0: CUDNN_STATUS_EXECUTION_FAILED"):
        candidate.prepare()

    def fault():
        raise FakeDriverError("an illegal memory access was encountered")

    gpu.backend.synchronise = fault
    with pytest.raises(DeviceLost):
        every(*make(SHAPES[0]), gpu)


def test_a_missing_frontend_or_library_says_what_to_install(monkeypatch):
    modules = {}

    def load(name):
        if name not in modules:
            raise ImportError(f"No module named '{name}'")
        return modules[name]

    def missing():
        raise RuntimeError("Unable to find symbol cudnnGetVersion")

    monkeypatch.setattr(importlib, "import_module", load)
    with pytest.raises(Unsupported, match=r"cudnn needs nvidia-cudnn-frontend \(.*pip install 'nnzbench\[vendor13\]'"):
        cudnn.load_frontend()
    modules["cudnn"] = SimpleNamespace(backend_version=missing)
    with pytest.raises(Unsupported, match=r"libcudnn can't be loaded \(Unable to find symbol cudnnGetVersion\)"):
        cudnn.load_frontend()
    modules["cudnn"].backend_version = lambda: 92800
    with pytest.raises(Unsupported, match="cudnn needs libcublasLt"):
        cudnn.load_frontend()
    modules["cuda.pathfinder"] = SimpleNamespace(load_nvidia_dynamic_lib=lambda name: None)
    assert cudnn.load_frontend() is modules["cudnn"]


def test_the_installed_frontend_has_what_we_use():
    cudnn = pytest.importorskip("cudnn")
    for owner, fake in ((cudnn.numerical_note, Note), (cudnn.data_type, FakeCudnn.data_type)):
        assert all(hasattr(owner, name) for name in fake.__members__)
    assert all(hasattr(cudnn.heur_mode, name) for name in ("A", "B", "FALLBACK"))
    assert hasattr(cudnn.knob_type, "TILE_SIZE")
    graphs = (cudnn.pygraph, cudnn._pybind_module.backend_graph)  # the first hands on to the second
    for name in vars(Graph):
        assert name.startswith("_") or any(hasattr(graph, name) for graph in graphs), name
