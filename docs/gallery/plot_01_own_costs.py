"""
Your own client costs
=====================

A problem is any object with a few members: costs, gradients, and products with second derivatives, batched over
clients. The example is ridge regression whose rate is exp(λ_i), so that λ may be any number.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# The client axis of every array comes first: ``x`` is (n, d_x), ``lam`` is (n, d_λ), costs are (n,). The object that
# ``linearize`` returns computes the two products :math:`H_i u_i` and :math:`J_i u_i`. The point is fixed during a run
# of HGP, so what the products share is computed once there.


class Ridge:
    """g_i = mean (X_i x - y_i)²/2 + exp(λ_i) |x|²/2,   f_i = mean (X'_i x - y'_i)²/2."""

    def __init__(self, X, y, X_val, y_val):
        self.X, self.y, self.X_val, self.y_val = X, y, X_val, y_val
        self.n_clients, self.N, self.dim_x = X.shape
        self.dim_lam = 1

    def _residual(self, X, y, x):
        return (X @ x[:, :, None])[:, :, 0] - y  # (n, N)

    def inner_cost(self, x, lam, batch=None):
        fit = (self._residual(self.X, self.y, x) ** 2).mean(axis=1) / 2
        return fit + np.exp(lam[:, 0]) * (x**2).sum(axis=1) / 2  # (n,)

    def inner_grad(self, x, lam, batch=None):
        r = self._residual(self.X, self.y, x)
        return (r[:, None, :] @ self.X)[:, 0] / self.N + np.exp(lam) * x  # (n, d_x)

    def outer_cost(self, x, lam):
        return (self._residual(self.X_val, self.y_val, x) ** 2).mean(axis=1) / 2

    def outer_grad(self, x, lam):
        r = self._residual(self.X_val, self.y_val, x)
        return (r[:, None, :] @ self.X_val)[:, 0] / r.shape[1], np.zeros_like(lam)

    def linearize(self, x, lam, batch=None):
        return RidgeAt(self, x, lam)


class RidgeAt:
    """Products with the second derivatives of every client's g_i at (x, λ)."""

    def __init__(self, problem, x, lam):
        self.X, self.N, self.x, self.rate = problem.X, problem.N, x, np.exp(lam)

    def hvp(self, u):  # ∂²_x g_i u_i, (n, d_x)
        t = self.X @ u[:, :, None]
        return (np.swapaxes(self.X, 1, 2) @ t)[:, :, 0] / self.N + self.rate * u

    def cross(self, u):  # ∂²_{xλ} g_i u_i, (n, d_λ)
        return self.rate * (self.x * u).sum(axis=1, keepdims=True)


# %%
# Four clients with thirty instances each, over a network whose edges are redrawn at every step.

rng = np.random.default_rng(0)
X, X_val = rng.normal(size=(2, 4, 30, 5)) / 2
y, y_val = (np.sum(A, axis=2) + 0.1 * rng.normal(size=(4, 30)) for A in (X, X_val))
problem, lam = Ridge(X, y, X_val, y_val), np.array([[-3.0], [-2.5], [-2.0], [-1.5]])
net = hgp.networks.RandomDirected(n=4, seed=0)

x = hgp.exact.inner_solution(problem, lam)  # to machine precision; hgp.sgp trains over the network instead
truth = hgp.exact.hypergradient(problem, x, lam)
est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=50), iterations=300, history=True)
print("estimate", est.value[:, 0])
print("truth   ", truth[:, 0])

# %%
# Are the derivatives right? ``check_derivatives`` compares them with differences of costs and gradients, and checks the
# other rules of the interface. :doc:`/problems` lists all members that a problem may have.

print(hgp.problems.check_derivatives(problem, x, lam))

# %%
# A check of the whole: change each λ_i a little, solve the inner problem again, and evaluate the total outer cost. This
# does not use ``hvp`` and ``cross``.


def total(at):
    return problem.outer_cost(hgp.exact.inner_solution(problem, at), at).sum()


h = 1e-5
differences = [(total(lam + h * e) - total(lam - h * e)) / (2 * h) for e in np.eye(4)[:, :, None]]
print("differences", np.array(differences))

# %%
# The error over the iterations for three numbers of Push-Sum steps. The slope is the same; S determines the floor.

figure, axes = plt.subplots()
for steps in (3, 10, 50):
    run = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=steps), iterations=300, history=True)
    axes.semilogy(np.linalg.norm(run.history[..., 0] - truth[:, 0], axis=-1), label=f"S = {steps}")
axes.set(xlabel="iteration m", ylabel="error of the hyper-gradient")
axes.legend()
