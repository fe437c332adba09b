import os
import sys
from pathlib import Path

import pytest

from nnzbench.core import paths

CHECKOUT = Path(__file__).resolve().parents[3]


def test_in_a_checkout_the_folders_beside_the_package_count():
    assert paths.kernels_cu() == CHECKOUT / "kernels_cu"
    assert paths.datasets() == CHECKOUT / "datasets"
    assert paths.reports() == paths.published() == CHECKOUT / "reports"
    assert paths.results() == CHECKOUT / "results"
    ignored = (CHECKOUT / ".gitignore").read_text().splitlines()
    assert "/results/" in ignored
    assert ".lock" in ignored
    assert (paths.kernels_cu() / "include" / "nnz.cuh").is_file()
    assert (paths.datasets() / "gpus.csv").is_file()


def test_installed_the_packaged_copies_count_and_reports_go_to_the_current_folder(monkeypatch, tmp_path):
    package = tmp_path / "site-packages" / "nnzbench"
    (tmp_path / "site-packages" / "datasets").mkdir(parents=True)  # another package of that name is not ours
    monkeypatch.setattr(paths, "_PACKAGE", package)
    monkeypatch.setattr(paths, "_CHECKOUT", package.parent)
    monkeypatch.chdir(tmp_path)
    assert paths.datasets() == package / "_data" / "datasets"
    assert paths.kernels_cu() == package / "_data" / "kernels_cu"
    assert paths.reports() == tmp_path / "reports"
    assert paths.published() == package / "_data" / "reports"
    assert paths.results() == tmp_path / "results"


def test_the_cache_is_where_the_variable_says_else_the_users_own(monkeypatch, tmp_path):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "mine"))
    assert paths.cache() == tmp_path / "mine"
    for unset in (None, ""):
        monkeypatch.delenv("NNZBENCH_CACHE") if unset is None else monkeypatch.setenv("NNZBENCH_CACHE", unset)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert paths.cache().name == "nnzbench"
        if sys.platform.startswith("linux"):
            assert paths.cache() == tmp_path / "xdg" / "nnzbench"


def test_what_killed_processes_left_is_deleted_once_it_is_old(monkeypatch, tmp_path):
    old, new = (tmp_path / f".partial-{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (1, 1))
    paths.write_text(tmp_path / "page.md", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "page.md"]


def test_data_folders_of_the_variable_come_first_and_the_cache_last(monkeypatch, tmp_path):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NNZBENCH_DATA", os.pathsep.join(["a", "", "b"]))
    assert paths.data_roots() == [Path("a"), Path("b"), tmp_path / "cache"]
    monkeypatch.delenv("NNZBENCH_DATA")
    assert paths.data_roots() == [tmp_path / "cache"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder" / "file"
    for text in ("old", "new"):
        with paths.replacing(path) as partial:
            partial.write_text(text)
            assert partial.parent == path.parent
            assert (path.read_text() if path.exists() else "") == {"old": "", "new": "old"}[text]
        assert path.read_text() == text

    def broken() -> None:
        with paths.replacing(path) as partial:
            partial.write_text("half")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        broken()
    assert path.read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
