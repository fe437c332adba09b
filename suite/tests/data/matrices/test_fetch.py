"""The download: from a small archive on a local server, interrupted, damaged and malicious."""

import gzip
import hashlib
import io
import tarfile
import threading
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from nnzbench.cli import main
from nnzbench.data.matrices import download as fetch
from nnzbench.data.matrices import files, index
from nnzbench.data.matrices.download import Fetched, FetchError, fetch_dlmc
from nnzbench.data.matrices.index import DlmcEntry

FILES = {
    "rn50/magnitude_pruning/0.9/a.smtx": b"2, 3, 2\n0 1 2 \n0 2 \n",
    "rn50/magnitude_pruning/0.9/b.smtx": b"1, 3, 1\n0 1 \n1 \n",
    "transformer/random_pruning/0.5/c.smtx": b"1, 2, 2\n0 2 \n0 1 \n",
}


def entry(path, content):
    """Of the index; like that of a large file it has a blob's id in git alone where the level is 0.5."""
    rows, cols, nnz = (int(word) for word in content.split(b"\n")[0].split(b","))
    facts = dict.fromkeys((field.name for field in fields(DlmcEntry)), 0)
    facts |= {"path": path, "layer_kind": "fc", "rows": rows, "cols": cols, "nnz": nnz, "sha256": "", "bytes": None}
    if "/0.5/" not in path:
        facts |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    return DlmcEntry(**facts | {"git_blob_sha1": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()})


INDEX = {path: entry(path, content) for path, content in FILES.items()}


def tar_of(members, extra=()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in extra:
            tar.addfile(info)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


ARCHIVE = tar_of({"dlmc/README": b"hello", **{f"dlmc/{path}": content for path, content in FILES.items()}})


class Server(ThreadingHTTPServer):
    """Serves `content`, with ranges; `cut` closes the connection after so many bytes, once."""

    content = ARCHIVE
    etag = '"1"'
    cut: int | None = None
    ranges = True
    status = 200

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/dlmc.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range", "")
        server.asked.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = 0
        if wanted and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        body = server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(body if server.cut is None else body[: server.cut])
        server.cut = None

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(index, "dlmc", lambda: INDEX)
    monkeypatch.setattr(fetch, "_PIECE", 50)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(server, dest):
    return fetch_dlmc(dest, server.url)


def files_below(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != "dlmc.lock"}


def test_fetches_verifies_and_then_rests(server, tmp_path):
    assert get(server, tmp_path) == Fetched(extracted=3, present=0)
    assert files_below(tmp_path) == {f"dlmc/{path}" for path in FILES}  # no README, no archive left
    assert all((tmp_path / "dlmc" / path).read_bytes() == content for path, content in FILES.items())
    assert files.read_smtx(tmp_path / "dlmc/rn50/magnitude_pruning/0.9/a.smtx").nnz == 2
    assert get(server, tmp_path) == Fetched(extracted=0, present=3)
    assert len(server.asked) == 1
    damaged, content = next(iter(FILES.items()))
    (tmp_path / "dlmc" / damaged).write_bytes(content.replace(b"0 2", b"0 1"))
    assert get(server, tmp_path) == Fetched(extracted=1, present=2)
    assert (tmp_path / "dlmc" / damaged).read_bytes() == content


def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path):
    server.cut = 100
    with pytest.raises(FetchError, match=r"download failed.*will be continued"):
        get(server, tmp_path)
    assert (tmp_path / "dlmc.tar.gz.part").read_bytes() == ARCHIVE[:100]
    assert get(server, tmp_path).extracted == 3
    assert server.asked == ["", "bytes=100-"]


