"""The accuracy of the reference itself: truth by rational arithmetic, estimates of its error, symmetry of H."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hgp_ref import exact
from hgp_ref.exact import linear_systems
from hgp_ref.problems.term_sizes import TermSizes

EPS = np.finfo(np.float64).eps


class Given:
    """Derivatives as given, rounded to the dtype of x."""

    def __init__(self, H, J, f_x, f_lam):
        self.H, self.J, self.f_x, self.f_lam = H, J, f_x, f_lam
        (self.n_clients, self.dim_lam, self.dim_x) = J.shape

    def outer_grad(self, x, lam):
        return self.f_x.astype(x.dtype), self.f_lam.astype(x.dtype)

    def hessian(self, x, lam, batch=None):
        return self.H.astype(x.dtype)

    def jacobian(self, x, lam, batch=None):
        return self.J.astype(x.dtype)

    def at(self, dtype=np.float64):
        return np.zeros((self.n_clients, self.dim_x), dtype=dtype), np.zeros((self.n_clients, self.dim_lam), dtype)


def ill_conditioned(condition, seed, n=3, d=5, d_lam=2):
    """Clients with one weak direction in common."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    H = np.stack([(basis * np.geomspace(1 / condition, 1, d) * rng.uniform(0.5, 2)) @ basis.T for _ in range(n)])
    H = (H + np.swapaxes(H, 1, 2)) / 2
    return Given(H, rng.normal(size=(n, d_lam, d)), rng.normal(size=(n, d)), rng.normal(size=(n, d_lam)))


def rational(a):
    return [rational(row) for row in a] if a.ndim else Fraction(float(a))


