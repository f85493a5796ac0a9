"""Conjugate gradients and the direct solve, against loops with explicit matrices."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import logistic, quadratic

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.methods import ConjugateGradient, DirectSolve, exact_means
from hgp_ref.methods.exact_means import DENSE, SHIFT
from hgp_ref.mixing import ServerAverage, TreeAverage, find_tree
from hgp_ref.problems.transforms import Transformed

N, D = 5, 7
NET = hgp.networks.RandomDirected(N, 0.2, 0.5, seed=2)
PROBLEMS = {"quadratic": lambda: quadratic(n=N, d=D), "logistic": lambda: logistic(n=N)}
problems = pytest.mark.parametrize("kind", PROBLEMS)


def run(problem, x, lam, method, avg=None, **options):
    return hgp.hypergradient(problem, x, lam, TreeAverage(NET) if avg is None else avg, method, **options)


def conjugate_gradients(problem, x, lam, iterations, precondition):
    """w after every iteration, with explicit matrices; the root is client 0."""
    H, b = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)[0].mean(axis=0)
    mean, w, r, P, iterates = H.mean(axis=0), np.zeros(len(b)), b, np.eye(len(b)), []
    p = r
    for m in range(iterations):
        s = mean @ p
        alpha = r @ np.linalg.solve(P, r) / (p @ s)
        old = r @ np.linalg.solve(P, r)
        w, r = w + alpha * p, r - alpha * s
        if m == 0 and precondition:
            values, vectors = np.linalg.eigh(H[0])
            delta = SHIFT * np.linalg.norm(s - H[0] @ p) / np.linalg.norm(p)
            P, p = vectors @ np.diag(np.abs(values) + delta) @ vectors.T, 0 * p
        z = np.linalg.solve(P, r)
        p = z + (r @ z / old) * p
        iterates.append(w)
    return np.array(iterates)


@problems
@pytest.mark.parametrize("precondition", [True, False])
def test_iterates_are_those_of_conjugate_gradients(kind, precondition):
    problem, x, lam = PROBLEMS[kind]()
    expected = conjugate_gradients(problem, x, lam, 4, precondition)
    for m in (1, 2, 4):
        est = run(problem, x, lam, ConjugateGradient(precondition), iterations=m)
        assert np.all(est.w == est.w[0])
        np.testing.assert_allclose(est.w[0], expected[m - 1], rtol=1e-9, atol=1e-9 * np.abs(expected[-1]).max())


@problems
@pytest.mark.parametrize("avg", [hgp.ExactAverage(N), ServerAverage(N)], ids=repr)
def test_other_exact_means_run_without_a_preconditioner(kind, avg):
    problem, x, lam = PROBLEMS[kind]()
    est = run(problem, x, lam, ConjugateGradient(), avg, iterations=3)
    np.testing.assert_allclose(est.w[0], conjugate_gradients(problem, x, lam, 3, False)[-1], rtol=1e-9)
    several = run(problem, x, lam, ConjugateGradient(), [avg, avg], iterations=3)
    np.testing.assert_allclose(several.value[1], est.value, rtol=1e-12)


def test_a_list_of_averagings_runs_without_a_preconditioner():
    problem, x, lam = PROBLEMS["quadratic"]()
    expected = conjugate_gradients(problem, x, lam, 4, precondition=False)
    both = run(problem, x, lam, ConjugateGradient(), [TreeAverage(NET), TreeAverage(NET.after(3))], iterations=4)
    for w in both.w:
        np.testing.assert_allclose(w[0], expected[-1], rtol=1e-9, atol=1e-9 * np.abs(expected[-1]).max())
    links = (N - 1) * 2 * 5 * problem.dim_x
    found = [find_tree(net, 8).traffic.floats for net in (NET, NET.after(3))]
    assert both.traffic.floats.tolist() == [links + floats for floats in found]


@problems
def test_conjugate_gradients_end_after_d_iterations(kind):
    problem, x, lam = PROBLEMS[kind]()
    est = run(problem, x, lam, ConjugateGradient(), iterations=200, tol=1e-13)
    assert est.stopped == "tolerance" and est.iterations <= problem.dim_x + 3
    truth = exact.hypergradient(problem, x, lam)
    np.testing.assert_allclose(est.value, truth, atol=1e-10 * np.abs(truth).max())
    long = run(problem, x, lam, ConjugateGradient(), iterations=80)  # a run that has converged stays where it is
    np.testing.assert_allclose(long.value, truth, atol=1e-10 * np.abs(truth).max())


@pytest.mark.parametrize("M", [1, 6])
def test_messages_of_conjugate_gradients(M):
    """At the start a mean; then H p goes up, and the next p with the step goes down."""
    problem, x, lam = quadratic(n=N, d=D)
    tree = hgp.mixing.find_tree(NET)
    est = run(problem, x, lam, ConjugateGradient(), TreeAverage(NET, tree), iterations=M)
    assert est.traffic.messages == 2 * (N - 1) * (M + 1)
    assert est.traffic.floats == (N - 1) * (2 * D + M * (2 * D + 1))


@problems
def test_a_direct_solve_is_exact_at_once(kind):
    problem, x, lam = PROBLEMS[kind]()
    truth, d = exact.hypergradient(problem, x, lam), problem.dim_x
    tree = hgp.mixing.find_tree(NET)
    est = run(problem, x, lam, DirectSolve(), TreeAverage(NET, tree), iterations=1)
    np.testing.assert_allclose(est.value, truth, atol=1e-12 * np.abs(truth).max())
    assert (est.traffic.messages, est.traffic.floats) == (2 * (N - 1), (N - 1) * (d * (d + 1) // 2 + 2 * d))
    more = run(problem, x, lam, DirectSolve(), TreeAverage(NET, tree), iterations=3)
    assert more.traffic.floats == est.traffic.floats + 2 * (N - 1) * 2 * d
    np.testing.assert_allclose(more.value, truth, atol=1e-12 * np.abs(truth).max())


@pytest.mark.parametrize("method", [ConjugateGradient(), ConjugateGradient(False), DirectSolve()], ids=repr)
def test_runs_continue(method):
    problem, x, lam = quadratic(n=N, d=D)
    tree = hgp.mixing.find_tree(NET)
    whole = run(problem, x, lam, method, TreeAverage(NET, tree), iterations=5)
    half = run(problem, x, lam, method, TreeAverage(NET, tree), iterations=2)
    rest = run(problem, x, lam, method, TreeAverage(NET.after(half.traffic.rounds), tree), iterations=3, resume=half)
    np.testing.assert_allclose(rest.value, whole.value, atol=1e-13 * np.abs(whole.value).max())
    assert half.traffic + rest.traffic == whole.traffic


@pytest.mark.parametrize("method", [ConjugateGradient(), DirectSolve()], ids=repr)
def test_averages_that_are_not_exact_are_refused(method):
    problem, x, lam = logistic(n=N)
    name = type(method).__name__
    with pytest.raises(ValueError, match=rf"{name} needs exact means \(TreeAverage, .*got PushSum"):
        run(problem, x, lam, method, hgp.PushSum(NET, steps=50))
    with pytest.raises(ValueError, match=f"batches must be None for {name}"):
        run(problem, x, lam, method, batches=2)


def test_what_a_direct_solve_needs():
    problem, x, lam = quadratic(n=N, d=D)
    with pytest.raises(ValueError, match=r"avg must be one TreeAverage for DirectSolve, got ExactAverage\(5\)"):
        run(problem, x, lam, DirectSolve(), hgp.ExactAverage(N))
    with pytest.raises(ValueError, match="avg must be one TreeAverage for DirectSolve, got a list of 2"):
        run(problem, x, lam, DirectSolve(), [TreeAverage(NET), TreeAverage(NET.after(3))])
    d = DENSE + 1
    large = hgp.problems.Quadratic(np.ones((2, 1, 1)) * np.eye(d), np.ones((2, d)), np.ones((2, 1, d)), np.ones((2, d)))
    with pytest.raises(ValueError, match=f"DirectSolve needs d_x <= {DENSE}, got {d}; use ConjugateGradient"):
        run(large, np.ones((2, d)), np.ones((2, 1)), DirectSolve(), TreeAverage(hgp.networks.FullyConnected(2)))


def test_no_client_need_be_convex():
    """Only the mean must be: the root's own Hessian is indefinite here."""
    rng = np.random.default_rng(3)
    A = np.stack([np.diag([0.6, 0.8, 1.0, 1.2])] * 3)
    A[0] -= 1.5 * np.diag([1.0, 0, 0, 1])
    A[1] += 1.5 * np.diag([1.0, 0, 0, 1])
    problem = hgp.problems.Quadratic(A, *(rng.normal(size=shape) for shape in ((3, 4), (3, 2, 4), (3, 4))))
    x, lam, net = np.ones((3, 4)), np.zeros((3, 2)), hgp.networks.FullyConnected(3)
    second = run(problem, x, lam, ConjugateGradient(), TreeAverage(net), iterations=3)
    np.testing.assert_allclose(second.w[0], conjugate_gradients(problem, x, lam, 3, True)[-1], rtol=1e-9)
    for method, M in ((ConjugateGradient(), 12), (DirectSolve(), 1)):
        est = run(problem, x, lam, method, TreeAverage(net), iterations=M)
        np.testing.assert_allclose(est.value, exact.hypergradient(problem, x, lam), atol=1e-10)


