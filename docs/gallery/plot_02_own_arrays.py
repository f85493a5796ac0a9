"""
Your own arrays
===============

Functions take the array library from their arguments, and results have the same library, device and dtype: NumPy,
CuPy, PyTorch, JAX, or any other library that follows the array API standard.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# ``problem.to`` moves a built-in problem to another library. Here this is ``array_api_strict``, which has nothing but
# the standard. Its second device refuses every implicit transfer, as a GPU would. ``"torch"``, ``"jax"`` and
# ``"cupy"`` are used in the same way.

data = hgp.data.synthetic_mixture(n_clients=3, seed=3)
problem = hgp.problems.LogisticRegression(data.X, data.y, data.X_val, data.y_val)
lam = np.full((3, problem.dim_x), 0.03)
x = hgp.exact.inner_solution(problem, lam)
net = hgp.networks.RandomDirected(n=3, seed=1)

backend = hgp.backend.get_backend("array_api_strict")
moved = problem.to("array_api_strict")
est = hgp.hypergradient(moved, backend.asarray(x), backend.asarray(lam), hgp.PushSum(net, steps=10), iterations=100)
print(type(est.value), est.value.dtype, est.value.device)

# %%
# Graphs are drawn on the host by a counter-based generator (Philox). They are the same for every library, and the
# results agree up to rounding.

on_numpy = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=10), iterations=100)
print(np.abs(hgp.backend.to_host(est.value) - on_numpy.value).max())

# %%
# Single precision needs half the memory: float32 arrays give float32 results.

half = hgp.problems.LogisticRegression(
    *(a.astype(np.float32) if a.dtype.kind == "f" else a for a in (data.X, data.y, data.X_val, data.y_val))
)
single = hgp.hypergradient(
    half, x.astype(np.float32), lam.astype(np.float32), hgp.PushSum(net, steps=10), iterations=100
)
print(single.value.dtype, np.abs(single.value - on_numpy.value).max())

# %%
# The accuracy of single precision: the error over m, with S so large that its floor is lower.

truth = hgp.exact.hypergradient(problem, x, lam)
figure, axes = plt.subplots()
for version, dtype in ((problem, np.float64), (half, np.float32)):
    avg = hgp.PushSum(net, steps=60)
    run = hgp.hypergradient(version, x.astype(dtype), lam.astype(dtype), avg, iterations=250, history=True)
    error = np.linalg.norm(run.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    axes.semilogy(np.arange(1, 251), error, label=np.dtype(dtype).name)
axes.set(xlabel="iterations m", ylabel="relative error")
axes.legend()

# %%
# On a machine with a GPU, compare it with the reference first::
#
#     python -m hgp_ref check --backend cupy
#
# For costs written in PyTorch or JAX the derivatives are automatic: :func:`hgp_ref.problems.from_torch` and
# :func:`hgp_ref.problems.from_jax` make a problem of a function (or of a ``torch.nn.Module``).
