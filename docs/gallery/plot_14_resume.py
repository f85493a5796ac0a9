"""
Stopping, resuming, saving
==========================

A run can stop at a tolerance. A later run can continue from its result, on graphs that have not been used yet.
Results are saved in files without pickle.
"""

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
lam = np.full((3, problem.dim_x), 0.03)
net = hgp.networks.RandomDirected(n=3, low=0.4, high=0.8, seed=1)
fit = hgp.sgp(problem, lam, net, steps=5000, lr=2.0, milestones=(3000, 4000, 4500))
truth = hgp.exact.hypergradient(problem, fit.x, lam)

# %%
# ``tol=`` stops the run when the residual has fallen to this fraction of its initial value.

est = hgp.hypergradient(problem, fit.x, lam, hgp.PushSum(net, steps=20), tol=1e-6, history=True)
print(est.stopped, est.iterations, est.residual_ratio)

# %%
# Continue from ``est.w`` (clients average it once) with another method, on the graphs that follow. Graphs are
# functions of (seed, step), and ``net.after(t)`` is the network from step t + 1 on. The steps of the calls may be a
# sequence, whose last entry repeats. ``MiniBatches(offset=...)`` does the same for mini-batches.

later = net.after(est.traffic.rounds)
avg = hgp.PushSum(later, steps=[20] * 5 + [40])
better = hgp.hypergradient(problem, fit.x, lam, avg, method=hgp.methods.Chebyshev(), tol=1e-10, w0=est.w, history=True)
print(better.iterations, np.abs(better.value - truth).max())

figure, axes = plt.subplots()
for run, start, color, label in (
    (est, 0, "C0", "Neumann, S = 20"),
    (better, est.iterations, "C4", "then Chebyshev, S = 20 … 40"),
):
    error = np.linalg.norm(run.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    axes.semilogy(start + np.arange(1, len(error) + 1), error, color=color, label=label)
axes.set(xlabel="iterations", ylabel="relative error")
axes.legend()

# %%
# Save it as arrays and JSON. Results are compared by value. ``est.plot(truth)`` draws the residual and the error.

file = Path(mkdtemp()) / "better.npz"
better.save(file)
print(hgp.load(file) == better)

# %%
# A ``callback`` receives every iterate and may end the run. Several averagings or seeds run at once along a leading
# axis.

short = hgp.hypergradient(problem, fit.x, lam, avg, iterations=500, callback=lambda m, v: m == 20)
print(short.stopped, short.iterations)
many = hgp.hypergradient(problem, fit.x, lam, [hgp.PushSum(net, steps=S) for S in (1, 10, 100)], iterations=300)
print(many.value.shape, np.linalg.norm(many.value - truth, axis=(1, 2)))
