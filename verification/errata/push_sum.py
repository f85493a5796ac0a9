"""Errata about Push-Sum and its error: 1, 2, 3, 24 and 27."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

import hgp_ref as hgp
from verification.errata.entry import GAP, SLIP, Erratum, Shown, figure
from verification.run import Run


def weights_start_at_one(run: Run) -> Shown:
    """Erratum 1: Push-Sum with ω^(0) = 1, and with every ω^(s) = 1, the literal reading of the line."""
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
        f"two cliques of 64 clients joined by one edge each way: σ_max is {root:.2f} times √n c and {linear:.3f} times "
        f"n c; random digraphs, n = 3, S = 2: σ_max exceeds √n c in {100 * broken / count:.0f} % of {count}, "
        "n c in none",
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
        f"at S = {printed}, where (8n/δ)τ^S meets the condition on S, (8n/δ)τ^(S−1) is {left:.3f} times too large; "
        f"S = {printed + 1} is needed. With δτ in place of δ the printed form holds: the factor before τ^S is "
        f"{8 * n / (delta * tau):.1f} instead of {8 * n / delta:.1f}",
    )


def unaligned_calls(run: Run) -> Shown:
    """Erratum 27: n = B = S = 2, all windows {0,1}, {2,3}, … strongly connected, half of the calls from s = 1 idle.

    At steps s = 0, 3, 4, 7, 8, … both clients send, at the others neither does.
    """
    both, neither = np.full((2, 2), 0.5), np.eye(2)
    W = [both if s % 4 in (0, 3) else neither for s in range(8)]
    aligned, unaligned = (
        [float(np.linalg.norm(W[s + 1] @ W[s] - 0.5, 2)) for s in range(first, 6, 2)] for first in (0, 1)
    )
    n, B, contraction = 3, 2, 0.1
    log_tau = math.log1p(-(float(n) ** (-n * B))) / B
    needed = {}
    for label, log_delta, lost in (("aligned", -n * B, 1), ("unaligned", -((n + 1) * B - 1), B)):
        level = log_delta * math.log(n) - math.log(16 * n) + math.log(contraction / (1 - contraction))
        needed[label] = math.ceil(lost + level / log_tau)
    return Shown(
        "n = B = S = 2, windows from s = 0, calls from s = 1",
        max(unaligned),
        max(aligned),
        max(aligned) < 1e-15 and max(unaligned) == 1.0 and needed["unaligned"] > needed["aligned"],
        f"windows {{0, 1}}, {{2, 3}}, … are all strongly connected, yet of the calls that start at s = 1, 3, 5 the "
        f"first and third carry no message: σ_max(E) = {', '.join(f'{x:.0f}' for x in unaligned)} instead of "
        f"{max(aligned):.0f}; n = 3, B = 2, ηα = 0.1: S = {needed['unaligned']} steps are needed instead of "
        f"{needed['aligned']}",
    )


def strongly_connected(graphs: np.ndarray) -> np.ndarray:
    """Which adjacency matrices (..., n, n) with self-loops are strongly connected."""
    reach = graphs.astype(np.float64)
    for _ in range(math.ceil(math.log2(graphs.shape[-1])) + 1):
        reach = ((reach @ reach) > 0).astype(np.float64)
    return (reach > 0).all(axis=(-2, -1))


def windows_that_fail(net: hgp.networks.RandomDirected, window: int, count: int) -> float:
    """The share of `count` consecutive windows of B = `window` steps whose union is not strongly connected."""
    steps = net.adjacencies(1, window * count)  # (B·count, n, n)
    union = steps.reshape(count, window, net.n, net.n).any(axis=1)
    return float(1 - strongly_connected(union).mean())


def failure_probability(rates: np.ndarray, window: int) -> float:
    """The probability that the union of `window` independent graphs is not strongly connected, over all 2^n(n−1)."""
    n = len(rates)
    edges = [(i, j) for i in range(n) for j in range(n) if i != j]
    absent = np.array([(1 - rates[edge]) ** window for edge in edges])
    present = np.array(list(product((False, True), repeat=len(edges))))  # (graphs, edges)
    graphs = np.tile(np.eye(n, dtype=bool), (len(present), 1, 1))
    graphs[:, [i for i, _ in edges], [j for _, j in edges]] = present
    fails = ~strongly_connected(graphs)
    return float(np.prod(np.where(present[fails], 1 - absent, absent), axis=1).sum())


def random_graphs_have_no_window(run: Run) -> Shown:
    """Erratum 24: how often windows of independent random digraphs are not strongly connected."""
    net = hgp.networks.RandomDirected(3, seed=run.seed + 24)
    count, steps, long = run.pick(200_000, 20_000), 1000, 10
    shares = {B: windows_that_fail(net, B, count) for B in (1, 2, 3)}
    exact = {B: failure_probability(net.rates, B) for B in (1, 2, 3, long)}
    return Shown(
        "random digraph of the paper, n=3, B=3",
        shares[3],
        exact[3],
        exact[long] > 0 and all(abs(shares[B] - exact[B]) < 5 * math.sqrt(exact[B] / count) for B in (1, 2, 3)),
        f"share of windows that are not strongly connected: {100 * shares[1]:.1f} % for B = 1, {100 * shares[2]:.1f} % "
        f"for B = 2, {100 * shares[3]:.2f} % for B = 3. For B = {long} the probability is {figure(exact[long])}: not "
        f"0, so in an infinite sequence some window fails almost surely; yet all {steps // long} windows of a run of "
        f"{steps} steps are strongly connected with probability at least 1 − {figure(steps // long * exact[long])}",
    )


ENTRIES = (
    Erratum(
        1,
        SLIP,
        "Algorithm 1, first line",
        "The weight to be initialised is written ω^(s), but s is not defined before the loop.",
        "ω^(0) ← 1, before the loop.",
        weights_start_at_one,
    ),
    Erratum(
        2,
        GAP,
        "Lemma 2, proof",
        "From ‖(Θ − Θ̂)y‖_∞ ≤ c ‖y‖_1 the proof concludes σ_max ≤ √n c, citing ‖Ay‖_∞ ≤ σ_max(A)‖y‖. The "
        "conclusion would need the reverse inequality.",
        "What follows is σ_max ≤ n c. The lemma asserts only that some δ exists, so its statement is true, with "
        "δ/√n in place of δ. If δ is to be the constant of Nedić and Olshevsky, 8√n/δ becomes 8n/δ, here and in "
        "the theorems.",
        root_n_is_not_enough,
    ),
    Erratum(
        3,
        GAP,
        "Lemma 2, proof",
        "The exponent in the cited lemma is taken to be S.",
        "That lemma bounds the error after t + 1 steps by (8/δ) τ^t ‖y‖_1, so after S steps the exponent is S − "
        "1. As in erratum 2 the statement is true with another constant, here δτ in place of δ.",
        one_power_too_many,
    ),
    Erratum(
        24,
        GAP,
        "Assumption 1 and the experiments",
        "The experiments draw graphs independently at random; Assumption 1 asks for one B with which every window "
        "of B steps is strongly connected.",
        "In an infinite sequence of independent random graphs almost surely no B satisfies this, because each "
        "window fails with the same positive probability. A run of finite length meets the assumption with high "
        "probability, if B is large. Bounds A and B use the matrices of the graphs that were drawn and need no "
        "such assumption.",
        random_graphs_have_no_window,
    ),
    Erratum(
        27,
        GAP,
        "Assumption 1 and the calls of Push-Sum",
        "Windows of B steps start at s = 0, B, 2B, …, but call m of Push-Sum starts at s = mS + 1, which may lie "
        "inside a window.",
        "Assume connectivity over every B consecutive steps. Otherwise up to B − 1 steps at the start of a call "
        "may be lost: with the constants of Nedić and Olshevsky the power is τ^(S−B) in place of τ^(S−1), and δ ≥ "
        "n^−((n+1)B−1) in place of n^−(nB).",
        unaligned_calls,
    ),
)
