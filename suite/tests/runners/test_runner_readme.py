import subprocess
from pathlib import Path

import pytest

RUNNER = "readme"
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


def test_commands_come_in_their_order_with_the_mark_that_leaves_them_out(runner):
    assert list(runner.commands(PAGE)) == [
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
def test_one_shell_runs_all_and_the_first_failure_ends_it(runner, monkeypatch, tmp_path, last, status):
    page = f"```sh\nGREETING=hello\ntest $GREETING = hello\n{last}\ntouch ../after\n```\n"
    monkeypatch.setattr(runner, "ROOT", checked_out(tmp_path, page))
    monkeypatch.setattr(runner, "CLONE", tmp_path / "build" / "readme")
    assert runner.main() == status
    assert (tmp_path / "build" / "after").exists() == (status == 0)


def test_a_readme_without_commands_is_refused(runner, monkeypatch, tmp_path):
    (tmp_path / "README.md").write_text("```sh\nx  # needs a GPU\n```\n")
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    assert runner.main() == 2


def test_nothing_of_an_environment_is_on_the_path(runner, monkeypatch, tmp_path):
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder.parent / "pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "suite")
    assert runner.bare()["PATH"] == "/usr/bin"
    assert "PYTHONPATH" not in runner.bare()
