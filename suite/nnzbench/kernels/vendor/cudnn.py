"""cuDNN: the dense convolution that pruned filters must beat, with every engine the graph API offers.

Plans come from all heuristics (modes A, B and fallback) and from every engine they left out, in NCHW and NHWC; each
that supports the problem is run a few times, and the fastest few become candidates beside the heuristics' first
choice (`default`), as a user of benchmark mode would choose. Those runs have the GPU for themselves (`alone`). Math
modes: `f32` shuns tensor cores, `tf32` demands them, `f16` and `bf16` take half-width inputs and outputs; sums are
fp32.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench.core.plan import Array, Candidate, Prepared, Unsupported, one_line
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices import Device, DeviceLost
from nnzbench.devices.gpu import DeviceArray, GpuDevice, LaunchError
from nnzbench.kernels.registry import TENSOR_CORES, About, register
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.cublas import MODES, UNPRUNED
from nnzbench.kernels.vendor.support import (
    INSTALL_VENDOR,
    Inputs,
    Output,
    Preparing,
    before_pruning,
    dense_weights,
    needing,
    swapped,
    to_storage,
)

TYPES = {"f32": "FLOAT", "f16": "HALF", "bf16": "BFLOAT16"}
"""Names in `cudnn.data_type`, by problem dtype."""


def load_frontend() -> Any:
    """The module `cudnn` with its library loaded. Raises `Unsupported` saying what to install."""
    _preload()
    with needing(f"cudnn needs nvidia-cudnn-frontend ({{}}): {INSTALL_VENDOR}", ImportError):
        frontend = importlib.import_module("cudnn")
    with needing(f"cudnn: libcudnn can't be loaded ({{}}): {INSTALL_VENDOR}", Exception):
        frontend.backend_version()
    # cuDNN ends the process where it misses this one
    with needing("cudnn needs libcublasLt, which the extras cuda12 and cuda13 bring ({})", Exception):
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt")
    return frontend


def _preload() -> None:
    """Loads libcudnn from its package, which the frontend looks for in one folder alone."""
    try:
        package = importlib.util.find_spec("nvidia.cudnn")
    except ImportError:
        return
    for folder in (package.submodule_search_locations or []) if package else []:
        library = Path(folder, "lib", "libcudnn.so.9")
        if library.is_file():
            ctypes.CDLL(str(library))
            return


class CudnnHandle(support.Handle):
    """A cuDNN handle on the device's stream."""

    library = "cudnn"

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self.lib.set_stream(self.value, device.backend.stream)

    def _load(self) -> Any:
        return load_frontend()

    def _create(self) -> Any:
        return self.lib.create_handle()

    def close(self) -> None:
        self.lib.destroy_handle(self.value)


def graph_errors(cudnn: Any) -> tuple[type[Exception], ...]:
    """What the frontend raises where a graph or plan is not to be had; an engine may miss a package of its own."""
    return (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError, ImportError)


def planned(handle: CudnnHandle, dtype: str, operation: str, modes: str, describe: Callable[[Any, Any], Any]) -> Any:
    """A graph of one operation over tensors of `dtype` with fp32 sums, and the plans that heuristics propose for it.

    `describe` adds the operation to a graph, given the type of tensors. `modes` are names in `cudnn.heur_mode`.
    Raises `Unsupported` with cuDNN's reason.
    """
    cudnn = handle.lib
    kind, single = getattr(cudnn.data_type, TYPES[dtype]), cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        handle=handle.value, io_data_type=kind, intermediate_data_type=single, compute_data_type=single
    )
    with needing(f"cudnn has no plan for this {operation} ({{}})", *graph_errors(cudnn)):
        describe(graph, kind)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([getattr(cudnn.heur_mode, mode) for mode in modes.split()])
    return graph


def execute(
    handle: CudnnHandle, graph: Any, index: int, arrays: Mapping[int, DeviceArray], workspace: DeviceArray
) -> None:
    """Enqueues one plan over arrays by the identifiers of their tensors."""
    pointers = {uid: array.pointer for uid, array in arrays.items()}
    graph.execute_plan_at_index(pointers, workspace.pointer, index, handle=handle.value)