def solved(A, b):
    """Gaussian elimination in rational numbers."""
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    for k in range(len(rows)):
        pivot = max(range(k, len(rows)), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [v - rows[i][k] * w for v, w in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def summed(parts):
    return [summed(list(part)) for part in zip(*parts, strict=True)] if isinstance(parts[0], list) else sum(parts)


def less(f, J, w):
    return [v - sum(a * b for a, b in zip(row, w, strict=True)) for v, row in zip(f, J, strict=True)]


def truths(p):
    """Every class of hyper-gradient in rational numbers."""
    H, J, f_x, f_lam = (rational(a) for a in (p.H, p.J, p.f_x, p.f_lam))
    n, total, n_mean_J = len(H), summed(H), summed(J)
    w, own = solved(total, summed(f_x)), [solved(total, f) for f in f_x]
    whole = [less(f_lam[i], J[i], w) for i in range(n)]
    return {
        "hypergradient": whole,
        "stacked": whole,
        "client": [less(f_lam[i], J[i], own[i]) for i in range(n)],
        "client, shared": [less(f_lam[i], n_mean_J, own[i]) for i in range(n)],
        "local": [less(f_lam[i], J[i], solved(H[i], f_x[i])) for i in range(n)],
    }


FOUND = {
    "hypergradient": exact.hypergradient,
    "stacked": lambda *a: exact.hypergradient(*a, method="stacked", eta=0.7),
    "client": exact.client_hypergradient,
    "client, shared": lambda *a: exact.client_hypergradient(*a, shared=True),
    "local": exact.local_hypergradient,
}


def distance(found, wanted):
    """|found − wanted| in rational numbers, rounded at the end."""
    return np.array(
        [[float(abs(Fraction(float(v)) - t)) for v, t in zip(*rows, strict=True)]
         for rows in zip(found, wanted, strict=True)]
    )  # fmt: skip


@pytest.mark.parametrize("condition", [1e2, 1e8, 1e12, 1e14])
@pytest.mark.parametrize("kind", FOUND)
def test_the_reference_is_exact_for_the_derivatives_it_is_given(kind, condition):
    for seed in range(3):
        problem = ill_conditioned(condition, seed)
        x, lam = problem.at()
        found, wanted = FOUND[kind](problem, x, lam), truths(problem)[kind]
        assert isinstance(found, np.ndarray) and found.dtype == np.float64
        rounded = 8 * EPS if kind == "client, shared" else 2 * EPS  # Σ_k J_k is rounded there
        size = np.abs(found).max() if kind == "client, shared" else np.abs(found)
        assert np.all(distance(found, wanted) <= rounded * size)


@pytest.mark.parametrize("exponents", [(400, 0, 0, 0), (-400, 300, -300, 0), (0, -400, 400, 300), (300, 0, 300, -900)])
def test_units_do_not_matter(exponents):
    plain = ill_conditioned(1e10, 1)
    h, j, f, outer = exponents
    problem = Given(np.ldexp(plain.H, h), np.ldexp(plain.J, j), np.ldexp(plain.f_x, f), np.ldexp(plain.f_lam, outer))
    for kind, find in FOUND.items():
        if kind != "stacked" or abs(h) < 300:
            found = find(problem, *problem.at())
            size = np.abs(found).max() if kind == "client, shared" else np.abs(found)
            assert np.all(distance(found, truths(problem)[kind]) <= 8 * EPS * size)


def test_a_result_beyond_float64_is_refused():
    plain = ill_conditioned(10, 1)
    problem = Given(np.ldexp(plain.H, -600), plain.J, np.ldexp(plain.f_x, 600), plain.f_lam)
    for kind, find in FOUND.items():
        with pytest.raises(ValueError, match="eta must be" if kind == "stacked" else "leaves the range of float64"):
            find(problem, *problem.at())


@pytest.mark.parametrize("eta", [1e-300, 1e-18, 1e30])
def test_a_stacked_system_that_is_singular_in_float64_is_refused(eta):
    problem = ill_conditioned(10, 1)
    with pytest.raises(ValueError, match="eta must be near 1/‖H‖ for the stacked system"):
        exact.hypergradient(problem, *problem.at(), method="stacked", eta=eta)


# ---- the estimate of the error


@pytest.mark.parametrize(("condition", "dtype"), [(1e1, "f4"), (1e3, "f4"), (1e5, "f4")])
def test_errors_of_rounded_derivatives_stay_below_the_estimate(condition, dtype):
    """Derivatives rounded to float32, judged against those in float64."""
    shares = []
    for seed in range(30):
        problem = ill_conditioned(condition, seed)
        truth = exact.hypergradient(problem, *problem.at())
        value, error = exact.hypergradient(problem, *problem.at(np.dtype(dtype)), return_error=True)
        assert error.shape == value.shape
        shares.append(np.abs(value - truth) / error)
    assert np.max(shares) <= 1
    assert np.median(shares) >= 0.02, "an estimate, not only a bound"


def test_the_error_estimate_is_large_if_float64_derivatives_are_not_enough():
    for condition, lowest, highest in ((1e2, 1e-17, 1e-12), (1e12, 1e-6, 1e-2)):
        problem = ill_conditioned(condition, 2)
        value, error = exact.hypergradient(problem, *problem.at(), return_error=True)
        assert np.all(error >= lowest * np.abs(value)) and np.all(error <= highest * np.abs(value).max())
        assert np.array_equal(value, exact.hypergradient(problem, *problem.at()))
        stacked = exact.hypergradient(problem, *problem.at(), method="stacked", return_error=True)
        np.testing.assert_allclose(stacked[1], error, rtol=1e-3)


@pytest.mark.parametrize(("exponent", "finite"), [(-20, True), (-24, False)])
def test_the_estimate_is_infinite_where_rounding_may_make_the_hessian_singular(exponent, finite):
    H = np.array([[[1.0, 1 - 2.0**exponent], [1 - 2.0**exponent, 1.0]]])  # exact in float32
    problem = Given(H, np.ones((1, 1, 2)), np.ones((1, 2)), np.ones((1, 1)))
    value, error = exact.hypergradient(problem, *problem.at(np.float32), return_error=True)
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(error)) == finite


class Sized(Given):
    """Term sizes `factors` times |value| for ∂_x f, ∂_λ f, H and J, with K roundings."""

    def __init__(self, given, factors, K=10):
        super().__init__(given.H, given.J, given.f_x, given.f_lam)
        self.factors, self.K = factors, K

    def term_sizes(self, x, lam):
        f_x, f_lam, H, J = self.factors
        return TermSizes(
            roundings=self.K,
            inner_cost=np.zeros(self.n_clients),
            inner_grad=np.zeros_like(x),
            outer_cost=np.zeros(self.n_clients),
            outer_grad=(f_x * np.abs(self.f_x), f_lam * np.abs(self.f_lam)),
            hvp=lambda u: H * np.einsum("iab,ib->ia", np.abs(self.H), np.abs(u)),
            cross=lambda u: J * np.einsum("iab,ib->ia", np.abs(self.J), np.abs(u)),
        )


def test_term_sizes_are_used_where_offered():
    plain = ill_conditioned(1e3, 4)
    at = plain.at()
    own = exact.hypergradient(plain, *at, return_error=True)[1]
    like = exact.hypergradient(Sized(plain, (1, 1, 1, 1), K=1), *at, return_error=True)[1]
    np.testing.assert_allclose(like, own, rtol=1e-12)
    rest = exact.hypergradient(Sized(plain, (0, 0, 0, 0)), *at, return_error=True)[1]
    assert np.all(rest <= own / 10)
    parts = [exact.hypergradient(Sized(plain, row, K=1), *at, return_error=True)[1] - rest for row in np.eye(4)]
    assert all(np.all(part > 0) for part in parts)
    np.testing.assert_allclose(sum(parts), own - rest, rtol=1e-6)

    class Unknown(Given):
        def term_sizes(self, x, lam):
            return None

    unknown = Unknown(plain.H, plain.J, plain.f_x, plain.f_lam)
    assert np.array_equal(exact.hypergradient(unknown, *at, return_error=True)[1], own)


# ---- symmetry


def test_a_product_that_is_not_symmetric_is_refused():
    problem = ill_conditioned(10, 1)
    problem.H[2, 0, 3] += 1e-3
    for find in FOUND.values():
        with pytest.raises(ValueError, match=r"hvp must be symmetric, got H\[.*for client 2"):
            find(problem, *problem.at())


def test_a_hessian_of_another_shape_is_refused():
    class Closed:
        def hessian(self, x, lam, batch=None):
            return np.eye(3)

    with pytest.raises(ValueError, match=r"hessian\(x, lam\) must have shape \(n, d_x, d_x\), got \(3, 3\)"):
        exact.hessians(Closed(), np.ones((2, 3)), np.ones((2, 1)))


@pytest.mark.parametrize(("dtype", "allowed"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_rounding_of_products_is_no_asymmetry_and_counts_as_error(dtype, allowed):
    problem = ill_conditioned(10, 1)
    before = exact.hypergradient(problem, *problem.at(dtype), return_error=True)[1]
    problem.H[2, 0, 3] += allowed
    after = exact.hypergradient(problem, *problem.at(dtype), return_error=True)[1]
    assert np.all(after > before + allowed / 100)


# ---- twice the precision


def test_sums_of_products_in_twice_the_precision():
    rng = np.random.default_rng(0)
    for k in (1, 2, 3, 7, 64, 100):
        A = np.ldexp(rng.normal(size=(4, k)), rng.integers(-30, 30, size=(4, k)))
        x, lo = rng.normal(size=k), 1e-17 * rng.normal(size=k)
        near = -np.array([float(sum(Fraction(a) * Fraction(b) for a, b in zip(row, x, strict=True))) for row in A])
        hi, low = linear_systems.dot(A, (x, lo), [near])
        for i in range(4):
            terms = [Fraction(a) * (Fraction(b) + Fraction(c)) for a, b, c in zip(A[i], x, lo, strict=True)]
            terms.append(Fraction(near[i]))
            error = abs(Fraction(hi[i]) + Fraction(low[i]) - sum(terms))
            assert error <= Fraction(linear_systems.residual_error(k + 1)) * sum(map(abs, terms))


def test_error_free_transformations():
    rng = np.random.default_rng(1)
    a, b = (np.ldexp(rng.normal(size=500), rng.integers(-200, 200, size=500)) for _ in range(2))
    for operation, wanted in (
        (linear_systems.two_sum, Fraction.__add__),
        (linear_systems.two_product, Fraction.__mul__),
    ):
        for x, y, hi, lo in zip(a, b, *operation(a, b), strict=True):
            assert Fraction(hi) + Fraction(lo) == wanted(Fraction(x), Fraction(y))
