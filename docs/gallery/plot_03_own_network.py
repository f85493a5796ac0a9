"""
Your own network
================

A network is a function of the step s: who receives from whom? It can be a list of graphs, a networkx graph, or a class.
"""

import matplotlib.pyplot as plt
import numpy as np

import hgp_ref as hgp

# %%
# **A schedule of graphs** is a sequence of edge lists (senders, receivers) or column-stochastic matrices, which is
# repeated. Here client 0 sends to 1, then 1 to 2, then 2 to 0. No single graph is connected, but three in a row are.

relay = hgp.networks.Schedule([([0], [1]), ([1], [2]), ([2], [0])], n=3)
print("window B:", hgp.networks.smallest_window(relay, first=1, count=30))
print(relay.mixing_matrix(1))

# %%
# A network that can never connect all clients is detected before a run:

broken = hgp.networks.Schedule([([0, 1], [1, 0])], n=3)
print(hgp.networks.unreachable(broken, first=1, count=10))

# %%
# **A class** defines who receives from whom; everything else follows. What your class returns is checked before
# compiled code reads it. Here each client sends to itself and to one neighbour, whose distance grows with time.


class Skipping(hgp.networks.Network):
    """At step s client j sends to itself and to j + (s mod (n - 1)) + 1."""

    @property
    def expected_edges(self):
        return 2.0 * self.n

    def out_adjacency(self, s):
        peers = (np.arange(self.n) + s % (self.n - 1) + 1) % self.n
        both = np.sort(np.stack([np.arange(self.n), peers], axis=1), axis=1)
        return np.arange(0, 2 * self.n + 1, 2), both.astype(np.int32).ravel()


skipping = Skipping(8)
print(skipping.edges(1))

# %%
# How well does each network average? The plot shows the error of S steps of Push-Sum, in the worst case over all
# vectors.

figure, axes = plt.subplots()
networks = {
    "skipping, 2 edges per client": skipping,
    "random directed, rates 0.4–0.8": hgp.networks.RandomDirected(n=8, seed=0),
    "one random receiver": hgp.networks.RandomOut(n=8, k=1, seed=0),
    "one-peer exponential": hgp.networks.OnePeerExponential(n=8),
}
steps = np.arange(1, 25)
for name, net in networks.items():
    K = [hgp.exact.push_sum_matrix(net, int(S)) for S in steps]
    error = [np.linalg.norm(k - 1 / 8, 2) for k in K]
    wide = 3 if net is skipping else 1.2  # two networks average exactly after three steps: one line shows on the other
    axes.semilogy(steps, np.maximum(error, 1e-17), label=name, linewidth=wide)
axes.set(xlabel="steps S of a call", ylabel="distance from the exact mean", ylim=(1e-17, 3))
axes.legend()

# %%
# One-peer exponential graphs with n = 2ᵏ average exactly after k steps; HGP then has no floor.
