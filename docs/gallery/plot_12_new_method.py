"""
A new method in one file
========================

A method computes the next increment of w. History, tolerance, divergence, traffic, mini-batches, resuming and many runs
at once come from the driver.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# Polyak's heavy ball: as in Algorithm 2 the residual r is averaged, and momentum keeps part of the last increment. The
# state is a dictionary; its entry "residual" is what `tol` refers to.


class HeavyBall(hgp.methods.Method):
    """r̄ = Θ̂ r,   p ← η r̄ + μ p,   r ← r̄ − H p."""

    def __init__(self, eta, momentum):
        self.eta, self.momentum = eta, momentum

    def init(self, start):
        return {"residual": start.residual, "p": 0 * start.residual}

    def step(self, state, mixer, derivatives):
        r = mixer.average(state["residual"])
        p = self.eta * r + self.momentum * state["p"]
        return p, {"residual": r - derivatives.hvp(p), "p": p}


# %%
# This is the whole method. Compare it with the methods of the package on an ill-conditioned problem:

problem = hgp.problems.Quadratic.random(6, 8, 2, seed=1, condition=100)
lam = np.zeros((6, 2))
x = hgp.exact.inner_solution(problem, lam)
truth = hgp.exact.hypergradient(problem, x, lam)
net = hgp.networks.RandomDirected(n=6, seed=1)

figure, axes = plt.subplots()
methods = {
    "Neumann": (hgp.methods.Neumann(1.0), "C0"),
    "heavy ball": (HeavyBall(1.0, 0.6), "C1"),
    "Chebyshev": (hgp.methods.Chebyshev(), "C4"),
}
for label, (method, color) in methods.items():
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=15), iterations=120, method=method, history=True)
    error = np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    axes.semilogy(error, color=color, label=label)
axes.set(xlabel="iteration", ylabel="relative error")
axes.legend()

# %%
# A certificate bounds the error of any method, without assumptions about how it was computed.

est = hgp.hypergradient(
    problem, x, lam, hgp.PushSum(net, steps=15), iterations=300, method=HeavyBall(1.0, 0.6), tol=1e-8
)
certificate = hgp.certify(problem, x, lam, est, hgp.PushSum(net, steps=30))
error = np.linalg.norm(est.value - truth, axis=1)
print(est.stopped, est.iterations, "error", error.max(), "bound", certificate.bound.max())
