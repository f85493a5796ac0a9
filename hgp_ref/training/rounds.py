"""Rounds of local epochs and averages: FedAvg and its relatives, over any averaging.

    w_i ← z_i;  for each mini-batch:  b_i ← m b_i + ∂g_i(w_i) + c w_i + μ (w_i − z_i),  w_i ← w_i − a b_i
    z ← Θ̂ w,   or with weights N_i:   z_i = [Θ̂ (N w)]_i / [Θ̂ N]_i

Over ExactAverage with weights this is FedAvg [1] (FedProx [2] with μ > 0), over Gossip with fixed weights its
decentralized form, over Push-Sum its form on directed graphs. A client takes ceil(N_i / batch size) steps an epoch.

What is minimised, as a → 0. An exact mean gives Σ_i N_i g_i (N_i = 1 without weights), and so does Gossip without
weights. Else z = A w has rows that sum to 1, A_ij = Θ̂_ij N_j / Σ_k Θ̂_ik N_k, and what is minimised is Σ_i π_i g_i with
π A = π: over Gossip with a fixed symmetric Θ̂ π_i ∝ N_i [Θ̂ N]_i, not N_i, and over Push-Sum that begins anew with each
round π is not even without weights. Many steps S a round bring π to N. Sums that run on, PushSum(debias="conserve"),
give Σ_i N_i g_i whatever S is:

    u ← P (u + N δ(z)),   c ← P c,   z = u / c,      from u = N x_0, c = N;  Σ_i u_i moves by Σ_i N_i δ_i exactly.

[1] B. McMahan et al. Communication-efficient learning of deep networks from decentralized data. AISTATS 2017.
[2] T. Li et al. Federated optimization in heterogeneous networks. MLSys 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, array_namespace, detached, from_host, host_dtype
from hgp_ref.mixing import Averaging, Mixer, start_averaging
from hgp_ref.philox import check_seed
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.batches import Epochs
from hgp_ref.training.gradient_push import Alternation, Descent, Fit, Rate, Rates, TrainingWatch, check_lam, read_start

LOOK = 8  # rounds between two looks at how large things have grown


def local_rounds(
    problem: Problem,
    avg: Averaging,
    lam: Array,
    rounds: int = 100,
    lr: Rate = 0.1,
    milestones: Sequence[int] | None = None,
    *,
    epochs: int = 1,
    batch_size: int | None = None,
    decay: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    prox: float = 0.0,
    weights: Sequence[float] | np.ndarray | None = None,
    seed: int = 0,
    first_epoch: int = 0,
    x0: Array | None = None,
    callback: Callable[[int, Array], object] | None = None,
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) by rounds in which clients train alone for some epochs and then average.

    Over means that are not exact another weighted sum of the g_k, unless sums run on: see `hgp_ref.training.rounds`.

    Parameters
    ----------
    problem : client costs, any object that meets `hgp_ref.problems.Problem`.
    avg : the averaging of each round: `ExactAverage(n)`, `Gossip(net, S)`, `PushSum(net, S)`.
    lam : (n, d_lam).
    rounds, lr : number of rounds, and the rate a, a number or a function of the round (from 0).
    milestones : rounds (from 0) at which a is multiplied by `decay`; by default after 3/5 and 4/5 of the rounds.
    epochs, batch_size : what a client does in a round; None for full batches, an epoch is one step then.
    momentum, weight_decay, prox : m, c and μ of the module's equation. Momentum is a client's own and goes on from
        round to round.
    weights : (n,) numbers > 0, such as the training sizes `problem.counts`; a message then carries one number more.
        None for the plain mean. Σ_k N_k g_k is what is minimised over ExactAverage and PushSum(debias="conserve").
    seed, first_epoch : orders of instances are a pure function of (seed, epoch, client).
    x0 : (n, d_x), zeros by default.
    callback : called as callback(round, z) after each round, from 1 on; a true result stops the training.
    progress : show a bar.

    Returns
    -------
    Fit, with `x` (n, d_x) after the last average. Training that grows raises DivergenceError.

    Raises
    ------
    TypeError, ValueError
        λ or x0 does not fit the problem or the averaging, settings are out of their range.
    DivergenceError
        x or its gradient is not finite any more, or grew without end.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=3, dim_x=4, dim_lam=2, seed=1)
    >>> fit = hgp.training.local_rounds(problem, hgp.ExactAverage(3), np.zeros((3, 2)), rounds=50, lr=0.1)
    >>> fit.consensus_gap < 1e-12, int(fit.traffic.rounds)
    (True, 50)
    """
    problem = as_problem(problem, needs=("inner_grad",))
    check_lam(problem, lam, x0, run_axes=False)
    validation.instance("avg", avg, Averaging)
    rounds = validation.integer("rounds", rounds, 1, validation.LONGEST)
    epochs = validation.integer("epochs", epochs, 1, validation.LONGEST)
    progress = validation.boolean("progress", progress)
    if callback is not None:
        validation.function("callback", callback)
    lam = detached(lam)
    z = read_start(problem, lam, x0)
    rates = Rates(rounds, lr, milestones, decay)
    rule = Descent(problem, lam, momentum, weight_decay, prox)
    mixer = open_weighted(avg, z, rounds, weights, running=True)
    mixer.mixer.channel.check_same_on_all_ranks(
        "hgp.training.local_rounds", epochs=epochs, batch_size=batch_size, seed=seed, first_epoch=first_epoch,
        rates=rates.sample(), milestones=rates.milestones, momentum=rule.momentum, weight_decay=rule.weight_decay,
        prox=rule.prox, callback=callback is not None)  # fmt: skip
    steps = Epochs(problem, batch_size, check_seed(seed), lam, first_epoch)
    watch = TrainingWatch(rule, z, rates.largest, mixer.mixer)
    turns = Alternation(mixer, LocalEpochs(rule, rates, steps, epochs), watch, rounds, False, LOOK, callback=callback)
    return turns.fit(
        z,
        "rounds" if progress else None,
        lr=rates[0],
        milestones=rates.milestones,
        decay=float(decay),
        variant="rounds",
        batch_size=batch_size,
        seed=seed,
        first_batch=first_epoch,
        epochs=epochs,
    )


