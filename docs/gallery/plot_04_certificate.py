"""
How sure is it? Certificates
============================

After a run, each client's error can be bounded rigorously: from the centre, or by the clients themselves over the very
network they have.
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
# Give the certificate twice the steps of the run: it averages only twice, so that costs little, and its bound is much
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
# Client by client. Most of a bound is the price of stopping training early, the gradient that is left at x:
# ``certificate.plot()`` draws what each is made of.

figure, axes = plt.subplots()
series = {
    "error": error,
    "bound, from the centre": certificate.bound,
    "bound, by clients": certificate.decentralised_bound,
}
for k, (name, values) in enumerate(series.items()):
    axes.bar(np.arange(5) + 0.27 * (k - 1), values, width=0.25, label=name)
axes.set(yscale="log", xlabel="client", ylabel="‖v − d‖", xticks=range(5))
figure.legend(loc="outside upper center", ncols=3)

# %%
# The same run after training to the end.

better = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=30), iterations=1500)
print(hgp.certify(problem, x, lam, better, hgp.PushSum(net, steps=60)).bound)