def test_large_dimensions_have_no_preconditioner(monkeypatch):
    problem, x, lam = quadratic(n=N, d=D)
    for most, precondition in ((D, True), (D - 1, False)):
        monkeypatch.setattr(exact_means, "DENSE", most)
        expected = conjugate_gradients(problem, x, lam, 3, precondition)[-1]
        np.testing.assert_allclose(run(problem, x, lam, ConjugateGradient(), iterations=3).w[0], expected, rtol=1e-9)


@pytest.mark.parametrize("avg", [TreeAverage(NET), hgp.ExactAverage(N)], ids=repr)
@pytest.mark.parametrize(
    ("curvature", "gradient", "M"), [(1e20, 1.0, 40), (1e-40, 1.0, 400), (1.0, 1e-190, 40), (1e-3, 1e150, 40)]
)
def test_scales_of_problems_do_not_matter(avg, curvature, gradient, M):
    """Squares of residuals would underflow or overflow, and pᵀH̄p does long after a run has converged."""
    problem, x, lam = quadratic(n=N, d=D)
    A, f_x = exact.hessians(problem, x, lam), exact.outer_gradients(problem, x, lam)[0]
    scaled = hgp.problems.Quadratic(curvature * A, *(np.zeros(s) for s in ((N, D), (N, 2, D))), -gradient * f_x)
    est = run(scaled, np.zeros((N, D)), lam, ConjugateGradient(), avg, iterations=M)
    w = np.linalg.solve(A.mean(axis=0), f_x.mean(axis=0)) * (gradient / curvature)
    np.testing.assert_allclose(est.w, np.broadcast_to(w, (N, D)), rtol=1e-8)
    short = run(scaled, np.zeros((N, D)), lam, ConjugateGradient(), avg, iterations=2)
    left = gradient * f_x.mean(axis=0) - curvature * A.mean(axis=0) @ short.w[0]
    np.testing.assert_allclose(short.state.residual, np.broadcast_to(left, (N, D)), rtol=1e-6)


