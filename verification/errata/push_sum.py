"""Errata about Push-Sum and its error: 1, 2, 3, 24 and 27."""

from __future__ import annotations

import math

import numpy as np

import hgp_ref as hgp
from verification.errata.entry import GAP, SLIP, Erratum, Shown, figure
from verification.run import Run


def weights_start_at_one(run: Run) -> Shown:
    """Erratum 1: Push-Sum with ω^(0) = 1, and with every ω^(s) = 1 as the line reads if taken at its word."""
    steps = 200
    net = hgp.networks.RandomDirected(5, seed=run.seed + 1)
    y = np.arange(5.0)
    P = hgp.exact.mixing_product(net, steps)
    right = float(np.abs(P @ y / (P @ np.ones(5)) - y.mean()).max())
    literal = float(np.abs(P @ y - y.mean()).max())
    return Shown(
        f"random digraph, n=5, {steps} steps",
        literal,
        right,
        right < 1e-12 and literal > 0.01,
        f"distance from the mean after {steps} steps: {figure(right)} with ω^(0) = 1, "
        f"{figure(literal)} with every ω^(s) = 1",
    )


def two_cliques(n: int, steps: int) -> np.ndarray:
    """E = K − Π for two cliques of n/2 clients joined by one edge each way."""
    half = n // 2
    pairs = [(i, j) for a in (0, half) for i in range(a, a + half) for j in range(a, a + half)]
    senders, receivers = zip(*pairs, (0, half), (half, 0), strict=True)
    net = hgp.networks.Schedule([(senders, receivers)], n=n)
    return hgp.exact.push_sum_matrix(net, steps) - 1 / n


def norm_ratios(E: np.ndarray) -> tuple[float, float]:
    """σ_max(E) over √n c and over n c, with c = max |E_ij| the best constant in ‖Ey‖_∞ ≤ c ‖y‖_1."""
    n, sigma, c = len(E), np.linalg.norm(E, 2), np.abs(E).max()
    if c == 0:
        return 0.0, 0.0
    return float(sigma / (np.sqrt(n) * c)), float(sigma / (n * c))


def root_n_is_not_enough(run: Run) -> Shown:
    """Erratum 2: the passage from ‖Ey‖_∞ ≤ c ‖y‖_1 to σ_max ≤ √n c, on two cliques and on random digraphs."""
    root, linear = norm_ratios(two_cliques(128, 10))
    count = run.pick(2000, 300)
    broken, worst = 0, 0.0
    for seed in run.seeds(count, stream=2):
        E = hgp.exact.push_sum_matrix(hgp.networks.RandomDirected(3, seed=seed), 2) - 1 / 3
        ratios = norm_ratios(E)
        broken += ratios[0] > 1 + 1e-9
        worst = max(worst, ratios[1])
    return Shown(
        "two cliques of 64, S=10",
        root,
        1.0,
        root > 1 and linear <= 1 + 1e-12 and broken > 0 and worst <= 1 + 1e-12,
        f"two cliques, n = 128: σ_max is {root:.2f} times √n c and {linear:.3f} times n c; random digraphs, n = 3, "
        f"S = 2: the √n form fails in {100 * broken / count:.0f} % of {count}, the n form in none",
    )


def one_power_too_many(run: Run) -> Shown:
    """Erratum 3: the step condition solved with τ^S and with τ^(S−1), worst-case constants, n = 3, B = 1, ηα = 0.1."""
    n, contraction = 3, 0.1
    delta = n ** (-n)
    tau = 1 - delta
    wanted = contraction / (1 - contraction) / 2  # (8n/δ) τ^… must be no larger
    printed = math.ceil(math.log(wanted * delta / (8 * n)) / math.log(tau))
    left = 8 * n / delta * tau ** (printed - 1) / wanted
    return Shown(
        "n=3, B=1, ηα=0.1: steps needed",
        printed + 1,
        printed,
        left > 1 and 8 * n / delta * tau**printed <= wanted,
        f"at S = {printed}, where τ^S meets the step condition (with 8n/δ), what is proved is {left:.3f} times too "
        f"large; S = {printed + 1} is needed. With δτ in place of δ the printed form holds: "
        f"{8 * n / (delta * tau):.1f} "
        f"for {8 * n / delta:.1f} before τ^S",
    )


