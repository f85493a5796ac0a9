"""Mistakes in a user's problem that would silently change results: arguments changed in place."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.libraries import LIBRARIES, open_library

import hgp_ref as hgp
from hgp_ref.backend import array_namespace, to_host
from hgp_ref.problems import as_problem

NET = hgp.networks.RandomDirected(n=3, seed=1)


class Diagonal:
    """H = diag(h), J = identity; the method named by `bad` works in place."""

    n_clients, dim_x, dim_lam = 3, 2, 2

    def __init__(self, h, bad="", broadcasts=False):
        self.h, self.bad, self.broadcasts = h, bad, broadcasts

    def at(self, name, a):
        if name == self.bad:
            a *= 0.5
        return a

    def inner_cost(self, x, lam, batch=None):
        return array_namespace(x).sum(self.at("inner_cost", x) ** 2, axis=-1)

    def inner_grad(self, x, lam, batch=None):
        return self.h * self.at("inner_grad", x) + lam

    def outer_cost(self, x, lam):
        return array_namespace(x).sum(self.at("outer_cost", lam) ** 2, axis=-1)

    def outer_grad(self, x, lam):
        return self.at("outer_grad", x) + 1.0, lam * 1.0

    def linearize(self, x, lam, batch=None):
        self.at("linearize", lam)
        return Linearized(self)


class Linearized:
    def __init__(self, problem):
        self.problem = problem
        if problem.bad == "products":
            self.products = lambda u: (self.problem.h * self.problem.at("products", u), u * 1.0)

    def hvp(self, u):
        return self.problem.h * self.problem.at("hvp", u)

    def cross(self, u):
        return 1.0 * self.problem.at("cross", u)


def point(lib):
    return [lib.asarray(a) for a in (np.full((3, 2), 0.7), np.full((3, 2), 0.2), np.full((3, 2), 0.5))]


METHODS = ["hvp", "cross", "products", "outer_grad", "linearize"]
MUTABLE = [name for name in LIBRARIES if "jax" not in name]


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("broadcasts", [False, True])
@pytest.mark.parametrize("bad", METHODS)
@pytest.mark.parametrize("name", MUTABLE)
def test_a_method_that_works_in_place_is_named(name, bad, broadcasts, runs):
    lib = open_library(name)
    x, lam, h = point(lib)
    avg = [hgp.ExactAverage(3)] * 2 if runs else hgp.ExactAverage(3)
    with pytest.raises(ValueError, match=rf"problem: {bad}\(.*\) must not modify its arguments"):
        hgp.hypergradient(Diagonal(h, bad, broadcasts), x, lam, avg, eta=1.0, iterations=20)


@pytest.mark.parametrize("bad", ["inner_cost", "inner_grad", "outer_cost"])
@pytest.mark.parametrize("name", MUTABLE)
def test_costs_and_gradients_that_work_in_place_are_named(name, bad):
    lib = open_library(name)
    x, lam, h = point(lib)
    with pytest.raises(ValueError, match=rf"problem: {bad}\(x, lam\) must not modify its arguments"):
        getattr(as_problem(Diagonal(h, bad)), bad)(x, lam)


@pytest.mark.parametrize("broadcasts", [False, True])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_problem_that_leaves_arguments_alone_is_not_disturbed(name, broadcasts):
    lib = open_library(name)
    x, lam, h = point(lib)
    est = hgp.hypergradient(Diagonal(h, "", broadcasts), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=200)
    np.testing.assert_allclose(to_host(est.value), 0.2 - 1.7 / 0.5, rtol=1e-5)
    assert to_host(x).tolist() == np.full((3, 2), 0.7, to_host(x).dtype).tolist()


def test_an_error_raised_by_the_user_is_not_wrapped():
    x, lam, h = (np.full((3, 2), v) for v in (0.7, 0.2, 0.5))

    class Raises(Diagonal):
        def outer_grad(self, x, lam):
            raise ValueError("no such client")

    with pytest.raises(ValueError, match="^no such client$"):
        hgp.hypergradient(Raises(h), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=3)


def test_arrays_of_the_caller_stay_writeable():
    x, lam, h = (np.full((3, 2), v) for v in (0.7, 0.2, 0.5))
    seen = []

    class Looks(Diagonal):
        def outer_grad(self, x, lam):
            seen.append((x.flags.writeable, lam.flags.writeable))
            return super().outer_grad(x, lam)

    est = hgp.hypergradient(Looks(h), x, lam, hgp.ExactAverage(3), eta=1.0, iterations=3)
    assert seen == [(False, False)] and x.flags.writeable and lam.flags.writeable and est.w.flags.writeable


def test_verification_is_done_once_per_method():
    """One copy and comparison, not one for each of the iterations."""
    torch = pytest.importorskip("torch")
    x, lam, h = (torch.full((3, 2), v, dtype=torch.float64) for v in (0.7, 0.2, 0.5))
    calls = []

    class Late(Linearized):
        def hvp(self, u):
            calls.append(1)
            return self.problem.h * u

    class Counts(Diagonal):
        def linearize(self, x, lam, batch=None):
            return Late(self)

    problem = as_problem(Counts(h))
    linearization = problem.linearize(x, lam)
    u = torch.ones(3, 2, dtype=torch.float64)
    linearization.hvp(u)
    assert problem._checker._compared == {"linearize(x, lam)", "hvp(u)"}
    assert problem.linearize(x, lam)._adapter is problem


CALLBACKS = {
    "hypergradient": lambda f: hgp.hypergradient(
        PROBLEM, X, LAM, hgp.ExactAverage(3), eta=1.0, iterations=3, callback=f
    ),
    "sgp": lambda f: hgp.sgp(PROBLEM, LAM, NET, steps=3, lr=0.1, callback=f, milestones=(0.6, 0.8)),
    "local_rounds": lambda f: hgp.training.local_rounds(
        PROBLEM, LAM, hgp.ExactAverage(3), rounds=3, callback=f, milestones=(0.6, 0.8)
    ),
    "optimise": lambda f: hgp.bilevel.optimise(
        PROBLEM,
        LAM,
        NET,
        outer_steps=1,
        train=hgp.training.SGP(9, 0.5),
        estimate=hgp.bilevel.Estimator(3, 5, eta=1.0),
        callback=lambda *_: f(0, 0),
    ),
    "at_point": lambda f: hgp.baselines.at_point(
        PROBLEM, X, LAM, hgp.networks.StaticUndirected(n=3, seed=1), "dbo", iterations=3, step=0.3, callback=f
    ),
    "dsbo": lambda f: hgp.bilevel.dsbo(
        PROBLEM, hgp.networks.StaticUndirected(n=3, seed=1), LAM, 1, callback=lambda *_: f(0, 0)
    ),
}
PROBLEM = hgp.problems.Quadratic.random(3, 4, 2, seed=1)
X, LAM = np.ones((3, 4)), np.zeros((3, 2))


@pytest.mark.parametrize("told", [np.ones(3), np.array([]), np.zeros((2, 1)), "torch"], ids=repr)
@pytest.mark.parametrize("name", [name for name in CALLBACKS if hasattr(hgp.bilevel, name) or name != "dsbo"])
def test_a_callback_that_returns_an_array_is_named(name, told):
    if isinstance(told, str):
        told = pytest.importorskip(told).ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="^callback must return True or False, got .*$"):
            CALLBACKS[name](lambda *_: told)


@pytest.mark.parametrize("name", ["hypergradient", "sgp", "local_rounds"])
def test_a_callback_may_return_one_entry(name):
    done = CALLBACKS[name](lambda m, v: np.array([m == 2]))
    assert done.stopped == "callback" and getattr(done, "steps", getattr(done, "iterations", None)) == 2


@pytest.mark.parametrize("kind", ["meta", "sparse", "sparse_csr", "nested"])
@pytest.mark.parametrize("door", ["hypergradient", "sgp", "apply", "problem", "labels"])
@pytest.mark.filterwarnings("ignore")  # of PyTorch, for its own prototypes
def test_tensors_without_all_values_are_refused(kind, door):
    torch = pytest.importorskip("torch")
    ones = torch.ones(3, 2, dtype=torch.float64)
    make = {
        "meta": lambda a: a.to("meta"),
        "sparse": lambda a: a.to_sparse(),
        "sparse_csr": lambda a: a.to_sparse_csr() if a.ndim == 2 else a.to_sparse(),
        "nested": lambda a: torch.nested.nested_tensor(list(a)),
    }[kind]
    problem = hgp.problems.Quadratic.random(3, 2, 2).to("torch")
    X = torch.ones(3, 5, 2, dtype=torch.float64)
    y = torch.ones(3, 5, dtype=torch.float64)
    calls = {
        "hypergradient": lambda: hgp.hypergradient(problem, make(ones), ones, hgp.ExactAverage(3), eta=1.0),
        "sgp": lambda: hgp.sgp(problem, make(ones), NET, steps=2, lr=2.0, milestones=(0.6, 0.8)),
        "apply": lambda: hgp.PushSum(NET, 2).apply(make(ones)),
        "problem": lambda: hgp.problems.LogisticRegression(make(X), y, X, y),
        "labels": lambda: hgp.problems.LogisticRegression(X, make(y), X, y),
    }
    kinds = "an array with values|a dense array|an array, or a list of arrays or of sparse matrices of SciPy"
    with pytest.raises(TypeError, match=rf"^(x|lam|u|X|y) must be ({kinds}), got a"):
        calls[door]()