def prepare_plan(
    handle: CudnnHandle,
    graph: Any,
    index: int,
    arrays: Mapping[int, DeviceArray],
    output: Output,
    what: str,
    preparing: Preparing,
) -> Prepared:
    """One plan that is built, with a workspace of its own. Raises `LaunchError` where it fails or memory is short."""
    workspace = handle.device.empty((max(1, graph.get_workspace_size_plan_at_index(index)),), np.uint8)
    errors = graph_errors(handle.lib)

    def run() -> None:
        try:
            execute(handle, graph, index, arrays, workspace)
        except errors as error:
            raise LaunchError(f"cudnn {what} plan {index}: {one_line(error)}") from None

    return support.finish(preparing, run, output, [workspace])


def keep_math(cudnn: Any, graph: Any, math: str) -> None:
    """Bars the plans of another arithmetic than `math`."""
    note = cudnn.numerical_note
    graph.deselect_numeric_notes([note.DOWN_CONVERT_INPUTS, note.REDUCED_PRECISION_REDUCTION])
    if math == "f32":
        graph.deselect_numeric_notes([note.TENSOR_CORE])
    if math == "tf32":
        graph.select_numeric_notes([note.TENSOR_CORE])


def buildable(cudnn: Any, graph: Any) -> Iterator[int]:
    """Builds one plan after the other; the indices of those that are not barred and fit the problem."""
    return (index for index in range(graph.get_execution_plan_count()) if builds(cudnn, graph, index))


def builds(cudnn: Any, graph: Any, index: int) -> bool:
    """Builds one plan; whether it is neither barred nor unfit."""
    try:
        graph.build_plan_at_index(index)
    except graph_errors(cudnn):
        return False
    return True


FASTEST = 2
"""Plans per math mode and layout that become candidates beside the default: checking a large output takes seconds.

In fp32 also the fastest with Winograd's transform and the fastest without, which papers tell apart."""
TRIALS = 3
"""Runs of a plan, after a first one, when the fastest are looked for."""
BEHIND = 1.5
"""A plan this much slower than the fastest so far is timed once: the slowest ones take a hundred times as long."""
KEPT_BYTES = 1 << 30
"""Of a plan's workspace that may stay in the device's pool as others are tried."""
TILE_SIZES = 8
"""Most tile sizes tried of an engine for which the heuristics propose none."""

X, W, Y = 1, 2, 3
"""Identifiers of image, filters and result in the graph."""


def build_graph(handle: CudnnHandle, conv: ConvShape, dtype: str, nhwc: bool) -> Any:
    """The convolution as a graph of one operation, with every plan that may serve it. Raises `Unsupported`."""
    image = (conv.batch, conv.channels, conv.height, conv.width)
    filters = (conv.filters, conv.channels, conv.r, conv.s)
    result = conv.output

    def convolution(graph: Any, kind: Any) -> None:
        y = graph.conv_fprop(
            image=graph.tensor(name="x", dim=list(image), stride=strides(image, nhwc), data_type=kind, uid=X),
            weight=graph.tensor(name="w", dim=list(filters), stride=strides(filters, nhwc), data_type=kind, uid=W),
            padding=[conv.pad_h, conv.pad_w],
            stride=[conv.stride, conv.stride],
            dilation=[1, 1],
            compute_data_type=handle.lib.data_type.FLOAT,
            name="y",
        )
        y.set_output(True).set_data_type(kind).set_dim(list(result)).set_stride(strides(result, nhwc)).set_uid(Y)

    graph = planned(handle, dtype, "convolution", "A B FALLBACK", convolution)
    _add_other_engines(handle.lib, graph)
    return graph


def strides(shape: tuple[int, ...], nhwc: bool) -> list[int]:
    """Strides of a four-dimensional tensor in elements, its dimensions always in the order N, C, H, W."""
    _, c, h, w = shape
    return [c * h * w, 1, w * c, c] if nhwc else [c * h * w, h * w, w, 1]


def _add_other_engines(cudnn: Any, graph: Any) -> None:
    """Adds the engines that the heuristics left out or proposed without a choice of tile, in several tile sizes."""
    proposed = [graph.get_engine_and_knobs_at_index(i) for i in range(graph.get_execution_plan_count())]
    tuned = {engine for engine, knobs in proposed if knobs}
    plain = {engine for engine, _ in proposed}
    for engine in range(graph.get_engine_count()):
        if engine in tuned:
            continue
        choices = _tile_sizes(cudnn, graph, engine)
        for knobs in choices if engine in plain else [{}, *choices]:
            try:
                graph.create_execution_plan(engine, knobs)
            except graph_errors(cudnn):
                continue  # not for this operation, shape or GPU


