"""Codebooks of half precision: NumPy 2.4 orders float16 wrongly on processors with AVX-512."""

import numpy as np
import pytest

from nnzbench.data.matrices import prune
from nnzbench.data.matrices.encodings import Coded, cluster, utilisation
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.matrices.generate import from_positions


@pytest.fixture
def no_halves_in_order(monkeypatch):
    """Shows the fault on every processor: whatever orders float16 raises."""

    def refusing(ordered):
        def ask(values, *args, **choices):
            assert np.asarray(values).dtype != np.float16
            return ordered(values, *args, **choices)

        return ask

    for name in ("sort", "unique", "partition", "argsort"):
        monkeypatch.setattr(np, name, refusing(getattr(np, name)))


@pytest.mark.usefixtures("no_halves_in_order")
@pytest.mark.parametrize("size", [8192, 11701, 42578])  # at which it shows with few different values
def test_few_different_halves_are_found_in_order_on_every_processor(size):
    rng = np.random.default_rng(size)
    values = rng.choice(rng.standard_normal(15), size).astype(np.float16)
    wanted = sorted({float(one) for one in values})

    matrix = from_positions(1, size, np.arange(size)).with_values(values)
    coded = Coded.of(matrix)

    assert coded.codebook.tolist() == [0.0, *wanted]
    assert np.array_equal(coded.codebook[coded.codes], values)
    assert cluster(values).tolist() == wanted
    many = cluster(rng.standard_normal(size).astype(np.float16))
    assert many.size == 15
    assert (np.diff(many) > 0).all()


def test_a_codebook_has_fifteen_values_and_zero_wherever_they_stand():
    values = np.resize(np.arange(16, dtype=np.float32), 5000)
    matrix = from_positions(1, values.size, np.arange(values.size))
    coded = Coded.of(matrix.with_values(values))
    assert np.array_equal(coded.codebook[coded.codes], values)
    values[-1] = 16
    with pytest.raises(MatrixError, match="more than 15 different"):
        Coded.of(matrix.with_values(values))


@pytest.mark.usefixtures("no_halves_in_order")
def test_the_largest_halves_are_kept():
    keys = np.random.default_rng(1).permutation(8192).astype(np.float16)[None]
    assert set(np.flatnonzero(prune.top(keys, 100)[0])) == set(np.argsort(-keys[0].astype(float), kind="stable")[:100])


def test_clusters_are_those_of_going_from_even_starts_to_nearest_means():
    values = np.random.default_rng(0).exponential(1.0, 3000)
    centres = np.linspace(values.min(), values.max(), 6)
    for _ in range(200):
        nearest = np.abs(values[:, None] - centres).argmin(axis=1)
        centres = np.array([values[nearest == at].mean() if (nearest == at).any() else centres[at] for at in range(6)])
    np.testing.assert_allclose(cluster(values, 6), np.sort(centres), rtol=1e-3)


def test_an_element_without_entries_takes_a_clock_to_find_that_out():
    entries = np.array([[0, 2], [3, 0], [0, 0]])
    assert utilisation(entries, [1])[0] == 5 / (2 * 6)  # each input waits for the slowest before it
