"""Templates of the pages, as they are all rendered: names must exist, and the text ends as its template does."""

from __future__ import annotations

import functools

import jinja2

from nnzbench.report.text.tables import folded


@functools.cache
def environment(autoescape: bool = False) -> jinja2.Environment:
    """The package's templates, with `folded` as a filter; `autoescape` for HTML, not for Markdown."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("nnzbench.report"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
    )
    made.filters["folded"] = folded
    return made