def _tile_sizes(cudnn: Any, graph: Any, engine: int) -> list[dict[Any, int]]:
    tile = cudnn.knob_type.TILE_SIZE
    try:
        knobs = [knob for knob in graph.get_knobs_for_engine(engine) if knob.type == tile]
    except graph_errors(cudnn):
        return []
    sizes = [range(knob.min_value, knob.max_value + 1, max(1, knob.stride)) for knob in knobs]
    return [{tile: size} for size in sizes[0][:TILE_SIZES]] if sizes else []


@dataclass(frozen=True)
class PlanSearch:
    """The plans of one math mode and layout, and what they run on."""

    handle: CudnnHandle
    inputs: Inputs
    problem: Problem
    operands: Operands
    math: str
    nhwc: bool

    @property
    def variant(self) -> str:
        """Such as `tf32_nhwc`."""
        return f"{self.math}_{'nhwc' if self.nhwc else 'nchw'}"

    @property
    def conv(self) -> ConvShape:
        assert self.problem.conv is not None
        return self.problem.conv

    @functools.cached_property
    def graph(self) -> Any:
        """Raises `Unsupported` where cuDNN has none."""
        return build_graph(self.handle, self.conv, self.problem.dtype, self.nhwc)

    def candidates(self, winograd: Callable[[int], bool], untuned: bool) -> Iterator[Candidate]:
        """The heuristics' first usable plan and the fastest ones, or if `untuned` the first alone.

        Raises `Unsupported` where there is none.
        """
        keep_math(self.handle.lib, self.graph, self.math)
        timed = dict(islice(self._times(), 1 if untuned else None))
        if not timed:
            raise Unsupported(f"cudnn has no {self.variant} engine for this convolution")
        default = min(timed)
        ranked = sorted(timed, key=lambda index: timed[index])
        kinds = {winograd(index): index for index in reversed(ranked)} if self.math == "f32" else {}
        for index in dict.fromkeys([default, *ranked[:FASTEST], *kinds.values()]):
            name = str(self.graph.get_plan_name_at_index(index))
            tags = [
                name.partition("_")[0],
                "winograd" if winograd(index) else "",
                "default" if index == default else "",
            ]
            variant = "_".join([self.variant, f"plan{index:02}", *filter(None, tags)])
            tolerance = "winograd" if winograd(index) and self.math == "f32" else ""
            prepare = functools.partial(self.prepare, index)
            yield Candidate(variant, self.math, prepare, tolerance=tolerance)

    def _times(self) -> Iterator[tuple[int, float]]:
        """Every plan that builds, fits and runs, in their order, and its microseconds."""
        device = self.inputs.device
        fastest = float("inf")

        def placed() -> tuple[dict[int, DeviceArray], Output]:
            with device.alone():
                return self._placed(Preparing(self.inputs))

        arrays, output = support.with_memory(device, placed)
        try:
            for index in buildable(self.handle.lib, self.graph):
                size = self.graph.get_workspace_size_plan_at_index(index)
                if size > device.facts.memory_bytes // 8:
                    continue
                try:
                    trials = support.with_memory(device, functools.partial(self._try, index, arrays, size, fastest))
                except DeviceLost:
                    raise
                except graph_errors(self.handle.lib):
                    continue
                fastest = min(fastest, *trials)
                yield index, min(trials)
        finally:
            output.close()

    def _placed(self, preparing: Preparing) -> tuple[dict[int, DeviceArray], Output]:
        """Image and filters in device memory, shared by the plans of the layout, and room for the result."""
        x, w = preparing.arrays(("tensors", self.nhwc), self._tensors)
        output = Output(self.inputs.device, self.conv.output, self.problem.dtype, 1 if self.nhwc else -1)
        return {X: x, W: w, Y: output.array}, output

    def _tensors(self) -> tuple[Array, Array]:
        c, dtype = self.conv, self.problem.dtype
        image = to_storage(self.operands.dense["x"], dtype)
        filters = dense_weights(self.operands.sparse, dtype).reshape(c.filters, c.channels, c.r, c.s)
        return self._laid_out(image), self._laid_out(filters)

    def _laid_out(self, array: Array) -> Array:
        n, c, h, w = array.shape
        return swapped(array.reshape(n, c, h * w)).reshape(n, h, w, c) if self.nhwc else array

    def _try(self, index: int, arrays: Mapping[int, DeviceArray], size: int, fastest: float) -> list[float]:
        """Microseconds of a plan whose workspace has so many bytes: of one run where that is clearly behind."""
        device = self.inputs.device
        with device.alone():  # another process may be timing
            workspace = device.empty((max(1, size),), np.uint8)
            run = functools.partial(execute, self.handle, self.graph, index, arrays, workspace)
            run()
            device.synchronise()
            first = device.timer.elapsed_us(run)
            more = TRIALS - 1 if first < BEHIND * fastest else 0
            times = [first, *(device.timer.elapsed_us(run) for _ in range(more))]
            workspace.close()
            if size > KEPT_BYTES:  # pooled, those of many plans would take the memory of other processes
                device.release()
        return times

    def prepare(self, index: int) -> Prepared:
        """One plan, built by the search, with a workspace of its own. Raises `LaunchError` where it fails."""
        preparing = Preparing(self.inputs)
        arrays, output = self._placed(preparing)
        return prepare_plan(self.handle, self.graph, index, arrays, output, self.variant, preparing)


