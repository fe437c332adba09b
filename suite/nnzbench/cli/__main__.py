"""`python -m nnzbench.cli`: the same as the command `nnzbench`."""

from nnzbench.cli import main

main(prog_name="nnzbench")
