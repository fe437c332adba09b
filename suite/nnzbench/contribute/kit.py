"""Ten minutes of a stranger's GPU: which problems are run, and the archive that is sent."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from nnzbench.contribute import manifest
from nnzbench.problems import tables
from nnzbench.records import files
from nnzbench.records.record import RecordError

STEPS = {
    "dlmc_n512": 20,
    "sparsert_table1": 5,
    "sputnik_rnn": 4,
    "balanced_figure4": 4,
    "direct_conv_table8": 4,
    "eie_table4": 4,
    "nm_sparsity": 3,
    "llm_layers": 4,
    "patdnn": 3,
}
"""Experiments, those that matter most first, and how many problems of each, which is also its share of the time.

`dlmc_n512`'s calibrate predictions; the others are one of every paper.
"""


def chosen(experiment: str, count: int, real: bool | None = None) -> list[str]:
    """Names of `count` problems, evenly from the smallest to the largest; of a sample where the table has one."""
    problems = sorted(tables.load(experiment, real), key=lambda p: (p.m * p.k * p.n * (1 - p.sparsity), p.name))
    if len(problems) <= count:
        return [problem.name for problem in problems]
    last = len(problems) - 1
    return [problems[round(at * last / (count - 1))].name for at in range(count)]


def gpus(results: Path) -> list[str]:
    """GPUs with rows below `results`. Raises `RecordError` where nothing was recorded."""
    found = sorted({folder.parent.name for folder in files.folders(results, "*/*")} - {"cpu"})
    if not found:
        raise RecordError(f"{results} holds no rows of a GPU")
    return found


def archive(results: Path, gpu: str) -> Path:
    """`<results>/<gpu>.tar.gz` with the records and snapshots of that GPU, and their hashes; nothing that is drawn."""
    path, top = results / f"{gpu}.tar.gz", results / gpu
    recorded = [file for folder in files.folders(top) for file in manifest.files(folder)]
    hashes = manifest.text(top, recorded).encode()
    with tarfile.open(path, "w:gz") as packed:
        listed = tarfile.TarInfo(f"{gpu}/{manifest.NAME}")
        listed.size = len(hashes)
        packed.addfile(listed, io.BytesIO(hashes))
        for file in recorded:
            packed.add(file, file.relative_to(results).as_posix(), filter=_nobody)
    return path


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Names of users and times of files tell nothing of a GPU."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member
