"""A resumed run equals one longer run."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.examples import logistic, quadratic
from support.libraries import LIBRARIES, assert_close, open_library

import hgp_ref as hgp
from hgp_ref import exact
from hgp_ref.backend import to_host
from hgp_ref.methods import Chebyshev, Method, Neumann, Refined, Tracking

NET = hgp.networks.RandomDirected(n=3, seed=1)


def run(problem, x, lam, avg, runs=None, **options):
    """An estimate; `runs` of them at once along a run axis."""
    return hgp.hypergradient(problem, x, lam, avg if runs is None else [avg] * runs, **options)


def quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # few iterations do not converge
        return run(*arguments, **options)


def halves(method, first, more, steps=3, **options):
    """Two runs, the second over later graphs."""
    problem, x, lam = options.pop("case")
    start = quiet(problem, x, lam, hgp.PushSum(NET, steps), method=method, iterations=first, **options)
    later = hgp.PushSum(NET.after(int(np.max(start.traffic.rounds))), steps)
    if "batches" in options:
        options["batches"] = replace(options["batches"], offset=first)
    return quiet(problem, x, lam, later, method=method, iterations=more, resume=start, **options)


@pytest.mark.parametrize(
    "options", [{}, {"batches": hgp.MiniBatches(4)}, {"batches": hgp.MiniBatches(4, seed=[1, 2])}], ids=str
)
@pytest.mark.parametrize("method", [Neumann(0.5), Chebyshev(0.2, 1.1)], ids=repr)
def test_two_runs_equal_one(method, options):
    problem, x, lam = case = logistic()
    whole = quiet(problem, x, lam, hgp.PushSum(NET, 3), method=method, iterations=9, **options)
    assert_close(halves(method, 4, 5, case=case, **options).value, whole.value, 1e-12)


class HeavyBall(Method):
    """A user's method, whose state is a dictionary."""

    def init(self, start):
        return {"residual": start.residual, "p": 0 * start.residual}

    def step(self, state, mixer, derivatives):
        r = mixer.average(state["residual"])
        p = 0.5 * r + 0.3 * state["p"]
        return p, {"residual": r - derivatives.hvp(p), "p": p}


class Closure(HeavyBall):
    """Its state is not data."""

    def init(self, start):
        return super().init(start) | {"function": lambda: 0}

    def step(self, state, mixer, derivatives):
        p, new = super().step(state, mixer, derivatives)
        return p, new | {"function": state["function"]}


def test_a_users_method_is_resumed_from_its_dictionary(tmp_path):
    problem, x, lam = case = quadratic()
    whole = run(problem, x, lam, hgp.PushSum(NET, 3), method=HeavyBall(), iterations=9)
    assert_close(halves(HeavyBall(), 4, 5, case=case).value, whole.value, 1e-12)
    assert set(hgp.load(whole.save(tmp_path / "e.npz")).state) == {"residual", "p"}
    assert run(problem, x, lam, hgp.PushSum(NET, 3), method=HeavyBall(), iterations=99, tol=1e-3).stopped == "tolerance"
    est = run(problem, x, lam, hgp.PushSum(NET, 3), method=Closure(), iterations=9)
    assert est.state is None
    est.save(tmp_path / "e.npz")
    with pytest.raises(ValueError, match="resume must be an estimate that holds the state of .*Closure"):
        run(problem, x, lam, hgp.PushSum(NET, 3), method=Closure(), iterations=3, resume=est)


@pytest.mark.parametrize("method", [Tracking(0.3), Chebyshev(0.1, 1.1), Refined(Neumann(0.8), 2, 40)], ids=repr)
def test_other_methods_continue_to_converge(method):
    problem, x, lam = case = quadratic()
    truth = exact.hypergradient(problem, x, lam)
    resumed = halves(method, 12, 12, 40, case=case)
    first = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 40), method=method, iterations=12)
    end, begin = (np.linalg.norm(e.value - truth) for e in (resumed, first))
    assert end < 0.5 * begin
    assert_close(resumed.value, exact.outer_gradients(problem, x, lam)[1]
                 - np.einsum("nij,nj->ni", exact.jacobians(problem, x, lam), resumed.w), 1e-12)  # fmt: skip
    if isinstance(method, Tracking):  # no floor, whatever the weights were
        assert_close(halves(method, 300, 500, case=case).value, truth, 1e-12)


