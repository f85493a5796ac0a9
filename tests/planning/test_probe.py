"""Measurements before a plan: intervals that contain the spectrum, also over unreliable links, or an error."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref.methods.spectrum import averaging_rounding, extremes, measure_mixing, start_rows
from hgp_ref.mixing import push_sum_for, start_averaging
from hgp_ref.networks import FullyConnected, RandomDirected, Schedule, SelfLoops, Unreliable
from hgp_ref.planning import probe

push_sum_plan = functools.partial(hgp.plan, methods=("Neumann", "Chebyshev", "Tracking"))  # without trees


def unlike(k):
    """Clients whose Hessians are (1 + c_i) I and a little more, Σ c_i = 0, over links that lose and delay."""
    rng = np.random.default_rng(k)
    n, d = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    net = Unreliable(RandomDirected(n, seed=k), float(rng.uniform(0, 0.6)), int(rng.integers(1, 9)), seed=k)
    c = rng.normal(size=n) * rng.uniform(0, 3)
    A = np.eye(d) * (1 + c - c.mean())[:, None, None] + 0.1 * np.diag(np.arange(d))
    problem = hgp.problems.Quadratic(A, *(rng.normal(size=shape) for shape in ((n, d), (n, 2, d), (n, d))))
    return problem, np.ones((n, d)), np.zeros((n, 2)), net, A


@pytest.mark.parametrize("refine", [False, None])
def test_the_interval_contains_the_spectrum_over_unreliable_links(refine):
    looked = 0
    for k in (6, 203, *range(300, 340)):
        problem, x, lam, net, A = unlike(k)
        own, mean = np.linalg.eigvalsh(A), np.linalg.eigvalsh(A.mean(axis=0))
        try:
            found = hgp.plan(problem, x, lam, net, target=1e-3, refine=refine).diagnostics
        except ValueError as refusal:
            assert refine is False and "clients' smallest eigenvalues average to -" in str(refusal)
            continue
        assert found.client_low <= own[:, 0].mean() and 0 < found.low <= found.high
        if not found.products:
            looked += 1
            assert found.low <= mean[0] and mean[-1] <= own[:, -1].mean() <= found.high
    assert looked > 25


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_means_of_client_eigenvalues_are_enclosed(n, lossy):
    """`most` is above the means, rounding included, and below the largest number; alike over several seeds."""
    for seed in range(12):
        base = RandomDirected(n, seed=seed) if n > 1 else SelfLoops(1)
        net = Unreliable(base, loss=0.4, delay=4, seed=seed) if lossy else base
        values = np.random.default_rng(seed).normal(size=(n, 3))
        values[:, 2] = 0.1  # equal numbers round
        mixer = start_averaging([push_sum_for(net, 1)], n, np.zeros((n, 2)), 100)
        seen = measure_mixing(mixer, np.zeros((n, 2)), values, np.abs(values))
        slack = seen.rounding * seen.maxima.max()
        assert np.all(values.mean(axis=0) <= seen.upper_means + slack) and np.all(
            seen.upper_means <= values.max(axis=0) + slack
        )
        assert 0 <= slack < 1e-9 and (n > 1) == (slack > 0)
        assert np.array_equal(seen.maxima, np.abs(values).max(axis=0))


def test_rounding_of_averages_is_that_of_certificates():
    for net in (RandomDirected(4, seed=1), Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=2, seed=1)):
        reductions = hgp.certificates.residuals.NetworkReductions(push_sum_for(net, 7), 0, np.zeros((4, 2)))
        assert averaging_rounding(reductions.channel, 7, np.finfo(float).eps) == reductions.rounding


MEANS = {  # H̄, and what is said where clients are apart from it
    "zero": (0.0, "which contains 0; clients' Hessians have norms up to"),
    "negative": (-0.3, "it has an eigenvalue of -0.* or less"),
}
NETS = {
    "directed": RandomDirected(4, seed=1),
    "complete": FullyConnected(4),
    "ring": Schedule([(np.arange(4), (np.arange(4) + 1) % 4)], n=4),
    "unreliable": Unreliable(RandomDirected(4, seed=1), loss=0.2, delay=2, seed=1),
}


def apart(mean, n=4, d=5, seed=0):
    """A quadratic problem whose Hessians have this mean, far apart from each other."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, d, d))
    A = B + np.swapaxes(B, 1, 2)
    A = A - A.mean(axis=0) + mean
    return hgp.problems.Quadratic(A, np.ones((n, d)), np.ones((n, 2, d)), np.ones((n, d)))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("mean", MEANS)
