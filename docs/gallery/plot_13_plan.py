"""
Letting the plan choose
=======================

How many steps S, how many terms M, and which method? :func:`hgp_ref.plan` asks the clients: each looks at its own
Hessian, one conversation of scalars tells all of them how wide the spectrum is and how fast the network averages, and
models of the methods say what each would need for the error that you want.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

problem = hgp.problems.Quadratic.random(n=10, dim_x=20, dim_lam=3, seed=1, condition=100)
x, lam = np.ones((10, 20)), np.zeros((10, 3))
net = hgp.networks.RandomDirected(n=10, seed=1)

# %%
# Ask for a relative error. The plan says what it chose, why, what it expects to send, and what the others would need.

plan = hgp.plan(problem, x, lam, net, target=1e-6)
print(plan)

# %%
# Run it. The outcome is an estimate with a certificate; where that misses the target the run goes on by itself.

out = plan.run(against="x")  # x is not the inner solution, and the target is about the formula at x
truth = hgp.exact.hypergradient(problem, x, lam)
error = np.linalg.norm(out.value - truth) / np.linalg.norm(truth)
print(out)
print(f"the error is {error:.1e}; {plan.traffic.floats:,} floats were expected")

# %%
# How do wishes and costs go together? Plans for several targets, and what Algorithm 2 with one S would send for the
# same error: S is what the target asks of its floor, M what it asks of its truncation, both by trial.

targets = 10.0 ** -np.arange(1, 9)
planned = [hgp.plan(problem, x, lam, net, target=target).run(against="x").traffic.floats for target in targets]

sent = {}
for steps in (5, 10, 20, 30):
    avg = hgp.PushSum(net, steps=steps)
    est = hgp.hypergradient(problem, x, lam, avg, iterations=1500, history=True)
    left = np.linalg.norm(est.history - truth, axis=(1, 2)) / np.linalg.norm(truth)
    for target in targets:
        above = np.flatnonzero(left > target)
        if above.size and above[-1] + 1 < len(left):  # from there on it stays below
            floats = est.traffic.floats * (above[-1] + 2) / len(left)
            sent[target] = min(floats, sent.get(target, np.inf))

figure, axes = plt.subplots()
axes.loglog(targets, planned, "o-", label="planned and certified")
axes.loglog(list(sent), list(sent.values()), "s--", label="Algorithm 2, the best of four S by hindsight")
axes.set(xlabel="relative error asked for", ylabel="floats sent")
axes.invert_xaxis()
axes.legend()

# %%
# Or give a budget of floats instead: the plan is then the most accurate one within it.

small = hgp.plan(problem, x, lam, net, budget=plan.traffic.floats / 2)
print(f"half of the floats: an error of {small.error:.1e} expected, by {type(small.method).__name__}")
