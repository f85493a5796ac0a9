"""Estimates of the mean over clients: Push-Sum, gossip, exact averages, and how an iteration uses them.

An averaging is a sequence of operators Θ̂_m, m = 0, 1, …; call m takes S_m graphs of the network. For Push-Sum

    Θ̂_m u = diag(P_m ω)⁻¹ P_m u,    P_m = W_{(m+1)S} ... W_{mS+1}.

An `Averaging` holds settings. A `Mixer` applies it call after call over one channel.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, class_name, computes_on_device, from_host, host_dtype
from hgp_ref.errors import outside
from hgp_ref.mixing.channel import AllToAll, Channel, ParameterServer, Traffic, WeightRule, connect
from hgp_ref.mixing.simulated import MODES, Runs, check_balanced
from hgp_ref.networks import Network
from hgp_ref.networks.connectivity import diagnose_connectivity
from hgp_ref.philox import MAX_STEP
from hgp_ref.validation import Choice, Count, Integer, Nonnegative, Optional, checked

CHECKED_GRAPHS = 10_000  # checked for connectivity before a run


class Mixer:
    """Averaging as an iterative method uses it: call after call over one channel.

        mixer.average(u)         ū = Θ̂_m u for the next call m
        mixer.carry(ubar)        what an iteration continues with: ū, or the sums ω ū if they are to be conserved
        mixer.debias(u)          the inverse of carry
        mixer.push(z)            P z for the next call, without the division; weights carry over from call to call
        mixer.with_steps(S)      a mixer over the same channel whose calls take S steps
        mixer.drop_in_flight()   discard delayed messages before other vectors are mixed
        mixer.continue_weights(omega)   start with the weights of an earlier run instead of 1

    With `runs`, arrays have a leading run axis, and run r uses averaging r and a channel of its own.

    Parameters
    ----------
    averagings : one for each run.
    like : an array with the library, device and dtype of what is averaged.
    first : the number of the first call.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(2)
    >>> mixer = hgp.mixing.start_averaging([hgp.PushSum(net, steps=1)], 2, np.zeros((2, 1)), calls=1)
    >>> mixer.average(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """

    def __init__(
        self, averagings: Sequence[Averaging], channel: Channel, like: Array, first: int = 0, runs: bool = False
    ) -> None:
        self.averagings, self.channel, self.calls = averagings, channel, 0
        self._first, self._runs, self._counts = first, runs, True
        steps, rules, carried, conserving = [], [], [], []
        for a in averagings:
            steps.append(a.steps if isinstance(a.steps, int) else None)
            rules.append(a.weight_rule)
            carried.append(WeightRule.NONE if a.weight_rule is WeightRule.NONE else WeightRule.CARRY)
            conserving.append(a.conserves)
        self._steps: Any = None if None in steps else self._per_run(steps)  # of every call
        self._rule, self._carry_rule = self._per_run(rules), self._per_run(carried)
        self._weighted, self._conserves = WeightRule.CARRY in carried, any(conserving)
        self._mask: Array | None = None  # which runs conserve, where some do and some do not
        if self._conserves and not all(conserving):
            self._mask = from_host(np.array(conserving, dtype=host_dtype(like))[:, None, None], like=like)
        if first:
            channel.advance(self._per_run([a.graphs_before(first) for a in averagings]), self._rule, like)

    def average(self, u: Array) -> Array:
        """Each client's estimate of the mean of the rows of u."""
        steps = self._steps if self._steps is not None else self._steps_now()
        self.calls += self._counts
        return self.channel.average(u, steps, self._rule)

    def push(self, z: Array) -> Array:
        """P z over the graphs of the next call; `weights` becomes P ω. Refused if links drop messages for good."""
        if self.channel.drops_mass:
            raise ValueError(
                f"avg must conserve sums over clients, but the links of {self.averagings[0]!r} lose messages; use "
                "RobustPushSum"
            )
        steps = self._steps if self._steps is not None else self._steps_now()
        self.calls += self._counts
        return self.channel.mix(z, steps, self._carry_rule)

    def drop_in_flight(self) -> None:
        """Discard delayed messages, because other vectors are mixed next."""
        self.channel.drop_in_flight()

    def continue_weights(self, omega: Array | float) -> None:
        """Continue with the weights ω (..., n, 1) of an earlier run, if weights travel; a number stands for 1."""
        if self._weighted and not isinstance(omega, float):
            self.channel.continue_weights(omega)

    @property
    def weights(self) -> Array | float:
        """The mixing weights ω after the last call, (..., n, 1); 1 before the first call and for rule NONE."""
        omega = self.channel.weights if self._weighted else None
        return 1.0 if omega is None else omega

    def with_steps(self, steps: int) -> Mixer:
        """A mixer over the same channel whose calls take `steps` steps; the calls of this one keep their numbers."""
        other = copy.copy(self)
        other._steps, other._counts = self._per_run([steps] * len(self.averagings)), False
        return other

    def _steps_now(self) -> Any:
        """The steps of the next call, where they differ from call to call."""
        return self._per_run([a.steps_of(self._first + self.calls, 1)[0] for a in self.averagings])

    def for_each_run(self, z: Array) -> Array:
        """An entry of z (..., n, d) for each run: z with a run axis, else z without leading axes."""
        return z if self._runs else z[(*(0,) * (z.ndim - 2), ...)]

    def _per_run(self, entries: list[Any]) -> Any:
        """A tuple with one entry per run, or the entry itself without a run axis."""
        return tuple(entries) if self._runs else entries[0]

    def carry(self, ubar: Array) -> Array:
        """ū, or the sums ω ū if the averaging conserves sums: what the next iterate starts from."""
        if not self._conserves:
            return ubar
        return ubar * (self.channel.weights if self._mask is None else self._factor())

    def debias(self, u: Array) -> Array:
        """u / ω if the averaging conserves sums, else u: comparable between iterations."""
        return u / self._factor() if self._conserves and self.calls else u

    def _factor(self) -> Array:
        omega = self.channel.weights
        return omega if self._mask is None else self._mask * omega + (1 - self._mask)

    def record_traffic(self) -> Traffic:
        """Add the channel's traffic to `traffic` of each averaging, and return it; with runs, fields are arrays."""
        sent = self.channel.traffic
        if len(self.averagings) == 1 and not np.ndim(sent.messages):
            self.averagings[0].traffic += sent
        else:
            for r, averaging in enumerate(self.averagings):
                averaging.traffic += sent.of_run(r)
        return sent


def start_averaging(averagings: Sequence[Averaging], rows: int, like: Array, calls: int, runs: bool = False) -> Mixer:
    """A mixer over a new channel, from the first graph on. Warns if the graphs do not connect the clients.

    Parameters
    ----------
    averagings : one for each run; without `runs`, a single one.
    rows : number of clients that the arrays hold.
    like : an array with the library, device and dtype of what is averaged.
    calls : the largest number of calls of the run: their graphs are checked for connectivity.

    Examples
    --------
    >>> net = hgp.networks.FullyConnected(2)
    >>> mixer = hgp.mixing.start_averaging([hgp.PushSum(net, steps=1)], 2, np.zeros((2, 1)), calls=1)
    >>> mixer.average(np.array([[1.0], [3.0]]))
    array([[2.],
           [2.]])
    """
    channels, examined = list[Channel](), set[tuple[int, int]]()
    for averaging in averagings:
        channel = open_channel(averaging)
        local = channel.clients.stop - channel.clients.start
        if local != rows:
            raise ValueError(f"avg must average the problem's {rows} clients, got {averaging!r} for {local}")
        channel.last_step = averaging.graphs_before(calls)
        channels.append(channel)
        if channel.last_step > MAX_STEP:
            raise ValueError(
                f"avg must need at most {MAX_STEP} graphs, got {averaging!r}, which needs {channel.last_step} for "
                f"{calls} calls"
            )
        net, graphs = averaging.net, min(channel.last_step, CHECKED_GRAPHS)
        if net is not None and (id(net), graphs) not in examined:
            examined.add((id(net), graphs))
            problem = diagnose_connectivity(net, 1, graphs)
            if problem is not None:
                warnings.warn(f"{averaging!r}: {problem.message}", RuntimeWarning, stacklevel=outside())
    channel = Runs(channels) if runs else channels[0]
    kind = {"dtype": host_dtype(like), "run axes": like.shape[:-2], "columns": like.shape[-1]}
    channel.check_same_on_all_ranks("averages", averagings=averagings, calls=calls, runs=runs, **kind)
    return Mixer(averagings, channel, like, runs=runs)


def open_channel(averaging: Averaging) -> Channel:
    """`averaging.connect()`; TypeError if a user's class returns something else."""
    channel = averaging.connect()
    if not isinstance(channel, Channel):
        returned = type(channel).__name__
        raise TypeError(f"avg: {type(averaging).__name__}.connect() must return a Channel, got {returned}")
    return channel


class Averaging(ABC):
    """An estimate Θ̂_m of the mean over clients, for calls m = 0, 1, …

    Call m takes S_m graphs of the network, after those of the calls before it: mS+1, …, (m+1)S if all S_m are S.
    A subclass implements `connect` and sets `steps` and `weight_rule`. The only state is `traffic`, to which every run
    and every `apply` adds what was sent.

    Examples
    --------
    >>> avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, seed=0), steps=20)
    >>> isinstance(avg, hgp.mixing.Averaging), avg.graphs_before(2)
    (True, 40)
    """

    n: int
    steps: int | tuple[int, ...]  # S, or S_0, S_1, …, of which the last repeats
    net: Network | None = None  # checked for connectivity before a run
    traffic = Traffic()  # also for subclasses whose __init__ does not call ours
    weight_rule: WeightRule = WeightRule.NONE
    exact = False  # whether every call gives the mean itself, the same bits at every client
    conserves = False  # whether an iteration continues with the sums ω ū instead of the means ū

    def __init__(self) -> None:
        self.traffic = Traffic()

    @abstractmethod
    def connect(self) -> Channel:
        """A new channel, at the first graph."""

    def steps_of(self, first: int, calls: int) -> Sequence[int]:
        """S_m of the calls m = first, …, first + calls − 1."""
        first = validation.integer("first", first, 0)
        calls = validation.integer("calls", calls, 0, validation.LONGEST)
        if isinstance(self.steps, int):
            return (self.steps,) * calls
        listed = self.steps[first : first + calls]
        return listed + self.steps[-1:] * (calls - len(listed))

    def graphs_before(self, call: int) -> int:
        """S_0 + … + S_{m−1}: the number of graphs that the calls before call m use."""
        call = validation.integer("call", call, 0, validation.LONGEST)
        if isinstance(self.steps, int):
            return call * self.steps
        listed = self.steps[:call]
        return sum(listed) + (call - len(listed)) * self.steps[-1]

    @computes_on_device
    def apply(self, u: Array, call: int = 0) -> Array:
        """ū = Θ̂_call u: each client's estimate of the mean of the rows of u.

        u is (n, d), or (..., n, d) with run axes. The result depends only on (u, call). What was sent is added to
        `traffic`.
        """
        call = validation.integer("call", call, 0, validation.LONGEST)
        validation.same_kind(u=u)
        channel = self.connect()
        rows = channel.clients.stop - channel.clients.start
        if u.ndim < 2 or u.shape[-2] != rows:
            raise ValueError(f"u must have shape (..., {rows}, d), one row per client, got {tuple(u.shape)}")
        averaged = Mixer([self], channel, like=u, first=call).average(u)
        self.traffic += channel.traffic
        return averaged


def read_steps(steps: object) -> int | tuple[int, ...]:
    """S, or the sequence S_0, S_1, …, each an integer >= 1."""
    if not isinstance(steps, Iterable) or isinstance(steps, str | bytes) or getattr(steps, "ndim", 1) == 0:
        return validation.integer("steps", steps, 1, validation.LONGEST)
    sequence = tuple(validation.integer(f"steps[{m}]", S, 1, validation.LONGEST) for m, S in enumerate(steps))
    if not sequence:
        raise ValueError("steps must be an integer >= 1 or a sequence of them, got an empty one")
    return sequence


def check_network(net: Network) -> Network:
    """Raise TypeError unless `net` is a network."""
    if isinstance(net, Network) and not hasattr(net, "n"):
        raise TypeError(f"{type(net).__name__} has no n; call super().__init__(n) in its __init__")
    if not isinstance(net, Network):
        raise TypeError(f"net must be a network of hgp_ref.networks, got {class_name(net)}")
    return net


PUSH_SUM_DEBIAS = ("reset", "keep", "conserve")


@checked(debias=Choice(*PUSH_SUM_DEBIAS), mode=Choice(*MODES))
class PushSum(Averaging):
    """Push-Sum (Algorithm 1): Θ̂_m u = diag(P_m ω)⁻¹ P_m u with the column-stochastic P_m = W_{(m+1)S} ... W_{mS+1}.

    A message carries d numbers and one weight. The weights ω before call m depend on `debias`:

    - "reset": ω = 1 at every call, as in Algorithm 1. Θ̂_m is row-stochastic, which is what the error bounds need.
    - "conserve": ω = P_{m−1} ... P_0 1, and an iteration continues with the sums ω ū instead of ū (Algorithm 2 with
      ω ū − η ∂²_x g ū), so sums over clients are conserved. More accurate than "reset" where it converges, but it
      can diverge for large η on sparse networks.
    - "keep": the same ω, but iterations continue with ū. This neither averages nor conserves, is covered by no bound
      and can diverge (erratum 25); it warns.

    Parameters
    ----------
    steps : S, or a sequence S_0, S_1, … whose last entry repeats.
    mode : "composed" multiplies the graphs of a call first, "stepping" does not, "auto" takes the cheaper one. Results
        agree up to rounding.

    Examples
    --------
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> u = np.array([[0.0], [0.0], [3.0]])
    >>> bool(np.allclose(hgp.PushSum(net, steps=60).apply(u, 0), 1.0))
    True
    >>> hgp.PushSum(net, steps=[3, 5]).graphs_before(2)
    8
    """

    def __init__(self, net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> None:
        super().__init__()
        self.net: Network = check_network(net)
        self.n, self.steps, self.mode, self.debias = net.n, read_steps(steps), mode, debias
        if debias == "keep":
            warnings.warn(
                "debias='keep' divides by weights of earlier calls: not an average, covered by no bound, and it can "
                "diverge (see ERRATA, 25); use 'reset' or 'conserve'",
                RuntimeWarning,
                stacklevel=outside(),
            )
        self.weight_rule = WeightRule.RESET if debias == "reset" else WeightRule.CARRY
        self.conserves = debias == "conserve"

    def connect(self) -> Channel:
        return connect(self.net, self.mode)

    def __repr__(self) -> str:
        debias = "" if self.debias == "reset" else f", debias={self.debias!r}"
        return f"{type(self).__name__}({self.net!r}, steps={self.steps}{debias})"


@checked(mode=Choice(*MODES))
class Gossip(Averaging):
    """Gossip: Θ̂_m = W_{(m+1)S} ... W_{mS+1} with doubly stochastic W, without weights.

    A message carries one vector. Use PushSum if rows of W do not sum to 1. The first graphs are checked here, later
    ones when they are used. `steps` and `mode` are those of PushSum.

    Examples
    --------
    >>> avg = hgp.Gossip(hgp.networks.OnePeerExponential(4), steps=2)
    >>> avg.apply(np.array([[0.0], [0.0], [0.0], [4.0]]), 0).ravel()
    array([1., 1., 1., 1.])
    """

    def __init__(self, net: Network, steps: int | Sequence[int], mode: str = "auto") -> None:
        super().__init__()
        self.net: Network = check_network(net)
        self.n, self.steps, self.mode = net.n, read_steps(steps), mode
        if not net.is_reliable:
            raise ValueError(
                f"Gossip needs reliable links, but {net!r} loses or delays messages; use RobustPushSum, whose weights "
                "tell how much of a sum is missing"
            )
        for s in range(1, (net.period or 1) + 1):
            indptr, _, shares = net.csr(s)
            check_balanced(np.add.reduceat(shares, indptr[:-1]), 1, f"{net!r} (step {s})")

    def connect(self) -> Channel:
        return connect(self.net, self.mode)

    def __repr__(self) -> str:
        return f"Gossip({self.net!r}, steps={self.steps})"


@checked(n=Integer(1))
class ExactAverage(Averaging):
    """Every client obtains the exact mean, Θ = 11ᵀ/n ⊗ I, as over a complete graph in one step.

    A call takes one round and n(n − 1) messages of one vector each.

    Examples
    --------
    >>> hgp.ExactAverage(2).apply(np.array([[1.0], [3.0]]), 0)
    array([[2.],
           [2.]])
    """

    exact = True

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.steps, self.net = n, 1, None

    def connect(self) -> AllToAll:
        return AllToAll(self.n)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n})"


