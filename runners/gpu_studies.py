"""Runs what is measured on a GPU and is no experiment: a module of `studies/` each, which says what it measures.

    python runners/gpu_studies.py STUDY [--out FOLDER] ...      STUDY --help: what it measures, writes and takes

Exit status: that of the study, 2 where it can't be run here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from studies import blocks, busy, devices, launching, two_of_four

from nnzbench.core.plan import Unsupported


def main(arguments: Sequence[str] | None = None) -> int:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_is)
    studies = parser.add_subparsers(metavar="STUDY", required=True)
    for module in (devices, blocks, busy, launching, two_of_four):
        name, text = module.__name__.rpartition(".")[2], str(module.__doc__)
        one = studies.add_parser(name, help=text.partition("\n")[0], description=text, formatter_class=as_it_is)
        module.arguments(one)
        one.set_defaults(study=module.study)
    asked = parser.parse_args(arguments)
    try:
        status: int = asked.study(asked)
    except Unsupported as reason:
        print(f"Error: {reason}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    raise SystemExit(main())
