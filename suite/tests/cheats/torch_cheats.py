"""Functions over tensors that cheat, and one that does not: each is the same product but for its trick."""

import numpy as np

from nnzbench.kernel import torch_kernel

kept = {}


def dense(a):
    """The matrix with its zeros."""
    import torch

    offsets, indices, values = (one.cpu().numpy() for one in a[:3])
    full = np.zeros(a.shape, values.dtype)
    full[np.repeat(np.arange(a.shape[0]), np.diff(offsets)), indices] = values
    return torch.from_numpy(full).to(torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"))


def of_first(a):
    """As dense, of the first matrix that comes."""
    return kept.setdefault(("packed", *a.shape), dense(a))


def kernel(function):
    pack = of_first if function.__name__ == "call_ignores_values" else dense
    return torch_kernel(ops="spmm", dtypes="f32", pack=pack)(function)


@kernel
def call_honest(a, b, out):
    import torch

    torch.matmul(a, b, out=out)


@kernel
def call_ignores_values(a, b, out):
    call_honest(a, b, out)


@kernel
def call_cached_output(a, b, out):
    if ("output", out.numel()) not in kept:
        call_honest(a, b, out)
        kept["output", out.numel()] = out.clone()
    out.copy_(kept["output", out.numel()])


@kernel
def call_changed_inputs(a, b, out):
    call_honest(a, b, out)
    b.fill_(0.0)


@kernel
def call_nothing(a, b, out):
    pass


@kernel
def call_other_stream(a, b, out):
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        call_honest(a, b, out)


@kernel
def call_never_in_a_graph(a, b, out):
    import torch

    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("not now")
    call_honest(a, b, out)