class ServerAverage(ExactAverage):
    """The exact mean through a server, as in federated learning: n messages to it and n back per call, in one round.

    Examples
    --------
    >>> import numpy as np
    >>> from hgp_ref.mixing import ServerAverage
    >>> avg = ServerAverage(5)
    >>> avg.apply(np.arange(10.0).reshape(5, 2))[0].tolist(), avg.traffic.messages
    ([4.0, 5.0], 10)
    """

    def connect(self) -> ParameterServer:
        return ParameterServer(self.n)


ROBUST_DEBIAS = ("reset", "conserve")


@checked(debias=Choice(*ROBUST_DEBIAS), mode=Choice(*MODES))
class RobustPushSum(PushSum):
    """Push-Sum with running sums, for links that lose and delay messages.

    Client j holds z_j and ω_j. Instead of its share of step t, it sends client i the sum of all shares so far,

        σ_ij ← σ_ij + W_ij(t) z_j,    and the receiver    z_i ← z_i + (σ_ij − ρ_ij),    ρ_ij ← σ_ij,

    (weights likewise) whenever a sum newer than ρ_ij arrives. The next message of an edge makes up for a lost or late
    one. No mass is lost, it only waits, and ū tends to the mean as S grows. P_m ≥ 0, so Θ̂_m is non-negative with rows
    that sum to 1, and bounds A and B hold with the realised matrices (`exact.push_sum_matrix(robust=True)` or
    `avg.connect().matrices`). For certificates C3 and C4 see `Lossy.interval_mean`.

    A message carries d numbers and one weight, as in Push-Sum; sums of weights grow, which tells old sums from new. A
    client stores one sum for each client it has sent to or received from: up to 2(n − 1) if graphs change. An edge that
    is rarely used delivers a large old share, which disturbs the averages: over RandomOut(n, k) with S not many times
    n/k, PushSum is more accurate.

    Parameters
    ----------
    net : any network; over reliable links this is PushSum.
    steps : as in PushSum. Loss p and delay up to q need about (1 + q/2)/(1 − p) times as many steps as reliable links.
    debias : "reset" starts every call with ω = 1 and nothing in flight. "conserve" carries weights and sums from call
        to call, so nothing is ever lost; `sgp` uses it.
    mode : as in PushSum.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> net = hgp.networks.Unreliable(hgp.networks.RandomDirected(n=4, seed=1), loss=0.1, delay=3, seed=1)
    >>> u = np.arange(8.0).reshape(4, 2)
    >>> bool(np.abs(hgp.RobustPushSum(net, steps=200).apply(u) - u.mean(axis=0)).max() < 1e-12)
    True
    """

    def connect(self) -> Channel:
        channel = super().connect()
        channel.use_running_sums()
        return channel


