"""Networks, averagings, channels, methods, runs, results, backends and models."""

from __future__ import annotations

import networkx
import numpy as np

import hgp_ref as hgp
from fuzz import coverage, small
from fuzz.table import function, method
from hgp_ref import methods, mixing, networks, neural

EDGES = [(np.array([0, 1, 2]), np.array([1, 2, 0])), (np.array([1, 0]), np.array([2, 2]))]


# networks
KINDS = {
    "FullyConnected": dict(n=3),
    "OnePeerExponential": dict(n=3),
    "SelfLoops": dict(n=3),
    "Ring": dict(n=3, directed=True),
    "Star": dict(n=3),
    "Torus": dict(rows=2, columns=3),
    "Hypercube": dict(dimension=2),
    "Exponential": dict(n=3),
    "RandomDirected": dict(n=3, low=0.4, high=0.8, seed=0),
    "RandomUndirected": dict(n=3, low=0.4, high=0.8, seed=0),
    "RandomOut": dict(n=3, k=1, seed=0),
    "Schedule": dict(graphs=EDGES, n=3, weight=None),
    "SparseErdosRenyi": dict(n=3, mean_degree=1.0, seed=0),
    "StaticUndirected": dict(n=3, p=0.5, seed=0, weights="metropolis"),
    "Thinned": dict(net=networks.FullyConnected(3), k=1),
    "Unreliable": dict(net=networks.FullyConnected(3), loss=0.2, delay=2, sleep=0.1, seed=0, stretch=2),
}
MEMBERS = {
    "out_adjacency": dict(s=1),
    "edges": dict(s=1),
    "out_neighbours": dict(s=1, sender=0),
    "csr": dict(s=1),
    "mixing_matrix": dict(s=1),
    "mixing_matrices": dict(first=1, count=2),
    "products": dict(first=1, calls=2, steps=2),
    "union": dict(first=1, count=2),
    "delivered_edges": dict(first=1, count=2),
    "after": dict(t=2),
    "plot": dict(step=(1, 2), ax=None, layout=None),
}
for kind, settings in KINDS.items():
    make = getattr(networks, kind)
    if coverage.undeclared(make):
        function(f"networks.{kind}", make, lambda settings=settings: dict(settings))
    for member, good in MEMBERS.items():
        owner = lambda make=make, settings=settings: make(**settings)  # noqa: E731
        method(f"networks.{kind}.{member}", owner, lambda good=good: dict(good))
for member in ("asleep", "delays", "links"):
    owner = lambda: networks.Unreliable(networks.FullyConnected(3), sleep=0.2)  # noqa: E731
    method(f"networks.Unreliable.{member}", owner, lambda: dict(s=1))
method("networks.OnePeerExponential.hop", lambda: networks.OnePeerExponential(3), lambda: dict(s=1))

function(
    "networks.from_networkx", networks.from_networkx, lambda: dict(graphs=networkx.path_graph(3), weights="metropolis")
)

# averaging and channels
function("mixing.PushSum", mixing.PushSum, lambda: dict(net=small.net(), steps=2, debias="reset", mode="auto"))
function(
    "mixing.RobustPushSum",
    mixing.RobustPushSum,
    lambda: dict(net=networks.Unreliable(small.net()), steps=2, debias="reset", mode="auto"),
)
function(
    "mixing.push_sum_for",
    mixing.push_sum_for,
    lambda: dict(net=networks.Unreliable(small.net()), steps=2, debias="reset", mode="auto"),
)
function("mixing.TreeAverage", mixing.TreeAverage, lambda: dict(net=small.net(), tree=None))
function("mixing.Gossip", mixing.Gossip, lambda: dict(net=networks.FullyConnected(3), steps=2, mode="auto"))
for kind, owner in {
    "PushSum": small.avg,
    "RobustPushSum": lambda: hgp.RobustPushSum(networks.Unreliable(small.net()), 2),
    "Gossip": lambda: hgp.Gossip(networks.FullyConnected(3), 2),
    "ExactAverage": lambda: hgp.ExactAverage(3),
    "ServerAverage": lambda: mixing.ServerAverage(3),
    "TreeAverage": lambda: mixing.TreeAverage(small.net()),
}.items():
    method(f"mixing.{kind}.apply", owner, lambda: dict(u=small.rng().normal(size=(3, 4)), call=1), passes_nan=True)
    method(f"mixing.{kind}.steps_of", owner, lambda: dict(first=0, calls=2))
    method(f"mixing.{kind}.graphs_before", owner, lambda: dict(call=2))
function("mixing.connect", lambda net, mode: mixing.connect(net, mode), lambda: dict(net=small.net(), mode="auto"))
function(
    "mpi.gather",
    hgp.mpi.gather,
    lambda: dict(a=small.rng().normal(size=(3, 4)), net=small.net(), axis=0),
    passes_nan=True,
)
for kind in ("AllToAll", "ParameterServer"):
    function(f"mixing.{kind}", getattr(mixing, kind), lambda: dict(n=3, clients=None))

# methods
function("methods.Refined", methods.Refined, lambda: dict(method=methods.Neumann(0.5), cycles=2, steps=3))

