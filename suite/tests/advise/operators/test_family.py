"""Which operator multiplies how many tokens, what is remembered, and the module that needs PyTorch; none needs it."""

import copy
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import nnzbench
from nnzbench.advise.operators.archive import Facts, Key, Packing, keep, recall
from nnzbench.advise.operators.make import Family, choice


def made(**operators):
    stream = np.zeros(10, np.int8)

    def one(name):
        return SimpleNamespace(
            name=name, packed=SimpleNamespace(buffers={"stream": stream, "sums": np.zeros(4, np.int8)})
        )

    held = {int(name[1:]): one(name) if there else None for name, there in operators.items()}
    return Family(8, 16, held)


def test_the_narrowest_that_takes_them_multiplies():
    assert [choice((1, 16), rows) for rows in (1, 2, 16, 17)] == [1, 16, 16, None]
    one = made(n1=True, n16=True, n64=False)
    assert [one.dense(rows) for rows in (1, 5, 16, 17, 64, 65)] == [False, False, False, True, True, True]
    assert (one.widths, one.packed, one.weights_bytes) == ((1, 16, 64), (1, 16), 18)
    assert copy.deepcopy(one) is one


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [(1, [("n1", 0, 1)]), (9, [("n16", 0, 9)]), (33, [("n16", 0, 16), ("n16", 16, 32), ("n1", 32, 33)]), (0, [])],
)
def test_more_than_the_widest_takes_go_in_pieces(rows, pieces):
    found = made(n1=True, n16=True, n64=False).pieces(rows)
    assert [(operator.name, start, end) for operator, start, end in found] == pieces


def test_a_layer_that_stays_dense_is_no_family():
    with pytest.raises(nnzbench.OperatorError, match="stays dense"):
        made(n1=False)


def test_choices_are_remembered_by_all_that_they_depend_on(tmp_path, monkeypatch):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    key = Key("abc", 8, 16, "f16", (1, 16), "gpu", "580.1")
    facts = Facts("k", "v", "spmm", 8, 16, 16, "f16", "sm_90", "b", "c", 1e-4, 5, 2.5, "tokens", "digest")
    packing = Packing(8, 16, "f16", "abc", {1: None, 16: facts})
    assert recall(key) is None
    keep(key, packing)
    assert recall(key) == packing
    changes = {"pattern": "abd", "dtype": "bf16", "tokens": (1,), "gpu": "other", "driver": "580.2"}
    others = [replace(key, **{name: value}) for name, value in changes.items()]
    assert [recall(one) for one in others] == [None] * len(others)
    key.path().write_text("{")
    assert recall(key) is None


def test_without_pytorch_the_module_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\ntry: import nnzbench.torch\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "nnzbench.torch needs PyTorch: pip install 'nnzbench[torch]'"
