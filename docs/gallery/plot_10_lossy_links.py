"""
Lossy links
===========

Messages may be lost or delayed. Plain Push-Sum then loses mass and converges to a wrong mean. Running sums
(:class:`hgp_ref.mixing.RobustPushSum`) do not have this error.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

problem = hgp.problems.Quadratic.random(5, 6, 2, seed=0)
lam = np.zeros((5, 2))
x = hgp.exact.inner_solution(problem, lam)
truth = hgp.exact.hypergradient(problem, x, lam)

# %%
# One message in ten is lost, and the others are delayed by up to two steps. Plain Push-Sum warns that it loses mass and
# recommends running sums. This example shows the difference, so the warning is ignored.

clean = hgp.networks.RandomDirected(n=5, seed=0)
lossy = hgp.networks.Unreliable(clean, loss=0.1, delay=2, seed=1)

warnings.filterwarnings("ignore", "PushSum over Unreliable.*loses mass", RuntimeWarning)
figure, axes = plt.subplots()
steps = [2, 4, 8, 16, 32, 64]
runs = {
    "no loss": lambda S: hgp.PushSum(clean, steps=S),
    "lossy, plain Push-Sum": lambda S: hgp.PushSum(lossy, steps=S),
    "lossy, running sums": lambda S: hgp.RobustPushSum(lossy, steps=S),
}
for label, averaging in runs.items():
    errors = []
    for S in steps:
        est = hgp.hypergradient(problem, x, lam, averaging(S), iterations=150)
        errors.append(np.linalg.norm(est.value - truth) / np.linalg.norm(truth))
    axes.loglog(steps, np.maximum(errors, 1e-16), marker="o", label=label)
    print(f"{label:24s}", " ".join(f"{e:.1e}" for e in errors))
axes.set_xticks(steps, steps)
axes.minorticks_off()
axes.set(xlabel="steps S of each averaging", ylabel="relative error after 150 terms")
axes.legend()
