"""
Tuning hyper-parameters: the outer loop
=======================================

Clients train, estimate the hyper-gradient, update λ, and continue training. Here each of five clients finds its own L2
rates, which lower the total validation cost.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

data = hgp.data.synthetic_mixture(n_clients=5, n_train=40, seed=2)
problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
net = hgp.networks.RandomDirected(n=5, seed=0)
start = np.full((5, problem.dim_x), 0.3)

# %%
# ``project`` keeps the rates positive. Each training starts where the previous one ended, and every part of the loop
# uses the next graphs of the network.

path = hgp.bilevel.optimise(
    problem,
    start,
    net,
    outer_steps=25,
    train=hgp.training.SGP(steps=300, lr=1.0, milestones=(0.6, 0.8)),
    estimate=hgp.bilevel.Estimator(averaging_steps=5, iterations=200, eta=1.0),
    update=hgp.bilevel.Adam(0.05),
    project=lambda lam: np.maximum(lam, 1e-3),
)
print(f"cost {path.outer_cost[0]:.3f} → {path.outer_cost[-1]:.3f}; {path.traffic.rounds} rounds; {path.stopped}")

# %%
# The cost after each outer step, and the final rates: one row per client, one column per coordinate. ``path.plot()``
# draws the costs and the entries of λ without further code.

figure, (left, right) = plt.subplots(1, 2, figsize=(6, 2.8))
left.plot(path.outer_cost)
left.set(xlabel="outer step", ylabel="total validation cost")
image = right.imshow(np.asarray(path.lam[-1]), aspect="auto", cmap="cividis")
right.grid(False)
right.set(xlabel="coordinate", ylabel="client", title="final L2 rates")
figure.colorbar(image)

# %%
# Other options of :func:`hgp_ref.bilevel.optimise`:
#
# - ``project=`` keeps λ in a set: :class:`~hgp_ref.bilevel.Box`, :class:`~hgp_ref.bilevel.NonNegative`,
#   :class:`~hgp_ref.bilevel.Simplex`.
# - ``monitor=`` (:class:`~hgp_ref.bilevel.Monitor`) stops early.
# - ``file=`` resumes an interrupted run with the same bytes.
# - ``train=`` and ``estimate=`` may be your own functions.
# - ``update=`` :class:`~hgp_ref.bilevel.CertifiedDescent` takes only steps that provably lower the outer cost, by
#   bounds that clients can compute.
#
# A hyper-gradient that diverged never reaches the update. It is estimated again with half the η, or the step is
# refused; ``path.steps`` has the reason.

print([step.note for step in path.steps if step.note] or "no step was refused")