def test_mean_hessians_that_are_not_positive_are_named(net, mean):
    scale, words = MEANS[mean]
    point = {"x": np.zeros((4, 5)), "lam": np.zeros((4, 2)), "net": NETS[net], "target": 1e-4}
    with pytest.raises(ValueError, match=f"^problem: the mean inner cost must be strongly convex at x.*{words}"):
        hgp.plan(apart(scale * np.eye(5)), **point)
    same = hgp.problems.Quadratic(np.stack([scale * np.eye(5)] * 4), *(np.ones(s) for s in ((4, 5), (4, 2, 5), (4, 5))))
    with pytest.raises(ValueError, match=rf"clients' largest eigenvalues average to {'-0.28' if scale else '0'}"):
        hgp.plan(same, **point)


@pytest.mark.parametrize("smallest", [0.0, -0.5])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("methods", [None, ["Chebyshev", "Tracking"]], ids=["tree", "Push-Sum"])
def test_means_with_one_eigenvalue_that_is_not_positive_are_named(methods, alike, smallest):
    """Averaged products show it among positive ones, also where they end in less than d steps."""
    mean = np.diag([1.0, 0.6, 0.6, 0.3, smallest])
    problem = apart(mean)
    if alike:
        problem = hgp.problems.Quadratic(np.stack([mean] * 4), *(np.ones(s) for s in ((4, 5), (4, 2, 5), (4, 5))))
    point = {"x": np.zeros((4, 5)), "lam": np.zeros((4, 2)), "net": FullyConnected(4), "target": 1e-4}
    with pytest.raises(ValueError, match="^problem: the mean inner cost must be strongly convex at x, "):
        hgp.plan(problem, methods=methods, **point)


@pytest.mark.parametrize("net", NETS)
def test_small_positive_means_are_distinguished_from_zero(net):
    """H̄ = I/20 among Hessians of norm 7: averages take longer until it is seen, and the plan is met."""
    problem = apart(0.05 * np.eye(5))
    x, lam = np.ones((4, 5)), np.zeros((4, 2))
    plan = hgp.plan(problem, x, lam, NETS[net], target=1e-3)
    assert plan.diagnostics.client_low < 0 < plan.diagnostics.low < plan.diagnostics.high and plan.diagnostics.low < 0.3
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the certified error", RuntimeWarning)
        out = plan.run(against="x")
    truth = hgp.exact.hypergradient(problem, x, lam)
    assert np.linalg.norm(out.value - truth) <= out.bound * np.linalg.norm(truth)
    assert out.met or net == "unreliable"


def test_rounds_until_positive_are_as_few_as_show_it():
    x = np.zeros((4, 1))
    for net in NETS.values():
        channel_of = lambda net=net: start_averaging([push_sum_for(net, 1)], 4, x, 100)  # noqa: E731
        own = np.array([3.0, -2.0, 1.0, -1.6])  # of mean 0.1
        steps = probe._rounds_until_positive(channel_of(), own, 1, 3.0, x)
        boxes = channel_of().channel
        tried = []
        while not tried or tried[-1][0] < steps:
            S = 2 ** len(tried)
            low = np.min(boxes.interval_mean(own[:, None], S)[0])
            boxes.max_consensus(np.zeros((4, 2)), x)
            tried.append((S, low > 0))
        assert [ok for _, ok in tried] == [False] * (len(tried) - 1) + [True] or net is NETS["complete"]
        with pytest.raises(ValueError, match=r"it has an eigenvalue of -0.1 or less|eigenvalue of -0.0\d* or less"):
            probe._rounds_until_positive(channel_of(), -own, 256, 3.0, x)


