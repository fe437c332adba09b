"""Layers of public language models: from how many zeros on a sparse product is faster than dense fp16."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.report import generic

PAGE = replace(generic.PAGE, title="Layers of language models on tensor cores")