class LocalEpochs:
    """δ(z): from z through `epochs` epochs of a client's own data, drawn back to z by the proximal term."""

    def __init__(self, rule: Descent, rates: Rates | np.ndarray, steps: Epochs, epochs: int) -> None:
        self.rule, self.steps, self.epochs = rule, steps, epochs
        self.rates = rates.tolist() if isinstance(rates, np.ndarray) else rates
        self.last: Array = None  # b, which goes on from round to round

    def __call__(self, turn: int, z: Array) -> Array:
        self.rate, w = self.rates[turn - 1], z
        for epoch in range((turn - 1) * self.epochs, turn * self.epochs):
            for batch, there in self.steps.steps(epoch):
                w = self._step(w, batch, there, z)
        return w - z

    def _step(self, w: Array, batch: Array | None, there: Array | None, anchor: Array) -> Array:
        """One step of the clients that are still `there`; the others rest, their momentum too."""
        b = self.rule.direction(w, batch, self.last, anchor)
        if there is not None:
            xp = array_namespace(w)
            b = xp.where(there, b, xp.zeros_like(b) if self.last is None else self.last)
            self.last = b
            return xp.where(there, w - self.rate * b, w)
        self.last = b
        return w - self.rate * b


class WeightedMean:
    """z_i = [Θ̂ (N u)]_i / [Θ̂ N]_i for weights N, the mean itself without any.

    Where the averaging conserves sums, both N u and c are carried, and `carry` returns that u.
    """

    def __init__(self, mixer: Mixer, weights: Array | None) -> None:
        self.mixer, self._weights = mixer, weights
        self._u: Array = None  # where sums are carried
        self._c = weights

    def average(self, u: Array) -> Array:
        if self._weights is None:
            return self.mixer.average(u)
        both = self.mixer.average(array_namespace(u).concat([self._weights * u, self._c], axis=-1))  # (n, d + 1)
        if self.mixer.averagings[0].conserves:
            sums = self.mixer.carry(both)
            self._u, self._c = sums[:, :-1] / self._weights, sums[:, -1:]
        return both[:, :-1] / both[:, -1:]

    def carry(self, ubar: Array) -> Array:
        return self.mixer.carry(ubar) if self._u is None else self._u

    def debias(self, u: Array) -> Array:
        return self.mixer.debias(u)


def open_weighted(
    avg: Averaging, like: Array, calls: int, weights: Sequence[float] | np.ndarray | None, running: bool = False
) -> WeightedMean:
    """The weighted mean of `calls` calls, for arrays like `like` (n, d); `running` if what is carried is used."""
    n = like.shape[-2]
    if weights is None:
        return WeightedMean(start_averaging([avg], n, like, calls), None)
    host = validation.real_array("weights", weights, (n,), f"({n},) = (n,)", 0.0)
    if not host.all():
        raise ValueError(f"weights={weights!r} given, needed numbers > 0")
    if avg.conserves and not running:
        raise ValueError(f"weights given beside {avg!r}, needed an averaging that makes means, not sums")
    c = from_host(host.astype(host_dtype(like))[:, None], like=like)
    return WeightedMean(start_averaging([avg], n, array_namespace(like).concat([like, c], axis=-1), calls), c)
