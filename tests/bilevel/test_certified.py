"""Certified outer steps: intervals hold the re-solved outer cost, which never rises; S and M grow only if needed."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref.bilevel import Box, CertifiedDescent, Estimator, certified, optimise
from hgp_ref.bilevel import certified as intervals
from hgp_ref.bounds.constants import known_lipschitz
from hgp_ref.certificates.residuals import NetworkReductions
from hgp_ref.problems import LogRates, as_problem
from hgp_ref.training import SGP

NET = hgp.networks.RandomDirected(n=3, seed=1)
TRAIN = SGP(200, 1.0, (0.6, 0.8))


def exact_training(problem, lam, net, **options):
    return SimpleNamespace(x=hgp.exact.inner_solution(problem, lam), traffic=hgp.Traffic())


def F(problem, lam):
    return float(problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum())


CASES = {
    "exact training": (NET, exact_training, False, None),
    "exact training, a box": (NET, exact_training, False, Box(0.02, 0.4)),
    "SGP, everybody connected, log rates": (hgp.networks.FullyConnected(3), TRAIN, True, None),
    "SGP, directed": (NET, TRAIN, False, None),
}
KINDS = [pytest.param(name, marks=pytest.mark.slow if name == "SGP, directed" else ()) for name in CASES]


@pytest.mark.parametrize("case", KINDS)
def test_the_outer_cost_never_rises(case):
    net, train, log, project = CASES[case]
    problem, _, lam = logistic(N=30)
    path = optimise(
        problem,
        lam,
        net,
        outer_steps=5,
        train=train,
        estimate=Estimator(3, 10, eta=1.0),
        update=CertifiedDescent(5.0 if log else 0.5, log=log),
        project=project,
    )
    true = np.array([F(problem, one) for one in path.lam])
    assert len(true) >= 2 and path.stopped in ("steps", "certificate", "resolution")
    assert np.all(np.diff(true) < 0) and np.all(np.diff(path.outer_cost) <= 0)
    for k, step in enumerate(path.steps):
        assert step.interval[0] <= true[k + 1] <= step.interval[1]
        variable = LogRates(problem) if log else problem
        at = np.log(path.lam[k]) if log else path.lam[k]
        d = hgp.exact.hypergradient(variable, hgp.exact.inner_solution(variable, at), at)
        # the step is D = v without a projection: its distance from ∇F is what the bound bounds
        if project is None:
            moved = np.log(path.lam[k] / path.lam[k + 1]) if log else path.lam[k] - path.lam[k + 1]
            assert np.linalg.norm(moved / step.scale - d) <= step.bound <= 0.5 * step.gradient_norm
            assert true[k] - true[k + 1] >= certified.DECREASE * 0.5 * step.scale * step.gradient_norm**2


def test_corrections_of_x_remove_the_gradient_that_sgp_leaves():
    """SGP leaves a gradient that falls as its rate; Newton's steps over means take it away."""
    problem, _, lam = logistic(N=30)
    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=10,
        train=TRAIN,
        estimate=Estimator(3, 10, eta=1.0),
        update=CertifiedDescent(5.0, log=True),
    )
    true = np.array([F(problem, one) for one in path.lam])
    assert path.stopped == "steps" and path.note == "" and np.all(np.diff(true) < 0)
    left = problem.inner_grad(path.x, path.lam[-1]).mean(axis=0)
    plain = hgp.sgp(problem, path.lam[-1], NET, steps=200, lr=1.0).x
    assert np.linalg.norm(left) < 0.01 * np.linalg.norm(problem.inner_grad(plain, path.lam[-1]).mean(axis=0))


def test_note_explains_why_a_run_ended():
    """Rates that fall to zero leave where the problem is strongly convex; corrections that do not help are reported."""
    problem, _, lam = logistic(N=30)
    settings = dict(train=exact_training, estimate=Estimator(20, 200, eta=1.0))
    path = optimise(problem, lam, NET, outer_steps=60, update=CertifiedDescent(8.0), **settings)
    assert (
        path.stopped == "resolution" and "no known strong convexity; keep λ away from there, by log=True" in path.note
    )
    known = hgp.problems.lipschitz.Lipschitz(1e6, 1e6, 1e6, 1e6, strong_convexity=1e-9)
    settings |= dict(train=SGP(3, 1e-3, (0.6, 0.8)))
    path = optimise(problem, lam, NET, outer_steps=3, update=CertifiedDescent(0.1, lipschitz=known), **settings)
    assert path.stopped == "certificate" and "train longer" in path.note


