"""The outer loop against a few explicit lines, and its gradient against differences of the re-solved cost."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.examples import logistic, quadratic, quadratic_data
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref.bilevel import Adam, Box, Estimator, GradientDescent, Monitor, Trainer, optimise
from hgp_ref.training import SGP

NET = hgp.networks.RandomDirected(n=3, seed=1)
TRAIN, ESTIMATE = SGP(60, 0.5, (0.6, 0.8)), Estimator(3, 40, eta=1.0)


def exact_training(problem, lam, net, **options):
    """Train to the inner solution; nothing is sent."""
    x = hgp.exact.inner_solution(problem, lam)
    return SimpleNamespace(x=x, traffic=hgp.Traffic())


def outer_cost(problem, lam):
    return problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()


def differences(problem, lam, h=1e-5):
    """d_λ Σ f of the re-solved problem, entry by entry."""
    grad = np.zeros_like(lam)
    for place in np.ndindex(*lam.shape):
        moved = np.zeros_like(lam)
        moved[place] = h
        grad[place] = (outer_cost(problem, lam + moved) - outer_cost(problem, lam - moved)) / (2 * h)
    return grad


def test_the_gradient_is_that_of_the_resolved_outer_cost():
    """λ_1 − λ_0 of gradient descent with γ = 1 is −d_λ F."""
    problem, _, lam = logistic()
    estimate = Estimator(iterations=3000, eta=1.0, average=lambda net, steps: hgp.ExactAverage(net.n))
    path = optimise(
        problem, lam, NET, outer_steps=1, train=exact_training, estimate=estimate, update=GradientDescent(1.0)
    )
    assert_close(lam - path.lam[1], differences(problem, lam), 1e-6)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("batch_size", [None, 5])
def test_loop_written_out(warm, batch_size):
    """Adam by hand; each part takes the graphs and mini-batches after those of the parts before."""
    problem, _, lam = logistic()
    batches = None if batch_size is None else hgp.MiniBatches(batch_size, seed=7)
    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=4,
        train=Trainer(SGP(60, 0.5, (0.6, 0.8), batches=batches), warm_start=warm),
        estimate=Estimator(3, 40, eta=1.0, batches=batches),
        update=Adam(0.02, (0.8, 0.9), 1e-4),
        project=lambda lam: np.maximum(lam, 0.15),
    )
    m, s, x, graphs, used, costs, floats = 0.0, 0.0, None, 0, 0, [], []
    for t in range(1, 6):
        x0 = x if warm else None
        drawn = None if batches is None else replace(batches, offset=used)
        fit = hgp.sgp(problem, lam, NET.after(graphs), steps=60, lr=0.5, milestones=(0.6, 0.8), x0=x0, batches=drawn)
        graphs, used, x = graphs + 60, used + 60, fit.x
        costs.append(problem.outer_cost(x, lam).sum())
        floats.append(fit.traffic.floats)
        assert_close(path.lam[t - 1], lam, 1e-13)
        if t == 5:
            break
        drawn = None if batches is None else replace(batches, offset=used)
        avg = hgp.PushSum(NET.after(graphs), 3)
        est = hgp.hypergradient(problem, x, lam, avg, eta=1.0, iterations=40, batches=drawn)
        graphs, used = graphs + 120, used + 40
        floats.append(est.traffic.floats)
        m, s = 0.8 * m + 0.2 * est.value, 0.9 * s + 0.1 * est.value**2
        lam = np.maximum(lam - 0.02 * (m / (1 - 0.8**t)) / (np.sqrt(s / (1 - 0.9**t)) + 1e-4), 0.15)
    assert_close(path.x, x, 1e-13)
    assert_close(path.outer_cost, np.array(costs), 1e-13)
    assert path.floats.tolist() == np.cumsum(floats)[::2].tolist()
    assert path.rounds.tolist() == [60 + 180 * k for k in range(5)]
    assert (path.traffic.rounds, path.traffic.floats) == (path.rounds[-1], path.floats[-1])
    assert sum(step.train.floats + step.estimate.floats for step in path.steps) == sum(floats[:-1])


def test_three_steps_of_adam_in_plain_matrices():
    """Gradient push, Algorithm 2 and Adam of a quadratic, of which only the graphs are the package's."""
    n, T, S, M, eta, mu = 4, 50, 2, 12, 0.9, 0.1
    A, b, C, target = quadratic_data(n)
    D = np.random.default_rng(3).normal(size=C.shape)
    net, lam = hgp.networks.RandomDirected(n, seed=4), np.random.default_rng(5).normal(size=(n, 2))
    problem = hgp.problems.Quadratic(A, b, C, target, coupling=D, outer_reg=mu)
    path = optimise(
        problem, lam, net, outer_steps=3, train=SGP(T, 0.5, (30,)), estimate=Estimator(S, M, eta=eta), update=Adam(0.05)
    )
    x, s, first, second = np.zeros((n, 4)), 0, 0.0, 0.0

    def times(matrices, rows):
        return np.stack([matrix @ row for matrix, row in zip(matrices, rows, strict=True)])

    for k in range(4):
        u, omega = x.copy(), np.ones((n, 1))
        for step in range(T):
            z, s, rate = u / omega, s + 1, 0.5 if step < 30 else 0.05
            W = net.mixing_matrix(s)
            u, omega = W @ (u - rate * (times(A, z) - b + times(C.swapaxes(1, 2), lam))), W @ omega
        x = u / omega
        cost = np.sum((x - target) ** 2) / 2 + np.sum(lam * times(D, x)) + mu / 2 * np.sum(lam**2)
        assert_close(path.lam[k], lam, 1e-12)
        assert path.outer_cost[k] == pytest.approx(cost, rel=1e-12)
        if k == 3:
            break
        r, v = x - target + times(D.swapaxes(1, 2), lam), times(D, x) + mu * lam
        for _ in range(M):
            omega = np.ones((n, 1))
            for _ in range(S):
                s += 1
                W = net.mixing_matrix(s)
                r, omega = W @ r, W @ omega
            r = r / omega
            r, v = r - eta * times(A, r), v - eta * times(C, r)
        assert path.steps[k].gradient_norm == pytest.approx(np.linalg.norm(v), rel=1e-11)
        first, second = 0.9 * first + 0.1 * v, 0.999 * second + 0.001 * v**2
        lam = lam - 0.05 * (first / (1 - 0.9 ** (k + 1))) / (np.sqrt(second / (1 - 0.999 ** (k + 1))) + 1e-8)
    assert_close(path.x, x, 1e-12)


