"""Device memory that a candidate takes, measured: bytes of the GPU in use before it is prepared, at most, and after.

Attention and whole networks alone are measured, whose memory is a claim of their paper; every other kernel is timed as
before. A candidate is prepared anew for it, when its check and its times are done and the libraries have loaded what
they keep for good. So nothing of this is inside a time, and a library's own kernels and workspace are in all three
numbers.
"""

from __future__ import annotations

import gc

from nnzbench.core.plan import Candidate
from nnzbench.data.problems.problem import Problem
from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.results.records.beside import Use

OPS = frozenset({"attention", "transformer", "mobilenet"})
"""What is computed by the candidates that are measured."""
TRIES = 3
"""A candidate is measured so often until as much is in use after as before."""


def measure(problem: Problem, candidate: Candidate, device: Device) -> Use | None:
    """Prepares and runs the candidate once; None for an op that is not measured, and off a GPU.

    Raises what preparing and running it raises.
    """
    if problem.op not in OPS or not isinstance(device, GpuDevice):
        return None
    for _ in range(TRIES):
        if (use := _once(candidate, device)).steady:
            break
    return use


def _once(candidate: Candidate, device: GpuDevice) -> Use:
    """What is freed goes into a pool and not to the driver, so that the peak is still seen after it.

    The pool is the candidate's own: in the device's, what larger operands left over served smaller ones unseen.
    """
    before = _in_use(device)
    with device.separate():
        prepared = candidate.prepare()
        try:
            prepared.run()
            device.synchronise()
            peak = device.used_bytes()
        finally:
            prepared.close()
        del prepared
        gc.collect()
    return Use(before, peak, _in_use(device))


def _in_use(device: GpuDevice) -> int:
    gc.collect()
    device.release()
    return device.used_bytes()
