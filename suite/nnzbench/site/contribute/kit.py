"""Ten minutes of a stranger's GPU: which problems are run, the archive that is sent, and whether its files came whole.

`manifest.json` lies at the top of an archive: the SHA-256 of every other file in it. A set whose folder lies below one
must have the files that it names, and no records that it does not.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from nnzbench.data.problems import tables
from nnzbench.results.records.beside import beside
from nnzbench.results.records.folder import JOURNAL, PUBLISHED, folders, gpus_of
from nnzbench.results.records.record import RecordError
from nnzbench.results.records.table_files import MOST_BYTES

STEPS = {
    "dlmc_n512": 20, "sparsert_table1": 5, "sputnik_rnn": 4, "balanced_figure4": 4, "direct_conv_table8": 4,
    "eie_table4": 4, "nm_sparsity": 3, "llm_layers": 4, "patdnn": 3,
}  # fmt: skip
"""Experiments, those that matter most first, and how many problems of each, which is also its share of the time.

`dlmc_n512`'s calibrate predictions; the others are one of every paper.
"""
NAME = "manifest.json"
SCHEMA = "nnzbench-manifest/1"
_ABOVE = 4
"""Folders between a set and the top of its archive, at most: `<gpu>/<experiment>/as-sm_75/standin/`."""


def chosen(experiment: str, count: int, real: bool | None = None) -> list[str]:
    """Names of `count` problems, evenly from the smallest to the largest; of a sample where the table has one."""
    problems = sorted(tables.load(experiment, real), key=lambda p: (p.m * p.k * p.n * (1 - p.sparsity), p.name))
    if len(problems) <= count:
        return [problem.name for problem in problems]
    last = len(problems) - 1
    return [problems[round(at * last / (count - 1))].name for at in range(count)]


def gpus(results: Path) -> list[str]:
    """GPUs with rows below `results`. Raises `RecordError` where nothing was recorded."""
    found = gpus_of(results)
    if not found:
        raise RecordError(f"{results} holds no rows of a GPU")
    return found


def archive(results: Path, gpu: str) -> Path:
    """`<results>/<gpu>.tar.gz` with the records and snapshots of that GPU, and their hashes; nothing that is drawn."""
    path, top = results / f"{gpu}.tar.gz", results / gpu
    recorded = [file for folder in folders(top) for file in files(folder)]
    hashes = manifest(top, recorded).encode()
    with tarfile.open(path, "w:gz") as packed:
        listed = tarfile.TarInfo(f"{gpu}/{NAME}")
        listed.size = len(hashes)
        packed.addfile(listed, io.BytesIO(hashes))
        for file in recorded:
            packed.add(file, file.relative_to(results).as_posix(), filter=_nobody)
    return path


def unpack(packed: Path, folder: Path) -> None:
    """Writes the files of an archive below `folder`. Raises `RecordError` for what is none, or leads out of it.

    Python has a filter for that from 3.10.12 and 3.11.4 on.
    """
    try:
        with tarfile.open(packed) as members:
            for one in members:
                path = folder / one.name
                if not (one.isreg() or one.isdir()) or not path.resolve().is_relative_to(folder.resolve()):
                    raise tarfile.TarError(f"'{one.name}' is a link, or leads out of it")
                if (content := members.extractfile(one)) is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
    except (OSError, tarfile.TarError) as error:
        raise RecordError(f"{packed} is no archive of make contribute ({error})") from None


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Names of users and times of files tell nothing of a GPU."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def files(folder: Path) -> list[Path]:
    """What of a folder is recorded, and not drawn from it."""
    records = (path for path in (folder / JOURNAL, folder / PUBLISHED) if os.path.lexists(path))
    return sorted((*records, *beside(folder)))


def not_plain(folder: Path) -> Iterator[str]:
    """Files that may not be opened: links, pipes, devices, folders, and what is longer than any result set."""
    for path in files(folder):
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            yield f"{path.name} is not a plain file"
        elif state.st_size > MOST_BYTES:
            yield f"{path.name} is longer than {MOST_BYTES} bytes"


def manifest(root: Path, packed: Iterable[Path]) -> str:
    """The manifest of files below `root`."""
    hashes = {path.relative_to(root).as_posix(): _sha256(path) for path in packed}
    return json.dumps({"schema": SCHEMA, "files": hashes}, indent=1) + "\n"


def faults(folder: Path) -> Iterator[str]:
    """Files of the set that differ from the manifest above it; nothing where there is none."""
    top = next((one for one in folder.resolve().parents[:_ABOVE] if (one / NAME).is_file()), None)
    if top is None:
        return
    try:
        found = json.loads((top / NAME).read_text(encoding="utf-8"))
        named = (
            {top / name: str(sha256) for name, sha256 in found["files"].items()} if found["schema"] == SCHEMA else {}
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        named = {}
    if not named:
        yield f"the {NAME} above it is none"
        return
    mine = set(files(folder.resolve()))
    listed = {path for path in named if path.parent == folder.resolve()}
    for path in sorted(mine | listed):
        if path not in mine:
            yield f"{path.name} is in the manifest and not in its folder"
        elif named.get(path) != _sha256(path):
            yield f"{path.name} is not the file that the manifest names"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
