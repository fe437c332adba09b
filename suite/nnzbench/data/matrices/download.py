"""Downloads the Deep Learning Matrix Collection: resumed, checked against the index, never trusting the archive."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import click
import filelock
import requests
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from nnzbench.core import paths
from nnzbench.core.plan import one_line
from nnzbench.data.matrices import index
from nnzbench.data.matrices.formats import MatrixError

ARCHIVE_URL = "https://storage.googleapis.com/sgk-sc2020/dlmc.tar.gz"
"""The authors' archive, linked from the `sgk` folder of github.com/google-research/google-research."""

MAX_ARCHIVE_BYTES = 8 << 30
_TIMEOUT = (15.0, 60.0)  # seconds to connect, to wait for more data
_COLUMNS = (
    TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
)  # fmt: skip
_PIECE = 1 << 16  # what a broken connection may lose


class FetchError(MatrixError):
    """The download or archive is not what it should be; one clear sentence."""


@dataclass(frozen=True)
class Fetched:
    """What a fetch did, in matrices."""

    extracted: int
    present: int
    """Already there and verified."""


def fetch_dlmc(dest: Path, url: str = ARCHIVE_URL) -> Fetched:
    """Puts every matrix of the collection at `dest`/dlmc/<path>, each verified by its checksum in the index.

    Matrices that are there and verified are kept; an interrupted download goes on where it stopped. Raises
    `FetchError`.
    """
    wanted = index.dlmc()
    try:
        dest.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(dest / "dlmc.lock"), Progress(*_COLUMNS) as progress:
            missing = {path: entry for path, entry in wanted.items() if not _verified(dest, entry)}
            if missing:
                archive = dest / "dlmc.tar.gz"
                _download(url, archive, progress)
                try:
                    _unpack(archive, dest / "dlmc", wanted, missing, progress)
                except FetchError:
                    archive.unlink()
                    raise
                archive.unlink()
            return Fetched(extracted=len(missing), present=len(wanted) - len(missing))
    except OSError as error:
        raise FetchError(f"{dest}: cannot be written ({error.strerror or error}).") from error


def _verified(dest: Path, entry: index.DlmcEntry) -> bool:
    path = dest / "dlmc" / entry.path
    return path.is_file() and path.stat().st_size <= _size_limit(entry) and _matches(entry, path.read_bytes())


def _matches(entry: index.DlmcEntry, content: bytes) -> bool:
    """SHA-256 where the index has it; for the 32 largest files it has only the git blob id."""
    if entry.sha256:
        return hashlib.sha256(content).hexdigest() == entry.sha256
    blob = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    blob.update(content)
    return blob.hexdigest() == entry.git_blob_sha1


def _size_limit(entry: index.DlmcEntry) -> int:
    """Bytes of the file, or, where they are not known, the most its numbers could take as text."""
    return entry.bytes if entry.bytes is not None else 64 + 11 * (entry.rows + 1 + entry.nnz)


def _download(url: str, target: Path, progress: Progress) -> None:
    """`url` in `target`, through `<target>.part` and a note of the version the part belongs to."""
    part, note = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.version")
    try:
        if not target.is_file():
            _transfer(url, part, note, progress)
            part.replace(target)  # the part outlives a broken connection, so that the next call goes on with it
            note.unlink()
    except requests.RequestException as error:
        kept = " What was received is kept and will be continued." if part.is_file() else ""
        raise FetchError(f"{url}: download failed ({_reason(error)}).{kept}") from error


