"""Rounding inside a problem's sums: every bound holds where terms cancel, and every size reaches the bound."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.bilevel import CertifiedDescent, Estimator, GradientDescent, optimise
from hgp_ref.bilevel import certified as intervals
from hgp_ref.bounds.constants import known_lipschitz
from hgp_ref.certificates import certify, measured_residual
from hgp_ref.certificates.point import INCLUDED, NOT_INCLUDED
from hgp_ref.certificates.residuals import NetworkReductions
from hgp_ref.problems import as_problem
from hgp_ref.problems.term_sizes import allowance
from verification import rounding
from verification.exact_numbers import at_solution, decimals, norms
from verification.run import Run

from .certificate_checks import estimate_of, value_of


class UserProblem:
    """A user's problem around a built-in one, whose term sizes may be left out or changed."""

    def __init__(self, problem, change=None):
        self._problem, self._change = problem, change
        for name in ("n_clients", "dim_x", "dim_lam", "inner_cost", "inner_grad", "outer_cost", "outer_grad",
                     "linearize", "lipschitz", "jacobian_norms"):  # fmt: skip
            setattr(self, name, getattr(problem, name))
        if change is not None:
            self.term_sizes = lambda x, lam: change(problem.term_sizes(x, lam))


def case(seed=0, n=3, d=4, k=2):
    """(problem, x, lam, w) where ∂_λ f, ∂_x f, H and J are all there."""
    rng = np.random.default_rng(seed)
    A, Q = rng.normal(size=(2, n, d, d))
    A, Q = (M @ M.swapaxes(1, 2) + np.eye(d) for M in (A, Q))
    b, t = rng.normal(size=(2, n, d))
    C, D = rng.normal(size=(2, n, k, d))
    problem = hgp.problems.Quadratic(A, b, C, t, outer_hessian=Q, coupling=D)
    lam = rng.normal(size=(n, k))
    return problem, hgp.exact.inner_solution(problem, lam), lam, rng.normal(size=(n, d))


def times(factor, *names):
    """A change of term sizes: those called `names`, factor times as large."""

    def scaled(part):
        if callable(part):
            return lambda u: factor * part(u)
        return factor * part

    def change(sizes):
        f_x, f_lam = sizes.outer_grad
        parts = {"inner_cost": sizes.inner_cost, "inner_grad": sizes.inner_grad, "outer_cost": sizes.outer_cost,
                 "f_x": f_x, "f_lam": f_lam, "hvp": sizes.hvp, "cross": sizes.cross}  # fmt: skip
        parts |= {name: scaled(parts[name]) for name in names}
        return replace(sizes, outer_grad=(parts.pop("f_x"), parts.pop("f_lam")), **parts)

    return change


FACTOR = 1e9  # large enough to be seen, small enough that the mean Hessian stays definite


def grown(name, **options):
    """(plain certificate, that with the sizes of `name` FACTOR times as large, sizes, γ, w, point's exact β and H̄)."""
    problem, x, lam, w = case()
    est = estimate_of(value_of(problem, x, lam, w), w)
    plain, more = (
        certify(UserProblem(problem, change), x, lam, est, hgp.ExactAverage(3), first_call=0, **options)
        for change in (times(1.0), times(FACTOR, name))
    )
    sizes = problem.term_sizes(x, lam)
    gamma = allowance(sizes.roundings, float(np.finfo(float).eps))
    return plain, more, sizes, gamma, w, problem


