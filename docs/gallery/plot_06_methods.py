"""
Choosing a method
=================

All methods compute the same vector w* from averages. They differ in the number of averages and in the error that
remains when averaging is inexact.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

problem = hgp.problems.Quadratic.random(10, 8, 3, seed=0, condition=50)
lam = np.zeros((10, 3))
x = hgp.exact.inner_solution(problem, lam)
truth = hgp.exact.hypergradient(problem, x, lam)
net = hgp.networks.RandomDirected(n=10, seed=0)

# %%
# The error over *rounds*, the steps of the network. Algorithm 2 and Chebyshev reach a floor that depends on S.
# Tracking has no floor, and one step per iteration is enough for it.

runs = {
    "Neumann, S = 5": (hgp.methods.Neumann(1.0), 5, 300, "C0"),
    "Neumann, S = 10": (hgp.methods.Neumann(1.0), 10, 150, "C0"),
    "Chebyshev, S = 10": (hgp.methods.Chebyshev(), 10, 150, "C4"),
    "Tracking, S = 3": (hgp.methods.Tracking(), 3, 500, "C2"),
}
figure, axes = plt.subplots()
for label, (method, steps, iterations, color) in runs.items():
    est = hgp.hypergradient(
        problem, x, lam, hgp.PushSum(net, steps=steps), iterations=iterations, method=method, history=True
    )
    error = np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    axes.semilogy(steps * np.arange(1, len(error) + 1), error, color=color, label=label)
    print(f"{label:18s} {est.traffic.floats:9d} floats, final error {error[-1]:.1e}")
axes.set(xlabel="rounds of the network", ylabel="relative error", ylim=(1e-11, 3))
axes.legend()

# %%
# For an error below the floor of S, :class:`hgp_ref.methods.Refined` restarts on the residual with a few longer
# averages.

refined = hgp.methods.Refined(hgp.methods.Chebyshev(), cycles=4, steps=40)
est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=5), iterations=120, method=refined)
print("refined:", np.linalg.norm(est.value - truth) / np.linalg.norm(truth), "in", est.traffic.rounds, "rounds")
