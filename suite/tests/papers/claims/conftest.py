"""The tests of pages draw figures in draft, from frames as the building of pages has them."""

from draft_figures import figures_in_draft, texts_of_pages  # noqa: F401