def test_s_and_m_grow_only_if_the_bound_is_too_large():
    problem, _, lam = logistic(N=30)
    settings = dict(train=exact_training, update=CertifiedDescent(0.5), outer_steps=4)
    plenty = optimise(problem, lam, NET, estimate=Estimator(30, 200, eta=1.0), **settings)
    assert {(step.averaging_steps, step.iterations) for step in plenty.steps} == {(30, 200)}
    scarce = optimise(problem, lam, NET, estimate=Estimator(1, 1, eta=1.0), **settings)
    used = [(step.averaging_steps, step.iterations) for step in scarce.steps]
    assert used == sorted(used) and used[-1] > (1, 1)
    strict = optimise(
        problem,
        lam,
        NET,
        estimate=Estimator(1, 1, eta=1.0),
        **settings | dict(update=CertifiedDescent(0.5, theta=0.05)),
    )
    assert strict.steps[0].bound <= 0.05 * strict.steps[0].gradient_norm
    products = [(step.averaging_steps * step.iterations) for step in (strict.steps[0], scarce.steps[0])]
    assert products[0] > products[1]


def test_which_of_s_and_m_is_doubled(monkeypatch):
    """M first, and again what was raised last if that has left at most 3/4 of the bound, else the other of the two."""
    problem, _, lam = logistic(N=30)
    records, bounds = [], certified.CertifiedLoop._bounds

    def recording(loop, at, est):
        answer = bounds(loop, at, est)
        records.append((at.certified.S, at.certified.M, at.certified.refinements, answer[0]))
        return answer

    monkeypatch.setattr(certified.CertifiedLoop, "_bounds", recording)
    settings = dict(train=exact_training, update=CertifiedDescent(0.5, theta=0.1))
    optimise(problem, lam, NET, outer_steps=1, estimate=Estimator(1, 20, eta=1.0), **settings)
    last, before, names = "", 0.0, []
    for (S, M, refined, bound), (S_next, M_next, refined_next, _) in pairwise(records):
        if refined_next > refined:  # x was trained further instead
            assert (S_next, M_next) == (S, M)
            last = ""
            continue
        same = last if bound <= 0.75 * before else {"S": "M", "M": "S"}.get(last)
        last, before = same if last else "M", bound
        assert (S_next, M_next) == ((2 * S, M) if last == "S" else (S, 2 * M))
        names.append(last)
    assert records[-1][2] > 0 and "".join(names) not in ("M" * len(names), "S" * len(names))
    records.clear()
    exact = Estimator(3, 2, eta=1.0, average=lambda net, steps: hgp.ExactAverage(net.n))
    optimise(problem, lam, NET, outer_steps=1, estimate=exact, **settings)
    assert {one[0] for one in records} == {3} and records[-1][1] > 2


