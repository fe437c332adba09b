"""Operators on a GPU: CuPy arrays, torch tensors, DLPack, streams, CUDA graphs, and the folder they travel in."""

import numpy as np
import pytest

import nnzbench
from nnzbench.advise import api
from nnzbench.bench.timing import measure
from nnzbench.data.matrices import generate

pytestmark = pytest.mark.gpu
M, K, N = 512, 768, 64


@pytest.fixture(scope="module")
def matrix():
    csr = generate.uniform(M, K, 0.9, 3)
    return csr.with_values(np.random.default_rng(3).standard_normal(csr.nnz).astype(np.float32)).to_dense()


@pytest.fixture(scope="module")
def made(gpu, matrix):
    return nnzbench.operator(matrix, N, budget=5)


def dense(dtype=np.float32):
    return np.random.default_rng(4).standard_normal((K, N)).astype(dtype)


def test_cupy_arrays_on_the_callers_stream(made, matrix):
    cupy = pytest.importorskip("cupy")
    b = cupy.asarray(dense())
    cupy.cuda.get_current_stream().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        result = made(b)
    stream.synchronize()
    truth = matrix.astype(np.float64) @ dense().astype(np.float64)
    assert np.allclose(result.get(), truth, atol=1e-3)


def test_a_captured_call_replays_on_new_data(made, matrix):
    cupy = pytest.importorskip("cupy")
    b, out = cupy.asarray(dense()), cupy.empty((M, N), cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        made(b, out=out)
        stream.begin_capture()
        made(b, out=out)
        graph = stream.end_capture()
        b *= 2
        graph.launch()
    stream.synchronize()
    assert np.allclose(out.get(), 2 * (matrix @ dense()), atol=1e-3)


def test_its_time_in_a_graph_is_the_recorded_hot_time(made, matrix):
    """Within 5 %: the operator is the kernel that was measured, and a graph hides what Python takes."""
    cupy = pytest.importorskip("cupy")
    device = made.device
    b, out = cupy.asarray(dense()), cupy.empty((M, N), cupy.float32)
    cupy.cuda.get_current_stream().synchronize()
    ours = measure(device.timer, lambda: made(b, out=out, stream=device.backend.stream), "hot").median
    session = api._session(None)
    layer = api.as_layer(matrix)
    problem = layer.problem("spmm", N, "f32")
    kernel = session.kernels[made.facts.kernel]
    operands = layer.operands(problem)
    plan = next(p for p in kernel.plans(problem, operands, device.arch) if p.variant == made.facts.variant)
    prepared = device.prepare(plan)
    prepared.run()
    theirs = measure(device.timer, prepared.run, "hot").median
    prepared.close()
    assert ours == pytest.approx(theirs, rel=0.05)
    assert ours == pytest.approx(made.facts.hot_us, rel=0.05)


def test_saved_and_loaded_it_gives_the_same_bits(made, tmp_path):
    cupy = pytest.importorskip("cupy")
    made.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"matrix.npz", "operator.json"}
    again = nnzbench.load(tmp_path)
    b = cupy.asarray(dense())
    assert (made(b) == again(b)).all()
    again.close()


def test_torch_tensors_give_torch_tensors(made, matrix):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    b = torch.from_numpy(dense()).cuda()
    result = made(b)
    assert isinstance(result, torch.Tensor)
    assert np.allclose(result.cpu().numpy(), matrix @ dense(), atol=1e-3)
    with pytest.raises(nnzbench.OperatorError, match="not on a GPU"):
        made(torch.from_numpy(dense()))


def test_what_does_not_fit_is_one_sentence(made):
    cupy = pytest.importorskip("cupy")
    for array, words in (
        (cupy.zeros((K, N + 1), cupy.float32), "must have the shape"),
        (cupy.zeros((K, N), cupy.float16), "must hold f32"),
        (cupy.zeros((N, K), cupy.float32).T, "contiguous copy"),
        (cupy.zeros(K * N + 1, cupy.float32)[1:].reshape(K, N), "multiple of 16"),
        (dense(), "not in a GPU's memory"),
    ):
        with pytest.raises(nnzbench.OperatorError, match=words):
            made(array)


def test_half_precision(gpu, matrix):
    cupy = pytest.importorskip("cupy")
    half = nnzbench.operator(matrix, N, dtype="f16", budget=5)
    result = half(cupy.asarray(dense(np.float16))).get().astype(np.float64)
    truth = matrix.astype(np.float16).astype(np.float64) @ dense(np.float16).astype(np.float64)
    assert np.abs(result - truth).max() < 2e-2 * np.abs(truth).max()
