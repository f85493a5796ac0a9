"""Newton tracking: exact solutions of the inner problem, from near and far."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import JAX_SLOW, assert_close, identity_rtol, open_library

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.training import NewtonTracking, newton_tracking
from hgp_ref.training.newton_tracking import NewtonStep

NET = hgp.networks.RandomDirected(n=3, seed=1)


def softmax(n=3, d=3, classes=3, N=15, seed=0):
    rng = np.random.default_rng(seed)
    X, X_val = rng.normal(size=(2, n, N, d))
    y, y_val = rng.integers(0, classes, (2, n, N))
    problem = hgp.problems.SoftmaxRegression(X, y, X_val, y_val, n_classes=classes)
    return problem, None, np.full((n, problem.dim_lam), 0.05)


CASES = {"quadratic": quadratic, "logistic": logistic, "softmax": softmax}


@pytest.mark.parametrize("scale", [0, 1, 10])
@pytest.mark.parametrize("case", CASES)
def test_the_inner_solution_is_reached_from_near_and_far(case, scale):
    problem, _, lam = CASES[case]()
    x0 = scale * np.random.default_rng(4).normal(size=(3, problem.dim_x))
    fit = hgp.train(problem, lam, NET, NewtonTracking(iterations=250), x0=x0)
    assert_close(fit.x, exact.inner_solution(problem, lam), 1e-10)
    assert fit.consensus_gap < 1e-10 and fit.grad_norm < 1e-11 and fit.steps == 250


@pytest.mark.parametrize(("far", "shift", "step"), [(1, 0.3, 0.8), (5, 0.01, 1.0)])
def test_one_iteration_equals_explicit_matrices(far, shift, step):
    """From two starts of every client: the step, the damping and what is tracked."""
    problem, x, lam = logistic()
    x, lam = far * x, lam if far == 1 else 0.01 * lam
    g, H = (getattr(problem, name)(x, lam) for name in ("inner_grad", "hessian"))
    P = H + shift * np.eye(4)
    p = step * np.linalg.solve(P, g[..., None])[..., 0]
    t = np.ones(3)
    for i in range(3):

        def deviation(t, i=i):
            change = problem.inner_grad(x - t * p, lam) - g
            return np.linalg.norm(change[i] + t * H[i] @ p[i]) - 0.5 * t * np.linalg.norm(P[i] @ p[i])

        while deviation(t[i]) > 0:
            t[i] /= 2
    assert (t.min() < 0.2) == (far > 1)
    W = NET.mixing_matrix(1)
    expected = (W @ (x - t[:, None] * p)) / W.sum(axis=1)[:, None]
    fit = hgp.train(problem, lam, NET, NewtonTracking(1, shift, step), x0=x)
    assert_close(fit.x, expected, 1e-12)
    assert np.all(np.asarray(fit.rates) == step)
    messages = np.count_nonzero(W) - 3
    assert (fit.traffic.messages, fit.traffic.floats) == (messages, messages * (2 * 4 + 1))


def test_steps_are_damped_where_gradients_are_not_linear(monkeypatch):
    seen = []
    original = NewtonStep._damping

    def recorded(self, *arguments):
        seen.append(original(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(NewtonStep, "_damping", recorded)
    problem, _, lam = logistic()
    x0 = np.broadcast_to(10 * np.random.default_rng(4).normal(size=4), (3, 4))
    hgp.train(problem, 0.01 * lam, NET, NewtonTracking(iterations=80), x0=x0)
    assert min(t.min() for t in seen[:10]) < 1
    assert all((t == 1).all() for t in seen[-20:])


def test_clients_whose_step_was_damped_are_held_and_given_settings_are_kept(monkeypatch):
    seen = []
    original = newton_tracking.adapt

    def recorded(now, solver, z, shift, step, hold=None):
        seen.append((hold, shift, step))
        return original(now, solver, z, shift, step, hold)

    damped = []
    damping = NewtonStep._damping
    monkeypatch.setattr(newton_tracking, "adapt", recorded)
    monkeypatch.setattr(NewtonStep, "_damping", lambda *a: damped.append(damping(*a) < 1) or 1.0 - 0.5 * damped[-1])
    problem, x, lam = logistic()
    hgp.train(problem, 0.01 * lam, NET, NewtonTracking(6), x0=20 * x)
    assert seen[0][0] is None and any(d.any() for d in damped[:-1])
    assert all(np.array_equal(hold, d) for (hold, *_), d in zip(seen[1:], damped, strict=False))
    for shift, step in ((None, 0.3), (0.3, None), (0.3, 0.3)):
        seen.clear()
        hgp.train(problem, lam, NET, NewtonTracking(3, shift, step))
        assert {s[1:] for s in seen} == {(shift is None, step is None)}


def test_rounding_of_gradients_does_not_damp_steps(monkeypatch):
    """At the solution, where gradients and steps are of the size of rounding."""
    damping, seen = NewtonStep._damping, []
    monkeypatch.setattr(NewtonStep, "_damping", lambda *a: seen.append(damping(*a)) or seen[-1])
    problem, _, lam = logistic()
    x = exact.inner_solution(problem, lam)
    hgp.train(problem, lam, NET, NewtonTracking(200), x0=x)
    assert len(seen) == 200 and all((t == 1).all() for t in seen)


def test_gradients_that_are_not_finite_beyond_a_barrier_damp_steps():
    """g_i = −log(1 − x) − a_i x is defined for x < 1; the first full step ends far beyond."""
    a = np.array([[2.0], [3.0], [4.0]])

    def gradient(x, lam, batch=None):
        with np.errstate(invalid="ignore"):
            return 1 / np.where(x < 1, 1 - x, np.nan) - a

    barrier = SimpleNamespace(
        n_clients=3, dim_x=1, dim_lam=1, inner_grad=gradient,
        linearize=lambda x, lam, batch=None: SimpleNamespace(hvp=lambda u: u / (1 - x) ** 2, cross=lambda u: 0 * u),
    )  # fmt: skip
    fit = hgp.train(barrier, np.zeros((3, 1)), NET, NewtonTracking(200), x0=np.full((3, 1), -5.0))
    assert_close(fit.x, np.full((3, 1), 2 / 3), 1e-10)


@pytest.mark.parametrize("avg_steps", [1, 3])
def test_sums_of_gradients_are_tracked(avg_steps, monkeypatch):
    problem, x, lam = logistic()
    steps = []
    original = NewtonStep.average

    def recorded(self, u):
        after = original(self, u)
        steps.append((self.y.sum(axis=0), problem.inner_grad(after, lam).sum(axis=0)))
        return after

    monkeypatch.setattr(NewtonStep, "average", recorded)
    hgp.train(problem, lam, NET, NewtonTracking(20, averaging_steps=avg_steps), x0=x)
    for tracked, sums in steps:
        np.testing.assert_allclose(tracked, sums, rtol=0, atol=1e-14)


def test_runs_warm_starts_tolerance_and_callback():
    problem, _, lam = logistic()
    several = np.stack([lam, 2 * lam])
    many = hgp.train(problem, several, NET, NewtonTracking(60))
    for k in range(2):
        assert_close(hgp.train(problem, several[k], NET, NewtonTracking(60)).x, many.x[k], 1e-11)
    assert many.grad_norm.shape == (2,) and many.traffic.floats.shape == (2,)
    fit = hgp.train(problem, lam, NET, NewtonTracking(200), tol=1e-8)
    assert fit.stopped == "tolerance" and fit.steps < 60
    again = hgp.train(problem, 1.01 * lam, NET, NewtonTracking(200), x0=fit.x, tol=1e-3)
    assert again.stopped == "tolerance" and again.steps < fit.steps
    assert hgp.train(problem, lam, NET, NewtonTracking(50), callback=lambda s, x: s == 4).steps == 4
    with pytest.warns(hgp.ConvergenceWarning, match=r"tol=1e-12 was not met in 3 steps: .*; use more iterations"):
        hgp.train(problem, lam, NET, NewtonTracking(3), tol=1e-12)


@pytest.mark.parametrize("delay", [0, 1])
def test_lost_messages_do_not_change_the_limit(delay):
    problem, _, lam = logistic(n=4)
    net = hgp.networks.Unreliable(hgp.networks.RandomDirected(n=4, seed=1), loss=0.1, delay=delay, seed=2)
    fit = hgp.train(problem, lam, net, NewtonTracking(250, averaging_steps=4))
    assert_close(fit.x, exact.inner_solution(problem, lam), 1e-12)


def test_polynomials_and_products_with_unit_vectors():
    problem, _, lam = logistic()
    x = exact.inner_solution(problem, lam)
    assert_close(hgp.train(problem, lam, NET, NewtonTracking(250, degree=12)).x, x, 1e-11)
    names = ("n_clients", "dim_x", "dim_lam", "inner_grad", "linearize")
    own = SimpleNamespace(**{name: getattr(problem, name) for name in names})
    assert_close(hgp.train(own, lam, NET, NewtonTracking(150)).x, x, 1e-11)
    del own.linearize
    with pytest.raises(TypeError, match="NewtonTracking needs a problem with linearize"):
        hgp.train(own, lam, NET, NewtonTracking(5))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", JAX_SLOW)
def test_libraries_agree(name, dtype):
    lib = open_library(name)
    problem, _, lam = logistic()
    fit = hgp.train(problem.to(lib.backend, dtype=dtype), lib.asarray(lam, dtype), NET, NewtonTracking(80))
    assert_close(lib.to_numpy(fit.x), exact.inner_solution(problem, lam), identity_rtol(dtype))
    assert str(fit.x.dtype).endswith(dtype)


def test_indefinite_clients():
    rng = np.random.default_rng(3)
    E = rng.normal(size=(6, 4, 4))
    A = np.diag(np.geomspace(0.1, 1, 4)) + 0.2 * (E + np.swapaxes(E, 1, 2))
    A = A - A.mean(axis=0) + np.diag(np.geomspace(0.1, 1, 4))
    assert np.linalg.eigvalsh(A)[:, 0].min() < 0
    problem = hgp.problems.Quadratic(A, rng.normal(size=(6, 4)), rng.normal(size=(6, 2, 4)), rng.normal(size=(6, 4)))
    lam, net = np.zeros((6, 2)), hgp.networks.RandomDirected(n=6, seed=1)
    fit = hgp.train(problem, lam, net, NewtonTracking(600))
    assert_close(fit.x, exact.inner_solution(problem, lam), 1e-11)
    worst = int(np.argmin(np.linalg.eigvalsh(A)[:, 0]))
    with pytest.raises(ValueError, match=f"shift must be above .* for client {worst}"):
        hgp.train(problem, lam, net, NewtonTracking(9, shift=0.01))
    A = A - 0.3 * np.eye(4)  # the mean has no minimum
    concave = hgp.problems.Quadratic(A, rng.normal(size=(6, 4)), rng.normal(size=(6, 2, 4)), rng.normal(size=(6, 4)))
    with pytest.raises(hgp.DivergenceError, match="the mean Hessian at the start has the eigenvalue"):
        hgp.train(concave, lam, net, NewtonTracking(3000))


def test_certificates_become_small_and_the_outer_loop_uses_both_methods():
    data = hgp.data.synthetic_mixture(3, seed=3)
    problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
    lam = np.full((3, problem.dim_lam), 0.03)
    net = hgp.networks.RandomDirected(n=3, low=0.4, high=0.8, seed=1)
    method, later = hgp.methods.PreconditionedTracking(), net.after(110)
    fit = hgp.train(problem, lam, net, NewtonTracking(110))
    est = hgp.hypergradient(problem, fit.x, lam, hgp.PushSum(later, 1), method, iterations=110)
    certificate = hgp.certify(problem, fit.x, lam, est, hgp.PushSum(later, 200))
    assert certificate.bound.max() < 1e-10 and fit.traffic.floats + est.traffic.floats < 12_000
    path = hgp.bilevel.optimise(problem, lam, net, outer_steps=3, train=NewtonTracking(25),
                                estimate=hgp.bilevel.Estimator(1, 40, method=method),
                                update=hgp.bilevel.Adam(0.1, log=True))  # fmt: skip
    assert (np.diff(path.outer_cost) < 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"iterations": 0}, "iterations must be"), ({"shift": -1}, "shift must be"), ({"step": 0}, "step must be"),
     ({"averaging_steps": 0}, "averaging_steps must be"), ({"degree": 1}, "degree must be"), ({"mode": "x"}, "mode")],
)  # fmt: skip
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        NewtonTracking(**settings)