FORMS = [{}, {"matrix_free": True}]


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("name", ["f_lam", "cross"])
def test_sizes_of_a_clients_own_part_reach_every_bound(name, options):
    plain, more, sizes, gamma, w, _ = grown(name, **options)
    added = FACTOR * gamma * np.linalg.norm(sizes.outer_grad[1] if name == "f_lam" else sizes.cross(w), axis=1)
    assert np.all(more.rounding - plain.rounding >= 0.999 * added)
    assert np.all(more.bound - plain.bound >= 0.999 * added)
    assert np.all(more.decentralised - plain.decentralised >= 0.999 * added)
    assert np.all(more.rounding - plain.rounding <= 1.001 * added) or name == "cross"


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("name", ["f_x", "hvp"])
def test_sizes_of_gradients_and_products_reach_every_bound_through_the_residual(name, options):
    plain, more, sizes, gamma, w, problem = grown(name, **options)
    each = [sizes.outer_grad[0]] * 3 if name == "f_x" else [sizes.hvp(np.tile(row, (3, 1))) for row in w]
    hidden = FACTOR * gamma * np.array([np.linalg.norm(size, axis=1).mean() for size in each])
    beta = np.linalg.norm(problem._C, 2, axis=(1, 2))
    alpha = np.linalg.eigvalsh(problem._A.mean(axis=0))[0]
    through = np.linalg.norm(problem._C @ np.linalg.inv(problem._A.mean(axis=0)), 2, axis=(1, 2))
    gain = beta / alpha if options else np.minimum(beta / alpha, through)
    assert np.all(more.rounding - plain.rounding >= 0.999 * gain * hidden)
    centre = np.tile((w.max(axis=0) + w.min(axis=0)) / 2, (3, 1)) if options else w.mean(axis=0)[None].repeat(3, 0)
    at_centre = sizes.outer_grad[0] if name == "f_x" else sizes.hvp(centre)
    least = FACTOR * gamma * np.linalg.norm(at_centre, axis=1).min()
    assert np.all(more.c4 - plain.c4 >= 0.5 * beta / alpha * least)
    if not options:
        r_least = sizes.outer_grad[0] if name == "f_x" else sizes.hvp(w)
        least = FACTOR * gamma * np.linalg.norm(r_least, axis=1).max()
        assert np.all(more.c3 - plain.c3 >= 0.999 * beta / (1.001 * alpha) * least)


def test_products_with_w_and_with_its_centre_reach_c3_and_c4():
    """Sizes that are larger for these products alone, and not for those with unit vectors."""
    problem, x, lam, w = case()
    sizes = problem.term_sizes(x, lam)
    gamma = allowance(sizes.roundings, float(np.finfo(float).eps))

    def change(sizes):
        return replace(sizes, hvp=lambda u: (FACTOR if np.count_nonzero(u[0]) > 1 else 1.0) * sizes.hvp(u))

    est = estimate_of(value_of(problem, x, lam, w), w)
    plain, more = (
        certify(UserProblem(problem, how), x, lam, est, hgp.ExactAverage(3), first_call=0)
        for how in (times(1.0), change)
    )
    assert more.alpha_bar == plain.alpha_bar
    alpha = float(np.linalg.eigvalsh(problem._A)[:, 0].mean())  # what clients find out
    gain = np.linalg.norm(problem._C, 2, axis=(1, 2)) / alpha * FACTOR * gamma
    centres = np.tile(w.mean(axis=0), (3, 1))
    for name, u in (("c3", w), ("c4", centres)):
        added = gain * np.linalg.norm(sizes.hvp(u), axis=1).max()
        assert np.allclose(getattr(more, name) - getattr(plain, name), added, rtol=1e-4), name


def test_sizes_of_products_lower_the_smallest_eigenvalue_and_widen_norms():
    plain, more, sizes, gamma, *_ = grown("hvp")
    columns = [sizes.hvp(np.tile(np.eye(4)[k], (3, 1))) for k in range(4)]
    off = FACTOR * gamma * np.sqrt(np.sum(np.square(columns), axis=(0, 2))).mean()
    assert plain.alpha_bar - more.alpha_bar == pytest.approx(off, rel=1e-3)
    assert np.all(more.c2 > plain.c2)
    plain, more, *_ = grown("cross")
    assert np.all(more.c1 > plain.c1 * (1 + 1e-8)) and np.all(more.c2 > plain.c2 * (1 + 1e-8))
    plain, more, *_ = grown("cross", matrix_free=True)
    assert np.all(more.c1 > plain.c1 * (1 + 1e-8))


