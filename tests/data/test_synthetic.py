"""The synthetic mixture: both variants, the published numbers at the published seed, reproducibility."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import hgp_ref as hgp
import hgp_ref.data.synthetic as module
from hgp_ref.data import synthetic_mixture


def mean_hessian_spectrum(data: hgp.data.Clients) -> np.ndarray:
    """Eigenvalues of the mean Hessian of the unregularised logistic loss at its minimiser, by Newton's method."""
    X = data.X.reshape(-1, data.X.shape[-1])
    y = data.y.reshape(-1)
    x = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ x))
        H = (X * (p * (1 - p))[:, None]).T @ X / len(y)
        x -= np.linalg.solve(H, X.T @ (p - y) / len(y))
    return np.linalg.eigvalsh(H)


@pytest.mark.parametrize(("variant", "smallest"), [("published", 0.0205), ("paper", 0.0044)])
def test_seed_1234_is_the_data_behind_the_papers_figures(variant, smallest):
    """The smallest eigenvalue measured on the published program's data, to the digits reported."""
    found = mean_hessian_spectrum(synthetic_mixture(seed=1234, variant=variant))[0]
    assert abs(found - smallest) <= 0.5e-4


def test_published_rows_beyond_the_largest_count_keep_label_zero():
    """24, 35 and 13 training rows at seed 1234; without the shuffle they would be the last ones."""
    data = synthetic_mixture(seed=1234, variant="published")
    rng = np.random.RandomState(1234)
    rng.lognormal(4, 2, 3)
    pi = [rng.dirichlet(np.full(3, 0.4)) for _ in range(3)]
    theta = rng.uniform(-1, 1, (3, 5))
    unlabelled = []
    for i in range(3):
        for k, size in enumerate((100, 100, 5000)):
            counts = rng.multinomial(size, pi[i])
            x = rng.uniform(-1, 1, (size, 5))
            for count in counts:
                rng.normal(size=count)
            order = np.arange(size)
            rng.shuffle(order)
            if k == 0:
                assert np.array_equal(data.X[i, :, :5], x[order])
                assert np.all(data.y[i][order >= counts.max()] == 0)
                unlabelled.append(size - counts.max())
    assert unlabelled == [24, 35, 13]
    assert np.array_equal(data.components, theta)


def test_paper_labels_follow_some_component():
    """Every label agrees with one of the components up to noise: |x·θ_c| < 6 sd only if it disagrees with all."""
    data = synthetic_mixture(seed=5, n_test=200)
    scores = data.X[..., :-1] @ data.components.T  # (n, N, C)
    agrees = (scores > 0) == (data.y[..., None] == 1)
    close = np.abs(scores) < 6 * module.NOISE
    assert np.all(np.any(agrees | close, axis=-1))


def test_the_variants_differ_in_labels_only():
    paper, published = (synthetic_mixture(seed=7, variant=v) for v in module.VARIANTS)
    assert np.array_equal(paper.X, published.X)
    assert np.array_equal(paper.X_test, published.X_test)
    assert np.any(paper.y != published.y)


def test_shapes_types_and_bias():
    data = synthetic_mixture(n_clients=4, n_train=7, n_val=6, n_test=5, dim=3, n_components=2, seed=1)
    assert data.X.shape == (4, 7, 4) and data.y.shape == (4, 7)
    assert data.X_val.shape == (4, 6, 4) and data.X_test.shape == (4, 5, 4)
    assert data.X.dtype == np.float64 and data.y.dtype == np.int64
    assert np.all(data.X[..., -1] == 1) and np.all(np.abs(data.X) <= 1)
    assert set(np.unique(data.y)) <= {0, 1}
    bare = synthetic_mixture(n_clients=4, n_train=7, n_val=6, n_test=5, dim=3, n_components=2, seed=1, bias=False)
    assert np.array_equal(bare.X, data.X[..., :-1])
    assert np.array_equal(bare.y, data.y)


def test_same_seed_same_data_other_seed_other_data():
    a, b, c = (synthetic_mixture(seed=s, n_test=10) for s in (3, 3, 4))
    assert np.array_equal(a.X, b.X) and np.array_equal(a.y, b.y)
    assert not np.array_equal(a.X, c.X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_clients": 0}, "n_clients must be .*, got 0"),
        ({"n_val": 0}, "n_val must be .*, got 0"),
        ({"alpha": 0.0}, "alpha must be .*, got 0.0"),
        ({"alpha": np.nan}, "alpha must be .*, got nan"),
        ({"seed": -1}, "seed must be .*, got -1"),
        ({"seed": 2**32}, "seed must be .*, got 4294967296"),
        ({"variant": "mine"}, "variant must be .*, got 'mine'"),
    ],
)
def test_bad_arguments(wrong, message):
    with pytest.raises(ValueError, match=message):
        synthetic_mixture(**wrong)


def test_docstring_example():
    assert doctest.testmod(module, extraglobs={"hgp": hgp, "np": np}).failed == 0


WRONG_KINDS = [{"dim": 2.0}, {"n_train": True}, {"alpha": "1"}, {"bias": 0}, {"seed": None}]


@pytest.mark.parametrize("wrong", WRONG_KINDS, ids=str)
def test_arguments_of_the_wrong_kind(wrong):
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be .*, got"):
        synthetic_mixture(**wrong)
