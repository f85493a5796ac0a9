"""
A network in PyTorch: data, influence, outer loop
=================================================

Six clients train one module of PyTorch on handwritten digits. Which images harm the shared model, and what happens if
the outer loop learns their weights? No derivatives are written by hand.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import Subset, TensorDataset

import hgp_ref as hgp

# %%
# **Data.** One data set, of which every client has a part: ``dirichlet_partition`` gives clients few labels each. The
# clients are Subsets, so nothing is copied. One training label in ten is wrong.

rng = np.random.default_rng(0)
digits = load_digits()
rows = rng.permutation(len(digits.target))[:400]
images, labels = torch.tensor(digits.data[rows] / 16), torch.tensor(digits.target[rows])
wrong = torch.tensor(rng.random(200) < 0.1)
observed = torch.where(wrong, (labels[:200] + 1) % 10, labels[:200])
train, validation = TensorDataset(images[:200], observed), TensorDataset(images[200:], labels[200:])

parts = hgp.data.dirichlet_partition(observed, n_clients=6, alpha=1.0, seed=0, min_per_client=5)
X = [Subset(train, part) for part in parts]
X_val = [Subset(validation, part) for part in np.array_split(np.arange(200), 6)]

# %%
# **Model.** A module, and a loss with one number per instance. Without ``dim_lam``, λ weighs the training instances.

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)).double()


def cross_entropy(outputs, y):
    return torch.nn.functional.cross_entropy(outputs, y, reduction="none")


def decay(x):
    return 0.01 * (x @ x)


problem = hgp.problems.from_torch(module, cross_entropy, X, X_val=X_val, penalty=decay, curvature="gauss-newton")
print(problem)

# %%
# **Training and influence.** Clients train over a network and then find the influence of each image. The Gauss–Newton
# matrix is positive definite here, although the network is not convex.

net = hgp.networks.RandomDirected(n=6, seed=0)
ones = torch.ones(6, problem.dim_lam, dtype=torch.float64)
fit = hgp.sgp(problem, ones, net, steps=200, lr=0.5, milestones=(150,), x0=problem.parameters())
influence = hgp.influence(problem, fit.x, ones, hgp.PushSum(net, steps=10), hgp.methods.Chebyshev(), iterations=30)

flipped = [wrong[part].numpy() for part in parts]
suspects = influence.most_harmful(20)
print(f"{sum(flipped[i][k] for i, k in suspects)} of the 20 most harmful images have a wrong label")

# %%
# **Outer loop.** Adam lowers the total validation cost by changing the weights, which stay in [0, 1]. Each outer step
# trains a little more, estimates the hyper-gradient, and updates λ.

path = hgp.bilevel.optimise(
    problem,
    ones,
    net,
    outer_steps=6,
    train=hgp.bilevel.Trainer(hgp.training.SGP(steps=40, lr=0.3), x0=fit.x),
    estimate=hgp.bilevel.Estimator(averaging_steps=10, iterations=30, method=hgp.methods.Chebyshev()),
    update=hgp.bilevel.Adam(0.15),
    project=hgp.bilevel.Box(0.0, 1.0),
)
print(f"total validation cost {path.outer_cost[0]:.2f} → {path.outer_cost[-1]:.2f}")

weights = path.lam[-1].numpy()
figure, axes = plt.subplots()
values = [np.concatenate([weights[i, : len(f)][f == is_wrong] for i, f in enumerate(flipped)]) for is_wrong in (0, 1)]
axes.hist(values, bins=np.linspace(0, 1, 11), density=True, label=["right label", "wrong label"])
axes.set(xlabel="weight after the outer loop", ylabel="density")
axes.legend()

# %%
# Larger data: with ``batches=32`` training reads only the instances of each mini-batch, also from Datasets that decode
# files. ``problem.to("torch", device="cuda")`` moves data and module to a GPU. An argument ``dim_lam`` gives the losses
# another λ, such as rates or masks: :func:`hgp_ref.problems.from_torch`.