def test_refined_spectra_stay_within_certain_bounds():
    """Averages over unreliable links may show more than there is; the certain upper end is the limit."""
    for k in range(400, 420):
        problem, x, lam, net, _ = unlike(k)
        try:
            without = hgp.plan(problem, x, lam, net, target=1e-3, refine=False).diagnostics
        except ValueError:
            continue
        found = hgp.plan(problem, x, lam, net, target=1e-3, refine=True).diagnostics
        assert found.products >= 1 and found.client_low == without.client_low
        assert 0 < found.low <= found.high <= without.high and found.low <= probe.CAREFUL * without.high * (1 + 1e-15)


@pytest.mark.parametrize(("smallest", "scale"), [(1e-10, 1.0), (1e-13, 1.0), (0.1, 1e307)])
def test_spectra_that_allow_no_run_are_named(smallest, scale):
    A = np.stack([np.diag([smallest, 0.5, 1.0])] * 3) * scale
    problem = hgp.problems.Quadratic(A, np.ones((3, 3)), np.ones((3, 2, 3)), np.ones((3, 3)))
    for options in ({"target": 1e-8, "refine": False}, {"target": 1e-8}):
        with pytest.raises(
            ValueError, match=r"problem: the spectrum of the mean Hessian must allow a run of at most 1000000"
        ):
            push_sum_plan(problem, np.zeros((3, 3)), np.zeros((3, 2)), RandomDirected(3, seed=1), **options)


def test_ill_conditioned_problems_have_plans():
    A = np.stack([np.diag([1e-7, 0.5, 1.0])] * 3)
    problem = hgp.problems.Quadratic(A, np.ones((3, 3)), np.ones((3, 2, 3)), np.ones((3, 3)))
    plan = push_sum_plan(
        problem, np.zeros((3, 3)), np.zeros((3, 2)), RandomDirected(3, seed=1), target=1e-2, refine=False
    )
    assert 1e3 < plan.iterations < 1e5 and plan.diagnostics.low == pytest.approx(1e-7, rel=1e-3)


@pytest.mark.parametrize("make", [quadratic, logistic])
def test_run_axes_are_refused_for_x_and_lam(make):
    problem, x, lam = make()
    net = RandomDirected(3, seed=1)
    for axes in (1, 2):
        lead = (2,) * axes
        with pytest.raises(ValueError, match=r"^x must have shape .* = \(n, d_x\).*, got .*"):
            hgp.plan(problem, np.broadcast_to(x, (*lead, *x.shape)).copy(), lam, net, target=1e-3)
        with pytest.raises(ValueError, match=r"^lam must have shape .* = \(n, d_lam\).*, got .*"):
            hgp.plan(problem, x, np.broadcast_to(lam, (*lead, *lam.shape)).copy(), net, target=1e-3)
    with pytest.raises(ValueError, match=r"^x must have shape"):
        hgp.plan(problem, x[0], lam, net, target=1e-3)
    with pytest.raises(ValueError, match=r"^x must have shape"):
        hgp.plan(problem, x[:2], lam, net, target=1e-3)
    with pytest.raises(ValueError, match=r"^x must have shape"):
        hgp.plan(problem, x[:, :1], lam, net, target=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e-294, 1e-300, 1e300])
def test_lanczos_ends_where_its_space_is_exhausted(scale):
    """Multiples of I, and two eigenvalues in nine dimensions: what rounding leaves is no further direction."""
    for values in (np.full(9, 0.3), np.repeat([1.0, 3.0], (4, 5))):
        low, high = extremes(lambda u, values=values: scale * values * u, start_rows(np.zeros((1, 9))))
        assert low[0] == pytest.approx(scale * values.min(), rel=1e-9, abs=0.0)
        assert high[0] == pytest.approx(scale * values.max(), rel=1e-9, abs=0.0)
