"""as_problem: it adds every optional member and run axes, and names wrong results of a problem."""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import LIBRARIES, open_library

from hgp_ref import exact
from hgp_ref.problems import LogisticRegression, Problem, Quadratic, as_problem, from_torch

from .cases import KINDS, make


class Own:
    """A user's problem: no run axis, no optional members, one array for all of its answers of a kind."""

    def __init__(self, n=3, d_x=2, d_lam=2):
        self.inside = Quadratic.random(n, d_x, d_lam, seed=3)
        self.n_clients, self.dim_x, self.dim_lam = n, d_x, d_lam
        self._kept = {}

    def _reused(self, a):
        kept = self._kept.setdefault(a.shape, np.empty_like(a))
        kept[...] = a
        return kept

    def _single(self, *arrays):
        assert all(a.ndim == 2 for a in arrays), "a run axis reached a problem that knows none"

    def inner_cost(self, x, lam):
        self._single(x, lam)
        return self._reused(self.inside.inner_cost(x, lam))

    def inner_grad(self, x, lam):
        self._single(x, lam)
        return self._reused(self.inside.inner_grad(x, lam))

    def outer_cost(self, x, lam):
        self._single(x, lam)
        return self._reused(self.inside.outer_cost(x, lam))

    def outer_grad(self, x, lam):
        self._single(x, lam)
        return self.inside.outer_grad(x, lam)

    def linearize(self, x, lam):
        self._single(x, lam)
        return OwnLinearization(self, self.inside.linearize(x, lam))


class OwnLinearization:
    def __init__(self, problem, inside):
        self.problem, self.inside = problem, inside

    def hvp(self, u):
        self.problem._single(u)
        return self.problem._reused(self.inside.hvp(u))

    def cross(self, u):
        self.problem._single(u)
        return self.problem._reused(self.inside.cross(u))


def test_it_is_a_problem_and_its_own_normal_form():
    problem = as_problem(Own())
    assert isinstance(problem, Problem)
    assert as_problem(problem) is problem
    assert problem.broadcasts is True
    assert problem.counts is problem.hessian is problem.jacobian is problem.lipschitz is None
    assert problem.clients.tolist() == [0, 1, 2]


LEADS = [((), (), ()), ((4,), (), (4,)), ((), (4,), ()), ((2, 1), (3,), (2, 3)), ((), (), (5,))]


