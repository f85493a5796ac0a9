"""
Hyper-cleaning: finding wrong labels together
=============================================

Three in ten training labels are wrong, and it is not known which. Each training instance has a weight σ(λ_ik), and
there are a few clean validation instances. Descent along the hyper-gradient of the total validation cost lowers the
weights of harmful instances.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# Each of four clients has 60 training digits, 30 % of them with a wrong label, and 30 clean validation digits.

digits = hgp.data.digit_images()
rng = np.random.default_rng(0)
order = rng.permutation(len(digits.labels))[:360]
pixels = np.concatenate([digits.images[order].reshape(360, 64) / 16.0, np.ones((360, 1))], axis=1)
X, X_val = pixels[:240].reshape(4, 60, 65), pixels[240:].reshape(4, 30, 65)
truth, y_val = digits.labels[order][:240].reshape(4, 60), digits.labels[order][240:].reshape(4, 30)
wrong = rng.random((4, 60)) < 0.3
y = np.where(wrong, (truth + rng.integers(1, 10, (4, 60))) % 10, truth)

problem = hgp.problems.HyperCleaning(X, y, X_val, y_val, l2=1e-2, n_classes=10)
net = hgp.networks.RandomDirected(n=4, seed=0)
path = hgp.bilevel.optimise(
    problem,
    np.zeros((4, 60)),
    net,
    outer_steps=12,
    train=hgp.training.SGP(steps=200, lr=1.0, milestones=(0.6, 0.8)),
    estimate=hgp.bilevel.Estimator(averaging_steps=5, iterations=100, eta=1.0),
    update=hgp.bilevel.Adam(0.5),
)

# %%
# The validation cost falls, and the weights separate: instances with wrong labels are on the left.

figure, (left, right) = plt.subplots(1, 2, figsize=(5.4, 2.6))
left.plot(path.outer_cost)
left.set(xlabel="outer step", ylabel="total validation cost")
weights = 1 / (1 + np.exp(-np.asarray(path.lam[-1])))
right.hist([weights[~wrong], weights[wrong]], bins=15, stacked=True, label=["right label", "wrong label"])
right.set(xlabel="weight σ(λ)", ylabel="training instances")
right.legend()

# %%
# How well do the weights distinguish wrong from right labels? The AUC is the share of pairs in the right order:

pairs = weights[~wrong][:, None] > weights[wrong][None, :]
print(f"cost {path.outer_cost[0]:.2f} → {path.outer_cost[-1]:.2f}, AUC {pairs.mean():.3f}")
