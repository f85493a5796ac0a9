"""Errata about when the iteration is stable: 4, 12, 23 and 25."""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np

import hgp_ref as hgp
from hgp_ref.bounds import contracting_clients
from verification import explicit
from verification.cases import Case, case_of, logistic, matrices_of, push_sum_matrices, quadratic
from verification.errata.entry import FALSE, GAP, SHARPER, Erratum, Shown, figure
from verification.run import Run


def single_client(eigenvalues: list[float]) -> Case:
    """One client, H = diag(eigenvalues), J = I, ∂_x f = (1, …, 1) at the solution x = 0."""
    d = len(eigenvalues)
    zero, ones = np.zeros((1, d)), np.ones((1, d))
    problem = hgp.problems.Quadratic(np.diag(eigenvalues)[None], zero, np.eye(d)[None], -ones)
    x, lam = zero, zero
    H, J = np.diag(eigenvalues)[None], np.eye(d)[None]
    truth = -np.linalg.solve(H[0], ones[0])[None]
    return Case("one client", problem, x, lam, H, J, ones, zero, truth)


def step_condition_errors(M: int, eta: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Relative error ‖v^(m) − d‖/‖∂_x f‖ for H = diag(½, 3) with exact averaging; and what Theorem 1 allows."""
    case = single_client([0.5, 3.0])
    errors = explicit.errors(case, np.ones((M, 1, 1)), eta) / np.linalg.norm(case.f_x)
    alpha, beta = 0.5, 1.0
    return errors, beta / alpha * (1 - eta * alpha) ** np.arange(1, M + 1)


def step_condition(run: Run) -> Shown:
    """Erratum 4: α < 1/η holds, averaging and Jacobians are exact, and the error grows; with ηL = 1 it does not."""
    errors, printed = step_condition_errors(40)
    small_step, allowed = step_condition_errors(40, 1 / 3)
    refused = False
    try:
        case = single_client([0.5, 3.0])
        case.estimate(hgp.ExactAverage(1), eta=1.0, iterations=40)
    except hgp.DivergenceError:
        refused = True
    return Shown(
        "H = diag(0.5, 3), η=1, exact averaging, M=40",
        errors[39],
        printed[39],
        errors[9] > printed[9] and errors[39] > 1e6 and refused and bool((small_step <= allowed).all()),
        f"η = 1: relative error {figure(errors[9])} at M = 10 and {figure(errors[39])} at M = 40, where the theorem "
        f"allows {figure(printed[9])} and {figure(printed[39])}; η = 1/3, so that ηL = 1: {figure(small_step[39])} at "
        f"M = 40, where it allows {figure(allowed[39])}",
    )


@lru_cache(maxsize=8)
def non_convex_clients(seed: int) -> Case:
    """Quadratics of three clients, each with negative curvature somewhere, whose mean has eigenvalues in [0.3, 1]."""
    rng = np.random.default_rng([seed, 12])
    n, d = 3, 4
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    mean = (basis * np.linspace(0.3, 1.0, d)) @ basis.T
    apart = rng.normal(size=(n, d, d))
    apart = apart + np.swapaxes(apart, 1, 2)
    apart -= apart.mean(axis=0)
    low, high = 0.0, 4.0  # scale `apart` until the smallest client eigenvalue is −0.29
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.linalg.eigvalsh(mean + middle * apart).min() > -0.29 else (low, middle)
    A = mean + low * apart
    A = (A + np.swapaxes(A, 1, 2)) / 2
    problem = hgp.problems.Quadratic(A, rng.normal(size=(n, d)), rng.normal(size=(n, d, d)), rng.normal(size=(n, d)))
    return case_of("non-convex clients n=3 d=4", problem, rng.normal(size=(n, d)))


def non_convex_errors(run: Run, S: int, M: int) -> np.ndarray:
    """‖v^(m) − d‖ on `non_convex_clients` with η = 1/λ_max(H̄)."""
    case = non_convex_clients(run.seed)
    net = hgp.networks.RandomDirected(3, seed=run.seed + 1)
    return case.errors(case.estimate(hgp.PushSum(net, S), run.backend, eta=1.0, iterations=M, history=True))


def average_convexity(run: Run) -> Shown:
    """Erratum 12: no client is convex, the mean is, and the estimate converges."""
    case = non_convex_clients(run.seed)
    lowest = float(np.linalg.eigvalsh(case.H).min())
    errors = {S: float(non_convex_errors(run, S, 200)[-1]) for S in (10, 20)}
    size = float(np.linalg.norm(case.truth))
    return Shown(
        "quadratic n=3 d=4, M=200, S=20",
        errors[20],
        size,
        lowest < -0.2 and errors[20] < 1e-3 * size and errors[20] < errors[10],
        f"client eigenvalues down to −{-lowest:.2f}, mean ≥ 0.3: error {figure(errors[10])} at S = 10, "
        f"{figure(errors[20])} at S = 20 (‖d‖ = {figure(size)})",
    )


def stable_for_any_S(run: Run) -> Shown:
    """Erratum 23: with S = 1 the terms shrink as ρ^m and the error stays within bound A."""
    case, M = logistic(3, 5, seed=run.seed, rate=0.05), 1000
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, seed=run.seed + 1), 1)
    est = case.estimate(avg, run.backend, eta=1.0, iterations=M)
    c = case.constants(1.0, matrices_of(avg, M))
    bound = contracting_clients(c).total
    error = float(case.error(est))
    return Shown(
        "logistic n=3 d=5, S=1, η=1, M=1000",
        error,
        bound,
        bool(error <= bound and est.residual_ratio < 1e-12 and c.rho < 1),
        f"S = 1, M = 1000, ρ = {c.rho:.2f}: the last term of the series is {figure(float(est.residual_ratio))} times "
        f"the first; the error {figure(error)} stays below bound A, {figure(bound)}",
    )


@lru_cache(maxsize=32)
def debiased_errors(seed: int, S: int, debias: str, M: int, eta: float = 0.1, net_seed: int = 1) -> np.ndarray:
    """‖v^(m) − d‖ on the logistic problem with weights reset, kept or conserved, by explicit matrices."""
    case = logistic(3, 5, seed=seed, rate=0.05)
    net = hgp.networks.RandomDirected(3, seed=net_seed)
    matrices, weights = push_sum_matrices(net, S, M, debias)
    return explicit.errors(case, matrices, eta, weights if debias == "conserve" else None)


def all_debiased_errors(run: Run, M: int = 1000) -> dict[tuple[str, int], np.ndarray]:
    """The three ways at S = 1 and S = 10."""
    ways = [(debias, S) for debias in ("reset", "keep", "conserve") for S in (1, 10)]
    return {(debias, S): debiased_errors(run.seed, S, debias, M, net_seed=run.seed + 1) for debias, S in ways}


def sparse_conserving_growth(seed: int, networks: int = 20) -> np.ndarray:
    """‖ū^(M−1)‖/‖ū^(0)‖ of the mass-conserving form at η = 1/L, S = 1, M = 400 on sparse networks of ten clients."""
    case = quadratic(10, 5, seed=seed, heterogeneity=1.0)
    growth = np.empty(networks)
    for k in range(networks):
        net = hgp.networks.RandomDirected(10, low=0.05, high=0.2, seed=1000 * seed + k)
        _, means = explicit.run(case, *_conserving(case, net))
        growth[k] = np.linalg.norm(means[-1]) / np.linalg.norm(means[0])
    return growth


def _conserving(case: Case, net: hgp.networks.Network) -> tuple[np.ndarray, float, np.ndarray]:
    matrices, weights = push_sum_matrices(net, 1, 400, "conserve")
    return matrices, 1 / case.L, weights


def keeping_weights(run: Run) -> Shown:
    """Erratum 25: the paper's practical modification against reset weights and against conserved mass."""
    M, seed = 1000, run.seed + 1
    last = {way: float(errors[-1]) for way, errors in all_debiased_errors(run, M).items()}
    growth = sparse_conserving_growth(run.seed)
    refused = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the library warns of "keep"; here it is on purpose
        avg = hgp.PushSum(hgp.networks.RandomDirected(3, seed=seed), 1, debias="keep")
    try:
        logistic(3, 5, seed=run.seed, rate=0.05).estimate(avg, eta=0.1, iterations=M)
    except hgp.DivergenceError:
        refused = True
    f = {key: figure(value) for key, value in last.items()}
    short = {way: float(all_debiased_errors(run, M)[way, 1][9]) for way in ("reset", "keep")}
    return Shown(
        "logistic n=3 d=5, η=0.1, M=1000, S=1",
        last["keep", 1],
        last["reset", 1],
        last["keep", 1] > 1e6 * last["reset", 1] and refused and abs(short["keep"] / short["reset"] - 1) < 0.2,
        f"at the paper's M = 10 both give nearly the same error (S = 1: reset {short['reset']:.3f}, kept "
        f"{short['keep']:.3f}); at M = 1000, S = 1: reset {f['reset', 1]}, kept {f['keep', 1]}, sums conserved "
        f"{f['conserve', 1]}; S = 10: reset {f['reset', 10]}, kept {f['keep', 10]}, sums conserved "
        f"{f['conserve', 10]}. Conserving the sums can diverge too: on {(growth > 1).sum()} of {len(growth)} sparse "
        "networks of 10 clients (η = 1/L, S = 1)",
    )


ENTRIES = (
    Erratum(
        4,
        FALSE,
        "Theorem 1, conditions",
        "The theorem's conditions on the step size are 0 < α < 1/η. The proof uses ‖I − ηH‖ ≤ 1 − ηα, which also "
        "needs a condition on the largest eigenvalue L.",
        "Add η(α + L) ≤ 2, with L the largest eigenvalue over clients and samples. It keeps the factor 1 − ηα. "
        "For ηL < 2 the factor is ρ = max(|1 − ηα|, |1 − ηL|); bounds A, B and D use ρ. Section 2.3 asks that ∂_x "
        "φ be positive semidefinite with eigenvalues below one, which for I − ηH means ηL ≤ 1 and would be "
        "enough, but Theorem 1 does not list it among its conditions. Theorem 2 and both corollaries are stated "
        "under the same conditions and need the same addition.",
        step_condition,
    ),
    Erratum(
        12,
        SHARPER,
        "Assumption 2",
        "Every client's cost is assumed strongly convex.",
        "This is sufficient, not necessary. A positive definite mean Hessian and a small enough averaging error "
        "suffice (bound B).",
        average_convexity,
    ),
    Erratum(
        23,
        SHARPER,
        "Footnote on S = 1, 2 (estimation error)",
        "That S = 1, 2 behave differently is attributed to the theorem's lower bound on S.",
        "Where ρ = max_i ‖I − ηH_i‖ < 1, the iteration is stable for every S ≥ 1, because weights that are reset "
        "at every call make Θ̂ row-stochastic (bound A). The floor of the error grows as S falls.",
        stable_for_any_S,
    ),
    Erratum(
        25,
        GAP,
        "Personalization, practical modifications",
        "Push-Sum weights are kept from call to call, while the vectors restart from the debiased values. The "
        "paper introduces this as a practical modification and claims no bound for it.",
        "The theorems do not cover this operator, because its rows do not sum to one. At the paper's M = 10 it "
        "makes little difference; over more iterations the error can diverge. Reset the weights (the default "
        "here).",
        keeping_weights,
    ),
)
