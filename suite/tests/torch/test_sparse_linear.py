"""`nnzbench.torch` on the processor: numbers, what a compiler sees, and models whose layers are swapped."""

import copy
import io

import pytest
from commands import invoke
from on_cpu import fresh_cache  # noqa: F401
from own_files import has_safetensors

import nnzbench
from nnzbench.advise import api
from nnzbench.advise.operators.archive import Archive

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


def pruned(m, k, zeros=0.8, bias=True, dtype=torch.float16):
    linear = nn.Linear(k, m, bias=bias).to(dtype).requires_grad_(False)
    linear.weight *= torch.rand(m, k) >= zeros
    return linear


def packed_of(layers):
    """An archive of layers by name, chosen on the processor."""
    choices, weights = {}, {}
    for name, linear in layers.items():
        packing, saved = api.packed_layer(linear.weight, (1, 8), device="cpu")
        choices[f"{name}.weight"], weights[f"{name}.weight"] = packing, next(iter(saved.values())).matrix
    return Archive("cpu", "sm_80", "", choices, weights)


@pytest.fixture(scope="module")
def torch_module():
    torch.manual_seed(0)
    import nnzbench.torch

    return nnzbench.torch


@pytest.fixture(scope="module")
def pair(torch_module):
    """A layer, and the same one packed, without its dense weights."""
    linear = pruned(64, 48)
    return linear, torch_module.SparseLinear.from_linear(linear, (1, 8), keep_dense=False)


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert torch.allclose(found.float(), wanted.float(), atol=4e-3, rtol=4e-3)


SHAPES = [(0, 48), (2, 0, 48), (1, 48), (48,), (5, 48), (8, 48), (2, 3, 48), (21, 48)]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_number_of_tokens_goes_through_packed_weights(pair, shape):
    linear, sparse = pair
    x = torch.randn(shape, dtype=torch.float16)
    assert sparse.weight is None
    assert_close(sparse(x), linear(x))
    assert "tokens: " in repr(sparse)


def test_inputs_may_lie_anyhow(pair):
    linear, sparse = pair
    whole = torch.randn(6, 96, dtype=torch.float16)
    for x in (whole[:, ::2], whole.T[:48].T, whole[:1, :48].expand(6, 48), whole.flatten()[1:289].view(6, 48)):
        assert_close(sparse(x), linear(x))


@pytest.mark.parametrize(("m", "k"), [(1, 1), (7, 3), (33, 65), (1, 48), (64, 1)])
def test_odd_sizes(torch_module, m, k):
    linear = pruned(m, k, 0.5)
    linear.weight[0, 0] = 1
    sparse = torch_module.SparseLinear.from_linear(linear, (1, 8), keep_dense=False)
    for rows in (0, 1, 9):
        x = torch.randn(rows, k, dtype=torch.float16)
        assert_close(sparse(x), linear(x))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(5, 47, dtype=torch.float16), r"shape \(5, 47\) has not the layer's 48 features"),
        (torch.zeros(6, 24, dtype=torch.float16), "not the layer's 48 features"),
        (torch.zeros((), dtype=torch.float16), "not the layer's 48 features"),
        (torch.zeros(5, 48), r"packed for torch\.float16, and its input holds torch\.float32"),
    ],
)
def test_an_input_that_does_not_fit_is_one_sentence(pair, x, words):
    with pytest.raises(nnzbench.OperatorError, match=words):
        pair[1](x)


def test_gradients_are_refused_in_a_sentence(torch_module, pair):
    with pytest.raises(nnzbench.OperatorError, match=r"no torch\.nn\.Linear"):
        torch_module.SparseLinear.from_linear(nn.Conv2d(3, 4, 3))
    x = torch.randn(5, 48, dtype=torch.float16, requires_grad=True)
    with pytest.raises(nnzbench.OperatorError, match="for inference and give no gradients"):
        pair[1](x).float().sum().backward()


