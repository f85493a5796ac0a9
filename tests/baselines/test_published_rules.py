"""Iterates of exact diffusion, EXTRA and gradient tracking against the algorithms as their papers print them.

Each is written client by client, with sums over neighbours and nothing of the package. Costs are not quadratic.

[1] K. Yuan, B. Ying, X. Zhao, A. H. Sayed. Exact diffusion for distributed optimization and learning. IEEE TSP 2019.
[2] W. Shi, Q. Ling, G. Wu, W. Yin. EXTRA: an exact first-order algorithm. SIAM J. Optim. 2015.
[3] A. Nedić, A. Olshevsky, W. Shi. Achieving geometric convergence for distributed optimization. SIAM J. Optim. 2017.
[4] J. Xu, S. Zhu, Y. C. Soh, L. Xie. Augmented distributed gradient methods for multi-agent optimization. CDC 2015.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.libraries import assert_close

import hgp_ref as hgp
from hgp_ref.baselines.rules import AdaptThenTrack, ExactDiffusion, Extra, Tracking, Variable
from hgp_ref.mixing import run_round, start_averaging

N, D, STEP, K = 5, 3, 0.3, 25
NET = hgp.networks.StaticUndirected(N, p=0.5, seed=2)
RNG = np.random.default_rng(7)
FEATURES, SIGNS = RNG.normal(size=(N, 8, D)), RNG.choice([-1.0, 1.0], (N, 8))


def gradient(i, x):
    """Of Σ_k log(1 + exp(−s_k a_kᵀx)) / 8 + |x|²/20 of client i."""
    total = 0.1 * x
    for a, s in zip(FEATURES[i], SIGNS[i], strict=True):
        total = total - s * a / (1 + np.exp(s * (a @ x))) / 8
    return total


def neighbours(i):
    """(weight, client) of those that client i hears, itself included."""
    return [(w, j) for j, w in enumerate(NET.mixing_matrix(1)[i]) if w > 0]


def mixed(values, i, lazy=False):
    total = sum(w * values[j] for w, j in neighbours(i))
    return (values[i] + total) / 2 if lazy else total


def exact_diffusion(x):
    """[1]: adapt, correct, combine, with (I + W)/2."""
    w, before, out = x, x, []
    for _ in range(K):
        psi = [w[i] - STEP * gradient(i, w[i]) for i in range(N)]
        phi = [psi[i] + w[i] - before[i] for i in range(N)]
        w, before = [mixed(phi, i, lazy=True) for i in range(N)], psi
        out.append(w)
    return out


def extra(x):
    """[2]: x² = (I + W) x¹ − W̃ x⁰ − α (∇f(x¹) − ∇f(x⁰)) with W̃ = (I + W)/2, x¹ = W x⁰ − α ∇f(x⁰)."""
    out = [[mixed(x, i) - STEP * gradient(i, x[i]) for i in range(N)]]
    before = x
    while len(out) < K:
        last = out[-1]
        out.append([
            last[i] + mixed(last, i) - mixed(before, i, lazy=True)
            - STEP * (gradient(i, last[i]) - gradient(i, before[i])) for i in range(N)
        ])  # fmt: skip
        before = last
    return out


def diging(x):
    """[3], over a fixed graph."""
    y, out = [gradient(i, x[i]) for i in range(N)], []
    for _ in range(K):
        new = [mixed(x, i) - STEP * y[i] for i in range(N)]
        y = [mixed(y, i) + gradient(i, new[i]) - gradient(i, x[i]) for i in range(N)]
        x = new
        out.append(x)
    return out


def augmented(x):
    """[4], with one more round for y at the start: adapt, then combine, both variables."""
    first = [gradient(i, x[i]) for i in range(N)]
    y, out = [mixed(first, i) for i in range(N)], []
    for _ in range(K):
        new = [mixed([x[j] - STEP * y[j] for j in range(N)], i) for i in range(N)]
        y = [mixed([y[j] + gradient(j, new[j]) - gradient(j, x[j]) for j in range(N)], i) for i in range(N)]
        x = new
        out.append(x)
    return out


PUBLISHED = [(ExactDiffusion, exact_diffusion), (Extra, extra), (Tracking, diging), (AdaptThenTrack, augmented)]
by_rule = pytest.mark.parametrize(("rule", "published"), PUBLISHED, ids=lambda value: value.__name__)


def iterates(rule, x, steps=K):
    mixer = start_averaging([hgp.Gossip(NET, 1)], N, x, 2 * steps)
    variable, out = Variable(x), []
    for _ in range(steps):
        move = rule(STEP).move(variable, lambda s: np.stack([gradient(i, s[i]) for i in range(N)]))
        (variable,) = run_round(mixer, move)
        out.append(variable.s)
    return np.stack(out)


@by_rule
def test_iterates_from_a_common_start_are_those_of_the_paper(rule, published):
    x = np.tile(RNG.normal(size=D), (N, 1))
    assert_close(iterates(rule, x), np.stack(published(list(x))), 1e-12)


@pytest.mark.parametrize(("rule", "published"), [pair for pair in PUBLISHED if pair[0] is not Extra])
def test_iterates_from_different_starts_are_those_of_the_paper(rule, published):
    x = RNG.normal(size=(N, D))  # the first step of EXTRA is lazy here, which matters only from different starts
    assert_close(iterates(rule, x), np.stack(published(list(x))), 1e-12)


@by_rule
def test_limits_are_minima_of_the_sum(rule, published):
    x = iterates(rule, RNG.normal(size=(N, D)), 1500)[-1]
    assert np.ptp(x, axis=0).max() < 1e-9
    assert np.abs(sum(gradient(i, x[i]) for i in range(N))).max() < 1e-9