@pytest.mark.parametrize("options", FORMS)
def test_sizes_of_inner_gradients_reach_the_distance_to_the_solution(options):
    plain, more, sizes, gamma, _, problem = grown("inner_grad", **options)
    each = FACTOR * gamma * np.linalg.norm(sizes.inner_grad, axis=1)
    assert more.inner_gradient - plain.inner_gradient == pytest.approx(each.mean(), rel=1e-3)
    modulus = known_lipschitz(problem, None).strong_convexity
    nu_flam = np.linalg.norm(problem._D, 2, axis=(1, 2)).max()
    assert np.all(more.inexact - plain.inexact >= 0.999 * nu_flam * each.mean() / modulus)
    assert np.all(more.decentralised_inexact - plain.decentralised_inexact >= 0.999 * nu_flam * each.max() / modulus)


def test_sizes_reach_intervals_and_distances():
    problem, x, lam, _ = case()
    x = x + 0.1
    sizes, nu = problem.term_sizes(x, lam), known_lipschitz(problem, lam)
    gamma = allowance(sizes.roundings, float(np.finfo(float).eps))

    def width(*names):
        reductions = NetworkReductions(hgp.ExactAverage(3), 0, x)
        found = intervals.outer_cost(as_problem(UserProblem(problem, times(FACTOR, *names))), x, lam, nu, reductions)
        return found.high - found.low

    def apart(*names):
        reductions = NetworkReductions(hgp.ExactAverage(3), 0, x)
        return intervals.distances(as_problem(UserProblem(problem, times(FACTOR, *names))), x, lam, nu, reductions)

    assert width("outer_cost") - width() == pytest.approx(2 * FACTOR * gamma * sizes.outer_cost.sum(), rel=1e-3)
    each = FACTOR * gamma * np.linalg.norm(sizes.inner_grad, axis=1)
    assert np.allclose(apart("inner_grad") - apart(), each.max() / nu.strong_convexity, rtol=1e-3)
    slopes = FACTOR * gamma * np.linalg.norm(sizes.outer_grad[0], axis=1)
    assert width("f_x") - width() >= 0.9 * 2 * float(np.sum(slopes * apart()))


def test_certificates_report_whether_rounding_is_complete():
    problem, x, lam, w = case()
    est = estimate_of(value_of(problem, x, lam, w), w)
    for any_problem, complete in (
        (problem, True),
        (UserProblem(problem), False),
        (UserProblem(problem, times(1.0)), True),
    ):
        certificate = certify(any_problem, x, lam, est)
        assert certificate.rounding_complete is complete
        assert (INCLUDED in certificate.assumptions) is complete
        assert (NOT_INCLUDED in certificate.assumptions) is not complete
        assert ("own sums is not included" in str(certificate)) != complete
        assert measured_residual(any_problem, x, lam, est).rounding_complete is complete


def test_one_rank_without_term_sizes_makes_rounding_incomplete(monkeypatch):
    problem, x, lam, w = case()
    avg = hgp.ExactAverage(3)
    monkeypatch.setattr(type(avg.connect()), "any_rank", lambda self, flag: True)
    assert not certify(
        problem, x, lam, estimate_of(value_of(problem, x, lam, w), w), avg, first_call=0
    ).rounding_complete


