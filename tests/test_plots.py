"""Figures of results are pyplot's: `plt.savefig` after `.plot()` writes them."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import quadratic

import hgp_ref as hgp

plt = pytest.importorskip("matplotlib.pyplot")
NET = hgp.networks.RandomDirected(n=3, seed=1)


@pytest.fixture(autouse=True)
def closed():
    plt.close("all")
    yield
    plt.close("all")


def estimate(**given):
    problem, x, lam = quadratic()
    return hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), iterations=10, **given)


def certificate():
    problem, x, lam = quadratic()
    return hgp.certify(problem, x, lam, estimate(), hgp.PushSum(NET, 5))


def path():
    problem, _, lam = quadratic()
    settings = dict(outer_steps=2, train=hgp.training.SGP(20, 0.1), estimate=hgp.bilevel.Estimator(2, 5, eta=1.0))
    return hgp.bilevel.optimise(problem, lam, NET, **settings)


@pytest.mark.parametrize("made", [estimate, certificate, path], ids=lambda made: made.__name__)
def test_savefig_writes_the_figure_that_was_drawn(made, tmp_path):
    result = made()
    before = plt.figure()  # another one that was current
    drawn = result.plot()
    figure = getattr(drawn, "figure", None) or drawn  # axes know theirs
    assert plt.gcf() is figure is not before and len(plt.get_fignums()) == 2
    plt.savefig(tmp_path / "drawn.png", dpi=50)
    image = plt.imread(tmp_path / "drawn.png")
    assert np.mean(image[..., :3].min(axis=-1) < 0.9) > 0.005  # an empty one is white
    plt.close(figure)
    assert plt.get_fignums() == [before.number]


def test_axes_that_were_given_are_drawn_on_and_no_figure_is_made():
    figure, ax = plt.subplots()
    assert estimate().plot(ax=ax) is ax and len(ax.lines) == 1 and plt.get_fignums() == [figure.number]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: estimate().plot(truth=np.zeros((3, 2))), ValueError),
        (lambda: estimate(history=True).plot(truth=np.zeros((3, 7))), ValueError),
        (lambda: estimate(history=True).plot(truth=[1.0]), TypeError),
        (lambda: estimate().plot(ax=3), TypeError),
        (lambda: path().plot("seconds"), ValueError),
    ],
)
def test_what_cannot_be_drawn_leaves_no_figure_behind(call, error):
    with pytest.raises(error):
        call()
    assert plt.get_fignums() == []
