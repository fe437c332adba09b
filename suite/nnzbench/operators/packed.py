"""A plan reduced to what running it needs: programs, launches, and the packed weights; and the folder it is kept in.

| file | what |
| --- | --- |
| `operator.json` | sizes, types, names of the buffers, and every launch with its grid, block, arguments and program |
| `buffers.npz` | packed weights and workspace by name; the caller's arrays are not among them |
| `program-<i>.cubin` | the compiled programs, for one architecture; none in what was saved on the processor |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnzbench import paths
from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.readers.weights import array_names, load_array
from nnzbench.operators.arrays import OperatorError
from nnzbench.plans.plan import Array, Launch, Plan
from nnzbench.problems.problem import DType

FORMAT = "nnzbench-operator/1"
MOST_JSON = 64 << 20
_TEXTS = ("variant", "language", "source", "cpu_source", "math", "features")
"""Of a plan."""
_KINDS = tuple(np.dtype(kind) for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"))


@dataclass(frozen=True)
class Step:
    """One launch and the number of its program."""

    program: int
    launch: Launch


@dataclass(frozen=True)
class Facts:
    """What an operator is, as its JSON file tells."""

    kernel: str
    variant: str
    op: str
    m: int
    k: int
    n: int
    dtype: DType
    """`f32`, `f16` or `bf16`: of weights, dense operand and result."""
    arch: str
    """Architecture of the programs, such as `sm_90`."""
    input: str
    """Buffer of the dense operand (k, n)."""
    output: str
    """Buffer of the result (m, n)."""
    relative_error: float
    """Of the check that it passed, against float64."""
    weights_bytes: int
    """Device memory beside the caller's arrays."""
    hot_us: float | None
    """What a call took when it was chosen, microseconds in a CUDA graph; None on the processor, which is not timed."""


@dataclass(frozen=True)
class Packed:
    """All of an operator but a device. `cubins` is empty on the processor, which runs `plan` instead."""

    facts: Facts
    buffers: Mapping[str, Array]
    steps: tuple[Step, ...] = ()
    cubins: tuple[bytes, ...] = ()
    plan: Plan | None = None

    def save(self, folder: Path) -> None:
        """Writes the folder, the JSON last, so that a folder with one is whole. Raises `OSError`."""
        folder.mkdir(parents=True, exist_ok=True)
        with paths.replacing(folder / "buffers.npz") as partial, partial.open("wb") as file:
            np.savez(file, **self.buffers)  # type: ignore[arg-type]
        for number, cubin in enumerate(self.cubins):
            with paths.replacing(folder / f"program-{number}.cubin") as partial:
                partial.write_bytes(cubin)
        text = {
            "format": FORMAT,
            **asdict(self.facts),
            "programs": len(self.cubins),
            "steps": [_step_json(step) for step in self.steps],
            "plan": None if self.plan is None else _plan_json(self.plan),
        }
        paths.write_text(folder / "operator.json", json.dumps(text, indent=1) + "\n")


def load(folder: Path) -> Packed:
    """Reads what `save` wrote. Raises `OperatorError` for a folder that is no operator, or a damaged one."""
    path = folder / "operator.json"
    try:
        if path.stat().st_size > MOST_JSON:
            raise OperatorError(f"{path}: too long for the description of an operator")
        text = json.loads(path.read_text(encoding="utf-8"))
        if text.get("format") != FORMAT:
            raise OperatorError(f"{path}: its format is not {FORMAT}")
        facts = Facts(**{name: text[name] for name in Facts.__dataclass_fields__})
        steps = tuple(_step(one) for one in text["steps"])
        cubins = tuple((folder / f"program-{number}.cubin").read_bytes() for number in range(int(text["programs"])))
        archive = folder / "buffers.npz"
        buffers = {name: load_array(archive, name, _KINDS) for name in array_names(archive)}
        plan = None if text["plan"] is None else _plan(text["plan"], facts, buffers)
    except OSError as error:
        raise OperatorError(f"{folder}: is no saved operator ({error.strerror or error})") from error
    except (MatrixError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, OperatorError):
            raise
        raise OperatorError(f"{folder}: is a damaged operator ({type(error).__name__}: {error})") from error
    known = {*buffers, facts.input, facts.output}
    for step in steps:
        if step.program >= len(cubins) or any(isinstance(one, str) and one not in known for one in step.launch.args):
            raise OperatorError(f"{folder}: is a damaged operator (a launch names what is not there)")
    return Packed(facts, buffers, steps, cubins, plan)


def _step_json(step: Step) -> dict[str, Any]:
    one = step.launch
    return {
        "program": step.program,
        "entry": one.entry,
        "grid": list(one.grid),
        "block": list(one.block),
        "shared_bytes": one.shared_bytes,
        "args": [{"buffer": arg} if isinstance(arg, str) else {_kind(arg): arg} for arg in one.args],
    }


def _kind(arg: int | float) -> str:
    return "int32" if isinstance(arg, int) else "float32"


def _step(one: Mapping[str, Any]) -> Step:
    sizes = [*one["grid"], *one["block"], one["shared_bytes"], one["program"]]
    if len(sizes) != 8 or any(not isinstance(size, int) or not 0 <= size < 2**31 for size in sizes):
        raise ValueError("a launch has impossible sizes")
    args: list[str | int | float] = []
    for arg in one["args"]:
        ((kind, value),) = arg.items()
        fits = {
            "buffer": isinstance(value, str),
            "int32": isinstance(value, int) and -(2**31) <= value < 2**31,
            "float32": isinstance(value, float) and math.isfinite(value),
        }
        if not fits[kind]:
            raise ValueError(f"an argument is no {kind}")
        args.append(value)
    grid, block = tuple(one["grid"]), tuple(one["block"])
    return Step(one["program"], Launch(str(one["entry"]), grid, block, tuple(args), one["shared_bytes"]))


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        **{name: getattr(plan, name) for name in _TEXTS},
        "defines": dict(plan.defines),
        "launches": [
            {**_step_json(Step(0, one)), "source": one.source, "defines": dict(one.defines)} for one in plan.launches
        ],
    }


def _plan(text: Mapping[str, Any], facts: Facts, buffers: Mapping[str, Array]) -> Plan:
    launches = []
    for one in text["launches"]:
        launch = _step(one).launch
        launches.append(replace(launch, source=str(one["source"]), defines=dict(one["defines"])))
    texts: dict[str, Any] = {name: str(text[name]) for name in _TEXTS}
    defines, buffers = dict(text["defines"]), dict(buffers)
    return Plan(**texts, defines=defines, buffers=buffers, output=facts.output, launches=tuple(launches))