@pytest.mark.parametrize("leads", LEADS, ids=str)
def test_runs_are_loops_over_a_problem_without_them(leads):
    own, rng = Own(), np.random.default_rng(0)
    x, lam, u = (rng.standard_normal((*lead, 3, 2)) for lead in leads)
    ours, inside = as_problem(own), own.inside
    for name in ("inner_cost", "inner_grad", "outer_cost"):
        np.testing.assert_allclose(getattr(ours, name)(x, lam), getattr(inside, name)(x, lam), rtol=1e-13)
    for a, b in zip(ours.outer_grad(x, lam), inside.outer_grad(x, lam), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    lin, expected = ours.linearize(x, lam), inside.linearize(x, lam)
    hvp, cross = lin.products(u)  # the problem answers both in one array: dim_x = dim_lam
    np.testing.assert_allclose(hvp, expected.hvp(u), rtol=1e-13)
    np.testing.assert_allclose(cross, expected.cross(u), rtol=1e-13)
    np.testing.assert_array_equal(lin.hvp(u), hvp)
    np.testing.assert_array_equal(lin.cross(u), cross)


@pytest.mark.parametrize("kind", KINDS)
def test_built_in_problems_answer_as_before(kind):
    c = make(kind)
    ours = as_problem(c.problem)
    for batch in (None, c.batch):
        lin, expected = ours.linearize(c.x, c.lam, batch=batch), c.problem.linearize(c.x, c.lam, batch)
        for found, wanted in zip(lin.products(c.u), (expected.hvp(c.u), expected.cross(c.u)), strict=True):
            np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(ours.hessian(c.x, c.lam, batch), c.problem.hessian(c.x, c.lam, batch))
    np.testing.assert_array_equal(ours.outer_grad(c.x, c.lam)[0], c.problem.outer_grad(c.x, c.lam)[0])


@pytest.mark.parametrize("name", ["n_clients", "dim_x", "dim_lam", "inner_cost", "inner_grad", "outer_cost",
                                  "outer_grad", "linearize"])  # fmt: skip
def test_a_missing_member_is_named(name):
    class Lacking(Own):
        def __getattribute__(self, asked):
            if asked == name:
                raise AttributeError(asked)
            return super().__getattribute__(asked)

    with pytest.raises(TypeError, match=name):
        as_problem(Lacking())


@pytest.mark.parametrize("value, error", [(0, ValueError), (2.0, TypeError), (True, TypeError), ("3", TypeError)])
def test_sizes_are_integers(value, error):
    own = Own()
    own.dim_lam = value
    with pytest.raises(error, match="problem.dim_lam"):
        as_problem(own)


@pytest.mark.parametrize("counts", [[1, 2], [1.0, 2.0, 3.0], [3, 0, 1], 7, "many"], ids=str)
def test_counts_are_integers_one_for_each_client(counts):
    own = Own()
    own.counts = counts
    with pytest.raises((TypeError, ValueError), match="problem.counts"):
        as_problem(own)


WRONG = {
    "a list": (lambda a: a.tolist(), TypeError),
    "None": (lambda a: None, TypeError),
    "a lost axis": (lambda a: a[..., 0], ValueError),
    "one client less": (lambda a: a[1:], ValueError),
    "another dtype": (lambda a: a.astype(np.float32), TypeError),
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("method", ["hvp", "cross", "inner_cost", "inner_grad", "outer_cost", "outer_grad"])
@pytest.mark.parametrize("runs", [(), (2,)], ids=["one run", "runs"])
def test_a_wrong_answer_is_named(method, how, runs, monkeypatch):
    spoil, error = WRONG[how]
    own = Own()
    target = OwnLinearization if method in ("hvp", "cross") else Own
    right = getattr(target, method)

    def wrong(self, *args):
        answer = right(self, *args)
        return (answer[0], spoil(answer[1])) if method == "outer_grad" else spoil(answer)

    monkeypatch.setattr(target, method, wrong)
    x = lam = u = np.ones((*runs, 3, 2))
    problem = as_problem(own)
    with pytest.raises(error, match=rf"problem.{method}\(.* must return .* got"):
        if target is OwnLinearization:
            getattr(problem.linearize(x, lam), method)(u)
        else:
            getattr(problem, method)(x, lam)


def test_an_outer_gradient_that_is_no_pair_is_named(monkeypatch):
    monkeypatch.setattr(Own, "outer_grad", lambda self, x, lam: x)
    with pytest.raises(TypeError, match="outer_grad.* must return a tuple of two arrays, got ndarray"):
        as_problem(Own()).outer_grad(np.ones((3, 2)), np.ones((3, 2)))


def test_a_linearization_without_a_product_is_named(monkeypatch):
    monkeypatch.setattr(Own, "linearize", lambda self, x, lam: object())
    with pytest.raises(TypeError, match="linearize.* without the method hvp"):
        as_problem(Own()).linearize(np.ones((3, 2)), np.ones((3, 2)))


def test_nan_passes_through_for_the_caller_to_see(monkeypatch):
    monkeypatch.setattr(OwnLinearization, "hvp", lambda self, u: np.full_like(u, np.nan))
    lin = as_problem(Own()).linearize(np.ones((3, 2)), np.ones((3, 2)))
    assert np.all(np.isnan(lin.hvp(np.ones((3, 2)))))


def test_own_products_are_used_where_offered(monkeypatch):
    calls = []

    def products(self, u):
        calls.append(u.shape)
        return self.inside.hvp(u), self.inside.cross(u)

    monkeypatch.setattr(OwnLinearization, "products", products, raising=False)
    as_problem(Own()).linearize(np.ones((3, 2)), np.ones((3, 2))).products(np.ones((4, 3, 2)))
    assert calls == [(3, 2)] * 4


def test_a_class_derived_from_a_built_in_one_is_checked():
    class Mine(Quadratic):
        def inner_grad(self, x, lam, batch=None):
            return [0.0]

    mine = Mine(np.eye(2)[None], np.ones((1, 2)), np.ones((1, 1, 2)), np.ones((1, 2)))
    with pytest.raises(TypeError, match="inner_grad"):
        as_problem(mine).inner_grad(np.ones((1, 2)), np.ones((1, 1)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_batches_go_over_at_once_and_come_out_one_by_one(library):
    lib = open_library(library)
    host = np.arange(2 * 2 * 3 * 4).reshape(2, 2, 3, 4)
    like = lib.asarray(np.ones((3, 2)))
    prepared = as_problem(Own()).prepare_batches(host, like=like)
    np.testing.assert_array_equal(lib.to_numpy(prepared[1, 0]), host[1, 0])


def test_no_autograd_graph_is_retained_during_a_run():
    torch = pytest.importorskip("torch", reason="torch not exercised: it is not installed")
    problem = from_torch(
        lambda i, x, lam, batch: (lam * x * x).sum(), lambda i, x, lam: (x - 1).square().sum(), 2, 3, 3
    )
    x, lam = (torch.ones(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for ours in (as_problem(problem), as_problem(Quadratic.random(2, 3, 3).to("torch"))):
        lin = ours.linearize(x, lam)
        answers = [
            ours.inner_cost(x, lam),
            ours.inner_grad(x, lam),
            *ours.outer_grad(x, lam),
            *lin.products(x.detach()),
        ]
        assert not any(a.requires_grad for a in answers)


class Doubled(LogisticRegression):
    """A subclass that gives second derivatives anew and inherits closed forms of the old ones."""

    def linearize(self, x, lam, batch=None):
        own = super().linearize(x, lam, batch=batch)

        class At:
            def hvp(self, u):
                return 2.0 * own.hvp(u)

            def cross(self, u):
                return own.cross(u)

        return At()


def test_closed_forms_of_a_parent_are_not_used_for_a_subclass():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 6, 4)), rng.integers(0, 2, (3, 6))
    whole, doubled = LogisticRegression(X, y, X, y), Doubled(X, y, X, y)
    x, lam = rng.normal(size=(3, 4)), np.full((3, 4), 0.5)
    np.testing.assert_allclose(exact.hessians(doubled, x, lam), 2.0 * exact.hessians(whole, x, lam), rtol=1e-12)
    normal = as_problem(doubled)
    assert normal.hessian is None and normal.jacobian is None and normal.lipschitz is None
    assert as_problem(whole).hessian is not None and as_problem(whole).lipschitz is not None
    doubled.hessian = lambda x, lam, batch=None: np.zeros((3, 4, 4))  # an instance's own is meant
    assert as_problem(doubled).hessian is not None
