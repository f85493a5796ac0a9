"""Problems and averagings of four clients that the tests of array libraries go through."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from hgp_ref.networks import OnePeerExponential, RandomDirected, RandomOut, StaticUndirected, Unreliable
from hgp_ref.problems import HyperCleaning, InstanceWeights, LogisticRegression, LogRates, Quadratic, SoftmaxRegression

N = 4  # clients


def labelled(classes: int, seed: int = 0):
    """Clients with 5, 7, 6, 9 training instances and 4 validation instances, 3 features."""
    rng = np.random.default_rng(seed)
    sizes, val = (5, 7, 6, 9), (4,) * N
    X, X_val = ([rng.standard_normal((k, 3)) for k in part] for part in (sizes, val))
    y, y_val = ([rng.integers(0, classes, k).astype(float) for k in part] for part in (sizes, val))
    for labels in y:
        labels[:classes] = np.arange(classes)
    return X, y, X_val, y_val


PROBLEMS = {
    "quadratic": lambda: Quadratic.random(N, 5, 3, seed=1),
    "logistic": lambda: LogisticRegression(*labelled(2)),
    "logistic, a rate per client": lambda: LogisticRegression(*labelled(2), regularization="client"),
    "softmax": lambda: SoftmaxRegression(*labelled(3), n_classes=3),
    "weights": lambda: InstanceWeights(*labelled(2), l2=0.3),
    "weights, softmax": lambda: InstanceWeights(*labelled(3), loss="softmax", n_classes=3, l2=0.3),
    "hyper-cleaning": lambda: HyperCleaning(*labelled(3), 0.3, n_classes=3),
    "log rates": lambda: LogRates(LogisticRegression(*labelled(2))),
}


def point(problem, runs: tuple[int, ...] = (), seed: int = 3):
    """x and lam on the host; lam > 0, as rates and weights are."""
    rng = np.random.default_rng(seed)
    x = 0.5 * rng.standard_normal((*runs, problem.n_clients, problem.dim_x))
    return x, rng.uniform(0.2, 0.6, (*runs, problem.n_clients, problem.dim_lam))


NET = RandomDirected(N, seed=5)
DOUBLY = StaticUndirected(N, p=0.8, seed=1, weights="metropolis")
UNRELIABLE = Unreliable(NET, loss=0.1, delay=1, seed=2)
AVERAGINGS = {
    "push-sum composed": lambda: hgp.PushSum(NET, 3, mode="composed"),
    "push-sum stepping": lambda: hgp.PushSum(NET, 3, mode="stepping"),
    "push-sum conserve": lambda: hgp.PushSum(NET, 2, debias="conserve", mode="composed"),
    "push-sum conserve stepping": lambda: hgp.PushSum(NET, 2, debias="conserve", mode="stepping"),
    "push-sum, one peer": lambda: hgp.PushSum(OnePeerExponential(N), 2),
    "push-sum, random out": lambda: hgp.PushSum(RandomOut(N, 2, seed=3), 2, mode="stepping"),
    "gossip composed": lambda: hgp.Gossip(DOUBLY, 2, mode="composed"),
    "gossip stepping": lambda: hgp.Gossip(DOUBLY, 2, mode="stepping"),
    "exact": lambda: hgp.ExactAverage(N),
    "robust composed": lambda: hgp.RobustPushSum(UNRELIABLE, 5, mode="composed"),
    "robust stepping": lambda: hgp.RobustPushSum(UNRELIABLE, 5, mode="stepping"),
    "robust conserve": lambda: hgp.RobustPushSum(UNRELIABLE, 5, debias="conserve"),
    "tree": lambda: hgp.mixing.TreeAverage(NET),
}
