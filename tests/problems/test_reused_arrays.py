"""A problem that returns the same array at every call gives the same numbers as any other, with every method."""

from __future__ import annotations

import numpy as np
import pytest
from support.examples import quadratic
from support.libraries import assert_close
from support.user_problems import Reuses

import hgp_ref as hgp
from hgp_ref import baselines, methods
from hgp_ref.errors import NonFiniteError

NET = hgp.networks.RandomDirected(3, seed=1)
STATIC = hgp.networks.StaticUndirected(3, p=0.9, seed=1)
PUSHED = [
    methods.Neumann(0.3),
    methods.Chebyshev(),
    methods.Tracking(),
    methods.Tracking(0.1),
    methods.Refined(methods.Tracking(0.1), cycles=2, steps=5),
]
AT_POINT = [
    ("mdbo", dict(terms=7, ell=3.0)),
    ("ma_dsbo", dict(step=0.1)),
    *(("sparkle", dict(rule=rule, step=0.1)) for rule in ("ED", "EXTRA", "GT")),
    ("gbdsbo", dict(step=0.3, ell=2.0, terms=3)),
]
LOOPS = {
    "fednest": dict(ell=2.0, local_steps=3),
    "dbo": dict(jhip_lr=0.2),
    "gbdsbo": dict(mixing=0.2, ell=2.0),
    "mdbo": dict(ell=2.0, momentum=0.5),
    "vrdbo": dict(ell=2.0),
    "ma_dsbo": dict(higp_lr=0.2),
    "dsoba": dict(aux_lr=0.2, momentum=0.5),
    "sparkle": dict(aux_lr=0.2, inner_rule="GT", aux_rule="GT", outer_rule="GT"),
    "fab": dict(penalty=5.0),
}


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("method", PUSHED, ids=repr)
def test_estimates(method):
    problem, x, lam = quadratic()
    avg = hgp.PushSum(NET, 2)
    fresh, reused = (hgp.hypergradient(p, x, lam, avg, method=method, iterations=7) for p in (problem, Reuses(problem)))
    assert_close(reused.value, fresh.value, 1e-12)


@pytest.mark.parametrize(("name", "settings"), AT_POINT, ids=str)
def test_estimates_of_baselines(name, settings):
    problem, x, lam = quadratic()
    fresh, reused = (
        baselines.at_point(p, x, lam, STATIC, name, iterations=7, **settings) for p in (problem, Reuses(problem))
    )
    assert_close(reused.value, fresh.value, 1e-12)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_bilevel_methods(name, shared):
    problem, x, lam = quadratic()
    net = {"fab": NET, "fednest": hgp.networks.FullyConnected(3)}.get(name, STATIC)
    call = getattr(baselines, name)
    inner_lr = 0.02 if name == "fab" else 0.2
    fresh, reused = (
        call(p, lam, net, 5, x0=x, lr=0.01, inner_lr=inner_lr, shared=shared, **LOOPS[name])
        for p in (problem, Reuses(problem))
    )
    assert_close(reused.lam, fresh.lam, 1e-11)
    assert_close(reused.x, fresh.x, 1e-11)


class NotFinite(Reuses):
    """`bad` in one entry of every product with the Hessian."""

    bad = np.nan

    def linearize(self, x, lam, batch=None):
        lin = super().linearize(x, lam)
        product, bad = lin.hvp, self.bad

        def hvp(u):
            out = product(u)
            assert np.isfinite(u).all(), "what is not finite does not come back"
            out[1, 0] = bad
            return out

        lin.hvp = hvp
        return lin


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", [methods.Chebyshev(), methods.Tracking(), None], ids=repr)
def test_products_that_are_not_finite_are_the_problems_fault_not_the_networks(method, bad):
    problem, x, lam = quadratic()
    wrong = NotFinite(problem)
    wrong.bad = bad
    with pytest.raises(
        NonFiniteError, match=r"problem.hvp\(u\) must return finite values .* got NaN or infinite values"
    ):
        if method is None:
            hgp.plan(wrong, x, lam, NET, target=1e-3)
        else:
            hgp.hypergradient(wrong, x, lam, hgp.PushSum(NET, 2), method=method, iterations=3)
