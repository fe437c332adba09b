"""Plans for rows of tokens: B given as (n, k) and C as (n, m), which is how a network's layers hold activations.

A kernel's own plan has B (k, n) and C (m, n). With one column the two are the same bytes. A kernel with a form of its
own for tokens has the define `TOKENS`, 0 in its plans, and one whose operands lie by columns needs nothing. Any other
is put between two launches of `turn.cu`. Kernels with the define `BIAS` then add one to the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from nnzbench.core.plan import Array, Launch, Plan, Step, Unsupported, chain, plans_that_fit
from nnzbench.data.problems.buffers import inputs, stored
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import AnyKernel, Kernel, PlannedKernel

Layout = Literal["columns", "tokens"]
"""B (k, n) and C (m, n), or B (n, k) and C (n, m); all row-major."""
BIAS = "bias"
"""Buffer of the m numbers that are added to each row of tokens, where a plan does that; a caller may give none."""
_TILE = 32


def kernels_for(layout: Layout, known: Mapping[str, AnyKernel]) -> Mapping[str, Kernel]:
    """The kernels that yield plans, for operands in that layout."""
    ours = {name: one for name, one in known.items() if isinstance(one, Kernel)}
    if layout == "columns":
        return ours
    return {
        name: PlannedKernel(name, one.paper, one.ops, one.dtypes, partial(_plans, one)) for name, one in ours.items()
    }


def _plans(kernel: Kernel, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    given = kernel.plans(problem, operands, arch)
    yield from plans_that_fit(given, lambda plan: by_tokens(plan, operands), "no plan")


def by_tokens(plan: Plan, operands: Operands) -> Plan:
    """The plan with B (n, k) and C (n, m) in the places of its operand and output.

    Raises `Unsupported` where it rearranges either in a way of its own, or is generated code that would need turning.
    """
    b = np.ascontiguousarray(stored(operands.dense["b"], plan.math == "bf16").T)
    c = plan.buffers[plan.output]
    n, m = b.shape[0], operands.sparse.m
    if c.shape == (n, m) and any(np.array_equal(one, b) for one in plan.buffers.values()):
        return plan
    bound = inputs(plan, operands)
    rearranged = plan.unpermute is not None and plan.math != "bf16"  # of bf16 it only makes numbers of 16 bits
    if "b" not in bound or rearranged or c.shape != (m, n):
        raise Unsupported(f"{plan.variant} keeps its dense operands in a form of its own")
    buffers = {**plan.buffers, bound["b"]: b, plan.output: np.empty((n, m), c.dtype)}
    if n == 1:
        found = replace(plan, buffers=buffers)
    elif "TOKENS" in plan.defines and b.shape[1] % 8 == 0 and m % 2 == 0:
        found = replace(plan, buffers=buffers, defines={**plan.defines, "TOKENS": 1})
    else:
        found = _between_turns(plan, bound["b"], b)
    if "BIAS" in found.defines:
        launches = tuple(replace(one, args=(*one.args, BIAS)) for one in found.launches)
        buffers = {**found.buffers, BIAS: np.zeros(m, c.dtype)}
        found = replace(found, buffers=buffers, launches=launches, defines={**found.defines, "BIAS": 1})
    return replace(found, unpermute=lambda raw: np.ascontiguousarray(plan.result(raw.T)))


def turns(plan: Plan) -> bool:
    """Whether it moves its operands before and after the product."""
    return any(launch.source == _TURN.source for launch in plan.launches)


def rows_at(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Launch and argument that tell the rows of tokens, where the plan also takes fewer than its buffers have."""
    return tuple((at, 1) for at in range(len(plan.launches))) if plan.defines.get("TOKENS") else ()


_TURN = Plan("turn", "cuda", "turn.cu", {}, {}, "out", ())


def _between_turns(plan: Plan, name: str, b: Array) -> Plan:
    if plan.language != "cuda":
        raise Unsupported(f"{plan.variant} is generated code, which takes no rows of tokens")
    c = plan.buffers[plan.output]
    inner_b, inner_c = np.zeros(b.T.shape, b.dtype), np.zeros_like(c)
    product = replace(plan, buffers={**plan.buffers, name: inner_b, plan.output: inner_c})
    first, last = _turn(b, inner_b), _turn(inner_c, np.empty(c.T.shape, c.dtype))
    steps = [Step(first, {"out": "b"}), Step(product, {name: "b", plan.output: "c"}), Step(last, {"in": "c"})]
    found = chain(plan.variant, steps)
    return replace(found, math=plan.math, features=plan.features, generate_ms=plan.generate_ms)


def _turn(given: Array, out: Array) -> Plan:
    rows, columns = given.shape
    grid = (-(-columns // _TILE), -(-rows // _TILE), 1)
    launch = Launch(f"turn_{8 * given.itemsize}", grid, (_TILE, 8, 1), (rows, columns, "in", "out"))
    return replace(_TURN, buffers={"in": given, "out": out}, launches=(launch,))
