"""Rounds of local epochs and averages: FedAvg and its relatives, over any averaging.

    w_i ← z_i;  for each mini-batch:  b_i ← m b_i + ∂g_i(w_i) + c w_i + μ (w_i − z_i),  w_i ← w_i − a b_i
    z ← Θ̂ w,   or with weights N_i:   z_i = [Θ̂ (N w)]_i / [Θ̂ N]_i

Over ExactAverage with weights this is FedAvg [1] (FedProx [2] with μ > 0), over Gossip with fixed weights its
decentralized form, over Push-Sum its form on directed graphs. A client takes ceil(N_i / batch size) steps an epoch.

Which cost is minimised as a → 0? Exact means give Σ_i N_i g_i (N_i = 1 without weights), and so does Gossip without
weights. Otherwise z = A w with A_ij = Θ̂_ij N_j / Σ_k Θ̂_ik N_k, whose rows sum to 1, and the minimised cost is Σ_i π_i
g_i with π A = π. Over Gossip with a fixed symmetric Θ̂, π_i ∝ N_i [Θ̂ N]_i and not N_i. Over Push-Sum with weights
reset in each round, π is not uniform even without N. Many steps S per round bring π to N. PushSum(debias="conserve"),
which carries sums over, gives Σ_i N_i g_i for every S:

    u ← P (u + N δ(z)),   c ← P c,   z = u / c,      from u = N x_0, c = N;  Σ_i u_i moves by Σ_i N_i δ_i exactly.

[1] B. McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
[2] T. Li et al. Federated optimization in heterogeneous networks. MLSys 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, from_host, host_dtype
from hgp_ref.mixing import Averaging, Mixer, start_averaging
from hgp_ref.problems import Problem
from hgp_ref.problems.base import FullProblem
from hgp_ref.problems.batches import Epochs, MiniBatches, read_batches
from hgp_ref.training.gradient_push import (
    STEP_SETTINGS,
    Callback,
    Fit,
    LocalGradient,
    Rate,
    Rates,
    TrainingLoop,
    TrainingMethod,
    TrainingMonitor,
    read_rates,
    read_settings,
    read_start,
    train,
    without_function,
)
from hgp_ref.validation import Count, Nonnegative, checked

CHECK_EVERY = 8  # rounds between two checks for divergence


@checked(rounds=Count(), epochs=Count(), prox=Nonnegative(), **STEP_SETTINGS)
@dataclass(frozen=True, repr=False)
class LocalRounds(TrainingMethod):
    """Rounds in which clients train alone for some epochs and then average.

    If averages are not exact, this minimises another weighted sum of the g_k, unless sums are carried over: see
    `hgp_ref.training.rounds`.

    Parameters
    ----------
    rounds : number of rounds.
    lr : the rate a, a number or a function of the round (from 0). If None the clients find it as in `SGP`, with traffic
        counted: a = 1 / (1.05 L + c + μ).
    milestones : rounds at which a is multiplied by `decay`: numbers from 0, or fractions of the rounds.
    epochs : local epochs per round. On full batches an epoch is one step.
    momentum, weight_decay, prox : m, c and μ of the module's equation. Clients keep their momentum between rounds.
    weights : (n,) numbers > 0, such as the training sizes `problem.counts`; a message then carries one number more.
        None for the plain mean. Σ_k N_k g_k is minimised over ExactAverage and PushSum(debias="conserve").
    batches : None for full batches, a size, or `hgp.MiniBatches(size, seed, offset=...)`. Clients go through their
        instances in an order that is a function of (seed, epoch, client); `offset` is the first epoch.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> method = hgp.training.LocalRounds(rounds=50, lr=0.1)
    >>> fit = hgp.train(problem, np.zeros((3, 2)), hgp.ExactAverage(3), method)
    >>> fit.consensus_gap < 1e-12, int(fit.traffic.rounds)
    (True, 50)
    """

    rounds: int = 100
    lr: Rate | None = 0.1
    milestones: Sequence[float] = ()
    _: KW_ONLY
    epochs: int = 1
    decay: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    weights: Sequence[float] | np.ndarray | None = None
    batches: MiniBatches | int | None = None

    def __post_init__(self) -> None:
        read_settings(self, self.rounds)
        if self.weights is not None:
            values = validation.real_array("weights", self.weights, (None,), "(n,)", 0.0)
            object.__setattr__(self, "weights", tuple(values.tolist()))
        batches = self.batches
        if isinstance(batches, MiniBatches) and (
            batches.share or batches.full_jacobian or batches.replace or isinstance(batches.seed, tuple)
        ):
            raise ValueError(
                "batches must have one seed and not set share, full_jacobian or replace in local rounds, got "
                f"{batches!r}"
            )

    def run(self, problem: FullProblem, lam: Array, net: Averaging, x0: Array | None, tol: float | None,
            callback: Callback | None, progress: bool) -> Fit:  # fmt: skip
        if lam.ndim > 2:
            raise ValueError(f"lam must have shape (n, d_lam) in local rounds, got {tuple(lam.shape)}")
        if not isinstance(net, Averaging):
            raise TypeError(f"net must be an averaging for LocalRounds, such as hgp.PushSum(net, steps), got {net!r}")
        z = read_start(problem, lam, x0)
        gradient = LocalGradient(problem, lam, self.momentum, self.weight_decay, self.prox)
        mixer = open_weighted(net, z, self.rounds, self.weights, running=True)
        channel = mixer.mixer.channel
        channel.check_client_ids(problem.clients)
        settings = replace(without_function(self), weights=None)  # each rank has those of its own clients
        channel.check_same_on_all_ranks("hgp.train", method=settings, tol=tol, callback=callback is not None)
        rates = read_rates(self, self.rounds, problem, lam, z, channel, self.weight_decay + self.prox)
        batches = read_batches(self.batches)
        steps = Epochs(problem, None, 0, lam)
        if batches is not None:
            steps = Epochs(problem, batches.size, batches.seeds[0], lam, batches.offset)
        monitor = TrainingMonitor(gradient, z, mixer.mixer)
        update = LocalEpochs(gradient, rates, steps, self.epochs)
        loop = TrainingLoop(mixer, update, monitor, self.rounds, False, CHECK_EVERY, tol, 1, callback)
        return loop.fit(z, "rounds" if progress else None, self)


def local_rounds(
    problem: Problem,
    lam: Array,
    avg: Averaging,
    rounds: int = 100,
    lr: Rate | None = 0.1,
    milestones: Sequence[float] = (),
    batches: MiniBatches | int | None = None,
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    x0: Array | None = None,
    tol: float | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) by local rounds: short for `train` with `LocalRounds(rounds, lr, milestones, ...)`.

    `hgp.training.LocalRounds` explains these arguments and has further ones (epochs, momentum, prox, ...).

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> fit = hgp.training.local_rounds(problem, np.zeros((3, 2)), hgp.ExactAverage(3), rounds=50, lr=0.1)
    >>> fit.consensus_gap < 1e-12
    True
    """
    validation.instance("avg", avg, Averaging)
    method = LocalRounds(rounds, lr, milestones, weights=weights, batches=batches)
    return train(problem, lam, avg, method, x0=x0, tol=tol, callback=callback, progress=progress)


