"""
Tuning hyper-parameters: the outer loop
=======================================

Clients train, estimate the hyper-gradient, move λ, and train again from where they were. Here each of five clients
finds L2 rates of its own that lower the validation cost of all.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

data = hgp.data.synthetic_mixture(n_clients=5, n_train=40, seed=2)
problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
net = hgp.networks.RandomDirected(n=5, seed=0)
start = np.full((5, problem.dim_x), 0.3)

# %%
# ``project`` keeps the rates positive. Each training starts where the last one ended, and every part of the loop uses
# the graphs that follow those of the part before.

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
# Progress per outer step, and the rates that the clients chose: one row a client, one column a coordinate.

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3))
left.plot(path.outer_cost)
left.set(xlabel="outer step", ylabel="validation cost of all")
image = right.imshow(np.asarray(path.lam[-1]), aspect="auto", cmap="cividis")
right.grid(False)
right.set(xlabel="coordinate", ylabel="client", title="final L2 rates")
figure.colorbar(image)

# %%
# More of :func:`hgp_ref.bilevel.optimise`: ``project=`` keeps λ in a set (:class:`~hgp_ref.bilevel.Box`,
# :class:`~hgp_ref.bilevel.NonNegative`, :class:`~hgp_ref.bilevel.Simplex`), ``measure=`` and ``patience=`` stop early,
# ``file=`` goes on after a kill with the same bytes, and ``train=`` and ``estimate=`` may be functions of your own. A
# hyper-gradient that diverged never reaches the update: it is estimated again with half the η, or the step is refused;
# ``path.steps`` says why. With ``certify=0.5`` only steps are taken that provably lower the outer cost, from numbers
# that clients have.

print([step.note for step in path.steps if step.note] or "no step was refused")
