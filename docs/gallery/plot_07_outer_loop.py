"""
Tuning hyper-parameters: the outer loop
=======================================

Clients train, estimate the hyper-gradient, update λ, and continue training. Here λ are weights of each client's own
training instances, and labels are of different quality from client to client.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

data, rng = hgp.data.breast_cancer(n_clients=5, seed=0), np.random.default_rng(0)
shares = np.linspace(0, 0.4, 5)  # of wrong labels: none at client 0, 40 % at client 4
wrong = [rng.random(len(labels)) < share for labels, share in zip(data.y, shares, strict=True)]
y = [np.where(flip, 1 - labels, labels) for flip, labels in zip(wrong, data.y, strict=True)]
problem = hgp.problems.InstanceWeights(data.X, y, data.X_val, data.y_val, l2=0.1)
net = hgp.networks.RandomDirected(n=5, seed=0)
start = np.ones((5, problem.dim_lam))

# %%
# ``project`` keeps the weights between 0 and 1. Each training starts where the previous one ended, and every part of
# the loop uses the next graphs of the network.

path = hgp.bilevel.optimise(
    problem,
    start,
    net,
    outer_steps=15,
    train=hgp.training.SGP(steps=200, milestones=(0.6, 0.8)),
    estimate=hgp.bilevel.Estimator(averaging_steps=5, iterations=100),
    update=hgp.bilevel.Adam(0.1),
    project=hgp.bilevel.Box(0.0, 1.0),
)
print(f"cost {path.outer_cost[0]:.3f} → {path.outer_cost[-1]:.3f}; {path.traffic.rounds} rounds; {path.stopped}")

# %%
# The cost after each outer step, and the mean final weight at each client. The outer cost is that of all clients on
# validation data, so that client 4 learns from the others which of its labels contradict them. Client 0 has no wrong
# label; those of clients 1 to 3 end with weight 0.
# ``path.plot()`` draws the costs and the entries of λ without further code.

weights = np.asarray(path.lam[-1])
figure, (left, right) = plt.subplots(1, 2, figsize=(5.4, 2.6))
left.plot(path.outer_cost)
left.set(xlabel="outer step", ylabel="total validation cost")
for i, flip in enumerate(wrong):
    for k, label in enumerate(("right label", "wrong label")):
        mean = weights[i, : len(flip)][flip == k].mean() if (flip == k).any() else 0
        right.bar(i + 0.4 * k - 0.2, mean, width=0.38, color=f"C{k}", label=label if i == 0 else None)
right.set(xlabel="client", ylabel="mean weight", xticks=range(5), ylim=(0, 1.35))
right.legend()

# %%
# Rates of an L2 penalty (:class:`~hgp_ref.problems.LogisticRegression`) are hyper-parameters, too. Only their sum over
# clients enters the shared model, so that all clients then have the same hyper-gradient.
#
# Other options of :func:`hgp_ref.bilevel.optimise`:
#
# - ``project=`` keeps λ in a set: :class:`~hgp_ref.bilevel.Box`, :class:`~hgp_ref.bilevel.NonNegative`,
#   :class:`~hgp_ref.bilevel.Simplex`, or a function.
# - ``monitor=`` (:class:`~hgp_ref.bilevel.Monitor`) stops early.
# - ``file=`` resumes an interrupted run with the same bytes.
# - ``train=`` and ``estimate=`` may be your own functions.
# - ``update=`` :class:`~hgp_ref.bilevel.CertifiedDescent` takes only steps that provably lower the outer cost, by
#   bounds that clients can compute.
#
# A hyper-gradient that diverged never reaches the update. It is estimated again with half the η, or the step is
# refused; ``path.steps`` has the reason.

print([step.note for step in path.steps if step.note] or "no step was refused")