class LocalEpochs:
    """δ(z): `epochs` epochs over a client's own data from z, with a proximal term towards z."""

    def __init__(self, gradient: LocalGradient, rates: Rates | np.ndarray, steps: Epochs, epochs: int) -> None:
        self.gradient, self.steps, self.epochs = gradient, steps, epochs
        self.rates = rates.tolist() if isinstance(rates, np.ndarray) else rates
        self.last: Array = None  # b, which continues from round to round

    def __call__(self, round: int, z: Array) -> Array:
        self.rate, w = self.rates[round - 1], z
        for epoch in range((round - 1) * self.epochs, round * self.epochs):
            for batch, active in self.steps.steps(epoch):
                w = self._step(w, batch, active, z)
        return w - z

    def _step(self, w: Array, batch: Array | None, active: Array | None, anchor: Array) -> Array:
        """One step of the `active` clients, (n, 1) booleans or None for all; the others keep w and their momentum."""
        b = self.gradient.direction(w, batch, self.last, anchor)
        w_next = w - self.rate * b
        if active is not None:
            xp = array_namespace(w)
            b = xp.where(active, b, xp.zeros_like(b) if self.last is None else self.last)
            w_next = xp.where(active, w_next, w)
        self.last = b
        return w_next


class WeightedMean:
    """z_i = [Θ̂ (N u)]_i / [Θ̂ c]_i with c = N, the clients' weights; without weights, the mean.

    If the averaging conserves sums, the sums of N u and c carry over to the next call, and `carry` returns that u.
    """

    def __init__(self, mixer: Mixer, weights: Array | None) -> None:
        self.mixer, self._weights = mixer, weights
        self._u: Array = None  # the u that carries over, if sums do
        self._c = weights  # (n, 1)

    def average(self, u: Array) -> Array:
        if self._weights is None:
            return self.mixer.average(u)
        means = self.mixer.average(array_namespace(u).concat([self._weights * u, self._c], axis=-1))  # (n, d + 1)
        if self.mixer.averagings[0].conserves:
            sums = self.mixer.carry(means)
            self._u, self._c = sums[:, :-1] / self._weights, sums[:, -1:]
        return means[:, :-1] / means[:, -1:]

    def carry(self, ubar: Array) -> Array:
        return self.mixer.carry(ubar) if self._u is None else self._u

    def debias(self, u: Array) -> Array:
        return self.mixer.debias(u)


def open_weighted(
    avg: Averaging, like: Array, calls: int, weights: Sequence[float] | np.ndarray | None, running: bool = False
) -> WeightedMean:
    """The weighted mean for `calls` calls with arrays like `like` (n, d); `running` if the caller uses `carry`."""
    n = like.shape[-2]
    if weights is None:
        return WeightedMean(start_averaging([avg], n, like, calls), None)
    host = validation.real_array("weights", weights, (n,), f"({n},) = (n,)", 0.0)
    if not host.all():
        raise ValueError(f"weights must be numbers > 0, got {weights!r}")
    if avg.conserves and not running:
        raise ValueError(f"avg must compute means and not conserve sums if weights are given, got {avg!r}")
    c = from_host(host.astype(host_dtype(like))[:, None], like=like)
    return WeightedMean(start_averaging([avg], n, array_namespace(like).concat([like, c], axis=-1), calls), c)