@checked(debias=Choice(*ROBUST_DEBIAS), mode=Choice(*MODES))
def push_sum_for(net: Network, steps: int | Sequence[int], debias: str = "reset", mode: str = "auto") -> PushSum:
    """PushSum over reliable links, RobustPushSum over links that lose or delay messages.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> net = hgp.networks.FullyConnected(3)
    >>> hgp.mixing.push_sum_for(net, 4)
    PushSum(FullyConnected(n=3), steps=4)
    >>> type(hgp.mixing.push_sum_for(hgp.networks.Unreliable(net, loss=0.1), 4)).__name__
    'RobustPushSum'
    """
    kind = PushSum if check_network(net).is_reliable else RobustPushSum
    return kind(net, steps, debias, mode)


MAX_CALLS = 10**7  # entries of the tuple
ROUNDING = 1e-9  # S_0 − m S_0/M is an integer up to rounding if M divides m S_0


@checked(steps=Count(1), iterations=Integer(1, MAX_CALLS), slope=Optional(Nonnegative()))
def falling_steps(steps: int, iterations: int, slope: float | None = None) -> tuple[int, ...]:
    """Numbers of steps that fall from call to call, S_m = max(1, ⌈S_0 − m·slope⌉) for m = 0 … M−1.

    For `PushSum(net, steps=falling_steps(S_0, M))`.

    Why averages may get worse. In bound A (`hgp.bounds.contracting_clients`) the averaging error γ_m of call m counts
    with c_m = ρ^m (1 + ρ g_{M−1−m}): what is averaged has shrunk by then. With ρ̄ = ρ < 1 this is

        c_m = (ρ^m − ρ^M)/(1 − ρ).

    Let γ_m = C τ^{S_m} and ask for the fewest rounds Σ S_m at a given Σ γ_m c_m. Where the derivative of Σ S_m +
    μ Σ C τ^{S_m} c_m with respect to each S_m vanishes, 1 = μ log(1/τ) γ_m c_m: all γ_m c_m are equal, hence

        S_m = S_0 − m log(1/ρ)/log(1/τ) + log((1 − ρ^{M−m})/(1 − ρ^M))/log(1/τ),

    a straight line but for the last calls, where the third term asks for still fewer. Its slope is

        log(1/ρ)/log(1/τ).

    The sensible M is the one at which truncation has come down to the floor, ρ^M = τ^{S_0}; there S_0 = M·slope and the
    line ends at 0: half the rounds of S_0 throughout. That is the default, slope = S_0/M, which needs neither ρ nor τ.
    With that slope a longer series costs more rounds, S_0 (M + 1)/2 in all, and gains nothing below the floor.

    Parameters
    ----------
    steps, iterations : S_0 and M.
    slope : how much S falls from one call to the next; S_0/M by default, 0 keeps it constant.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> hgp.falling_steps(4, 8)
    (4, 4, 3, 3, 2, 2, 1, 1)
    >>> hgp.falling_steps(4, 6, slope=1.5)
    (4, 3, 1, 1, 1, 1)
    """
    slope = steps / iterations if slope is None else slope
    return tuple(math.ceil(max(1.0, steps - m * slope - ROUNDING)) for m in range(iterations))
