"""The search for a certified step: it terminates, finds possible steps, and states the reason if there is none."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.bilevel import Box, CertifiedDescent, Estimator, Monitor, certified, optimise
from hgp_ref.bilevel.certified import StepLength
from hgp_ref.training import SGP


def random_problem(seed, n, d, N=8):
    rng = np.random.default_rng(seed)
    X, Xv = rng.normal(size=(n, N, d)), rng.normal(size=(n, 6, d))
    y, yv = ((A[..., 0] + rng.normal(size=A.shape[:2]) > 0).astype(int) for A in (X, Xv))
    return hgp.problems.LogisticRegression(X, y, Xv, yv, regularization="client")


def F(problem, lam):
    return float(problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum())


SETTINGS = dict(train=SGP(400, 1.0, (0.6, 0.8)), estimate=Estimator(3, 30, eta=1.0))


@pytest.mark.filterwarnings("ignore:outer step .. γ = .* refused. diverged. the outer cost is beyond floating point")
@pytest.mark.parametrize("first", [0.01, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("where", ["log", "box"])
def test_any_first_length_leads_to_certified_steps(first, where):
    """The widths at λ⁺ grow with γ, and beyond some γ a box has nothing but its corners."""
    problem, lam = random_problem(0, 3, 2, 10), np.full((3, 1), 0.3)
    project = None if where == "log" else Box(0.01, 1.0)
    path = optimise(
        problem,
        lam,
        hgp.networks.RandomDirected(3, 0.3, 0.7, seed=0),
        outer_steps=3,
        project=project,
        update=CertifiedDescent(first, log=where == "log"),
        **SETTINGS,
    )
    true = np.array([F(problem, one) for one in path.lam])
    assert path.stopped in ("steps", "stationary") and len(true) >= 2 and np.all(np.diff(true) < 0)


def test_failed_training_is_reported_and_retried_on_other_graphs():
    problem, lam, net = random_problem(0, 3, 2), np.full((3, 1), 0.3), hgp.networks.RandomDirected(3, seed=0)
    settings = dict(estimate=Estimator(20, 100, eta=1.0), update=CertifiedDescent(0.1))

    def failing(until):
        calls = []

        def train(problem, lam, net, **options):
            calls.append(lam)
            if 1 < len(calls) <= until:
                raise hgp.DivergenceError("training diverged: for a test")
            return SimpleNamespace(x=hgp.exact.inner_solution(problem, lam), traffic=hgp.Traffic())

        return train

    with pytest.warns(RuntimeWarning, match="refused: training diverged: for a test"):
        path = optimise(problem, lam, net, outer_steps=2, train=failing(np.inf), **settings)
    assert path.stopped == "divergence" and len(path.lam) == 1
    assert f"training failed at all {certified.FAILURES} λ⁺" in path.note and path.note.endswith("for a test")
    with pytest.warns(RuntimeWarning, match="refused"):
        path = optimise(problem, lam, net, outer_steps=2, train=failing(4), **settings)
    assert path.stopped == "steps" and path.steps[0].scale == 0.1 / 8 and "refused" in path.steps[0].note


def test_graphs_of_failed_training_are_not_used_again():
    problem, lam = random_problem(0, 3, 2), np.full((3, 1), 0.3)
    with pytest.raises(hgp.DivergenceError) as caught:
        hgp.sgp(problem, lam, hgp.networks.RandomDirected(3, seed=0), steps=200, lr=1e3, milestones=(0.6, 0.8))
    assert caught.value.traffic.rounds == caught.value.steps > 0
    networks = []

    def train(problem, lam, net, **options):
        networks.append(repr(net))
        return hgp.sgp(problem, lam, net, steps=200, lr=0.5 if len(networks) == 1 else 1e3, milestones=(0.6, 0.8))

    net = hgp.networks.RandomDirected(3, seed=0)
    with pytest.warns(RuntimeWarning, match="refused"):
        optimise(problem, lam, net, outer_steps=1, train=train, estimate=Estimator(2, 5, eta=1.0))
    assert len({*networks}) == len(networks) > 2  # each from another graph on


def test_the_advice_mentions_small_weights():
    problem, lam = random_problem(0, 2, 2), np.full((2, 1), 5.0)
    silent = [([0], [1])] * 30 + [([1], [0])]  # client 0 hands its mass on and hears nothing for long
    net = hgp.networks.Schedule(silent, n=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            hgp.DivergenceError, match=r"but steps are lr / ω, which is large for clients that receive little"
        ):
            hgp.sgp(problem, lam, net, steps=300, lr=0.3)


def test_measure_and_best_are_those_of_the_corrected_x():
    problem, lam = random_problem(0, 3, 2, 10), np.full((3, 1), 0.3)
    measured = []

    def measure(x, lam):
        measured.append((x.copy(), lam.copy()))
        return float(np.abs(x).sum())

    path = optimise(
        problem,
        lam,
        hgp.networks.RandomDirected(3, 0.3, 0.7, seed=0),
        outer_steps=2,
        update=CertifiedDescent(1.0, log=True),
        monitor=Monitor(measure),
        **SETTINGS | dict(train=SGP(20, 1.0, (0.6, 0.8))),
    )
    assert len(measured) > len(path.lam) == len(path.measure)  # x was corrected, and measured again
    assert path.measure[-1] == np.abs(path.x).sum()
    for k, at in enumerate(path.lam):  # the last x at each λ
        x = next(x for x, lam in reversed(measured) if (lam == at).all())
        assert path.measure[k] == np.abs(x).sum()
        assert path.outer_cost[k] == pytest.approx(problem.outer_cost(x, at).sum(), rel=1e-13)
    assert path.best == np.argmin(path.measure) and np.abs(path.best_x).sum() == path.measure[path.best]


def test_a_run_that_ended_is_not_repeated(tmp_path):
    problem, lam, net = random_problem(0, 3, 2), np.full((3, 1), 0.3), hgp.networks.RandomDirected(3, seed=0)
    known = hgp.problems.lipschitz.Lipschitz(1e6, 1e6, 1e6, 1e6, strong_convexity=1e-9)
    settings = SETTINGS | dict(update=CertifiedDescent(0.1, lipschitz=known))
    once = optimise(problem, lam, net, outer_steps=2, file=tmp_path / "loop.npz", **settings)
    assert once.stopped == "certificate" and once.note
    assert once == optimise(problem, lam, net, outer_steps=2, file=tmp_path / "loop.npz", **settings)


# The search alone: `widths` says how wide the interval of F is at λ⁺


def lengths(first, gains, widths, h=1.0, lower_below=np.inf):
    """All γ of one precision, for a decrease of gains(γ) and F that is certainly not lower from some γ on."""
    search, tried = StepLength(first), []
    while not search.exhausted:
        gamma = search.gamma
        tried.append(gamma)
        assert len(tried) < 80
        if gamma >= lower_below:
            search.no_descent()
        elif h + widths(gamma) < gains(gamma):
            return tried, True
        else:
            search.undecided(h, widths(gamma), gains(gamma))
    return tried, False


@pytest.mark.parametrize("first", [1e-4, 1.0, 1e5])
def test_the_search_finds_a_length_or_ends(first):
    assert lengths(first, lambda g: g, lambda g: 1.0)[1]  # doubling alone helps
    assert lengths(first, lambda g: g, lambda g: min(0.01 * np.exp(min(g, 700)), 1e300), h=0.01)[1]  # not too far
    tried, found = lengths(first, lambda g: 0.1 * g, lambda g: g)  # nothing helps at this precision
    assert not found and len(set(tried)) == len(tried)
    tried, found = lengths(first, lambda g: g, lambda g: 10.0, lower_below=4.0)  # too long before it can be seen
    assert not found and len(set(tried)) == len(tried)


def test_a_corner_is_tried_once():
    search = StepLength(64.0)
    search.undecided(3.0, 3.0, 2.0)
    assert search.gamma == 128.0
    search.repeated()  # longer steps end at the same corner
    assert search.gamma == 32.0
    search.repeated()
    assert search.gamma == 16.0  # shorter ones are passed over until they do not
    search.undecided(3.0, 9.0, 1.0)
    assert search.exhausted
    search.restart()
    assert search.gamma < 64.0 and not search.exhausted
