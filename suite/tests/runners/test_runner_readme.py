from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

RUNNERS = Path(__file__).resolve().parents[3] / "runners"
PAGE = """
```sh
make first  # about 15 minutes on a GPU, or checks without one
. env       # puts two on PATH
two --x 'a b' \\
    --y     # needs a GPU

# needs the network
three
four
```
```python
five
```
```sh
six  # takes 12 minutes
seven
```
"""


@pytest.fixture
def readme(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RUNNERS))
    return importlib.import_module("readme")


def test_commands_come_in_their_order_with_the_mark_that_leaves_them_out(readme: ModuleType) -> None:
    assert list(readme.commands(PAGE)) == [
        ("make first", ""),
        (". env", ""),
        ("two --x 'a b' --y", "needs a GPU"),
        ("three", "needs the network"),
        ("four", "needs the network"),
        ("six", "takes 12 minutes"),
        ("seven", ""),
    ]


def checked_out(tmp_path: Path, page: str) -> Path:
    (tmp_path / "README.md").write_text(page)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y.z"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


@pytest.mark.parametrize(("last", "status"), [("test -f README.md", 0), ("exit 3", 3), ("cat nothing", 1)])
def test_one_shell_runs_all_and_the_first_failure_ends_it(
    readme: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last: str, status: int
) -> None:
    page = f"```sh\nGREETING=hello\ntest $GREETING = hello\n{last}\ntouch ../after\n```\n"
    monkeypatch.setattr(readme, "ROOT", checked_out(tmp_path, page))
    monkeypatch.setattr(readme, "CLONE", tmp_path / "build" / "readme")
    assert readme.main() == status
    assert (tmp_path / "build" / "after").exists() == (status == 0)


def test_a_readme_without_commands_is_refused(
    readme: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("```sh\nx  # needs a GPU\n```\n")
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    assert readme.main() == 2


def test_nothing_of_an_environment_is_on_the_path(
    readme: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder.parent / "pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "suite")
    assert readme.bare()["PATH"] == "/usr/bin"
    assert "PYTHONPATH" not in readme.bare()