def test_gradient_descent_lowers_the_cost_of_a_quadratic_to_its_minimum():
    problem = quadratic()[0]
    path = optimise(
        problem,
        np.zeros((3, 2)),
        NET,
        outer_steps=60,
        train=exact_training,
        estimate=Estimator(30, 400, eta=1.0),
        update=GradientDescent(0.02),
    )
    grad = differences(problem, path.lam[-1])
    assert np.linalg.norm(grad) < 1e-3 * np.linalg.norm(differences(problem, np.zeros((3, 2))))
    assert np.all(np.diff(path.outer_cost[:40]) < 0)


def test_no_terms_give_the_direct_gradient_and_send_nothing():
    problem, _, lam = quadratic()
    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=1,
        train=TRAIN,
        estimate=Estimator(iterations=0, eta=1.0),
        update=GradientDescent(1.0),
    )
    fit = hgp.train(problem, lam, NET, TRAIN)
    assert_close(path.lam[1], lam - problem.outer_grad(fit.x, lam)[1], 1e-14)
    assert path.steps[0].estimate == hgp.Traffic()


def test_user_functions_get_unused_graphs_and_x0():
    problem, x, lam = quadratic()
    calls = []

    def train(problem, lam, net, x0, first_batch, outer_step):
        calls.append((type(problem).__name__, repr(net), None if x0 is None else x0.copy(), first_batch, outer_step))
        return SimpleNamespace(x=x + outer_step, traffic=hgp.Traffic(rounds=5), steps=11)

    def estimate(problem, x, lam, net, first_batch, outer_step):
        calls.append((repr(net), first_batch, outer_step))
        return SimpleNamespace(value=np.ones_like(lam), traffic=hgp.Traffic(rounds=2), iterations=3)

    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=2,
        train=Trainer(train, x0=x, warm_start=False),
        estimate=estimate,
        update=GradientDescent(0.5),
    )
    trainings, estimates = calls[::2], calls[1::2]
    assert [one[1] for one in trainings] == [repr(NET), f"{NET!r}.after(7)", f"{NET!r}.after(14)"]
    assert [one[3:] for one in trainings] == [(0, 0), (14, 1), (28, 2)]
    assert all((one[2] == x).all() for one in trainings)
    assert estimates == [(f"{NET!r}.after(5)", 11, 0), (f"{NET!r}.after(12)", 25, 1)]
    assert_close(path.lam[2], lam - 1.0, 1e-15)
    assert (path.x == x + 2).all()


