import pandas as pd
import pytest

RUNNER = "model_trial"


def test_the_page_has_a_line_for_each_row(runner):
    row = dict.fromkeys(runner.Row.__annotations__, 1.5)
    row |= {"gpu": "NVIDIA H200", "torch": "2.11", "transformers": "5.17", "client": "graph", "zeros": 80}
    page = runner.summary(pd.DataFrame([row, row | {"client": "compile"}]))
    assert page.count("| 80 |") == 2
    assert "| compile |" in page
    assert "NVIDIA H200" in page


def test_pruning_on_leaves_the_larger_weights(runner):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    layer = torch.nn.Linear(20, 10, bias=False).requires_grad_(False)
    model = torch.nn.Module()
    model.model = torch.nn.Module()
    model.model.layers = torch.nn.ModuleDict({"q_proj": layer})
    whole = layer.weight.clone()
    for zeros, left in ((50, 100), (80, 40)):
        runner.prune(model, zeros)
        kept = layer.weight != 0
        assert int(kept.sum()) == left
        assert (layer.weight[kept] == whole[kept]).all()
        assert whole[kept].abs().min() > whole[~kept].abs().max()
