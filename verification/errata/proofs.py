"""Errata in formulas and proofs that an identity shows: 7, 8, 20 and 21."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.problems import sample_batches
from verification.cases import Case, logistic
from verification.errata.blocks import blocks
from verification.errata.entry import SLIP, Erratum, Shown, figure
from verification.run import Run

ROUNDING = 1e-12


def last_index_of_Y(run: Run) -> Shown:
    """Erratum 7: −(A3) as Σ Y, its terms regrouped, with the inner sum up to M − 1 and, as printed, M − 2."""
    b = blocks(run.seed)
    u = b.iterates(b.H_hat, b.f_x)
    noise = [(b.H_hat[m] - b.H) @ b.Thetas[m] @ u[m] for m in range(b.M)]

    def Y(last: int) -> np.ndarray:
        terms = (b.eta * b.series(noise[m], 0, last - m) for m in range(b.M - 1))
        return -sum(terms)

    A3 = sum(
        b.eta * b.series(noise[m - t - 1], t, t + 1) for m in range(1, b.M) for t in range(m)
    )  # as the proof defines it
    right, printed = (float(np.linalg.norm(A3 + Y(last))) for last in (b.M - 1, b.M - 2))
    return Shown(
        "logistic n=2 d=3, b=3, M=6",
        printed,
        right,
        right < ROUNDING and printed > 1e-6,
        f"‖(A3) + ΣY‖ is {figure(right)} with t up to M − 1 and {figure(printed)} with t up to M − 2",
    )


def operators_of_the_remark(run: Run) -> Shown:
    """Erratum 8: Algorithm 2 against the explicit formula, with its own operators and samples and as printed."""
    case, eta, M, S = logistic(3, 4, seed=run.seed, rate=0.2, instances=30), 1.0, 20, 2
    net = hgp.networks.RandomDirected(3, seed=run.seed + 1)
    est = case.estimate(hgp.PushSum(net, S), eta=eta, iterations=M, batches=hgp.MiniBatches(5, seed=run.seed))
    for_v, for_u = (sample_batches(case.problem.counts, 5, run.seed, 0, M, stream=k) for k in (0, 1))
    matrices = [hgp.exact.push_sum_matrix(net, S, m) for m in range(M)]

    def gap(Ks: list[np.ndarray], batches_u: np.ndarray) -> float:
        v = hgp.exact.estimate(case.problem, case.x, case.lam, Ks, eta, for_v, batches_u)
        return float(np.linalg.norm(est.value - v))

    right, single, same = gap(matrices, for_u), gap([matrices[0]] * M, for_u), gap(matrices, for_v)
    return Shown(
        "logistic n=3 d=4, S=2, b=5, M=20",
        single,
        right,
        right < ROUNDING and single > 1e-4 and same > 1e-4,
        f"‖v − formula‖ is {figure(right)} with Θ̂_m and ξ̂̂, {figure(single)} with one Θ̂ for all calls, {figure(same)} "
        "with ξ̂ in the Hessian factors",
    )


def blocks_under_consensus(run: Run) -> Shown:
    """Erratum 20: the fixed-point series for one shared x, with the printed η before Σ∂f, and as n² blocks."""
    case, terms = logistic(3, 4, seed=run.seed, rate=0.2), 4000
    H, gradient = case.H.sum(axis=0), case.f_x.sum(axis=0)
    eta = 0.5 / float(np.linalg.eigvalsh(H)[-1])
    block = np.eye(len(H)) - eta * H

    def hypergradient(u: np.ndarray) -> np.ndarray:
        """∂_λ f − η J Σ_m (I − η Σ ∂²g_k)^m u."""
        total = np.zeros_like(u)
        for _ in range(terms):
            total, u = total + u, block @ u
        return case.f_lam - eta * np.einsum("nij,j->ni", case.J, total)

    size = np.linalg.norm(case.truth)
    right, with_eta = (float(np.linalg.norm(hypergradient(c * gradient) - case.truth) / size) for c in (1.0, eta))
    growth = float(np.abs(np.linalg.eigvalsh(case.n * block)).max())
    return Shown(
        "logistic n=3 d=4, one shared x, η = 1/(2 λ_max(ΣH))",
        with_eta,
        right,
        right < 1e-10 and with_eta > 0.01 and growth > 1,
        f"with I − ηΣH for the one shared x and Σ∂f without η the series has relative error {figure(right)}; with the "
        f"printed η before Σ∂f {figure(with_eta)}; with n² equal blocks each term can be {growth:.2f} times the one "
        "before",
    )


def consensus_case(run: Run) -> Case:
    """A logistic problem whose clients have different data."""
    return logistic(3, 4, seed=run.seed, rate=0.1)


def stacked_gradient(run: Run) -> Shown:
    """Erratum 21: at the solution Σ ∂g_k vanishes, the stacked gradient does not; the factor is −η/n, not −η."""
    case, eta = consensus_case(run), 0.5
    gradient = case.problem.inner_grad(case.x, case.lam)
    stacked, total = float(np.linalg.norm(gradient)), float(np.linalg.norm(gradient.sum(axis=0)))
    x = case.x + run.rng(21).normal(size=case.x.shape)
    G = case.problem.inner_grad(x, case.lam)
    mapped = (x - eta * G).mean(axis=0)
    right, printed = (float(np.linalg.norm(mapped - x.mean(axis=0) + c * G.sum(axis=0))) for c in (eta / 3, eta))
    return Shown(
        "logistic n=3 d=4",
        stacked,
        total,
        total < ROUNDING < stacked and right < ROUNDING and printed > 1e-3,
        f"at the solution ‖Σ ∂g_k‖ = {figure(total)}, while the stacked gradient has norm {figure(stacked)}; the "
        f"blocks of the map agree to {figure(right)} with −η/n, to {figure(printed)} with −η",
    )


ENTRIES = (
    Erratum(
        7,
        SLIP,
        "Theorem 1, proof, Y^(m)",
        "The sum over t ends at M − 2.",
        "It ends at M − 1.",
        last_index_of_Y,
    ),
    Erratum(
        8,
        SLIP,
        "Explicit formula of v^(M) (remark)",
        "One Θ̂ for all iterations, and the sample ξ̂ in both derivatives.",
        "The graphs change, so iteration m has its own Θ̂_m; the Hessian factors use the sample ξ̂̂, as in Algorithm 2.",
        operators_of_the_remark,
    ),
    Erratum(
        20,
        SLIP,
        "Section 3.1, eq. (phi_all): derivatives under consensus",
        "⟨∂_x f⟩_i = η Σ ∂f_k and ⟨∂_x φ⟩_ij = I − η Σ ∂²g_k for all i, j.",
        "With x the one vector that all clients share (the reading of erratum 29) I − η Σ ∂²g_k is right, as a "
        "single block without indices i and j. ∂_x f = Σ ∂f_k has no factor η.",
        blocks_under_consensus,
    ),
    Erratum(
        21,
        SLIP,
        "Lemma 1, proof",
        "Optimality is written ∂_x g = 0 under consensus, and ∇g abbreviates −η Σ ∂g_k.",
        "The lemma is true and its proof uses the right condition, Σ ∂g_k = 0. As in erratum 29, ∂_x g in "
        "(lemma_alt) means the gradient in the shared x on the right-hand side and the stacked gradient on the "
        "left. The abbreviation should be −(η/n) Σ ∂g_k.",
        stacked_gradient,
    ),
)