def test_a_callback_may_stop_the_loop_and_overwrite_its_arguments():
    problem, _, lam = quadratic()

    def spoil(k, lam, x, cost):
        lam[...], x[...] = np.nan, np.nan
        return k == 2

    plain = optimise(problem, lam, NET, outer_steps=2, train=TRAIN, estimate=ESTIMATE)
    path = optimise(problem, lam, NET, outer_steps=5, train=TRAIN, estimate=ESTIMATE, callback=spoil)
    assert (path.stopped, len(path.lam)) == ("callback", 3)
    assert (path.lam == plain.lam).all() and (path.x == plain.x).all()


def test_a_path_is_saved_and_loaded(tmp_path):
    problem, _, lam = quadratic()
    path = optimise(problem, lam, NET, outer_steps=2, train=TRAIN, estimate=ESTIMATE, update=GradientDescent(0.1))
    assert hgp.load(path.save(tmp_path / "path.npz")) == path


# What fails


def test_a_hypergradient_that_diverges_is_tried_again_with_a_smaller_step_size():
    """λ_max(H̄) = 0.65: η = 8 and 4 diverge, 2 converges; Adam sees only the last."""
    problem, _, lam = quadratic()
    with pytest.warns(RuntimeWarning, match="outer step 0: hyper-gradient refused: diverged"):
        path = optimise(problem, lam, NET, outer_steps=2, train=TRAIN, estimate=Estimator(20, 200, eta=8.0))
    assert [step.scale for step in path.steps] == [1.0, 1.0]
    assert path.steps[0].note.count("refused") == 2 and path.steps[1].note == ""
    assert path.steps[0].estimate.rounds > path.steps[1].estimate.rounds == 200 * 20
    good = optimise(problem, lam, NET, outer_steps=1, train=TRAIN, estimate=Estimator(20, 200, eta=2.0))
    assert_close(path.lam[1], good.lam[1], 1e-6)


@pytest.mark.parametrize(("eta", "refused"), [(32.0, False), (64.0, True)])
def test_step_sizes_are_halved_four_times_at_most(eta, refused):
    """η = 4 diverges, 2 converges; the halvings of a step that was refused are not lost to the next one."""
    problem, _, lam = quadratic()
    with pytest.warns(RuntimeWarning, match="hyper-gradient refused: diverged"):
        path = optimise(problem, lam, NET, outer_steps=2, train=TRAIN, estimate=Estimator(20, 200, eta=eta))
    first, second = path.steps
    assert first.note.count("hyper-gradient refused") == 4 + refused and second.note == ""
    assert [first.scale, second.scale] == [1.0 - refused, 1.0]
    assert (path.lam[0] == path.lam[1]).all() == refused and (path.lam[1] != path.lam[2]).all()


def test_two_refused_steps_end_the_loop_only_in_a_row():
    problem, _, lam = quadratic()

    def estimate(problem, x, lam, net, outer_step, **options):
        value = np.full_like(lam, np.inf if outer_step in (0, 2, 4, 5) else 1.0)
        return SimpleNamespace(value=value, traffic=hgp.Traffic(rounds=1))

    with pytest.warns(RuntimeWarning, match="holds NaN or infinite"):
        path = optimise(problem, lam, NET, outer_steps=9, train=TRAIN, estimate=estimate, update=GradientDescent(0.1))
    assert [step.scale for step in path.steps] == [0, 1, 0, 1, 0, 0] and path.stopped == "divergence"
    assert_close(path.lam[-1], lam - 0.2, 1e-14)