def test_tracking_continues_with_the_gradients_that_it_has_tracked():
    """Without them the first steps would follow each client's own gradient again, which does not vanish at w*."""
    problem, x, lam = quadratic()
    first = run(problem, x, lam, hgp.PushSum(NET, 3), method=Tracking(0.3), iterations=600)
    later = hgp.PushSum(NET.after(int(first.traffic.rounds)), 3)
    resumed = quiet(problem, x, lam, later, method=Tracking(0.3), iterations=1, resume=first)
    assert_close(resumed.residual_norms[0], np.linalg.norm(first.state.y, axis=1).max(), 1e-12)
    assert_close(resumed.value, exact.hypergradient(problem, x, lam), 1e-10)


def test_bad_arguments_are_named():
    problem, x, lam = quadratic()
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(NET, 3), method=Tracking(0.3), iterations=5)
    for options, message in (
        ({"resume": est, "method": Neumann(0.5)}, "resume must be an estimate by Neumann, got one by Tracking"),
        ({"resume": est, "method": Tracking(0.1), "w0": x}, "w0 and resume cannot both be given"),
        ({"resume": x, "method": Tracking(0.1)}, "(?s)resume must be an Estimate, got"),
        (
            {"resume": est, "method": Tracking(0.1), "runs": 2},
            r"resume.w must have shape \(2, 3, 4\) .*got \(3, 4\)",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            run(problem, x, lam, hgp.PushSum(NET, 3), iterations=3, **options)


ELSEWHERE = "resume must be an estimate at the same problem, x and lam; to start from its w elsewhere, pass w0=est.w"
METHODS = [
    Neumann(0.5),
    Chebyshev(0.05, 1.1),
    Tracking(0.1),
    Refined(Neumann(0.5), cycles=2, steps=5),
    Refined(Tracking(0.1), cycles=2, steps=5),
]
KINDS = [{}, {"batches": 3}, {"runs": 2}, {"batches": hgp.MiniBatches(3, seed=[1, 2])}]


def data(seed=0, n=3, N=12, d=4, dtype="float64"):
    rng = np.random.default_rng(seed)
    X, X_val = rng.normal(size=(2, n, N, d)).astype(dtype)
    y, y_val = rng.integers(0, 2, (2, n, N))
    return [X, y, X_val, y_val]


def changed(parts, index, entry, value):
    parts = [np.array(a) for a in parts]
    parts[index][entry] = value
    return parts


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_an_estimate_of_another_point_is_refused(method, options):
    parts, x, lam = data(), np.full((3, 4), 0.1), np.full((3, 4), 0.2)
    problem = hgp.problems.LogisticRegression(*parts)
    est = quiet(problem, x, lam, hgp.PushSum(NET, 3), method=method, iterations=6, **options)
    given = dict(avg=hgp.PushSum(NET.after(40), 3), method=method, iterations=4, resume=est, **options)
    quiet(problem, x, lam, **given)
    quiet(hgp.problems.LogisticRegression(*parts), np.asfortranarray(x), lam.copy(), **given)
    flipped = hgp.problems.LogisticRegression(*changed(parts, 1, (2, 11), 1 - parts[1][2, 11]))
    validated = hgp.problems.LogisticRegression(*changed(parts, 3, (1, 0), 1 - parts[3][1, 0]))
    moved = hgp.problems.LogisticRegression(*changed(parts, 0, (0, 11, 3), parts[0][0, 11, 3] + 1e-9))
    x_near, lam_near = x.copy(), lam.copy()
    x_near[2, 3] += 1e-15
    lam_near[1, 1] += 1e-15
    swapped = hgp.problems.LogisticRegression(*(a[::-1] for a in parts))
    for elsewhere in (
        (problem, 3 * x, lam),
        (problem, x_near, lam),
        (problem, x, 2 * lam),
        (problem, x, lam_near),
        (flipped, x, lam),
        (validated, x, lam),
        (moved, x, lam),
        (swapped, x, lam),
    ):
        with pytest.raises(ValueError, match=ELSEWHERE):
            quiet(*elsewhere, **given)


@pytest.mark.parametrize("method", [Neumann(0.3), Tracking(0.1)], ids=repr)
def test_user_problems_that_differ_are_distinguished_at_zero(method):
    """At x = λ = 0 most of what a problem consists of has no effect on gradients: products show it."""
    rng = np.random.default_rng(0)
    A, C = np.stack([np.diag(rng.uniform(0.5, 1.5, 4)) for _ in range(3)]), rng.normal(size=(3, 2, 4))

    class Own:
        n_clients, dim_x, dim_lam = 3, 4, 2

        def __init__(self, A, C):
            self.A, self.C = A, C

        def outer_grad(self, x, lam):
            return x + 1.0, lam

        def linearize(self, x, lam, batch=None):
            return SimpleNamespace(hvp=lambda u: np.einsum("nij,nj->ni", self.A, u),
                                   cross=lambda u: np.einsum("nij,nj->ni", self.C, u))  # fmt: skip

    x, lam, options = np.zeros((3, 4)), np.zeros((3, 2)), dict(method=method, iterations=5)
    est = quiet(Own(A, C), x, lam, hgp.PushSum(NET, 3), **options)
    assert np.isfinite(quiet(Own(A, C), x, lam, hgp.PushSum(NET, 3), resume=est, **options).value).all()
    A_near, C_near = A.copy(), C.copy()
    A_near[1, 2, 2] += 1e-9
    C_near[2, 0, 3] += 1e-9
    for other in (Own(A_near, C), Own(A, C_near)):
        with pytest.raises(ValueError, match=ELSEWHERE):
            quiet(other, x, lam, hgp.PushSum(NET, 3), resume=est, **options)


@pytest.mark.parametrize("kind", ["full", "mini-batch"])
def test_one_label_of_20000_is_noticed_in_float32(kind):
    options = {"batches": 16} if kind == "mini-batch" else {}
    parts = data(n=2, N=20_000, d=3, dtype="float32")
    x, lam = np.full((2, 3), 0.1, "float32"), np.full((2, 3), 0.1, "float32")
    avg = hgp.ExactAverage(2)
    est = quiet(hgp.problems.LogisticRegression(*parts), x, lam, avg, eta=0.5, iterations=3, **options)
    for index in (1, 3):
        other = hgp.problems.LogisticRegression(*changed(parts, index, (1, 19_999), 1 - parts[index][1, 19_999]))
        with pytest.raises(ValueError, match=ELSEWHERE):
            quiet(other, x, lam, avg, eta=0.5, iterations=3, resume=est, **options)


def test_another_order_of_sums_is_the_same_point():
    """Instances in another order give the same problem up to rounding; batches of it would differ."""
    parts, x, lam = data(N=500), np.full((3, 4), 0.1), np.full((3, 4), 0.2)
    est = quiet(hgp.problems.LogisticRegression(*parts), x, lam, hgp.PushSum(NET, 3), eta=0.5, iterations=6)
    turned = hgp.problems.LogisticRegression(*(np.ascontiguousarray(a[:, ::-1]) for a in parts))
    again = quiet(turned, x, lam, hgp.PushSum(NET, 3), eta=0.5, iterations=6)
    assert not np.array_equal(est.fingerprint.values, again.fingerprint.values)
    quiet(turned, x, lam, hgp.PushSum(NET, 3), eta=0.5, iterations=6, resume=est)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_loaded_estimate_continues_bit_for_bit(method, options, tmp_path):
    x, lam = np.full((3, 4), 0.1), np.full((3, 4), 0.2)
    problem = hgp.problems.LogisticRegression(*data())
    est = quiet(problem, x, lam, hgp.PushSum(NET, 3), method=method, iterations=6, **options)
    loaded = hgp.load(est.save(tmp_path / "e.npz"))
    assert loaded == est
    given = dict(avg=hgp.PushSum(NET.after(40), 3), method=method, iterations=4, **options)
    there, here = quiet(problem, x, lam, resume=est, **given), quiet(problem, x, lam, resume=loaded, **given)
    for name in ("value", "w", "residual_norms"):
        assert getattr(there, name).tobytes() == getattr(here, name).tobytes(), name
    assert there.state == here.state
    with pytest.raises(ValueError, match=ELSEWHERE):
        quiet(problem, x + 1, lam, resume=loaded, **given)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_loaded_estimate_continues_in_every_library(name, tmp_path):
    lib = open_library(name)
    host = hgp.problems.LogisticRegression(*data(dtype="float32"))
    x, lam = (lib.asarray(np.full((3, 4), value, "float32")) for value in (0.1, 0.2))
    problem, avg = host.to(lib.backend, device=lib.device), hgp.PushSum(NET, 3)
    est = quiet(problem, x, lam, avg, eta=0.5, iterations=6)
    loaded = hgp.load(est.save(tmp_path / "e.npz"))
    ends = [quiet(problem, x, lam, avg, eta=0.5, iterations=4, resume=one) for one in (est, loaded)]
    assert to_host(ends[0].value).tobytes() == to_host(ends[1].value).tobytes()
    with pytest.raises(ValueError, match=ELSEWHERE):
        quiet(problem, x + 0.01, lam, avg, eta=0.5, iterations=4, resume=loaded)
    quiet(host, np.full((3, 4), 0.1, "float32"), np.full((3, 4), 0.2, "float32"), avg, eta=0.5, iterations=4,
          resume=loaded)  # fmt: skip


def test_an_estimate_without_a_valid_fingerprint_is_refused():
    problem, x, lam = quadratic()
    avg, options = hgp.PushSum(NET, 3), dict(method=Tracking(0.1), iterations=5)
    est = quiet(problem, x, lam, avg, **options)
    with pytest.raises(ValueError, match="resume must be an estimate with a fingerprint"):
        quiet(problem, x, lam, avg, resume=replace(est, fingerprint=None), **options)
    print_ = est.fingerprint
    for damaged in (
        replace(print_, values=print_.values[:, :2]),
        replace(print_, values=print_.values[..., 0]),
        replace(print_, values="text"),
        replace(print_, values=print_.values + np.nan),
        replace(print_, values=np.full_like(print_.values, np.inf)),
        replace(print_, names=()),
        replace(print_, names=print_.names[:4], values=print_.values[:4]),
        replace(print_, names=print_.names[1:], values=print_.values[1:]),
        replace(print_, digest=3),
        replace(print_, digest=print_.digest[::-1] ^ 1),
        "text",
    ):
        with pytest.raises(ValueError, match=ELSEWHERE):
            quiet(problem, x, lam, avg, resume=replace(est, fingerprint=damaged), **options)


def test_minus_zero_is_zero():
    problem, x, lam = quadratic()
    x = x * np.array([0.0, 1.0, 1.0, 1.0])[: x.shape[1]]
    est = quiet(problem, x, 0 * lam, hgp.PushSum(NET, 3), method=Tracking(0.1), iterations=5)
    quiet(problem, x + np.where(x == 0, -0.0, 0.0), -0.0 * lam, hgp.PushSum(NET, 3), method=Tracking(0.1), iterations=5,
          resume=est)  # fmt: skip
    minus = np.where(x == 0, -0.0, x)
    assert np.signbit(minus).any()
    quiet(problem, minus, -0.0 * lam, hgp.PushSum(NET, 3), method=Tracking(0.1), iterations=5, resume=est)