class SeveralCosts(Transformed):
    """A problem with two outer costs of very different sizes."""

    trusted = True
    size = np.array([1.0, 1e-190])[:, None, None]

    def outer_grad(self, x, lam):
        return tuple(self.size * a for a in self._inner.outer_grad(x, lam))

    def _term_sizes(self, x, lam):
        raise NotImplementedError


def test_several_outer_costs_have_scales_of_their_own():
    problem, x, lam = quadratic(n=N, d=D)
    est = run(SeveralCosts(problem), x, lam, ConjugateGradient(), hgp.ExactAverage(N), iterations=12)
    truth = exact.hypergradient(problem, x, lam)
    np.testing.assert_allclose(est.value / SeveralCosts.size, np.stack([truth, truth]), rtol=1e-9)


class Skew:
    """A problem whose last client has a Hessian that is not symmetric."""

    def __init__(self, problem):
        self.problem = problem

    def __getattr__(self, name):
        if name == "hessian":
            raise AttributeError(name)
        return getattr(self.problem, name)

    def linearize(self, x, lam):
        inner = self.problem.linearize(x, lam)

        class Linearization:
            cross = staticmethod(inner.cross)

            @staticmethod
            def hvp(u):
                Hu = inner.hvp(u)
                Hu[..., -1, 0] += 0.1 * u[..., -1, 1]
                return Hu

        return Linearization()


@pytest.mark.parametrize("avg", [TreeAverage(NET), hgp.ExactAverage(N)], ids=repr)
@pytest.mark.parametrize("method", [ConjugateGradient(), ConjugateGradient(False), DirectSolve()], ids=repr)
def test_hessians_that_are_not_symmetric_are_refused(method, avg):
    if isinstance(method, DirectSolve) and not isinstance(avg, TreeAverage):
        return
    problem, x, lam = quadratic(n=N, d=D)
    with pytest.raises(ValueError, match=f"the Hessian of client {N - 1} must be symmetric, got"):
        run(Skew(problem), x, lam, method, avg, iterations=2)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("smallest", [0.0, -0.5])
@pytest.mark.parametrize("method", [ConjugateGradient(), ConjugateGradient(False), DirectSolve()], ids=repr)
def test_means_that_are_not_positive_definite_are_named(method, smallest, alike):
    rng = np.random.default_rng(6)
    E = np.zeros((N, 4, 4)) if alike else rng.normal(size=(N, 4, 4))
    A = np.diag([1.0, 0.6, 0.3, smallest]) + E + np.swapaxes(E, 1, 2)
    A -= (E + np.swapaxes(E, 1, 2)).mean(axis=0)
    problem = hgp.problems.Quadratic(A, *(rng.normal(size=shape) for shape in ((N, 4), (N, 2, 4), (N, 4))))
    with pytest.raises(ValueError, match=r"^problem: the mean Hessian must be positive definite at x, got"):
        run(problem, np.ones((N, 4)), np.zeros((N, 2)), method, iterations=30)
