"""PyTorch: linear layers of a model by packed kernels. Needs PyTorch, `nnzbench[torch]`.

* `sparsify(model, packed)`: the model's linear layers by what `nnzbench best model.safetensors --save packed` chose.
* `SparseLinear.from_linear(linear, tokens)`: one layer, its kernels chosen now.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("nnzbench.torch needs PyTorch: pip install 'nnzbench[torch]'") from None

from nnzbench.torch.layers import SparseLinear, Swapped, sparsify

__all__ = ["SparseLinear", "Swapped", "sparsify"]