def unaligned_calls(run: Run) -> Shown:
    """Erratum 27: n = B = S = 2, all windows {0,1}, {2,3}, … strongly connected, half of the calls from s = 1 idle.

    At step s = 0, 3, 4, 7, 8, … both clients send, in between nobody does.
    """
    both, nobody = np.full((2, 2), 0.5), np.eye(2)
    W = [both if s % 4 in (0, 3) else nobody for s in range(8)]
    aligned, unaligned = (
        [float(np.linalg.norm(W[s + 1] @ W[s] - 0.5, 2)) for s in range(first, 6, 2)] for first in (0, 1)
    )
    n, B, contraction = 3, 2, 0.1
    log_tau = math.log1p(-(float(n) ** (-n * B))) / B
    needed = {}
    for words, log_delta, lost in (("aligned", -n * B, 1), ("unaligned", -((n + 1) * B - 1), B)):
        level = log_delta * math.log(n) - math.log(16 * n) + math.log(contraction / (1 - contraction))
        needed[words] = math.ceil(lost + level / log_tau)
    return Shown(
        "n = B = S = 2, windows from s = 0, calls from s = 1",
        max(unaligned),
        max(aligned),
        max(aligned) < 1e-15 and max(unaligned) == 1.0 and needed["unaligned"] > needed["aligned"],
        f"windows {{0, 1}}, {{2, 3}}, … are all strongly connected, yet of the calls that start at s = 1, 3, 5 the "
        f"first and "
        f"third hear nobody: σ_max(E) = {', '.join(f'{x:.0f}' for x in unaligned)} instead of {max(aligned):.0f}; n "
        "= 3, "
        f"B = 2, ηα = 0.1: S = {needed['unaligned']} steps are needed instead of {needed['aligned']}",
    )


def windows_that_fail(net: hgp.networks.RandomDirected, window: int, count: int) -> float:
    """The share of `count` consecutive windows of B = `window` steps whose union is not strongly connected."""
    steps = net.adjacencies(1, window * count)  # (B·count, n, n)
    union = steps.reshape(count, window, net.n, net.n).any(axis=1)
    reach = union.astype(np.float64)
    for _ in range(math.ceil(math.log2(net.n)) + 1):
        reach = ((reach @ reach) > 0).astype(np.float64)
    return float(1 - (reach > 0).all(axis=(1, 2)).mean())


def random_graphs_have_no_window(run: Run) -> Shown:
    """Erratum 24: windows of i.i.d. random digraphs that are not strongly connected, for several B."""
    net = hgp.networks.RandomDirected(3, seed=run.seed + 24)
    count = run.pick(200_000, 20_000)
    shares = {B: windows_that_fail(net, B, count) for B in (1, 2, 3)}
    silent = np.prod(1 - net.rates + np.eye(3), axis=1)  # P(client i hears nobody in one step)
    sure = {B: float((silent**B).max()) for B in (1, 2, 3, 100)}
    return Shown(
        "random digraph of the paper, n=3, B=3",
        shares[3],
        0.0,
        all(shares[B] >= 0.9 * sure[B] > 0 for B in (1, 2, 3)),
        f"windows not strongly connected: {100 * shares[1]:.1f} % for B = 1, {100 * shares[2]:.1f} % for B = 2, "
        f"{100 * shares[3]:.2f} % for B = 3; a client hears nobody for 100 steps with probability {figure(sure[100])}, "
        "not 0, so every B fails in the long run",
    )


ENTRIES = (
    Erratum(
        1,
        SLIP,
        "Algorithm 1, first line",
        "The weight to be initialised is written ω^(s); s is not defined before the loop.",
        "ω^(0) ← 1, once, before the loop.",
        weights_start_at_one,
    ),
    Erratum(
        2,
        GAP,
        "Lemma 2, proof",
        "From ‖(Θ − Θ̂)y‖_∞ ≤ c ‖y‖_1 it concludes σ_max ≤ √n c, citing ‖Ay‖_∞ ≤ σ_max(A)‖y‖, which bounds the known "
        "side by the unknown one.",
        "The conclusion that follows is σ_max ≤ n c, so 8n/δ in place of 8√n/δ, here and in every theorem. As the "
        "lemma only "
        "asserts that some δ exists, its statement survives with δ/√n; what fails is the inference and the "
        "identification "
        "of δ with that of Nedić and Olshevsky.",
        root_n_is_not_enough,
    ),
    Erratum(
        3,
        GAP,
        "Lemma 2, proof",
        "The exponent in the cited lemma is taken as S.",
        "That lemma bounds the error after t + 1 steps by (8/δ) τ^t ‖y‖_1: after S steps the exponent is S − 1. "
        "Again the "
        "statement survives with another δ, here δτ, and what fails is the identification.",
        one_power_too_many,
    ),
    Erratum(
        24,
        GAP,
        "Assumption 1 and the experiments",
        "Independent random graphs are used as if some B made every window of B steps strongly connected.",
        "Each window fails with positive probability, hence no B exists. Use the realised matrices: bounds A and B "
        "need "
        "no such assumption.",
        random_graphs_have_no_window,
    ),
    Erratum(
        27,
        GAP,
        "Assumption 1 and the calls of Push-Sum",
        "Windows of B steps start at s = 0, B, 2B, …; call m of Push-Sum starts at s = mS + 1, in the middle of a "
        "window.",
        "Up to B − 1 steps at the start of a call then count for nothing: with the constants of Nedić and Olshevsky "
        "the power "
        "is τ^(S−B) in place of τ^(S−1), and δ ≥ n^−((n+1)B−1) in place of n^−(nB). Or assume every B consecutive "
        "steps.",
        unaligned_calls,
    ),
)
