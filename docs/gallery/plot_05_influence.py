"""
Influence of training data
==========================

With a weight λ on each training instance, the negative hyper-gradient predicts how the total validation cost changes
when an instance is removed. A positive value means that the total cost *rises* without the instance, so the instance
helps.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
problem = hgp.problems.InstanceWeights(data.X, data.y, data.X_val, data.y_val, l2=0.01)
ones = np.ones((3, problem.dim_lam))
x = hgp.exact.inner_solution(problem, ones)
net = hgp.networks.RandomDirected(n=3, seed=1)

# %%
# One run of HGP gives every client the influence of each of its own instances on the total cost.

predictions = hgp.influence(problem, x, ones, hgp.PushSum(net, steps=100), iterations=1000)
top = predictions.most_influential(40)
print("most influential (client, index):", top[:5])

# %%
# Are the predictions right? Remove each of these instances and solve the inner problem again.

actual = hgp.attribution.retrain(problem, ones, top).actual
predicted = predictions.predict(top)
print(hgp.attribution.scores(actual, predicted))

# sphinx_gallery_thumbnail_number = 2
predictions.plot()

figure, axes = plt.subplots(figsize=(4.2, 3.2))
axes.axline((0, 0), slope=1, color="#999999", linewidth=0.8)
axes.scatter(predicted, actual, s=14)
axes.set(xlabel="predicted change of the cost", ylabel="actual change after retraining")

# %%
# The network does not cause the deviations from the line. Removing one of 100 instances is not an infinitesimal
# change, and the exact first-order prediction is as far off.

exact = hgp.exact.hypergradient(problem, x, ones)
print("HGP against exact first order:", np.abs(predicted + np.array([exact[pair] for pair in top])).max())

# %%
# How well do predictions order *random subsets*, each of half of the data? Their rank correlation with retraining is
# the linear datamodeling score (LDS).

subsets = hgp.attribution.random_removals(problem, 50, fraction=0.5, seed=0)
retrained = hgp.attribution.retrain(problem, ones, subsets).actual
print(f"LDS {hgp.attribution.lds(retrained, predictions.predict(subsets)):.3f}")

# %%
# Groups of instances and whole clients can be removed, too.

predicted = predictions.per_client
actual = hgp.attribution.retrain(problem, ones, hgp.attribution.client_removals(problem)).actual
for i in range(3):
    print(f"without client {i}: predicted {predicted[i]:+.3f}, actual {actual[i]:+.3f}")

# %%
# Removing a third of the data is not a small change. The first-order prediction is off in size, and for client 0 in
# sign.
