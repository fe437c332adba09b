"""The tests of pages draw figures in draft."""

from draft_figures import figures_in_draft  # noqa: F401
