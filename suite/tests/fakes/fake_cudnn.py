"""cuDNN's frontend as its documentation has it: engines with notes, over the memory of `fake_gpu`, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import SimpleNamespace

import numpy as np
from fake_gpu import load_values, store_values


class DataType(IntEnum):
    FLOAT = 0
    HALF = 2
    BFLOAT16 = 14


HeurMode = Enum("HeurMode", "A B FALLBACK")
Note = Enum("Note", "DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION TENSOR_CORE WINOGRAD")
Knob = Enum("Knob", "TILE_SIZE SPLIT")


@dataclass(frozen=True)
class Engine:
    name: str
    microseconds: float
    notes: tuple = ()
    proposed: tuple = ()  # knobs the heuristics propose it with; () for not at all
    tiles: int = 0
    workspace: int = 256
    fails: str = ""  # `create`, `build` or `run`


@dataclass
class Plan:
    engine: int
    knobs: dict
    barred: bool = False
    built: bool = False


class GraphNotSupportedError(Exception):
    pass


class Tensor(SimpleNamespace):
    """`set_dim(value)` and its like keep the value under that name."""

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)

        def keep(value):
            setattr(self, name.removeprefix("set_"), value)
            return self

        return keep


@dataclass
class FakeCudnn:
    backend: object
    engines: list
    calls: list = field(default_factory=list)
    data_type = DataType
    heur_mode = HeurMode
    numerical_note = Note
    knob_type = Knob
    cudnnGraphNotSupportedError = GraphNotSupportedError  # noqa: N815 - the library's own name

    def backend_version(self):
        return 92800

    def create_handle(self):
        self.calls.append("create")
        return "handle"

    def set_stream(self, handle, stream):
        assert (handle, stream) == ("handle", self.backend.stream)

    def destroy_handle(self, handle):
        self.calls.append("destroy")

    def pygraph(self, handle, io_data_type, intermediate_data_type, compute_data_type):
        assert handle == "handle"
        assert intermediate_data_type == compute_data_type == DataType.FLOAT
        return Graph(self)


class Graph:
    def __init__(self, library):
        self.library, self.plans, self.steps = library, [], []

    def tensor(self, name, dim, stride, data_type, uid):
        return Tensor(dim=dim, stride=stride, data_type=data_type, uid=uid)

    def conv_fprop(self, image, weight, padding, stride, dilation, compute_data_type, name):
        assert dilation == [1, 1]
        self.x, self.w, self.padding, self.stride = image, weight, padding, stride
        self.y = Tensor()
        return self.y

    def sdpa(self, q, k, v, attn_scale, generate_stats, name, use_causal_mask=False, bias=None):
        assert generate_stats is False
        assert use_causal_mask != (bias is not None)
        self.q, self.k, self.v, self.scale, self.bias = q, k, v, attn_scale, bias
        self.causal, self.y = use_causal_mask, Tensor()
        return self.y, None

    def validate(self):
        if self._attention and self.q.dim[3] % 8:
            raise GraphNotSupportedError("hidden_dim should be multiple of 8")
        self.steps.append("validate")

    @property
    def _attention(self):
        return hasattr(self, "q")

    def build_operation_graph(self):
        assert self.steps == ["validate"]
        self.steps.append("build")

    def create_execution_plans(self, modes):
        assert self.steps == ["validate", "build"]
        assert modes == [HeurMode.A, *([] if self._attention else [HeurMode.B]), HeurMode.FALLBACK]
        for number, engine in enumerate(self.library.engines):
            self.plans += [Plan(number, knobs) for knobs in engine.proposed]
        if not self.plans:
            raise GraphNotSupportedError("no engine proposed")

    def get_engine_count(self):
        return len(self.library.engines)

    def get_knobs_for_engine(self, engine):
        if self.library.engines[engine].fails == "create":
            raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH")
        tiles = self.library.engines[engine].tiles
        tile = SimpleNamespace(type=Knob.TILE_SIZE, min_value=0, max_value=tiles - 1, stride=1)
        return [SimpleNamespace(type=Knob.SPLIT, min_value=0, max_value=9, stride=1), *([tile] if tiles else [])]

    def create_execution_plan(self, engine, knobs):
        if self.library.engines[engine].fails == "create":
            raise GraphNotSupportedError("CUDNN_STATUS_NOT_SUPPORTED")
        self.plans.append(Plan(engine, knobs))

    def get_execution_plan_count(self):
        return len(self.plans)

    def get_engine_and_knobs_at_index(self, index):
        return self.plans[index].engine, self.plans[index].knobs

    def get_plan_name_at_index(self, index):
        plan = self.plans[index]
        return "_".join([self._engine(index).name, *(f"{key.name}={value}" for key, value in plan.knobs.items())])

    def _engine(self, index):
        return self.library.engines[self.plans[index].engine]

    def deselect_numeric_notes(self, notes):
        for index, plan in enumerate(self.plans):
            plan.barred |= any(note in self._engine(index).notes for note in notes)

    def select_numeric_notes(self, notes):
        for index, plan in enumerate(self.plans):
            plan.barred |= any(note not in self._engine(index).notes for note in notes)

    def build_plan_at_index(self, index):
        if self.plans[index].barred:
            raise RuntimeError("Deselecting execution plan")
        if self._engine(index).fails == "build":
            raise GraphNotSupportedError("no kernel")
        self.plans[index].built = True

    def get_workspace_size_plan_at_index(self, index):
        assert self.plans[index].built
        return self._engine(index).workspace

    def execute_plan_at_index(self, pointers, workspace, index, handle):
        engine, backend = self._engine(index), self.library.backend
        assert self.plans[index].built
        assert handle == "handle"
        assert len(backend.memory[workspace]) >= engine.workspace
        if engine.fails == "run":
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        backend.now_ms += engine.microseconds * 1e-3
        if backend.capturing:
            return
        self.library.calls.append(self.get_plan_name_at_index(index))
        y = self._attend(pointers) if self._attention else self._convolve(pointers)
        assert list(y.shape) == self.y.dim
        flat = np.zeros(y.size, np.float32)
        flat[self._places(self.y)] = y
        store_values(backend, pointers[self.y.uid], int(self.y.data_type), flat)

    def _convolve(self, pointers):
        x, w = (self._load(tensor, pointers[tensor.uid]) for tensor in (self.x, self.w))
        return convolve(x, w, self.padding, self.stride[0])

    def _attend(self, pointers):
        """Finite masks and weights rounded to the operands' type, as fused kernels have them."""
        q, k, v = (self._load(tensor, pointers[tensor.uid]).astype(np.float32) for tensor in (self.q, self.k, self.v))
        scores = self.scale * (q @ k.swapaxes(2, 3))
        if self.bias:
            assert not any(step * 2 % 16 for step in self.bias.stride[:-1])
            scores = scores + self._load(self.bias, pointers[self.bias.uid])
        if self.causal:
            scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        total = weights.sum(axis=3, keepdims=True)
        rounded = weights.astype(np.float16) if self.q.data_type == DataType.HALF else weights
        return (rounded.astype(np.float32) @ v) / total

    def _places(self, tensor):
        return sum(np.ix_(*(np.arange(size) * step for size, step in zip(tensor.dim, tensor.stride, strict=True))))

    def _load(self, tensor, pointer):
        places = self._places(tensor)
        return load_values(self.library.backend, pointer, int(tensor.data_type), int(places.max()) + 1)[places]


def convolve(x, w, padding, stride):
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwrs,dcrs->ndhw", windows, w)
