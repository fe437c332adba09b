"""What every use of cuDNN shares: the library loaded, a handle on the stream, and the plans of a graph."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.vendor.support import INSTALL_VENDOR
from nnzbench.plans.plan import Unsupported, one_line

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


class Handle:
    """A cuDNN handle on the device's stream."""

    def __init__(self, device: GpuDevice) -> None:
        self.cudnn: Any = load_frontend()
        self.value: Any = self.cudnn.create_handle()
        self.cudnn.set_stream(self.value, device.backend.stream)

    def close(self) -> None:
        """Destroys the handle."""
        self.cudnn.destroy_handle(self.value)


def graph_errors(cudnn: Any) -> tuple[type[Exception], ...]:
    """What the frontend raises where a graph or plan is not to be had; an engine may miss a package of its own."""
    return (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError, ImportError)


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
