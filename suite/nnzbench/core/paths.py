"""Where the data files lie (beside the package in a checkout, inside it in a wheel), and how files are replaced."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import platformdirs

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent.parent
ABANDONED_S = 3600.0
"""Age from which on a file that was never finished belongs to a process that is gone."""

YOUNG_S = 60.0
"""Age up to which a folder may not have its lock yet."""


def _data(name: str) -> Path:
    """The checkout's folder where there is one (so that edits count at once), else the packaged copy."""
    beside = _CHECKOUT / name
    return beside if (_CHECKOUT / "pyproject.toml").is_file() and beside.is_dir() else _PACKAGE / "_data" / name


def kernels_cu() -> Path:
    """Folder of the raw `.cu` kernels."""
    return _data("kernels_cu")


def datasets() -> Path:
    """Folder of problem tables, published results, GPU peaks and the DLMC index."""
    return _data("datasets")


def results() -> Path:
    """Folder of one's own runs, `<gpu>/<experiment>/`: `results/` of the checkout (not in git), else `./results`."""
    return _beside("results")


def reports() -> Path:
    """Folder of the runs that are published, laid out likewise: the checkout's `reports/`, else `./reports`."""
    return _beside("reports")


def published() -> Path:
    """Folder of the published records to read: the checkout's `reports/`, else those that came with the package."""
    return _data("reports")


def _beside(name: str) -> Path:
    return (_CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else Path.cwd()) / name


def cache() -> Path:
    """Folder for compiled kernels and downloads: `$NNZBENCH_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("NNZBENCH_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("nnzbench", appauthor=False))


def ptx() -> Path | None:
    """Folder of PTX that was made on another machine (`build.elsewhere`): `$NNZBENCH_PTX`, None where it is not set."""
    chosen = os.environ.get("NNZBENCH_PTX")
    return Path(chosen) if chosen else None


def data_roots() -> list[Path]:
    """Folders that may hold real matrices, first match wins: those of `$NNZBENCH_DATA`, then the cache.

    A root holds `dlmc/<model>/<method>/<level>/<layer>.smtx` and/or `real_weights.npz`.
    """
    named = [Path(p) for p in os.environ.get("NNZBENCH_DATA", "").split(os.pathsep) if p]
    return [*named, cache()]


_FOLDERS = re.compile(r"(?<![\w.:/~])~?/(?:[\w.@+-]+/)+")


def without_folders(text: str) -> str:
    """The text with every absolute path cut to the file's name: records are published, folders are of one machine."""
    return _FOLDERS.sub("", text)


class CannotWrite(OSError):
    """A file or folder that this program keeps for itself can't be written."""


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns what keeps the block from writing to `folder` into a `CannotWrite`."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror or str(error), error.filename or str(folder)) from error


def of_machine(error: OSError) -> bool:
    """Whether an error is the machine's, and says nothing of what was tried.

    The disk is full, or the user's share of it, or a file is as long as the user's may be; or a `CannotWrite`.
    """
    return isinstance(error, CannotWrite) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """The file to append text to, on disk when the block ends; where anything fails, it is again as it was."""
    before = path.stat().st_size if path.exists() else None
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            os.truncate(path, before)
        raise


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path in the same folder to write to; where the block ends well, that file becomes `path` by one rename.

    A reader sees the old file or all of the new one; nothing stays behind where the block raises. Folders are made.
    Where `path` is a link, the link is replaced and what it points to is left alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    partial = path.with_name(f".partial-{secrets.token_hex(8)}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@functools.cache
def _sweep(folder: Path) -> None:
    """Deletes what killed processes left of files they were writing, once per folder and process."""
    for left in folder.glob(".partial-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                left.unlink()


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A new folder for temporary files, which is gone after the block; those of killed processes go before it."""
    _sweep_scratch(tempfile.gettempdir(), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with _locked(folder, wait=True):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    """The lock of the folder itself, which ends with its process, however that ends. On Windows there is none."""
    if os.name != "posix":
        yield
        return
    import fcntl

    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(held)


@functools.cache
def _sweep_scratch(top: str, prefix: str) -> None:
    """Removes this user's folders of that name whose lock nobody has, once per process."""
    for left in Path(top).glob(f"{prefix}*") if os.name == "posix" else ():
        with contextlib.suppress(OSError):
            told = left.lstat()
            old = time.time() - told.st_mtime > YOUNG_S
            if old and stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid():
                with _locked(left, wait=False):
                    shutil.rmtree(left, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Replaces a text file, by the rules of `replacing`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Writes a frame with the same six digits on every machine; a reader sees the old file or the new one."""
    with replacing(path) as partial:
        frame.to_csv(partial, index=False, float_format="%.6g", lineterminator="\n")