def test_a_hypergradient_that_stays_infinite_leaves_lam_alone():
    problem, _, lam = quadratic()

    def infinite(problem, x, lam, net, **options):
        return SimpleNamespace(value=np.full_like(lam, np.inf), traffic=hgp.Traffic(rounds=1))

    with pytest.warns(RuntimeWarning, match="holds NaN or infinite"):
        path = optimise(problem, lam, NET, outer_steps=9, train=TRAIN, estimate=infinite)
    assert path.stopped == "divergence" and len(path.lam) == 3
    assert (path.lam == lam).all() and [step.scale for step in path.steps] == [0.0, 0.0]
    assert path.steps[0].gradient_norm is None


def test_derivatives_that_are_not_finite_refuse_the_step():
    """An own problem whose hvp is NaN from some λ on: what was reached stays."""
    problem, _, lam = logistic()

    class Broken:
        n_clients, dim_x, dim_lam = problem.n_clients, problem.dim_x, problem.dim_lam
        inner_cost, inner_grad, outer_cost = problem.inner_cost, problem.inner_grad, problem.outer_cost
        outer_grad = problem.outer_grad

        def linearize(self, x, lam_now, batch=None):
            at = problem.linearize(x, lam_now)
            spoilt = 1.0 if (lam_now == lam).all() else np.nan
            return SimpleNamespace(hvp=lambda u: spoilt * at.hvp(u), cross=at.cross)

    with pytest.warns(RuntimeWarning, match=r"hyper-gradient refused: problem.hvp\(u\) must return finite"):
        path = optimise(Broken(), lam, NET, outer_steps=9, train=TRAIN, estimate=ESTIMATE, update=Adam(0.02))
    assert path.stopped == "divergence" and [step.scale for step in path.steps] == [1.0, 0.0, 0.0]
    assert (path.lam[1] == path.lam[3]).all() and np.isfinite(path.lam).all()


def test_an_update_that_writes_into_lam_does_no_harm():
    problem, _, lam = quadratic()

    class InPlace:
        def start(self, lam):
            return ()

        def step(self, state, lam, v):
            lam -= 0.1 * v
            v[...] = 0
            return lam, state

    path = optimise(problem, lam, NET, outer_steps=3, train=TRAIN, estimate=ESTIMATE, update=InPlace())
    assert_close(
        path.lam,
        optimise(problem, lam, NET, outer_steps=3, train=TRAIN, estimate=ESTIMATE, update=GradientDescent(0.1)).lam,
        1e-14,
    )
    assert (path.lam[0] == lam).all()


def test_a_step_to_where_training_fails_is_halved():
    """A negative L2 rate leaves g without a minimum; a hyper-gradient of 1 pulls every rate down by 8 a step."""
    problem, _, lam = logistic(regularization="client")
    down = lambda problem, x, lam, net, **options: SimpleNamespace(  # noqa: E731
        value=np.ones_like(lam), traffic=hgp.Traffic()
    )
    with pytest.warns(RuntimeWarning, match="1 of the step refused: training diverged"):
        path = optimise(
            problem,
            lam,
            NET,
            outer_steps=1,
            train=SGP(400, 1.0, (0.6, 0.8)),
            estimate=down,
            update=GradientDescent(8.0),
        )
    scale = path.steps[0].scale
    assert 0 < scale < 1
    assert_close(path.lam[1], lam - 8.0 * scale, 1e-12)
    assert np.isfinite(path.outer_cost).all()