# runs
RUN = dict(batches=None, progress=False)
function(
    "methods.hypergradient",
    hgp.hypergradient,
    lambda: dict(problem=small.quadratic(), **small.point(small.quadratic()), avg=small.avg(), eta=0.5, iterations=8)
    | RUN | dict(history=True, tol=1e-9, w0=np.zeros((3, 4)), callback=lambda m, v: False, method=None),
)  # fmt: skip
function(
    "methods.hypergradient (mini-batches)",
    hgp.hypergradient,
    lambda: (
        dict(problem=small.logistic(), **small.point(small.logistic()), avg=small.avg(), iterations=8)
        | dict(batches=hgp.MiniBatches(2, seed=[0, 1], replace=True), method=methods.Neumann(0.5))
    ),
)
function(
    "training.sgp",
    hgp.sgp,
    lambda: dict(problem=small.quadratic(), net=small.net(), lam=small.point(small.quadratic())["lam"], steps=8, lr=0.3)
    | RUN | dict(milestones=(3, 5), x0=np.zeros((3, 4)), tol=1e-9, callback=lambda m, v: False),
    speaks_of=("x",),  # made like lam
)  # fmt: skip
function(
    "training.sgp (mini-batches)",
    hgp.sgp,
    lambda: (
        dict(problem=small.logistic(), net=small.net(), lam=small.point(small.logistic())["lam"], steps=8, lr=0.3)
        | dict(batches=hgp.MiniBatches(2, seed=[0, 1]))
    ),
    speaks_of=("x",),  # made like lam
)
function(
    "training.train",
    hgp.train,
    lambda: (
        dict(problem=small.logistic(), net=small.net(), lam=small.point(small.logistic())["lam"])
        | dict(method=hgp.training.SGP(8, 0.3), x0=np.zeros((3, 4)), tol=1e-9, callback=lambda m, v: False)
        | dict(progress=False)
    ),
    speaks_of=("x",),  # made like lam
)
function(
    "training.SGP",
    hgp.training.SGP,
    lambda: (
        dict(steps=8, lr=0.3, milestones=(3, 5), variant="nedic", decay=0.1, momentum=0.5, weight_decay=0.1)
        | dict(batches=hgp.MiniBatches(2), mode="auto")
    ),
)
function(
    "training.LocalRounds",
    hgp.training.LocalRounds,
    lambda: (
        dict(rounds=4, lr=0.3, milestones=(2,), epochs=1, decay=0.1, momentum=0.5, weight_decay=0.1, prox=0.1)
        | dict(weights=np.ones(3), batches=hgp.MiniBatches(2))
    ),
)
function(
    "problems.MiniBatches",
    hgp.MiniBatches,
    lambda: dict(size=2, seed=[0, 1], replace=False, share=False, offset=0, full_jacobian=False),
)

function(
    "training.local_rounds",
    hgp.training.local_rounds,
    lambda: (
        dict(problem=small.logistic(), avg=small.avg(), lam=small.point(small.logistic())["lam"], rounds=4, lr=0.3)
        | dict(batches=2, milestones=(2,), weights=np.ones(3), x0=np.zeros((3, 4)), tol=1e-9)
        | dict(callback=lambda m, v: False, progress=False)
    ),
    speaks_of=("x",),  # made like lam
)

# results
method("methods.Estimate.plot", small.estimate, lambda: dict(truth=small.estimate().value, ax=None))

# backend
ARRAY = np.ones((3, 4))
for name in ("device", "to_host"):
    function(f"backend.{name}", getattr(hgp.backend, name), lambda: dict(x=ARRAY), passes_nan=True)
function("backend.from_host", hgp.backend.from_host, lambda: dict(a=ARRAY, like=ARRAY), passes_nan=True)
function(
    "backend.array_namespace", lambda arrays: hgp.backend.array_namespace(arrays, ARRAY), lambda: dict(arrays=ARRAY)
)
function("backend.get_backend", hgp.backend.get_backend, lambda: dict(name="numpy"))
method(
    "backend.Backend.asarray",
    lambda: hgp.backend.get_backend("numpy"),
    lambda: dict(a=ARRAY, dtype="float32"),
    passes_nan=True,
)

# neural: what builds and evaluates a model
function("neural.Conv2d", neural.Conv2d, lambda: dict(inputs=1, outputs=2, kernel=2, stride=1, padding="valid"))
for name in ("AvgPool2d", "MaxPool2d"):
    function(f"neural.{name}", getattr(neural, name), lambda: dict(kernel=2, stride=2))
function(
    "neural.Sequential",
    lambda input_shape, layers, fused: neural.Sequential(input_shape, layers, neural.Tanh(), fused=fused),
    lambda: dict(input_shape=(4,), layers=neural.Linear(4, 3), fused=True),
)
function("neural.Ensemble", neural.Ensemble, lambda: dict(model=small.model(), components=2))
for kind, owner in {"Sequential": small.model, "Ensemble": lambda: neural.Ensemble(small.model(), 2)}.items():
    for member in ("forward", "logits"):
        method(
            f"neural.{kind}.{member}",
            owner,
            lambda owner=owner: dict(x=owner().init(3), X=small.rng().normal(size=(3, 6, 4))),
            passes_nan=True,
        )
    method(f"neural.{kind}.init", owner, lambda: dict(n=3, seed=0, like=np.ones(1), dtype="float64", same_for_all=True))
    method(f"neural.{kind}.floats_per_instance", owner, lambda: dict(temporary=True))
