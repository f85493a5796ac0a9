"""
A convolutional network
=======================

``hgp.neural`` evaluates the networks of all clients at once and multiplies by their Hessians. Here three clients have a
few digits each. Which images influence the trained network most?
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp
from hgp_ref.neural import AvgPool2d, Conv2d, Flatten, Linear, Sequential, Softplus

# %%
# The data are scikit-learn's digits, 8 × 8 pixels, with forty training images per client.

digits = hgp.data.digit_images()
rng = np.random.default_rng(0)
order = rng.permutation(len(digits.labels))[:240]
pictures = digits.images[order].reshape(-1, 1, 8, 8) / 16.0
X, X_val = (part.reshape(3, 40, 1, 8, 8) - pictures.mean() for part in np.split(pictures, 2))
y, y_val = (part.reshape(3, 40) for part in np.split(digits.labels[order], 2))

model = Sequential((1, 8, 8), Conv2d(1, 6, 3), Softplus(), AvgPool2d(2), Flatten(), Linear(54, 10))
problem = hgp.problems.NeuralInstanceWeights(model, X, y, X_val, y_val, l2=1e-2)
print(model.dim, "parameters")

# %%
# Train over the network. One run of HGP then gives the influence of each image on the total validation cost.

net = hgp.networks.RandomDirected(n=3, seed=0)
ones = np.ones((3, problem.dim_lam))
fit = hgp.sgp(problem, ones, net, steps=500, lr=0.5, x0=model.init(3, 0), milestones=(0.6, 0.8))
predictions = hgp.influence(
    problem, fit.x, ones, hgp.PushSum(net, steps=20), method=hgp.methods.Neumann(0.1), iterations=100
)

# %%
# A neural network is not convex. Retraining from scratch would mix the influence with the randomness of training. The
# hyper-gradient predicts the change after M gradient steps of size η *from the trained x*.

top = predictions.most_influential(12)
actual = hgp.attribution.retrain_from(problem, fit.x, ones, top, eta=0.1, steps=100).actual
predicted = predictions.predict(top)
print(hgp.attribution.scores(actual, predicted))

figure, axes = plt.subplots(2, 3, figsize=(3.6, 3.0))
for axis, (i, k) in zip(axes.flat, top[:6], strict=True):
    axis.imshow(X[i, k, 0], cmap="gray")
    axis.set_title(f"client {i}: {y[i, k]}\n{predictions.per_instance[i, k]:+.3f}", fontsize=9)
    axis.axis("off")

# %%
# The most influential images, their labels, and the predicted change of the cost when they are removed.
