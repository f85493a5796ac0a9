"""
A network in JAX: data, influence, outer loop
=============================================

The same as :doc:`plot_17_torch`, as short as possible: four clients, a network with one hidden layer, and a weight λ on
each training instance.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.flatten_util import ravel_pytree

import hgp_ref as hgp

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
X, X_val = jnp.asarray(rng.normal(size=(2, 4, 30, 2)))  # four clients, thirty instances each
y, y_val = ((A[..., 0] > A[..., 1] ** 2 - 0.5).astype(int) for A in (X, X_val))  # the two sides of a parabola
wrong = rng.random((4, 30)) < 0.1
y = jnp.where(wrong, 1 - y, y)
layers = [rng.normal(size=(2, 8)) / 2, np.zeros(8), rng.normal(size=(8, 2)) / 3, np.zeros(2)]
start, unravel = ravel_pytree(layers)

# %%
# Costs are functions of one client i. They see a flat vector of parameters, and ``vmap=True`` evaluates all clients at
# once. The inner cost on a mini-batch is the mean over its instances.


def losses(x, X, y):
    W, b, V, c = unravel(x)
    return -jnp.take_along_axis(jax.nn.log_softmax(jnp.tanh(X @ W + b) @ V + c), y[:, None], axis=1)[:, 0]


def inner(i, x, lam, batch=None):
    rows = jnp.arange(30) if batch is None else batch  # the instances of a mini-batch
    return jnp.mean(lam[rows] * losses(x, X[i, rows], y[i, rows])) + 0.005 * x @ x


def outer(i, x, lam):
    return jnp.mean(losses(x, X_val[i], y_val[i]))


problem = hgp.problems.from_jax(inner, outer, 4, start.size, 30, counts=[30] * 4, vmap=True)

# %%
# Training, and the influence of each training instance. ``Damped`` replaces the mean Hessian H, which need not be
# positive definite, by H + 0.1 I.

net, ones = hgp.networks.RandomDirected(n=4, seed=0), jnp.ones((4, 30))
fit = hgp.sgp(problem, ones, net, steps=200, lr=1.0, x0=jnp.tile(start, (4, 1)))
damped = hgp.problems.Damped(problem, mu=0.1)
influence = hgp.influence(damped, fit.x, ones, hgp.PushSum(net, steps=10), iterations=50)
suspects = influence.most_harmful(10)
print(f"{sum(wrong[pair] for pair in suspects)} of the 10 most harmful instances have a wrong label")
# sphinx_gallery_thumbnail_number = 2
influence.plot()

# %%
# The outer loop lowers the weights of harmful instances.

path = hgp.bilevel.optimise(
    damped,
    ones,
    net,
    outer_steps=5,
    train=hgp.bilevel.Trainer(hgp.training.SGP(steps=50, lr=0.5), x0=fit.x),
    estimate=hgp.bilevel.Estimator(averaging_steps=10, iterations=50),
    update=hgp.bilevel.Adam(0.15),
    project=hgp.bilevel.Box(0.0, 1.0),
)
weights = np.asarray(path.lam[-1])
print(f"total validation cost {path.outer_cost[0]:.3f} → {path.outer_cost[-1]:.3f}")
print(f"mean weight {weights[wrong].mean():.2f} of wrong labels, {weights[~wrong].mean():.2f} of right ones")

figure, axes = plt.subplots()
points = np.asarray(X)
for kind, marker, label in ((~wrong, "o", "right label"), (wrong, "X", "wrong label")):
    shade = axes.scatter(*points[kind].T, c=weights[kind], vmin=0, vmax=1, cmap="cividis", marker=marker, label=label)
edge = np.linspace(-2, 2)
axes.plot(edge**2 - 0.5, edge, color="#999999", label="true boundary")
axes.set(xlabel="feature 0", ylabel="feature 1", xlim=(-3, 3), ylim=(-3, 3))
figure.legend(loc="outside upper center", ncols=3)
figure.colorbar(shade, label="weight")
