import re
from pathlib import Path

from nnzbench.papers.catalogue import EXPERIMENTS

RUNNERS = Path(__file__).resolve().parents[3] / "runners"


def test_runners_are_ways_of_running_and_no_list_of_experiments():
    assert not {path.stem for path in RUNNERS.rglob("*.py")} & set(EXPERIMENTS)


def test_a_newcomer_is_told_of_every_script_which_it_is():
    scripts = [path for path in RUNNERS.rglob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
    named = re.findall(r"(?m)^\| `(\S+)` \|", (RUNNERS / "README.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.relative_to(RUNNERS).as_posix() for path in scripts)
