"""
A new method in one file
========================

A method computes the next increment of w. The driver does the rest: history, tolerance, divergence diagnosis, traffic,
mini-batches and several runs at once.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# Polyak's heavy ball in the letters of Algorithm 2: the residual u is averaged, and the increment has a momentum term.


class HeavyBall(hgp.methods.Method):
    """ū = Θ̂ u,   p ← η ū + μ p,   u ← ū − ∂²_x g p."""

    def __init__(self, eta, momentum):
        self.eta, self.momentum = eta, momentum

    def init(self, start):
        return start.residual, 0 * start.residual

    def step(self, state, mixer, derivatives):
        u, p = state
        ubar = mixer.average(u)
        p = self.eta * ubar + self.momentum * p
        return p, (ubar - derivatives.hvp(p), p)

    def residual(self, state):
        return state[0]


# %%
# This is the whole method. Compare it with the methods of the package on an ill-conditioned problem:

problem = hgp.problems.Quadratic.random(6, 8, 2, seed=1, condition=100)
lam = np.zeros((6, 2))
x = hgp.exact.inner_solution(problem, lam)
truth = hgp.exact.hypergradient(problem, x, lam)
net = hgp.networks.RandomDirected(n=6, seed=1)

figure, axes = plt.subplots()
methods = {
    "Neumann": hgp.methods.Neumann(1.0),
    "heavy ball": HeavyBall(1.0, 0.6),
    "Chebyshev": hgp.methods.Chebyshev(),
}
for label, method in methods.items():
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=15), iterations=120, method=method, history=True)
    axes.semilogy(np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth), label=label)
axes.set(xlabel="iteration", ylabel="relative error")
axes.legend()

# %%
# Is the result right? A certificate bounds the error of any method.

est = hgp.hypergradient(
    problem, x, lam, hgp.PushSum(net, steps=15), iterations=300, method=methods["heavy ball"], tol=1e-8
)
certificate = hgp.certify(problem, x, lam, est, hgp.PushSum(net, steps=30))
error = np.linalg.norm(est.value - truth, axis=1)
print(est.stopped, est.iterations, "error", error.max(), "bound", certificate.bound.max())
