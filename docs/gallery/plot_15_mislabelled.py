"""
Find mislabelled data
=====================

Eight clients share a model of breast-cancer data. One training label in ten is wrong, and nobody knows which. An
instance that raises the validation cost is suspicious: the cost is predicted to *fall* without it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

import hgp_ref as hgp


def draw(seed):
    """A random partition of the data, with random wrong labels."""
    data, rng = hgp.data.breast_cancer(n_clients=8, seed=seed), np.random.default_rng(seed)
    wrong = [rng.random(len(labels)) < 0.1 for labels in data.y]
    y = [np.where(flip, 1 - labels, labels) for flip, labels in zip(wrong, data.y, strict=True)]
    return hgp.problems.InstanceWeights(data.X, y, data.X_val, data.y_val, l2=0.01), wrong


problem, wrong = draw(seed=0)

# %%
# One run over the network gives every client the influence of its own instances. No data are exchanged.

ones = np.ones((8, problem.dim_lam))
x = hgp.exact.inner_solution(problem, ones)
avg = hgp.PushSum(hgp.networks.RandomDirected(n=8, seed=0), steps=20)
influence = hgp.influence(problem, x, ones, avg, hgp.methods.Chebyshev(), tol=1e-6)

flipped = np.concatenate(wrong)
print(f"{flipped.sum()} of {flipped.size} labels are wrong; AUC {roc_auc_score(flipped, -influence.predicted):.4f}")
suspects = influence.most_harmful(20)
print(f"{sum(wrong[i][k] for i, k in suspects)} of the 20 most harmful instances have a wrong label")
influence.plot()

# %%
# The scores of wrong labels lie below those of right ones.

# sphinx_gallery_thumbnail_number = 2
figure, axes = plt.subplots()
bins = np.linspace(-0.09, 0.04, 40)
for kind, label in ((~flipped, "right label"), (flipped, "wrong label")):
    axes.hist(influence.predicted[kind], bins, label=label)
axes.set(yscale="log", xlabel="predicted change of the cost", ylabel="training instances")
axes.legend()

# %%
# Self-influence needs no validation labels: by how much does the loss of an instance rise if it is left out of
# training? It is large where the other data contradict the label. All 341 losses travel in the same messages.

own = hgp.influence(problem, x, ones, avg, hgp.methods.Chebyshev(), on="self", tol=1e-6)
print(f"AUC of self-influence {roc_auc_score(flipped, own.predicted):.4f}")

# %%
# Which training data are behind one validation loss? ``on`` takes single validation instances, or groups of them.

losses = hgp.influence(problem, x, ones, avg, hgp.methods.Chebyshev(), on=[(0, 3), ((1, 0), (1, 1))], tol=1e-6)
print("for validation instance 3 of client 0:", losses.of(0).most_harmful(3))

# %%
# How much of this is luck? Ten other partitions and draws, with exact means: the influence on the validation cost finds
# most wrong labels in some and fewer in others. Self-influence, which needs no validation data, differs less.

print("AUC       lowest  median  highest")
auc = {"total": [], "self": []}
for seed in range(1, 11):
    problem, wrong = draw(seed)
    ones = np.ones((8, problem.dim_lam))
    x, exact = hgp.exact.inner_solution(problem, ones), hgp.ExactAverage(8)
    for on, sign in (("total", -1), ("self", 1)):
        scores = hgp.influence(problem, x, ones, exact, hgp.methods.Chebyshev(), on=on, tol=1e-6).predicted
        auc[on].append(roc_auc_score(np.concatenate(wrong), sign * scores))
for on, values in auc.items():
    print(f"{on:8} {min(values):7.3f} {np.median(values):7.3f} {max(values):8.3f}")
