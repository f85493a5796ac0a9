"""
Automatic choice of the method
==============================

How many steps S, how many terms M, and which method? For :func:`hgp_ref.plan` each client examines its own Hessian. An
exchange of scalars then gives all clients the range of the spectrum. Models of the methods predict what each of them
would send for the target error. Over reliable links, the clients agree on a spanning tree, along which means are exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

problem = hgp.problems.Quadratic.random(n=10, dim_x=20, dim_lam=3, seed=1, condition=100)
x, lam = np.ones((10, 20)), np.zeros((10, 3))
net = hgp.networks.RandomDirected(n=10, seed=1)

# %%
# The target is a relative error. The plan shows its choice, the reason, the expected traffic, and that of other
# methods.

plan = hgp.plan(problem, x, lam, net, target=1e-6)
print(plan)

# %%
# Run it. The outcome is an estimate with a certificate. If the certificate misses the target, the run continues.

out = plan.run(against="x")  # x is not the inner solution; the target refers to the formula at x
truth = hgp.exact.hypergradient(problem, x, lam)
error = np.linalg.norm(out.value - truth) / np.linalg.norm(truth)
print(out)
print(f"the error is {error:.1e}; {plan.traffic.floats:,} floats were expected")

# %%
# How does the cost depend on the target? The plot shows plans for several targets, with all methods and without those
# that need a tree, and what Algorithm 2 with a fixed S sends for the same error. Its S and M were found by trial.

targets = 10.0 ** -np.arange(1, 9)
choices = {
    "matrices too": ["DirectSolve", "ConjugateGradient"],
    "default": None,
    "no tree": ["Neumann", "Chebyshev", "Tracking"],
}
planned = {
    label: [hgp.plan(problem, x, lam, net, target, methods=names).run(against="x").traffic.floats for target in targets]
    for label, names in choices.items()
}

sent = {}
for steps in (5, 10, 20, 30):
    avg = hgp.PushSum(net, steps=steps)
    est = hgp.hypergradient(problem, x, lam, avg, iterations=1500, history=True)
    error = np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    for target in targets:
        above = np.flatnonzero(error > target)
        if above.size and above[-1] + 1 < len(error):  # the error stays below the target afterwards
            floats = est.traffic.floats * (above[-1] + 2) / len(error)
            sent[target] = min(floats, sent.get(target, np.inf))

figure, axes = plt.subplots()
for (label, floats), color in zip(planned.items(), ("#8C2D04", "#C00000", "#555555"), strict=True):
    axes.loglog(targets, floats, color=color, marker="o", label=f"planned and certified, {label}")
axes.loglog(list(sent), list(sent.values()), color="C0", marker="s", label="Algorithm 2, best of four S in hindsight")
axes.set(xlabel="target: relative error", ylabel="floats sent")
axes.invert_xaxis()
figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center")

# %%
# With a budget of floats instead of a target, the plan is the most accurate one within the budget.

small = hgp.plan(problem, x, lam, net, budget=plan.traffic.floats / 2)
print(f"half of the floats: an error of {small.error:.1e} expected, by {type(small.method).__name__}")