def test_a_halved_step_stays_where_lam_may_be():
    """λ_0 need not be in the set: half the way to it may be outside again."""
    problem, _, lam = logistic()

    def train(problem, lam, net, **options):
        far = np.nan if lam.max() > 5.2 else 0.0
        return SimpleNamespace(x=np.full((3, problem.dim_x), far), traffic=hgp.Traffic())

    up = lambda problem, x, lam, net, **options: SimpleNamespace(  # noqa: E731
        value=-np.ones_like(lam), traffic=hgp.Traffic()
    )
    with pytest.warns(RuntimeWarning, match="1 of the step refused"):
        path = optimise(
            problem,
            0 * lam + 0.3,
            NET,
            outer_steps=2,
            train=train,
            estimate=up,
            update=GradientDescent(100.0),
            project=Box(5.0, 6.0),
        )
    assert np.all((path.lam[1:] >= 5) & (path.lam[1:] <= 6))


def test_training_that_fails_at_once_is_an_error():
    problem, _, lam = logistic(regularization="client")
    with pytest.raises(hgp.DivergenceError):
        optimise(problem, lam - 9.0, NET, outer_steps=1, train=SGP(400, 1.0, (0.6, 0.8)), estimate=ESTIMATE)


def test_a_tolerance_is_checked_before_any_training():
    with pytest.raises(ValueError, match="^tol must be a finite number > 0, got -1"):
        Estimator(tol=-1)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(lam=[[0.0, 0.0]] * 3), TypeError, "^lam must be an array, got builtins.list"),
        (dict(lam=np.zeros((2, 3, 2))), ValueError, r"^lam must have shape \(3, 2\) = \(n, d_lam\), got \(2, 3, 2\)"),
        (dict(lam=np.full((3, 2), np.nan)), ValueError, "^lam must not contain NaN or infinite values"),
        (dict(lam=np.zeros((3, 2), dtype="float32")), TypeError, "lam must have the problem's dtype .*, got float32"),
        (
            dict(callback=lambda *args: np.ones(3)),
            TypeError,
            r"^callback must return True or False, got ndarray of shape \(3,\)",
        ),
        (dict(net=hgp.networks.FullyConnected(4)), ValueError, "net must have 3 clients like the problem, got 4 in"),
        (dict(train=3), TypeError, "^train must be a function, got 3"),
        (dict(estimate=3), TypeError, "^estimate must be a function, got 3"),
        (
            dict(estimate=Estimator(average=lambda net, steps: 3, eta=1.0)),
            TypeError,
            "average must return an averaging .*, got int",
        ),
        (dict(update="adam"), TypeError, "update must be Adam.*, got 'adam'"),
        (dict(project=3), TypeError, "^project must be a function, got 3"),
        (dict(project=lambda lam: lam[0]), ValueError, r"^what project returned must have shape \(3, 2\)"),
        (dict(train=lambda *args, **options: None), TypeError, "train must return an object with x .*, got NoneType"),
        (
            dict(estimate=lambda *args, **options: None),
            TypeError,
            "estimate must return .* value .*, got NoneType",
        ),
        (dict(outer_steps=1.5), TypeError, "^outer_steps must be an integer .*, got 1.5"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    problem, _, lam = quadratic()
    arguments = dict(problem=problem, net=NET, lam=lam, outer_steps=1, train=TRAIN, estimate=ESTIMATE) | change
    with pytest.raises(error, match=message):
        optimise(**arguments)


def test_bad_settings_are_named():
    with pytest.raises(TypeError, match="^average must be a function, got 3"):
        Estimator(average=3)
    with pytest.raises(TypeError, match="^method must be a function, got 3"):
        Trainer(3)
    for settings in (Estimator, SGP, Trainer):
        with pytest.raises(TypeError, match="unexpected keyword argument 'seed'"):
            settings(seed=3)


# Logarithms of rates


def test_with_log_rates_the_gradient_is_along_the_logarithm():
    """λ_1 = λ_0 exp(−d_θ F), d_θ F by differences of the re-solved cost in θ."""
    problem, _, lam = logistic()
    estimate = Estimator(iterations=3000, eta=1.0, average=lambda net, steps: hgp.ExactAverage(net.n))
    path = optimise(
        problem, lam, NET, outer_steps=1, train=exact_training, estimate=estimate, update=GradientDescent(1.0, log=True)
    )
    along = differences(hgp.problems.LogRates(problem), np.log(lam))
    assert_close(-np.log(path.lam[1] / lam), along, 1e-6)
    assert_close(path.lam[0], lam, 1e-15)


def test_log_rates_are_the_loop_on_the_wrapped_problem():
    problem, _, lam = logistic()
    calls = []
    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=3,
        train=TRAIN,
        estimate=ESTIMATE,
        update=Adam(0.3, log=True),
        callback=lambda k, lam, x, cost: calls.append(lam),
    )
    plain = optimise(
        hgp.problems.LogRates(problem),
        np.log(lam),
        NET,
        outer_steps=3,
        train=TRAIN,
        estimate=ESTIMATE,
        update=Adam(0.3),
    )
    assert_close(path.lam, np.exp(plain.lam), 1e-15)
    assert_close(np.stack(calls), path.lam, 1e-15)
    assert (path.outer_cost == plain.outer_cost).all()