@pytest.mark.parametrize("keep_dense", [False, True])
def test_copies_and_files_hold_the_same_layer(torch_module, keep_dense):
    linear = pruned(64, 48)
    sparse = torch_module.SparseLinear.from_linear(linear, (1, 8), keep_dense=keep_dense)
    x, whole, state = torch.randn(5, 48, dtype=torch.float16), io.BytesIO(), io.BytesIO()
    torch.save(sparse, whole)
    torch.save(sparse.state_dict(), state)
    whole.seek(0), state.seek(0)
    for one in (copy.deepcopy(sparse), torch.load(whole, weights_only=False)):
        assert torch.equal(one(x), sparse(x))
    sparse.load_state_dict(torch.load(state))
    if keep_dense:
        sparse.load_state_dict(linear.state_dict())
        with pytest.raises(RuntimeError, match="are not those that were packed: pack them anew"):
            sparse.load_state_dict(pruned(64, 48).state_dict())
        assert torch.equal(sparse.weight, linear.weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_types_and_no_bias(torch_module, dtype):
    linear = pruned(32, 40, bias=False, dtype=dtype)
    sparse = torch_module.SparseLinear.from_linear(linear, 4, keep_dense=False)
    x = torch.randn(3, 40, dtype=dtype)
    difference = (sparse(x).float() - linear(x).float()).abs().max()
    assert difference < (0.02 if dtype == torch.bfloat16 else 1e-5)
    with pytest.raises(nnzbench.OperatorError, match="was packed for"):
        sparse(x.half())


def test_wider_than_all_choices_is_dense_where_dense_weights_are_kept(torch_module):
    linear = pruned(64, 48)
    sparse = torch_module.SparseLinear.from_linear(linear, (1, 8))
    x = torch.randn(9, 48, dtype=torch.float16)
    assert torch.equal(sparse(x), linear(x))
    assert set(sparse.state_dict()) == {"bias", "weight"}
    assert torch.equal(copy.deepcopy(sparse)(x[:3]), sparse(x[:3]))
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(sparse, backend="eager", fullgraph=True, dynamic=dynamic)
        for rows in (3, 9):
            assert torch.equal(compiled(x[:rows]), sparse(x[:rows]))


def test_compilers_see_one_operator_without_a_break(pair):
    linear, sparse = pair

    def block(x):
        return torch.relu(sparse(x)) * 2

    x = torch.randn(6, 48, dtype=torch.float16)
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        compiled = torch.compile(block, backend=backend, fullgraph=True)
        assert_close(compiled(x), torch.relu(linear(x)) * 2)
    dynamic = torch.compile(block, backend="eager", fullgraph=True, dynamic=True)
    for rows in (3, 7, 19):
        assert_close(dynamic(x[:1].expand(rows, 48)), torch.relu(linear(x[:1].expand(rows, 48))) * 2)


def test_the_operator_keeps_pytorchs_rules(pair):
    from nnzbench.torch import packed_linear

    _, sparse = pair
    x = torch.randn(5, 48, dtype=torch.float16)
    for bias in (None, sparse.bias):
        torch.library.opcheck(packed_linear, (x, sparse._number, 64, bias))


def test_a_models_layers_are_swapped_by_name(torch_module):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = nn.ModuleDict({"up": pruned(64, 48), "down": pruned(48, 64)})
            self.norm = nn.LayerNorm(48, dtype=torch.float16)

        def forward(self, x):
            return self.norm(x + self.mlp["down"](torch.relu(self.mlp["up"](x))))

    model = Block().eval()
    x = torch.randn(4, 48, dtype=torch.float16)
    wanted = model(x)
    packed = packed_of({"mlp.up": model.mlp["up"], "mlp.down": model.mlp["down"], "gone": pruned(48, 64)})
    other = copy.deepcopy(model)
    other.mlp["up"].weight[0, :] += 1
    with pytest.raises(nnzbench.OperatorError, match=r"weights of 'mlp\.up' are not those"):
        torch_module.sparsify(other, packed)
    assert isinstance(other.mlp["down"], nn.Linear)  # nothing was swapped
    swapped = torch_module.sparsify(model, packed)
    assert (swapped.packed, swapped.absent, swapped.dense) == (["mlp.up", "mlp.down"], ["gone"], [])
    assert isinstance(model.mlp["up"], torch_module.SparseLinear)
    assert not model.mlp["up"].training
    assert swapped.weights_bytes > 0
    assert_close(model(x), wanted)
    for wrong, words in ((nn.Sequential(nn.Linear(4, 4)), "no linear layer"), (Block().float(), "float32, and")):
        with pytest.raises(nnzbench.OperatorError, match=words):
            torch_module.sparsify(wrong, packed)


@pytest.mark.skipif(not has_safetensors(), reason="safetensors is not installed")
def test_from_a_checkpoint_to_a_model(torch_module, tmp_path):
    from safetensors.torch import save_file

    model = nn.Sequential(pruned(64, 48), nn.ReLU(), pruned(48, 64), pruned(8, 48, 0.0))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    words = ["--save", str(tmp_path), "--device", "cpu", "--n", "4", "--out", str(tmp_path), "--kernel", "tensor_spmm"]
    done = invoke("best", tmp_path / "model.safetensors", *words)
    assert done.exit_code == 0, done.output
    x = torch.randn(4, 48, dtype=torch.float16)
    wanted = model(x)
    swapped = torch_module.sparsify(model, tmp_path, keep_dense=False)
    assert (swapped.packed, swapped.dense) == (["0", "2"], ["3"])
    assert_close(model(x), wanted)
