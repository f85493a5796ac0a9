"""
Standard networks
=================

Rings, stars, tori, hypercubes, exponential and complete graphs, and graphs of networkx. What they look like, how fast
they average, and how long that takes over real links.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import hgp_ref as hgp

networks = [
    hgp.networks.Ring(16),
    hgp.networks.Star(16),
    hgp.networks.Torus(4, 4),
    hgp.networks.Hypercube(4),
    hgp.networks.Exponential(16),
    hgp.networks.FullyConnected(16),
]
_, axes = plt.subplots(2, 3, figsize=(6.6, 4.6), layout="constrained")
for net, ax in zip(networks, axes.flat, strict=True):
    net.plot(ax=ax)
    ax.set_title(type(net).__name__)

# %%
# Their mixing matrices are doubly stochastic, so that ``Gossip`` and ``PushSum`` can use them. The spectral gap
# determines how many steps an average needs. A step costs its edges: here each client sends a vector of 10,000 numbers
# over an uplink of its own, with a latency of 20 ms and 1 MB/s. The seconds are exact where all clients send equally
# much. They are a lower bound for the star, whose client 0 sends 15 messages per step and the others one: its 108 steps
# take 108 · (0.02 + 15 · 0.08) = 132 seconds.

print("network                      gap   steps to 1e-3   messages   seconds")
vectors = np.random.default_rng(0).normal(size=(16, 10_000))
error = np.linalg.norm(vectors - vectors.mean(axis=0))
for net in networks:
    gap = 1 - np.sort(np.abs(np.linalg.eigvals(net.mixing_matrix(1))))[-2]
    steps = int(np.ceil(np.log(1e-3) / np.log(max(1 - gap, 1e-3))))
    avg = hgp.Gossip(net, steps)
    assert np.linalg.norm(avg.apply(vectors) - vectors.mean(axis=0)) <= 1.001e-3 * error
    seconds = avg.traffic.seconds(latency=0.02, bandwidth=1e6, uplinks=16)
    print(f"{net!r:28} {gap:.3f} {steps:11d} {avg.traffic.messages:13d} {seconds:9.1f}")

# %%
# A strip shows how a network changes from step to step. Messages that are lost are dashed.

hgp.networks.Unreliable(hgp.networks.OnePeerExponential(8), loss=0.2, delay=0, seed=1).plot(step=(1, 2, 3))

# %%
# Graphs of networkx keep the names of their nodes, and positions of networkx can be used.

graph = nx.florentine_families_graph()
families = hgp.networks.from_networkx(graph, weights="metropolis")
families.plot(layout=nx.kamada_kawai_layout(graph))
print(families.nodes[:3], families.mixing_matrix(1)[0, :3])
