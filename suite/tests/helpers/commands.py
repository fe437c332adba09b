"""Commands as a shell is given them, in this process."""

from click.testing import CliRunner, Result

from nnzbench.cli import main


def invoke(*words: object) -> Result:
    """`nnzbench` with those words; an error that it does not turn into a sentence is raised here."""
    return CliRunner().invoke(main, list(map(str, words)), catch_exceptions=False)
