"""Starts or reaches a Dask cluster: a worker per GPU of this host, a scheduler that runs already, or Slurm's jobs.

Dask carries jobs and notices workers that come and go; which worker gets what is decided in `crew.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nnzbench.cluster.gpus import visible_gpus
from nnzbench.plans.plan import Unsupported

ANSWER_S = 15.0
"""How long a scheduler may take to answer."""
MISSING = "--cluster needs Dask: install the extra `cluster` (pip install 'nnzbench[cluster]')"
CONFIG = {
    "distributed.worker.daemon": False,  # compiling takes processes of its own
    "distributed.scheduler.allowed-failures": 0,  # a job of a worker that dies comes back, to be handed out again
    "distributed.comm.timeouts.connect": f"{ANSWER_S:g}s",
}


@contextmanager
def connected(kind: str, workers: int | None, timed: bool) -> Iterator[Any]:
    """A client of the cluster: `local`, `slurm`, or a scheduler's address.

    `workers` is how many to start (for a scheduler that runs already: to wait for); None for one per GPU of this host,
    or where nothing is timed for up to four. What was started ends with the `with` block. Raises `Unsupported` with one
    sentence where Dask is missing, no scheduler answers or this host has no GPU.
    """
    try:
        import dask
        from distributed import Client
    except ImportError:
        raise Unsupported(MISSING) from None
    with dask.config.set(CONFIG), _silence():
        cluster = None if "://" in kind else _local(workers, timed) if kind == "local" else _slurm(workers)
        try:
            try:
                client = Client(kind if cluster is None else cluster, timeout=ANSWER_S, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise Unsupported(f"no Dask scheduler answers at {kind} ({reason})") from None
            with client:
                yield client
        finally:
            if cluster is not None:
                cluster.close()


def _local(workers: int | None, timed: bool) -> Any:
    from distributed import Nanny, Scheduler, SpecCluster

    units = [unit for _, unit in visible_gpus()] if timed else []
    if timed and not units:
        raise Unsupported("--cluster local starts a worker per GPU, and the CUDA driver shows none to this process")
    count = workers or len(units) or min(4, os.cpu_count() or 1)
    if timed and count > len(units):
        raise Unsupported(f"{count} workers are more than this host's {len(units)} GPUs: one measures on each")
    spec = {
        at: {
            "cls": Nanny,  # starts a worker anew that dies
            "options": {
                "nthreads": 1,
                "memory_limit": 0,
                "silence_logs": logging.CRITICAL,
                "dashboard": False,
                "env": {"CUDA_VISIBLE_DEVICES": units[at]} if timed else {},
            },
        }
        for at in range(count)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}
    return SpecCluster(workers=spec, scheduler=scheduler, silence_logs=logging.CRITICAL)


def _slurm(workers: int | None) -> Any:
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise Unsupported(MISSING) from None
    # account, queue, walltime, memory: Dask's own file, ~/.config/dask/jobqueue.yaml
    cluster = SLURMCluster(
        cores=8,
        processes=1,
        memory="32GB",
        job_extra_directives=["--gpus=1"],
        worker_extra_args=["--nthreads", "1", "--no-dashboard"],
    )
    cluster.scale(jobs=workers or 1)
    return cluster


@contextmanager
def _silence() -> Iterator[None]:
    """Dask logs each connection that a killed worker leaves; what matters is told by the run."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
