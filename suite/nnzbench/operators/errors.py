"""What goes wrong with a caller's arrays, in one sentence."""

from __future__ import annotations


class OperatorError(ValueError):
    """An operator can't be made, loaded or given this array; the message says what is wrong and what would do."""
