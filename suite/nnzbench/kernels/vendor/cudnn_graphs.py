"""What every use of cuDNN shares: the library loaded, a handle on the stream, graphs of one operation, their plans."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench.devices.gpu import DeviceArray, GpuDevice, LaunchError
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.support import INSTALL_VENDOR, Output, Preparing
from nnzbench.plans.plan import Prepared, Unsupported, one_line

TYPES = {"f32": "FLOAT", "f16": "HALF", "bf16": "BFLOAT16"}
"""Names in `cudnn.data_type`, by problem dtype."""


def load_frontend() -> Any:
    """The module `cudnn` with its library loaded. Raises `Unsupported` saying what to install."""
    _preload()
    try:
        frontend = importlib.import_module("cudnn")
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise Unsupported(f"cudnn needs nvidia-cudnn-frontend ({reason}): {INSTALL_VENDOR}") from None
    try:
        frontend.backend_version()
    except Exception as error:
        raise Unsupported(f"cudnn: libcudnn can't be loaded ({one_line(error)}): {INSTALL_VENDOR}") from None
    try:  # cuDNN ends the process where it misses this one
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt")
    except Exception as error:
        raise Unsupported(
            f"cudnn needs libcublasLt, which the extras cuda12 and cuda13 bring ({one_line(error)})"
        ) from None
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


class Handle(support.Handle):
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


def planned(handle: Handle, dtype: str, operation: str, modes: str, describe: Callable[[Any, Any], Any]) -> Any:
    """A graph of one operation over tensors of `dtype` with fp32 sums, and the plans that heuristics propose for it.

    `describe` adds the operation to a graph, given the type of tensors. `modes` are names in `cudnn.heur_mode`.
    Raises `Unsupported` with cuDNN's reason.
    """
    cudnn = handle.lib
    kind, single = getattr(cudnn.data_type, TYPES[dtype]), cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        handle=handle.value, io_data_type=kind, intermediate_data_type=single, compute_data_type=single
    )
    try:
        describe(graph, kind)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([getattr(cudnn.heur_mode, mode) for mode in modes.split()])
    except graph_errors(cudnn) as error:
        raise Unsupported(f"cudnn has no plan for this {operation} ({one_line(error)})") from None
    return graph


def execute(handle: Handle, graph: Any, index: int, arrays: Mapping[int, DeviceArray], workspace: DeviceArray) -> None:
    """Enqueues one plan over arrays by the identifiers of their tensors."""
    pointers = {uid: array.pointer for uid, array in arrays.items()}
    graph.execute_plan_at_index(pointers, workspace.pointer, index, handle=handle.value)


def prepare_plan(
    handle: Handle,
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
