"""What long work says on the screen and in its log."""

import io

import pytest
from fake_search import Clock
from rich.console import Console

from nnzbench.core.progress import Bar, Lines, progress_bar

HOURS = 3600


def go(lines, clock, steps, seconds, ends=None):
    lines.start("run", steps, ends)
    for at in range(steps):
        lines.step(f"p{at} f32 fake")
        lines.note(f"detail {at}")
        clock.now += seconds / steps
        lines.advance()


@pytest.mark.parametrize(("seconds", "least", "most"), [(50, 0, 0), (25 * 60, 10, 25), (12 * HOURS, 20, 38)])
def test_a_pipe_gets_a_line_a_minute_at_most_and_few_in_all(capsys, seconds, least, most):
    clock = Clock()
    log = io.StringIO()
    go(Lines(log, clock=clock), clock, 24_000, seconds)
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert told.out == ""
    assert least <= len(lines) <= most
    assert not [line for line in lines if "detail" in line]
    assert log.getvalue().count("detail") == 24_000
    assert "[24000/24000] p23999 f32 fake" in log.getvalue()


def test_a_line_tells_what_is_done_of_what_is_planned_how_long_it_takes_and_what_runs(capsys):
    clock = Clock()
    lines = Lines(clock=clock)
    go(lines, clock, 4, 400.0)
    assert capsys.readouterr().err.splitlines()[:2] == [
        "run: 1 of 4 done, 5 min left, p0 f32 fake",
        "run: 2 of 4 done, 3 min left, p1 f32 fake",
    ]
    clock.now += 100.0
    lines.advance()
    assert capsys.readouterr().err == "run: 4 and 1 more done, p3 f32 fake\n"


def test_what_is_left_never_goes_beyond_the_end():
    clock = Clock()
    lines = Lines(clock=clock)
    lines.start("run", 10, 80.0)
    assert lines.left() == "80 s left"
    clock.now = 60.0
    lines.advance()
    assert lines.left() == "20 s left"
    for _ in range(12):
        lines.advance()
    assert lines.left() == "20 s left"  # what was planned is done, and there is time for more


def test_details_are_on_the_screen_where_they_are_asked_for(capsys):
    clock = Clock()
    go(Lines(verbose=True, clock=clock), clock, 3, 3.0)
    assert sum("detail" in line for line in capsys.readouterr().err.splitlines()) == 3


def test_a_terminal_shows_one_bar():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    bar = Bar(console)
    with bar.bar:
        bar.start("run", 5, 1e9)
        bar.step("small p0 [f32] fake")
        bar.advance()
        bar.tell("something")
        shown = "".join(segment.text for segment in console.render(bar.bar.get_renderable()))
    assert shown.count("\n") <= 1
    for word in ("run", "1/5", "left", "small p0 [f32] fake"):
        assert word in shown
    assert "something" in screen.getvalue()


def test_a_log_goes_on_below_what_it_has(tmp_path, capsys):
    for _ in range(2):
        with progress_bar(log=tmp_path / "results" / "run.log") as progress:
            progress.start("run", 1)
            progress.note("a detail")
    assert (tmp_path / "results" / "run.log").read_text().count("a detail") == 2
    assert capsys.readouterr().err == ""