def test_plans_and_paths_report_incomplete_rounding():
    problem, x, lam, _ = case()
    net = hgp.networks.FullyConnected(3)

    def train(problem, lam, net, **options):
        return SimpleNamespace(x=hgp.exact.inner_solution(case()[0], lam), traffic=hgp.Traffic())

    options = dict(outer_steps=1, train=train, estimate=Estimator(1, 100, eta=0.1))
    for any_problem, complete in ((problem, True), (UserProblem(problem), False)):
        out = hgp.plan(any_problem, x, lam, net, target=1e-3).run()
        assert out.met and out.rounding_complete is complete
        assert ("own sums is not included" in str(out)) is not complete
        path = optimise(any_problem, lam, net, **options, update=CertifiedDescent(0.01))
        assert path.rounding_complete is complete
        assert ("own sums is not included" in str(path)) is not complete
    assert hgp.plan(problem, x, lam, net, target=1e-3).run(certify=False).rounding_complete is None
    path = optimise(problem, lam, net, **options, update=GradientDescent(0.01))
    assert path.rounding_complete is None and "sums" not in str(path)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda sizes: (1, 2), TypeError, "must return a hgp_ref.problems.TermSizes"),
        (lambda sizes: replace(sizes, roundings=0), ValueError, "roundings"),
        (lambda sizes: replace(sizes, roundings=2.5), TypeError, "roundings"),
        (times(-1.0, "hvp"), ValueError, "negative"),
        (times(np.inf, "cross"), ValueError, "infinite"),
        (lambda sizes: replace(sizes, outer_grad=(sizes.inner_cost, sizes.outer_grad[1])), ValueError, "outer_grad"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(change, error, words):
    problem, x, lam, w = case()
    with pytest.raises(error, match=words):
        certify(UserProblem(problem, change), x, lam, estimate_of(value_of(problem, x, lam, w), w))


def test_sums_too_long_for_a_dtype_are_refused():
    problem, x, lam, w = case()
    problem = problem.to("numpy", "float32")
    x, lam, w = (a.astype("float32") for a in (x, lam, w))
    many = UserProblem(problem, lambda sizes: replace(sizes, roundings=10**7))
    with pytest.raises(ValueError, match="more digits"):
        certify(many, x, lam, estimate_of(value_of(problem, x, lam, w), w))


def test_consistency_is_no_shorter_than_the_exact_norm():
    """The norm of v_i − (∂_λ f_i − J_i w_i) rounds itself."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(1, 40))
        problem = hgp.problems.Quadratic(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, k, 1)), np.zeros((1, 1)))
        value = rng.normal(size=(1, k))
        found = certify(problem, np.zeros((1, 1)), np.zeros((1, k)), estimate_of(value, np.zeros((1, 1)))).consistency
        assert Fraction(float(found[0])) ** 2 >= sum(Fraction(float(v)) ** 2 for v in value[0])
        assert found[0] <= np.linalg.norm(value) * (1 + 1e-13)


def test_a_mean_hessian_that_is_not_symmetric_is_bounded_as_it_is():
    problem, x, lam, w = case()
    problem._A = problem._A + 1e-6 * np.triu(np.ones((4, 4)), 1)
    est = estimate_of(value_of(problem, x, lam, w), w)
    w_star = np.linalg.solve(problem._A.mean(axis=0), problem.outer_grad(x, lam)[0].mean(axis=0))
    found = certify(problem, x, lam, estimate_of(value_of(problem, x, lam, w), np.tile(w_star, (3, 1))))
    symmetric = (problem._A + problem._A.swapaxes(1, 2)).mean(axis=0) / 2
    other = np.linalg.solve(symmetric, problem.outer_grad(x, lam)[0].mean(axis=0))
    shift = np.linalg.norm(np.einsum("nkd,d->nk", problem._C, other - w_star), axis=1)
    assert np.all(shift <= found.rounding) and est is not None


def test_one_number_whose_gradient_is_zero_as_evaluated():
    """A = 3, b = 1, t = x = fl(1/3): the bound was 5e-324 where the error is 6e-18."""
    problem, x, lam = rounding.one_number("float64")
    value = np.zeros((1, 1))
    found = certify(problem, x, lam, estimate_of(value, np.zeros((1, 1))), hgp.ExactAverage(1), first_call=0)
    error = norms(decimals(value) - at_solution(problem, x, lam).hypergradient())
    assert np.all(error > 1e-18) and np.all(error <= found.bound) and np.all(error <= found.decentralised_bound)
    assert np.all(found.bound < 1e-15)


@pytest.mark.parametrize("seed", [31, 32])
def test_no_claim_is_false_where_sums_cancel(seed):
    """Certificates, plans and certified steps of all families, by 80 digits."""
    found = rounding.verify(Run(seed=seed, quick=True))
    assert not [row.setting for row in found.rows if row.failed]
    assert found.facts["claims"] > 500
