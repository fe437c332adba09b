"""Turns the outcome of one candidate under one policy into a row of records.csv."""

from __future__ import annotations

from dataclasses import dataclass

from nnzbench.devices import Device
from nnzbench.measure.limits import limit_us, row_work, useful_work
from nnzbench.measure.peaks import Peaks
from nnzbench.measure.timing import Measurement
from nnzbench.measure.trial import Outcome
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem
from nnzbench.records.record import SCHEMA, Record


@dataclass(frozen=True)
class Subject:
    """What all rows of one problem on one device have in common. `operands` is None where they can't be made."""

    experiment: str
    problem: Problem
    operands: Operands | None
    device: Device
    environment: str


def make_record(
    subject: Subject, kernel: str, variant: str, policy: str, outcome: Outcome, math: str, peaks: Peaks
) -> Record:
    """One row, not yet selected. `math` is the arithmetic class that sets its speed of light."""
    problem, operands, device = subject.problem, subject.operands, subject.device
    timed: Measurement | None = next((m for p, m in outcome.measurements.items() if p == policy), None)
    work = row_work(kernel, problem, operands) if operands else None
    resources = outcome.resources
    return Record(
        schema=SCHEMA,
        experiment=subject.experiment,
        problem=problem.name,
        op=problem.recorded_op,
        m=problem.m,
        k=problem.k,
        n=problem.n,
        shape=problem.shape,
        dtype=problem.dtype,
        sparsity=operands.sparse.sparsity if operands else problem.sparsity,
        nnz=operands.sparse.nnz if operands else 0,
        pattern=operands.pattern if operands else "",
        source=problem.source,
        kernel=kernel,
        variant=variant,
        selected=False,
        device=device.name,
        gpu=device.gpu,
        arch=device.arch,
        policy=policy,
        status=outcome.status,
        reason=outcome.reason or _remarks(timed, outcome, policy),
        median_us=timed.median if timed else None,
        q1_us=timed.q1 if timed else None,
        q3_us=timed.q3 if timed else None,
        samples=len(timed.samples_us) if timed else None,
        sm_clock_mhz=timed.sm_clock_mhz if timed else None,
        flops=useful_work(problem, operands).flops if operands else 0.0,
        bytes=work.bytes if work else 0.0,
        limit_us=limit_us(work, peaks, policy, math) if work and timed else None,
        floor_us=peaks.floor_us(policy),
        prepare_ms=outcome.prepare_ms,
        compile_ms=outcome.compile_ms,
        registers=resources.registers if resources else None,
        shared_bytes=resources.shared_bytes if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        code_bytes=resources.code_bytes if resources else None,
        relative_error=outcome.error if outcome.error is None or outcome.error < float("inf") else None,
        environment=subject.environment,
    )


def _remarks(timed: Measurement | None, outcome: Outcome, policy: str) -> str:
    """What a reader of a good row must know: throttling, an uncertain median, launches that were not a graph."""
    if timed is None:
        return ""
    remarks = []
    if timed.throttled:
        remarks.append(f"throttled ({', '.join(timed.throttled)})")
    if timed.behind:
        remarks.append("ended early, clearly behind a faster candidate")
    elif not timed.stable:
        remarks.append("median not settled within the time limit")
    if policy == "hot" and not outcome.capturable:
        remarks.append("stream launches, not a graph")
    return "; ".join(remarks)