def _transfer(url: str, part: Path, note: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.is_file() else 0
    version = note.read_text("ascii", "ignore").partition("\n")[0] if have and note.is_file() else ""
    headers = {"Range": f"bytes={have}-", "If-Range": version} if version else {}
    # The archive is compressed already; a transparent second layer would break byte ranges.
    headers["Accept-Encoding"] = "identity"
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
        if answer.status_code == 416:
            part.unlink()
            return _transfer(url, part, note, progress)
        answer.raise_for_status()
        resumed = answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status_code == 206 and not resumed:
            raise FetchError(f"{url}: server answered with another range than asked for.")
        start = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdecimal() else None
        if (total or 0) > MAX_ARCHIVE_BYTES:
            raise FetchError(f"{url}: archive of {total} bytes is larger than the {MAX_ARCHIVE_BYTES} allowed.")
        etag = answer.headers.get("ETag", "")
        note.write_text("" if etag.startswith("W/") else etag, encoding="utf-8")
        task = progress.add_task("download", total=total, completed=start)
        with part.open("ab" if resumed else "wb") as stream:
            for piece in answer.iter_content(_PIECE):
                if stream.tell() + len(piece) > MAX_ARCHIVE_BYTES:
                    raise FetchError(f"{url}: archive is larger than the {MAX_ARCHIVE_BYTES} bytes allowed.")
                stream.write(piece)
                progress.update(task, advance=len(piece))
            size = stream.tell()
    if total is not None and size != total:
        raise requests.ConnectionError(f"connection closed after {size} of {total} bytes")


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    text = str(error)
    return text if text.startswith("connection closed") else "no connection to the server"


def _unpack(
    archive: Path,
    dest: Path,
    wanted: Mapping[str, index.DlmcEntry],
    missing: Mapping[str, index.DlmcEntry],
    progress: Progress,
) -> None:
    """Extracts the `missing` matrices; everything else in the archive is passed over, unsafe members refused."""
    left = dict(missing)
    task = progress.add_task("unpack", total=sum(map(_size_limit, left.values())))
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for path, member in _members(tar, sum(map(_size_limit, wanted.values()))):
                entry = left.get(path)
                if entry is None:
                    continue
                if not member.isreg() or member.size > _size_limit(entry):
                    raise FetchError(f"{archive.name}: member '{member.name}' is not the file of the index.")
                stream = tar.extractfile(member)
                content = stream.read(member.size) if stream else b""
                if not _matches(entry, content):
                    raise FetchError(f"{archive.name}: member '{member.name}' has another checksum than the index.")
                with paths.replacing(dest / entry.path) as partial:
                    partial.write_bytes(content)
                del left[path]
                progress.update(task, advance=_size_limit(entry))
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise FetchError(f"{archive.name}: archive is damaged ({one_line(error)}); run the command again.") from error
    if left:
        raise FetchError(f"{archive.name}: {len(left)} matrices are missing, among them '{next(iter(left))}'.")


def _members(tar: tarfile.TarFile, matrices_bytes: int) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """(path inside the collection, member), refusing unsafe names, links, devices and endless archives."""
    allowance = 2 * matrices_bytes + (64 << 20)
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if member.name.startswith("/") or ".." in parts or "\\" in member.name:
            raise FetchError(f"archive member '{member.name}' points outside the collection.")
        if not (member.isreg() or member.isdir()):
            raise FetchError(f"archive member '{member.name}' is neither a file nor a folder.")
        allowance -= max(member.size, 512)
        if allowance < 0:
            raise FetchError(f"archive unpacks to far more than the collection holds, at member '{member.name}'.")
        yield "/".join(parts[1:] if parts and parts[0] == "dlmc" else parts), member


@click.group(name="fetch")
def command() -> None:
    """Download data sets that cannot be part of the package."""


@command.command(name="dlmc")
@click.option(
    "--dest", type=click.Path(file_okay=False, path_type=Path), help="Folder to put dlmc/ into  [user cache]."
)
@click.option("--url", default=ARCHIVE_URL, show_default=True, help="The archive, or a mirror of it.")
def dlmc(dest: Path | None, url: str) -> None:
    """The Deep Learning Matrix Collection: 3,846 pruned weight patterns of ResNet-50 and Transformer."""
    folder = dest if dest is not None else paths.cache()
    fetched = fetch_dlmc(folder, url)
    click.echo(f"{folder / 'dlmc'}: {fetched.extracted} matrices fetched, {fetched.present} were there already.")
    if folder not in paths.data_roots():
        click.echo(f"Set NNZBENCH_DATA={folder} so that runs find them.")
