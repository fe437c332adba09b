"""`nnzbench.torch` on a GPU: numbers, compiled graphs, CUDA graphs with new data, and a model's layers."""

import itertools
import statistics

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
FEATURES = 1024


@pytest.fixture(scope="module")
def pair(gpu):
    """A layer, and the same one packed, without its dense weights."""
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    from nnzbench.advise import api
    from nnzbench.advise.operators.make import Family, make
    from nnzbench.core.progress import RunProgress
    from nnzbench.torch import SparseLinear

    torch.manual_seed(0)
    linear = torch.nn.Linear(FEATURES, 1536, dtype=torch.float16, device="cuda").requires_grad_(False)
    linear.weight *= torch.rand_like(linear.weight) >= 0.9
    layer, made = api.as_layer(linear.weight), {}
    for n, kernel in ((1, "delta_spmv"), (16, "tensor_spmm")):
        problem = layer.problem("spmm", n, "f16")
        made[n] = make(problem, layer.operands(problem), api._session(None), RunProgress(), [kernel], 20.0, "tokens")
    return linear, SparseLinear(Family(1536, FEATURES, made), linear.bias)


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert torch.allclose(found.float(), wanted.float(), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("rows", [1, 5, 16, 41])
def test_any_number_of_tokens(pair, rows):
    linear, sparse = pair
    x = torch.randn(rows, FEATURES, dtype=torch.float16, device="cuda")
    assert_close(sparse(x), linear(x))


def test_compiled_without_a_break_and_in_cuda_graphs(pair):
    linear, sparse = pair
    compiled = torch.compile(lambda x: torch.relu(sparse(x)) * 2, fullgraph=True, backend="cudagraphs")
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(16, FEATURES, dtype=torch.float16, device="cuda")
        assert_close(compiled(x).clone(), torch.relu(linear(x)) * 2)


def test_a_captured_layer_replays_on_new_data(pair):
    linear, sparse = pair
    x = torch.randn(3, FEATURES, dtype=torch.float16, device="cuda")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        sparse(x)
        with torch.cuda.graph(graph, stream=stream):
            result = sparse(x)
    torch.cuda.synchronize()
    x.normal_()
    graph.replay()
    assert_close(result, linear(x))


def test_a_layer_takes_what_its_kernel_takes(pair):
    """In a CUDA graph, with a bias; the goal is 0.5 us, and clocks differ a little from graph to graph."""
    _, sparse = pair
    x = torch.randn(16, FEATURES, dtype=torch.float16, device="cuda")
    (operator, _, _) = next(sparse._packed.pieces(16))
    out = torch.empty(16, 1536, dtype=torch.float16, device="cuda")
    assert _us(lambda: sparse(x)) < _us(lambda: operator(x, out=out)) + 0.5


def _us(run):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        run()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(100):
                run()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(22)]
        for _ in range(20):
            graph.replay()
        for event in events:
            event.record(stream)
            graph.replay()
    events[-1].synchronize()
    return 10 * statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))