@pytest.mark.parametrize("change", [{"etag": '"2"'}, {"ranges": False}, {}])
def test_a_part_that_cannot_be_continued_is_started_again(server, tmp_path, change):
    server.cut = 100
    with pytest.raises(FetchError):
        get(server, tmp_path)
    for name, value in change.items():
        setattr(server, name, value)
    if not change:  # a part longer than the archive
        (tmp_path / "dlmc.tar.gz.part").write_bytes(bytes(len(ARCHIVE)))
    assert get(server, tmp_path).extracted == 3


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("/etc/evil.smtx", tarfile.REGTYPE, "points outside"),
        ("dlmc/../../evil.smtx", tarfile.REGTYPE, "points outside"),
        ("dlmc/rn50/magnitude_pruning/0.9/a.smtx", tarfile.SYMTYPE, "neither a file nor a folder"),
        ("dlmc/rn50/magnitude_pruning/0.9/a.smtx", tarfile.LNKTYPE, "neither a file nor a folder"),
        ("dlmc/device", tarfile.CHRTYPE, "neither a file nor a folder"),
    ],
)
def test_unsafe_members_are_refused(server, tmp_path, name, kind, says):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    server.content = tar_of({f"dlmc/{path}": content for path, content in FILES.items()}, (info,))
    dest = tmp_path / "inner"
    with pytest.raises(FetchError, match=says):
        get(server, dest)
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("victim", "content", "says"),
    [
        ("rn50/magnitude_pruning/0.9/a.smtx", b"2, 3, 2\n0 1 2 \n1 2 \n", "another checksum"),
        ("rn50/magnitude_pruning/0.9/a.smtx", bytes(1000), "not the file of the index"),
        ("transformer/random_pruning/0.5/c.smtx", b"1, 2, 2\n0 2 \n1 0 \n", "another checksum"),  # a blob's id in git
    ],
)
def test_wrong_contents_are_not_installed(server, tmp_path, victim, content, says):
    server.content = tar_of({f"dlmc/{path}": content if path == victim else FILES[path] for path in FILES})
    with pytest.raises(FetchError, match=says):
        get(server, tmp_path)
    assert f"dlmc/{victim}" not in files_below(tmp_path)
    server.content = ARCHIVE
    assert get(server, tmp_path).extracted >= 1


def test_missing_matrices_and_damaged_archives(server, tmp_path):
    server.content = tar_of({f"dlmc/{next(iter(FILES))}": FILES[next(iter(FILES))]})
    with pytest.raises(FetchError, match="2 matrices are missing"):
        get(server, tmp_path)
    for damaged in (ARCHIVE[:-30], b"no archive at all", ARCHIVE[:60] + bytes(40) + ARCHIVE[100:]):
        server.content = damaged
        with pytest.raises(FetchError):
            get(server, tmp_path)
    server.content = ARCHIVE
    again = get(server, tmp_path)
    assert again.present >= 1  # whatever was verified before stays
    assert again.extracted + again.present == 3


def test_an_endless_archive_is_stopped(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_PIECE", 1 << 16)
    server.content = tar_of({"dlmc/filler": bytes(65 << 20)})
    assert len(server.content) < 1 << 20
    with pytest.raises(FetchError, match="far more than the collection"):
        get(server, tmp_path)


def test_size_limits_and_server_errors(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_ARCHIVE_BYTES", 10)
    for status, says in ((404, "HTTP status 404"), (200, "larger than the 10 allowed")):
        server.status = status
        with pytest.raises(FetchError, match=says):
            get(server, tmp_path)


def test_the_command_line(server, tmp_path):
    runner = CliRunner()
    good = runner.invoke(main, ["fetch", "dlmc", "--dest", str(tmp_path), "--url", server.url])
    assert good.exit_code == 0, good.output
    assert "3 matrices fetched, 0 were there already" in good.output
    assert "NNZBENCH_DATA" in good.output
    url = server.url
    server.server_close()
    offline = runner.invoke(main, ["fetch", "dlmc", "--dest", str(tmp_path / "new"), "--url", url])
    assert offline.exit_code == 2
    assert "no connection to the server" in offline.output