def test_estimates_start_from_the_last_w(monkeypatch):
    problem, _, lam = logistic(N=30)
    began, ended = [], []

    def recording(loop, state, notes, estimator, w0):
        est = estimate_here(loop, state, notes, estimator, w0)
        began.append(w0)
        ended.append(est.w)
        return est

    estimate_here = certified.CertifiedLoop.estimate_here
    monkeypatch.setattr(certified.CertifiedLoop, "estimate_here", recording)
    optimise(
        problem,
        lam,
        NET,
        outer_steps=2,
        train=exact_training,
        estimate=Estimator(1, 1, eta=1.0),
        update=CertifiedDescent(0.5),
    )
    assert len(began) > 3 and began[0] is None
    for before, after in zip(ended[:-1], began[1:], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(("project", "gamma"), [(None, 0.5), (Box(0.15, 0.4), 0.02), (Box(0.15, 0.4), 5.0)])
def test_bounds_of_a_direction_with_a_projection(project, gamma, monkeypatch):
    """The bound is on all of ‖v − ∇F‖ from above, θ‖D‖ from below, D = (λ − Π(λ − γ v))/γ, however rough sums are."""
    problem, _, lam = logistic(N=30)
    records, bounds = [], certified.CertifiedLoop._bounds
    errors, certify = [], certified.certify

    def recorded(*args, **options):
        errors.append(certify(*args, **options))
        return errors[-1]

    def recording(loop, at, est):
        answer, moved = bounds(loop, at, est), at.lam[-1] - at.certified.gamma * est.value
        D = (at.lam[-1] - (moved if project is None else project(moved))) / at.certified.gamma
        records.append((*answer, np.linalg.norm(D), np.linalg.norm(est.value)))
        return answer

    monkeypatch.setattr(certified, "certify", recorded)
    monkeypatch.setattr(certified.CertifiedLoop, "_bounds", recording)
    lam = lam if project is None else np.where(lam > 0.2, 0.2, 0.15)
    settings = dict(estimate=Estimator(1, 3, eta=1.0), update=CertifiedDescent(gamma, theta=0.3), project=project)
    optimise(problem, lam, NET, outer_steps=1, train=exact_training, **settings)
    assert len(records) == len(errors) > 1
    for (bound, inner, allowed, D, v), error in zip(records, errors, strict=True):
        assert np.linalg.norm(error.decentralised_bound) < bound and np.linalg.norm(error.decentralised_inexact) < inner
        assert 0 <= allowed < 0.3 * D and (D < 0.9 * v if project else D == pytest.approx(v))
    assert records[-1][0] <= records[-1][2] > 0.1 * records[-1][3] and all(one[0] > one[2] for one in records[:-1])


def test_a_step_that_is_too_long_is_halved(tmp_path):
    """F is quadratic with curvature q along v: the required decrease is met by γ ≤ 2 (1 − c(1 − θ))/q alone."""
    problem, lam = quadratic()[0], np.zeros((3, 2))
    v = hgp.exact.hypergradient(problem, hgp.exact.inner_solution(problem, lam), lam)
    q = (F(problem, lam + v) + F(problem, lam - v) - 2 * F(problem, lam)) / np.sum(v**2)
    longest = 2 * (1 - certified.DECREASE * 0.5) / q
    for factor, halvings in ((0.9, 0), (0.99, 0), (1.01, 1), (1.9, 1), (2.1, 2), (30.0, 5)):
        update, file = CertifiedDescent(factor * longest), tmp_path / f"{factor}.npz"
        estimate = Estimator(40, 200, eta=1.0)
        path = optimise(
            problem, lam, NET, outer_steps=1, train=exact_training, estimate=estimate, update=update, file=file
        )
        assert path.steps[0].scale == update.lr / 2**halvings
        assert hgp.load(file).state.certified.gamma == path.steps[0].scale * (1 if halvings else 2)  # tried next
        assert path.outer_cost[1] < path.outer_cost[0]


def test_a_certified_run_is_resumed(tmp_path):
    problem, _, lam = logistic(N=30)
    settings = dict(
        train=SGP(100, 1.0, (0.6, 0.8)), estimate=Estimator(3, 5, eta=1.0), update=CertifiedDescent(5.0, log=True)
    )
    net = hgp.networks.FullyConnected(3)
    optimise(problem, lam, net, outer_steps=1, file=tmp_path / "loop.npz", **settings)
    path = optimise(problem, lam, net, outer_steps=3, file=tmp_path / "loop.npz", **settings)
    assert path == optimise(problem, lam, net, outer_steps=3, **settings)


@pytest.mark.parametrize(
    ("new", "kept"), [((0.0, 3.0), (1.0, 2.0)), ((1.5, 3.0), (1.5, 2.0)), ((0.0, 1.5), (1.0, 1.5))]
)
def test_a_refinement_never_widens_the_interval(new, kept, monkeypatch):
    loop = object.__new__(certified.CertifiedLoop)
    monkeypatch.setattr(certified.CertifiedLoop, "_corrected", lambda self, state, x, lam: (x, 1.2))
    monkeypatch.setattr(certified.CertifiedLoop, "_interval", lambda self, *point: (certified.Interval(*new), 0.0))
    state = SimpleNamespace(lam=[0.0], x=0.0, k=1, outer_cost=[1.0, 1.1])  # the corrected x is not used: 1.2 > 1.0
    state.certified = SimpleNamespace(refinements=0, interval=(1.0, 2.0))
    loop._refine(state)
    assert tuple(state.certified.interval) == kept and state.certified.refinements == 1


# The intervals themselves


@pytest.mark.parametrize("steps", [1, 3, 40])
def test_intervals_contain_the_sums(steps):
    rng = np.random.default_rng(0)
    for seed in range(20):
        net = hgp.networks.RandomDirected(n=5, seed=seed)
        reductions = NetworkReductions(hgp.PushSum(net, steps), 0, np.ones((5, 1)))
        parts = rng.normal(size=(2, 5)) * [[1e-9], [1e6]]
        for found, part in zip(intervals.totals(reductions, *parts), parts, strict=True):
            assert found.low <= part.sum() <= found.high
            assert steps < 40 or found.high - found.low < 1e-9 * np.abs(part).sum()


@pytest.mark.parametrize("log", [False, True])
def test_distance_and_cost_are_bounded_wherever_x_is(log):
    problem, _, lam = logistic(N=30)
    variable = as_problem(LogRates(problem) if log else problem)
    at = np.log(lam) if log else lam
    solution = hgp.exact.inner_solution(problem, lam)
    nu = known_lipschitz(variable.wrapped, at)
    rng = np.random.default_rng(1)
    for size in (0.0, 1e-6, 1e-2, 1.0):
        x = solution + size * rng.normal(size=solution.shape)
        reductions = NetworkReductions(hgp.PushSum(NET, 6), 0, x)
        e = intervals.distances(variable, x, at, nu, reductions)
        assert np.all(np.linalg.norm(x - solution, axis=1) <= e)
        found = intervals.outer_cost(variable, x, at, nu, reductions)
        assert found.low <= F(problem, lam) <= found.high


def squared_distance(a, b):
    """‖a − b‖² without rounding."""
    return sum((Fraction(float(p)) - Fraction(float(q))) ** 2 for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_distances_are_bounds_despite_rounding(dtype):
    """Clients at ±v around x(λ) = 0, where gradients vanish: e_i = ‖v‖, which rounding must not make smaller."""
    d, rng = 5, np.random.default_rng(3)
    A = np.tile(np.eye(d), (2, 1, 1)).astype(dtype)
    zeros = np.zeros((2, d), dtype)
    problem = as_problem(hgp.problems.Quadratic(A, zeros, np.ones((2, 1, d), dtype), zeros))
    nu, lam = hgp.bounds.Lipschitz(1.0, 1.0, 0.0, 0.0, strong_convexity=1.0), np.zeros((2, 1), dtype)
    eps = float(np.finfo(dtype).eps)
    for _ in range(200):
        v = rng.normal(size=d).astype(dtype)
        x = np.stack([v, -v])
        e = intervals.distances(
            problem, x, lam, nu, NetworkReductions(hgp.PushSum(hgp.networks.FullyConnected(2), 1), 0, x)
        )
        exactly = squared_distance(v, zeros[0])
        for bound in e:
            assert exactly <= Fraction(float(bound)) ** 2 <= exactly * Fraction(1 + 1000 * eps)


def test_distances_are_via_the_centre():
    """e_i = ‖x_i − c‖ + ‖mean ∂g(c)‖/ᾱ with the centre c of the box of all x_i, here far from 0 and from x(λ)."""
    problem, _, lam = quadratic(n=4)
    x = 30.0 + np.random.default_rng(5).normal(size=(4, 4))
    c = (x.max(axis=0) + x.min(axis=0)) / 2
    G = np.linalg.norm(problem.inner_grad(np.tile(c, (4, 1)), lam).mean(axis=0))
    reductions = NetworkReductions(hgp.PushSum(hgp.networks.FullyConnected(4), 1), 0, x)
    for alpha in (0.05, 1.0, 3.0):
        nu = hgp.bounds.Lipschitz(1.0, 1.0, 0.0, 0.0, strong_convexity=alpha)
        e = intervals.distances(as_problem(problem), x, lam, nu, reductions)
        np.testing.assert_allclose(e, np.linalg.norm(x - c, axis=1) + G / alpha, rtol=1e-9)
        assert np.all(e >= (np.linalg.norm(x - c, axis=1) + G / alpha) * (1 + 4e-16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(estimate=Estimator(eta=1.0, batches=3)), "estimate must be an Estimator with full batches"),
        (dict(estimate=lambda *args, **options: None), "estimate must be an Estimator with full batches"),
        (dict(estimate=Estimator(iterations=0, eta=1.0)), "iterations >= 1 for CertifiedDescent"),
        (dict(lam=np.zeros((3, 4))), "CertifiedDescent needs Lipschitz constants"),
    ],
)
def test_refusals(change, message):
    problem, _, lam = logistic()
    settings = dict(problem=problem, net=NET, lam=lam, outer_steps=1, train=TRAIN, estimate=Estimator(2, 2, eta=1.0))
    with pytest.raises((TypeError, ValueError), match=message):
        optimise(**settings | dict(update=CertifiedDescent(0.1)) | change)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (dict(theta=1.0), ValueError, "^theta must be a number strictly between 0 and 1, got 1$"),
        (dict(theta=0.0), ValueError, "^theta must be a number strictly between 0 and 1, got 0$"),
        (dict(theta="yes"), TypeError, "^theta must be a finite number, got 'yes'"),
        (dict(lipschitz=1), TypeError, "^lipschitz must be a Lipschitz, got 1"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        CertifiedDescent(0.1, **settings)