def test_a_projection_applies_to_lam_with_log_rates():
    problem, _, lam = logistic()
    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=4,
        train=TRAIN,
        estimate=ESTIMATE,
        update=Adam(0.5, log=True),
        project=Box(0.12, 0.2),
    )
    assert path.lam[1:].min() >= 0.12 * (1 - 1e-12) and path.lam[1:].max() <= 0.2 * (1 + 1e-12)
    assert np.ptp(path.lam[-1]) > 0.07  # both sides are met
    with pytest.raises(ValueError, match="project must return positive entries with log=True"):
        optimise(
            problem,
            lam,
            NET,
            outer_steps=1,
            train=TRAIN,
            estimate=ESTIMATE,
            update=Adam(0.1, log=True),
            project=np.zeros_like,
        )
    with pytest.raises(ValueError, match="lam must be positive with log=True"):
        optimise(
            problem, lam - lam.min(), NET, outer_steps=1, train=TRAIN, estimate=ESTIMATE, update=Adam(0.1, log=True)
        )


# Measure and patience


def test_patience():
    problem, _, lam = quadratic()
    values = iter([5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 9.0, 9.0])
    calls = []

    def measure(x, lam):
        calls.append((x.copy(), lam.copy()))
        x[...], lam[...] = 0, 0  # whatever it likes
        return next(values)

    path = optimise(
        problem, lam, NET, outer_steps=9, train=TRAIN, estimate=ESTIMATE, monitor=Monitor(measure, patience=3)
    )
    assert (path.stopped, path.best, path.measure.tolist()) == ("patience", 3, [5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 9.0])
    assert (path.best_x == calls[3][0]).all() and (path.lam == np.stack([lam for _, lam in calls])).all()
    plain = optimise(problem, lam, NET, outer_steps=3, train=TRAIN, estimate=ESTIMATE)
    assert (path.best_x == plain.x).all()
    with pytest.raises(ValueError, match=r"^measure\(x, lam\) must be a finite number, got nan"):
        optimise(
            problem,
            lam,
            NET,
            outer_steps=1,
            train=TRAIN,
            estimate=ESTIMATE,
            monitor=Monitor(lambda x, lam: float("nan")),
        )
    with pytest.raises(TypeError, match="^measure must be a function, got None"):
        Monitor(None, patience=2)
    with pytest.raises(TypeError, match=r"measure must be a function that can be called as measure\(x, lam\)"):
        Monitor(lambda x: 0.0)


def test_plot_of_a_path():
    plt = pytest.importorskip("matplotlib.pyplot")
    problem, _, lam = quadratic()
    path = optimise(
        problem,
        lam,
        NET,
        outer_steps=3,
        train=TRAIN,
        estimate=ESTIMATE,
        monitor=Monitor(lambda x, lam: float(np.abs(lam).sum())),
    )
    for over, along in (("step", np.arange(4)), ("floats", path.floats), ("rounds", path.rounds)):
        figure = path.plot(over)
        line = figure.axes[0].lines[0]
        assert (line.get_xdata() == along).all() and (line.get_ydata() == path.outer_cost).all()
        assert len(figure.axes[1].lines) == lam.size
        plt.close(figure)
    with pytest.raises(ValueError, match="^over must be one of 'step', 'floats', 'rounds', got 'seconds'"):
        path.plot("seconds")
