"""`hypergradient` and `sgp`: what their results contain, tolerances, and which arguments they refuse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import assert_close
from support.user_problems import Spoiled

import hgp_ref as hgp
from hgp_ref import exact

NET = hgp.networks.RandomDirected(n=3, seed=1)


def quadratic_of(*matrices, b=1.0):
    A = np.stack([np.asarray(m, dtype=float) for m in matrices])
    n, d = A.shape[:2]
    return hgp.problems.Quadratic(A, np.full((n, d), b), np.ones((n, 1, d)), np.zeros((n, d)))


def test_one_iteration_of_a_series_that_converges_is_no_divergence():
    """Single clients have η λ = 3, the mean Hessian 1.55: with exact averaging the series converges."""
    problem = quadratic_of(np.diag([3.0, 0.1]), np.diag([0.1, 3.0]))
    x, lam = np.ones((2, 2)), np.zeros((2, 1))
    for iterations in (1, 2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one client's term is larger than the first for a while
            hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=1.0, iterations=iterations)
    est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(2), eta=1.0, iterations=200)
    assert_close(est.value, exact.hypergradient(problem, x, lam), 1e-12)


@pytest.mark.parametrize("scale", [1e9, 1e-9, 1.0])
@pytest.mark.parametrize("lr", [1e-2, 0.5, 1.5])
def test_training_towards_a_far_solution_is_no_divergence(scale, lr):
    problem = quadratic_of(np.eye(2), np.eye(2), b=scale)
    fit = hgp.sgp(problem, np.zeros((2, 1)), hgp.networks.FullyConnected(2), steps=3000, lr=lr)
    assert_close(fit.x, np.full((2, 2), scale), 1e-9)


@pytest.mark.parametrize("scale", [1e9, 1e-9, 1.0])
def test_training_that_diverges_is_reported_at_any_scale(scale):
    problem = quadratic_of(np.eye(2), np.eye(2), b=scale)
    for steps in (40, 500, 5000):
        with pytest.raises(hgp.DivergenceError, match=r"take a smaller lr \(2 / lambda_max is 2 at the start\)"):
            hgp.sgp(problem, np.zeros((2, 1)), hgp.networks.FullyConnected(2), steps=steps, lr=2.5)


def test_a_cost_without_minimum_is_not_blamed_on_the_rate():
    problem, _, lam = logistic()
    with pytest.raises(hgp.DivergenceError, match="no learning rate may help: is lam"):
        hgp.sgp(problem, -lam - 1.0, NET, steps=2000, lr=0.5, milestones=(0.6, 0.8))


def test_milestones_follow_the_number_of_steps():
    problem, _, lam = logistic()
    for steps, expected in ((500, (300, 400)), (7, (5, 6)), (1, (1, 1))):
        fit = hgp.sgp(problem, lam, NET, steps=steps, lr=0.5, milestones=(0.6, 0.8))
        assert fit.milestones == expected
        np.testing.assert_array_equal(fit.x, hgp.sgp(problem, lam, NET, steps=steps, lr=0.5, milestones=expected).x)
    assert (
        hgp.sgp(problem, lam, NET, steps=500, lr=2.0, milestones=(0.6, 0.8)).consensus_gap < 0.02
    )  # 0.24 with a rate that never falls


def test_training_stops_at_its_tolerance_and_reports_it():
    problem, _, lam = logistic()
    net = hgp.networks.FullyConnected(3)
    fit = hgp.sgp(problem, lam, net, steps=5000, lr=1.0, tol=1e-6)
    start = np.linalg.norm(problem.inner_grad(np.zeros((3, 4)), lam).mean(axis=0))
    assert fit.stopped == "tolerance" and fit.steps < 5000 and fit.grad_norm <= 1e-6 * start
    assert fit.traffic.rounds == fit.steps
    with pytest.warns(hgp.ConvergenceWarning, match="tol=1e-06 was not met in 40 steps"):
        assert hgp.sgp(problem, lam, net, steps=40, lr=1.0, tol=1e-6).stopped == "steps"


def test_several_seeds_train_at_once():
    problem, _, lam = logistic()
    options, batches = {"steps": 30, "lr": 0.3, "milestones": (0.6, 0.8)}, hgp.MiniBatches(4, seed=[3, 4])
    together = hgp.sgp(problem, lam, NET, batches=batches, **options)
    assert (
        together.x.shape == (2, 3, 4) and together.method.batches == batches and together.traffic.messages.shape == (2,)
    )
    for r, seed in enumerate((3, 4)):
        alone = hgp.sgp(problem, lam, NET, batches=hgp.MiniBatches(4, seed=seed), **options)
        assert_close(together.x[r], alone.x, 1e-12)
        assert together.traffic.of_run(r) == alone.traffic
    both = hgp.sgp(problem, np.stack([lam, 2 * lam]), NET, batches=batches, **options)
    alone = hgp.sgp(problem, 2 * lam, NET, batches=hgp.MiniBatches(4, seed=4), **options)
    assert_close(both.x[1], alone.x, 1e-12)


def test_callbacks_see_copies():
    problem, x, lam = logistic()

    def spoil(m, v):
        v[...] = 1e9

    quiet = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), eta=1.0, iterations=8, history=True)
    spoiled = hgp.hypergradient(
        problem, x, lam, hgp.PushSum(NET, 2), eta=1.0, iterations=8, history=True, callback=spoil
    )
    assert_close(spoiled.value, quiet.value, 1e-12)
    assert_close(spoiled.history, quiet.history, 1e-12)
    options = {"steps": 8, "lr": 0.3}
    np.testing.assert_array_equal(
        hgp.sgp(problem, lam, NET, callback=spoil, **options).x, hgp.sgp(problem, lam, NET, **options).x
    )


@pytest.mark.parametrize("first", [1, 4])
def test_nan_from_hvp_is_the_problems(first):
    problem, x, lam = quadratic()
    with pytest.raises(ValueError, match=r"problem.hvp\(u\) must return finite values for finite u"):
        hgp.hypergradient(Spoiled(problem, first), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=20)


METHODS = {"series": hgp.methods.Neumann(1.0), "tracking": hgp.methods.Tracking(), "Chebyshev": hgp.methods.Chebyshev()}


@pytest.mark.parametrize("M", [5, 60, 3000])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("method", METHODS)
def test_nan_in_one_product_is_no_matter_of_the_step_size(method, dtype, M):
    """The products are finite again when the spectrum is looked at, which says that all is well."""
    problem, x, lam = quadratic()
    problem, x, lam = problem.to("numpy", dtype=dtype), x.astype(dtype), lam.astype(dtype)
    given = dict(method=METHODS[method], iterations=M)
    spoiled = Spoiled(problem, 1, 0)
    hgp.hypergradient(spoiled, x, lam, hgp.ExactAverage(3), method=METHODS[method], iterations=1)
    before = spoiled.calls  # what a method asks at its beginning, and once for every iteration
    for call in (before + 2, before + min(M - 2, 300)):
        with pytest.raises(
            ValueError, match=r"problem.hvp\(u\) must return finite .* terms became NaN without growing"
        ):
            hgp.hypergradient(Spoiled(problem, call, call), x, lam, hgp.ExactAverage(3), **given)


@pytest.mark.parametrize("M", [20, 300, 3000])
@pytest.mark.parametrize("factor", [2.1, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["series", "tracking"])
def test_a_step_that_is_too_long_is_never_called_a_fault_of_the_problem(kind, dtype, factor, M):
    """Terms that overflow become NaN as well; here one direction grows, the others vanish, and 0 · ∞ is NaN."""
    A = np.tile(np.diag([1e-3, 0.1, 0.2, 1.0]), (3, 1, 1)).astype(dtype)
    rng = np.random.default_rng(0)
    b, C, target = (rng.normal(size=shape).astype(dtype) for shape in ((3, 4), (3, 2, 4), (3, 4)))
    problem = hgp.problems.Quadratic(A, b, C, target)
    x, lam = rng.normal(size=(3, 4)).astype(dtype), np.zeros((3, 2), dtype)
    method = hgp.methods.Neumann(factor) if kind == "series" else hgp.methods.Tracking(factor)
    with pytest.raises(hgp.DivergenceError) as raised:
        hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), method=method, iterations=M)
    assert str(raised.value).startswith("diverged: ") and "hvp(u)" not in str(raised.value)


def test_nan_from_an_inner_gradient_is_the_problems():
    problem, _, lam = quadratic()
    with pytest.raises(ValueError, match=r"problem.inner_grad\(x, lam\) must return finite values at the start"):
        hgp.sgp(Spoiled(problem, 1, 0, gradient=True), lam, NET, steps=5, lr=2.0, milestones=(0.6, 0.8))


def test_results_compare_save_and_draw(tmp_path):
    problem, x, lam = logistic()
    with pytest.warns(hgp.ConvergenceWarning, match="tol=1e-30 was not met in 9 iterations"):
        one, two = (
            hgp.hypergradient(
                problem,
                x,
                lam,
                hgp.PushSum(NET, S),
                eta=1.0,
                iterations=9,
                history=True,
                tol=1e-30,
                batches=hgp.MiniBatches(4, seed=4),
            )
            for S in (2, 3)
        )
    assert one == one and one != two and (one.batches, one.tol) == (hgp.MiniBatches(4, seed=4), 1e-30)
    back = hgp.load(one.save(tmp_path / "estimate.npz"))
    np.testing.assert_array_equal(back.value, one.value)
    assert back.traffic == one.traffic and repr(back.averaging) == repr(one.averaging)
    fit = hgp.sgp(problem, lam, NET, steps=5, lr=0.1, milestones=(0.6, 0.8))
    assert hgp.load(fit.save(tmp_path / "fit.npz")) == fit
    ax = one.plot(truth=exact.hypergradient(problem, x, lam))
    drawn = [line.get_ydata() for line in ax.get_lines()]
    assert drawn[0][-1] == pytest.approx(one.residual_ratio)
    truth = exact.hypergradient(problem, x, lam)
    assert drawn[1][-1] == pytest.approx(np.linalg.norm(one.value - truth) / np.linalg.norm(truth))
    with pytest.raises(ValueError, match="truth needs a run with history=True"):
        hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 2), eta=1.0, iterations=2).plot(truth=truth)


DTYPES = [np.float16, np.longdouble, np.dtype(">f8" if np.dtype("f8").str[0] == "<" else "<f8")]


@pytest.mark.parametrize("mode", ["composed", "stepping"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_other_kinds_of_floats_are_refused_by_name(dtype, mode):
    u = np.ones((3, 2)).astype(dtype)
    with pytest.raises(TypeError, match="u must hold float32 or float64 in native byte order"):
        hgp.PushSum(NET, 2, mode=mode).apply(u)
    problem, x, lam = logistic()
    with pytest.raises(TypeError, match="x must hold float32 or float64"):
        hgp.hypergradient(problem, x.astype(dtype), lam.astype(dtype), hgp.PushSum(NET, 2, mode=mode), eta=1.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda p, x, lam: hgp.sgp(p, None, NET, lr=2.0, milestones=(0.6, 0.8)),
            TypeError,
            "lam must be an array, got None",
        ),
        (lambda p, x, lam: hgp.sgp(p, lam, None, lr=2.0, milestones=(0.6, 0.8)), TypeError, "net must be a network"),
        (
            lambda p, x, lam: hgp.sgp(p, lam, hgp.networks.SelfLoops(4), lr=2.0, milestones=(0.6, 0.8)),
            ValueError,
            r"net must have 3 clients like the problem, got 4",
        ),
        (lambda p, x, lam: hgp.MiniBatches(2, seed=[]), ValueError, "seed must be .*, got an empty list"),
        (lambda p, x, lam: hgp.MiniBatches(2, seed="a"), TypeError, "seed"),
        (lambda p, x, lam: hgp.MiniBatches(2, seed=1.5), TypeError, "seed must be .*, got 1.5"),
        (lambda p, x, lam: hgp.MiniBatches(2, offset=-1), ValueError, "offset must be .*, got -1"),
        (
            lambda p, x, lam: hgp.sgp(p, lam, NET, tol=-1.0, lr=2.0, milestones=(0.6, 0.8)),
            ValueError,
            "tol must be .*, got -1.0",
        ),
        (
            lambda p, x, lam: hgp.sgp(None, lam, NET, lr=2.0, milestones=(0.6, 0.8)),
            TypeError,
            "problem must have .* got NoneType without",
        ),
        (
            lambda p, x, lam: hgp.hypergradient(p, None, lam, hgp.ExactAverage(3), eta=1.0),
            TypeError,
            "x must .* got None",
        ),
        (
            lambda p, x, lam: hgp.hypergradient(p, x, lam * np.nan, hgp.ExactAverage(3), eta=1.0),
            ValueError,
            "lam must not contain NaN",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(*logistic())


def test_arrays_that_require_grad_keep_no_graph():
    torch = pytest.importorskip("torch")
    problem, x, lam = logistic()
    moved = problem.to("torch")
    x, lam = (torch.tensor(a, requires_grad=True) for a in (x, lam))
    est = hgp.hypergradient(moved, x, lam, hgp.PushSum(NET, 2), eta=1.0, iterations=5)
    assert not est.value.requires_grad and not est.w.requires_grad
    assert not hgp.sgp(moved, lam, NET, steps=5, lr=0.1, milestones=(0.6, 0.8)).x.requires_grad
