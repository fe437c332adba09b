"""Starts or reaches a Dask cluster: a worker per GPU of this host, a scheduler that runs already, or Slurm's jobs.

Dask carries jobs, picks the worker of a GPU and notices workers that come and go; `run.py` says which GPU gets what.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nnzbench.bench.budget import Resources
from nnzbench.bench.cluster.worker import SHARE
from nnzbench.core import host
from nnzbench.core.host import VisibleGpu, visible_gpus
from nnzbench.core.plan import Unsupported
from nnzbench.devices.build.pool import COMPILERS

PER_GPU = 12
"""Workers that share a GPU at most, if nobody asks for more: one measures while the others plan, compile and check."""
MOST_PER_GPU = 16
"""Each has a context and memory of its own on the GPU."""
PROCESSORS_EACH = 4 / 3
"""16 workers on 32 processors kept 15 of them at work."""
OVERSUBSCRIBED = 2
"""Compilers by processor, if all workers compile: some then wait for a processor (`build.workers.turn`)."""
MEMORY_EACH = 12 << 30
"""What each of them should have of the GPU's memory: a few need more for a moment, which is waited for."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SLURM_CORES = 8
"""Processors of a job."""
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""What a worker begins with: Ctrl-C reaches every process of a terminal, and the run that ends them answers alone."""
ANSWER_S = 15.0
"""How long a scheduler may take to answer."""
MISSING = "--cluster needs Dask: install the extra `cluster` (pip install 'nnzbench[cluster]')"
CONFIG = {
    "distributed.worker.daemon": False,  # compiling takes processes of its own
    "distributed.scheduler.allowed-failures": 0,  # a job of a worker that dies comes back, to be handed out again
    "distributed.scheduler.worker-ttl": None,  # a call that holds Python's lock keeps a live worker silent
    "distributed.comm.timeouts.connect": f"{ANSWER_S:g}s",
}


@contextmanager
def connected(kind: str, workers: int | None, timed: bool) -> Iterator[Any]:
    """A client of the cluster: `local`, `slurm`, or a scheduler's address.

    `workers` is how many to start; None for up to `PER_GPU` per GPU of this host, as its processors and memory allow,
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

    gpus = visible_gpus() if timed else []
    units = [one.unit for one in gpus]
    if timed and not units:
        raise Unsupported("--cluster local starts a worker per GPU, and the CUDA driver shows none to this process")
    processors = host.processors()
    count = workers or (len(units) * _per_gpu(processors // len(units), gpus[0]) if units else min(4, processors))
    if timed and not len(units) <= count <= MOST_PER_GPU * len(units):
        raise Unsupported(
            f"--workers {count} for {len(units)} GPUs: one to {MOST_PER_GPU} can share each, all of which get one"
        )
    import dask

    each = max(1, processors // count)
    compilers = max(1, round(OVERSUBSCRIBED * processors / count))  # not all workers compile all the time
    threads = dict.fromkeys(THREADS, each)  # read when NumPy is loaded, as a worker starts
    dask.config.set({"distributed.nanny.pre-spawn-environ": threads})
    spec = {
        at: {
            "cls": Nanny,  # starts a worker anew that dies
            "options": {
                "nthreads": 1,
                "memory_limit": 0,
                "silence_logs": logging.CRITICAL,
                "dashboard": False,
                "preload": [DEAF],
                "env": {COMPILERS: str(compilers), **(_on_gpu(units, at % len(units)) if timed else {})},
            },
        }
        for at in range(count)
    }
    here = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": here}
    return SpecCluster(workers=spec, scheduler=scheduler, silence_logs=logging.CRITICAL)


def local_resources() -> Resources | None:
    """What `--cluster local` would work with on this host; None without a GPU."""
    gpus = visible_gpus()
    count = len(gpus)
    return Resources(count * _per_gpu(host.processors() // count, gpus[0]), count) if gpus else None


def crowding(workers: int) -> str:
    """What there is to say where each of so many workers of this host's GPUs has little of their memory; else empty."""
    gpus = visible_gpus()
    most = sum(max(1, gpu.memory_bytes // MEMORY_EACH) for gpu in gpus)
    if not gpus or workers <= most:
        return ""
    return (
        f"--workers {workers}: the memory of the GPUs is enough for {most} (about {MEMORY_EACH >> 30} GB each); "
        "candidates that find none are tried again at the end"
    )


def _per_gpu(processors: int, gpu: VisibleGpu) -> int:
    """Workers of one GPU that has so many processors."""
    return max(1, min(PER_GPU, int(processors / PROCESSORS_EACH), gpu.memory_bytes // MEMORY_EACH))


def _on_gpu(units: list[str], at: int) -> dict[str, str]:
    """Environment of a worker on one of this host's GPUs."""
    return {"CUDA_VISIBLE_DEVICES": units[at], SHARE: f"{at}/{len(units)}"}


def _slurm(workers: int | None) -> Any:
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise Unsupported(MISSING) from None
    # account, queue, walltime, memory: Dask's own file, ~/.config/dask/jobqueue.yaml
    cluster = SLURMCluster(
        cores=SLURM_CORES,
        processes=1,
        memory="32GB",
        job_extra_directives=["--gpus=1"],
        worker_extra_args=["--nthreads", "1", "--no-dashboard", "--memory-limit", "0"],
        job_script_prologue=[f"export {name}={SLURM_CORES}" for name in THREADS],
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
