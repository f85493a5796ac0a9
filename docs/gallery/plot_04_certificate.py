"""
How accurate is it? Certificates
================================

After a run, each client's error can be bounded rigorously: with all data in one place, or by the clients themselves
over the same network.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

data = hgp.data.synthetic_mixture(n_clients=5, seed=1)
problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
lam = np.full((5, problem.dim_x), 0.05)
net = hgp.networks.RandomDirected(n=5, seed=1)
fit = hgp.sgp(problem, lam, net, steps=3000, lr=2.0, milestones=(0.6, 0.8))

# %%
# Give the certificate twice the steps of the run. It averages only twice, so this costs little, and its bound is much
# tighter.

est = hgp.hypergradient(problem, fit.x, lam, hgp.PushSum(net, steps=10), iterations=400)
certificate = hgp.certify(problem, fit.x, lam, est, hgp.PushSum(net, steps=20))
print(certificate)

# %%
# Here the truth is known: the hyper-gradient at the exact inner solution.

x = hgp.exact.inner_solution(problem, lam)
error = np.linalg.norm(est.value - hgp.exact.hypergradient(problem, x, lam), axis=1)
for name, values in {"error": error, "bound": certificate.bound, "by clients": certificate.decentralised_bound}.items():
    print(f"{name:12s}", " ".join(f"{value:.2e}" for value in values))

# %%
# The errors and bounds of all clients. Most of a bound is due to stopping training early, that is to the remaining
# gradient at x. ``certificate.plot()`` draws the parts of each bound.

figure, axes = plt.subplots()
series = {
    "error": error,
    "bound, all data in one place": certificate.bound,
    "bound, by clients": certificate.decentralised_bound,
}
for k, (name, values) in enumerate(series.items()):
    axes.bar(np.arange(5) + 0.27 * (k - 1), values, width=0.25, label=name)
axes.set(yscale="log", xlabel="client", ylabel="error and bounds", xticks=range(5))
figure.legend(loc="outside upper center", ncols=3)

# %%
# The same after training to convergence.

better = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=30), iterations=1500)
print(hgp.certify(problem, x, lam, better, hgp.PushSum(net, steps=60)).bound)
