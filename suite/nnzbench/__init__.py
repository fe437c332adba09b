"""nnzbench: honest GPU benchmarks of kernels that multiply by pruned weight matrices.

What is named here is the public interface; everything else is private and may change.

* `best(matrix, n)`: which kernel is fastest for a matrix of one's own, against dense, and from which width on dense is.
* `operator(matrix, n)`: that kernel with the matrix packed, to multiply one's own arrays on the GPU: an `Operator`.
* `load(folder)`: an operator that `Operator.save` wrote.
* `Answer`, what `best` returns.
* `MatrixError`, `OperatorError`, `RecordError`, `Unsupported`: what goes wrong, in one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnzbench.advise.api import (
        Answer,
        MatrixError,
        Operator,
        OperatorError,
        RecordError,
        Unsupported,
        best,
        load,
        operator,
    )  # fmt: skip

__version__ = "1.0.0"
__all__ = [
    "Answer", "MatrixError", "Operator", "OperatorError", "RecordError", "Unsupported", "__version__", "best", "load",
    "operator",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads the interface when it is first used: `import nnzbench` alone costs nothing."""
    if name in __all__:
        from nnzbench.advise import api

        return getattr(api, name)
    raise AttributeError(f"module 'nnzbench' has no attribute '{name}'")