class Cudnn:
    """cudnnBackendExecute of a forward convolution (cross-correlation, no dilation, no groups)."""

    name = "cudnn"
    paper = "NVIDIA cuDNN"
    ops = frozenset({"conv2d", "conv1d"})
    dtypes = frozenset(TYPES)

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """Default and fastest plans per layout and math mode. Raises `Unsupported` without a GPU or cuDNN."""
        return self._found(problem, operands, device, untuned=False)

    def untuned(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """The defaults alone, for which nothing has to be searched."""
        return self._found(problem, operands, device, untuned=True)

    def _found(self, problem: Problem, operands: Operands, device: Device, untuned: bool) -> Iterator[Candidate]:
        gpu = support.require_gpu(device, self.name)
        handle = CudnnHandle.of(gpu)
        assert problem.conv is not None
        if problem.conv.groups != 1:
            raise Unsupported("cudnn is run on convolutions without groups alone")
        inputs = Inputs(gpu)
        for nhwc in (False, True):
            winograd = _winograd(handle, problem.conv, problem.dtype, nhwc)
            for mode in MODES[problem.dtype]:
                search = PlanSearch(handle, inputs, problem, operands, mode, nhwc)
                try:
                    support.require_math(gpu, mode)
                    yield from search.candidates(winograd, untuned)
                except Unsupported as error:
                    yield support.refusal(search.variant, mode, str(error))


class Pointwise(Cudnn):
    """The same of a dense product, as the 1x1 convolution of one image with N pixels that it is."""

    name = "cudnn_1x1"
    ops = frozenset({"spmm"})
    dtypes = frozenset({"f32"})

    def _found(self, problem: Problem, operands: Operands, device: Device, untuned: bool) -> Iterator[Candidate]:
        height = next(rows for rows in range(math.isqrt(problem.n), 0, -1) if problem.n % rows == 0)
        conv = ConvShape(1, problem.k, height, problem.n // height, problem.m, 1, 1)
        whole = CSR.from_dense(before_pruning(operands.sparse))
        image = replace(operands, sparse=whole, dense={"x": operands.dense["b"].reshape(1, problem.k, height, -1)})
        layer = replace(problem, op="conv2d", conv=conv)
        truth = functools.cache(functools.partial(reference, layer, image))
        for found in super()._found(layer, image, device, untuned):
            yield replace(found, variant=found.variant + UNPRUNED, truth=truth)


def _winograd(handle: CudnnHandle, conv: ConvShape, dtype: str, nhwc: bool) -> Callable[[int], bool]:
    """Tells which plans use Winograd's transform; plans are in the same order in every graph of a convolution."""

    @functools.cache
    def graph() -> Any:
        built = build_graph(handle, conv, dtype, nhwc)
        built.select_numeric_notes([handle.lib.numerical_note.WINOGRAD])
        return built

    @functools.cache
    def uses(index: int) -> bool:
        return builds(handle.lib, graph(), index)

    return uses


register(Cudnn(), About("library", "cuDNN", maths=TENSOR_CORES, work="dense", reference=True, rank=240))
register(Pointwise(), About("library", "cuDNN's 1x1 convolution", work="dense", study=True, rank=245))
