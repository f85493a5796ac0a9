"""The Neumann series: Algorithm 2 of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hgp_ref import philox, validation
from hgp_ref.backend import Array, array_namespace, device
from hgp_ref.methods.base import Curvature, Method
from hgp_ref.methods.spectrum import Moving, range_over_clients, read_rule, require_balanced
from hgp_ref.mixing import Mixer, run_round
from hgp_ref.mixing.consensus import MixingRoutine


class Neumann(Method):
    """w* = η Σ_m (I − ηH̄)^m ḡ, term by term: from u = ∂_x f, in each iteration

        ū = Θ̂ u,    p = η ū,    u ← ū − ∂²_x g p.

    With exact averaging and full batches it converges if 0 < η λ(H̄) < 2 for all eigenvalues.

    Parameters
    ----------
    eta : step size η.

    Raises
    ------
    TypeError, ValueError
        `eta` must be positive.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), method=hgp.methods.Neumann(1.0), iterations=300)
    >>> bool(np.allclose(est.value, hgp.exact.hypergradient(problem, x, lam)))
    True
    """

    def __init__(self, eta: float) -> None:
        self.eta = validation.positive("eta", eta)

    def start(self, g: Array) -> Array:
        return g

    def step(self, u: Array, mixer: Mixer, linearization: Curvature) -> tuple[Array, Array]:
        ubar = mixer.average(u)
        p = self.eta * ubar
        return p, mixer.carry(ubar) - linearization.hvp(p)

    def residual(self, u: Array) -> Array:
        return u

    def carry(self, u: Array) -> Array:
        return u

    def __repr__(self) -> str:
        return f"Neumann(eta={self.eta:g})"


# ----------------------------------------------------------------------------------------------------
# The Chebyshev semi-iteration: as many messages per iteration as Algorithm 2, about √κ iterations instead of κ.


@dataclass(frozen=True)
class _ChebyshevState:
    r: Array  # ∂_x f − ∂²_x g w
    p: Array | None  # the last increment
    rho: float  # ρ_k of the recursion
    centre: float  # of the interval; nan until it is known
    half: float  # its half width


class Chebyshev(Method):
    """For a spectrum of H̄ in [low, high] with centre c and half width h, from r = ∂_x f, in iteration k = 0, 1, ...

        r̂ = Θ̂ r,    p ← a_k r̂ + b_k p,    r ← r̂ − ∂²_x g p,
        ρ_0 = h/c,  ρ_k = 1 / (2c/h − ρ_{k-1}),    a_0 = 1/c,  b_0 = 0,    a_k = 2ρ_k/h,  b_k = ρ_k ρ_{k-1}.

    With exact averaging the error falls as 2q^M/(1 + q^{2M}), q = (√κ − 1)/(√κ + 1), κ = high/low (`bounds.chebyshev`).

    Parameters
    ----------
    low, high : bounds of the spectrum of H̄. Those that are None are found by the clients: each takes the extreme
        eigenvalues of its own ∂²_x g_i by Lanczos, on full batches also where steps use mini-batches, and flooding
        makes the extremes over clients known to all (its traffic is counted). Clients with eigenvalues that are not
        positive need `low`.

    Raises
    ------
    TypeError, ValueError
        `low` and `high` must be positive, low ≤ high.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> method = hgp.methods.Chebyshev(0.1, 1.0)  # eigenvalues of the mean Hessian lie between
    >>> est = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), method=method, iterations=50)
    >>> bool(np.allclose(est.value, hgp.exact.hypergradient(problem, x, lam)))
    True
    """

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = None if low is None else validation.positive("low", low)
        self.high = None if high is None else validation.positive("high", high)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low={low:g}, high={high:g} given, needed low <= high")

    def start(self, g: Array) -> _ChebyshevState:
        return _ChebyshevState(g, None, 0.0, float("nan"), float("nan"))

    def begin(self, state: _ChebyshevState, mixer: Mixer, whole: Callable[[], Curvature]) -> _ChebyshevState:
        return self._with_interval(state, mixer, whole)

    def restart(
        self, state: _ChebyshevState, g: Array, w: Array, mixer: Mixer, whole: Callable[[], Curvature]
    ) -> _ChebyshevState:
        return replace(self.start(g), centre=state.centre, half=state.half)

    def step(self, state: _ChebyshevState, mixer: Mixer, linearization: Curvature) -> tuple[Array, _ChebyshevState]:
        if math.isnan(state.centre):
            state = self._with_interval(state, mixer, lambda: linearization)
        c, h = state.centre, state.half
        rhat = mixer.average(state.r)
        if state.p is None or h == 0:
            rho, p = h / c, rhat / c
        else:
            rho = 1 / (2 * c / h - state.rho)
            p = (2 * rho / h) * rhat + (rho * state.rho) * state.p
        r = mixer.carry(rhat) - linearization.hvp(p)
        return p, _ChebyshevState(r, p, rho, c, h)

    def residual(self, state: _ChebyshevState) -> Array:
        return state.r

    def _with_interval(self, state: _ChebyshevState, mixer: Mixer, whole: Callable[[], Curvature]) -> _ChebyshevState:
        low, high = self.low, self.high
        if low is None or high is None:
            least, most = range_over_clients(mixer.channel, whole(), state.r)
            low, high = least if low is None else low, most if high is None else high
        if not 0 < low <= high:
            raise ValueError(
                f"low: the spectrum of the clients' Hessians reaches from {low:.3g} to {high:.3g}; Chebyshev needs "
                "0 < low <= high: give low, a lower bound of the spectrum of the mean Hessian"
            )
        return replace(state, centre=(high + low) / 2, half=(high - low) / 2)

    def carry(self, state: _ChebyshevState) -> Array:
        return state.r

    def __repr__(self) -> str:
        return f"Chebyshev(low={self.low}, high={self.high})"


# ----------------------------------------------------------------------------------------------------
# Decentralized descent on ½ wᵀ H̄ w − ḡᵀ w: how the methods that came after find w* with doubly stochastic mixing.


@dataclass(frozen=True)
class _DescentState:
    w: Moving
    g: Array  # ∂_x f − ∂²_x g w₀


class Descent(Method):
    """w* as the minimiser of ½ wᵀ H̄ w − ḡᵀ w: client i moves its w_i by a rule with d_i = H_i w_i − ∂_x f_i.

    With one round an iteration (`Gossip(net, steps=1)`) these are, at a fixed point (x, λ), the auxiliary variables of

        "tracking"     MA-DSBO (HIGP oracle, arXiv 2210.12839): z ← W z − γ d,  d ← W d + s⁺ − s,  s = H_i z − ∂_x f_i
        "diffusion"    D-SOBA (arXiv 2402.03167): z ← W (z − γ (H_i z − ∂_x f_i)), biased where clients differ
        "ED", "EXTRA", "GT"    SPARKLE (arXiv 2411.14166) with the correction of that name
        "consensus"    z ← W z − γ d, the plain form, biased alike

    all of class Global: but for the bias of "diffusion" and "consensus", which shrinks with the step, w_i → w*. The
    rules are written out in `hgp_ref.methods.spectrum`. Over a network whose matrices are only
    column-stochastic they have
    no such limit, except "tracking", which then is push-pull (PushSum with one step, reset weights).

    Parameters
    ----------
    rule : one of the names above.
    step : its step size.

    Raises
    ------
    TypeError, ValueError
        `rule` must be one of its values, `step` positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> avg = hgp.Gossip(hgp.networks.StaticUndirected(n=4, seed=1), steps=1)
    >>> truth = hgp.exact.hypergradient(problem, x, lam)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=hgp.methods.Descent("tracking", 0.5), iterations=400)
    >>> bool(np.abs(est.value - truth).max() < 1e-10)
    True
    """

    def __init__(self, rule: str, step: float) -> None:
        self.rule, self.name = read_rule("rule", rule, step), rule

    def start(self, g: Array) -> _DescentState:
        return _DescentState(Moving(array_namespace(g).zeros_like(g)), g)

    def begin(self, state: _DescentState, mixer: Mixer, whole: Callable[[], Curvature]) -> _DescentState:
        if not self.rule.directed:
            require_balanced(repr(self), mixer)
        return state

    def step(self, state: _DescentState, mixer: Mixer, linearization: Curvature) -> tuple[Array, _DescentState]:
        (w,) = run_round(mixer, self.rule.talk(state.w, lambda w: linearization.hvp(w) - state.g))
        return w.s - state.w.s, _DescentState(w, state.g)

    def __repr__(self) -> str:
        return f"Descent({self.name!r}, step={self.rule.step:g})"


# ----------------------------------------------------------------------------------------------------
# The Neumann series of each client alone: the Local hyper-gradient of MDBO and VRDBO.


class LocalNeumann(Method):
    """w_i = η Σ_m (I − ηH_i)^m ∂_x f_i → H_i⁻¹ ∂_x f_i: from u = ∂_x f, p = η u, u ← u − ∂²_x g p; nothing is sent.

    This is what MDBO and VRDBO (Gao et al. 2022) take for w*, with η = 1/ℓ: (J/ℓ) Π_{j ≤ J̃} (I − H_i(ζ_j)/ℓ) ∂_x f_i
    with J̃ uniform on 0 .. J−1, whose mean over J̃ are the first J terms. Its class is Local: it equals the Global
    hyper-gradient where all clients have equal costs, and is off by J_i (H_i⁻¹ ∂_x f_i − w*) where they do not
    (`exact.local_hypergradient`), whatever the network.

    Parameters
    ----------
    eta : step size η, 1/ℓ of the papers.

    Raises
    ------
    TypeError, ValueError
        `eta` must be positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> est = hgp.hypergradient(
    ...     problem, x, lam, hgp.ExactAverage(4), method=hgp.methods.LocalNeumann(1.0), iterations=300)
    >>> bool(np.abs(est.value - hgp.exact.local_hypergradient(problem, x, lam)).max() < 1e-10)
    True
    >>> est.traffic.messages
    0
    """

    def __init__(self, eta: float = 1.0) -> None:
        self.eta = validation.positive("eta", eta)

    def start(self, g: Array) -> Array:
        return g

    def step(self, u: Array, mixer: Mixer, linearization: Curvature) -> tuple[Array, Array]:
        p = self.eta * u
        return p, u - linearization.hvp(p)

    def residual(self, u: Array) -> Array:
        return u

    def __repr__(self) -> str:
        return f"LocalNeumann(eta={self.eta:g})"


# ----------------------------------------------------------------------------------------------------
# One term of the Neumann series, drawn at random: FedIHGP of FedNest.


@dataclass(frozen=True)
class _RandomTermState:
    w: Array
    p: Array  # the last increment, or ∂_x f before the first
    m: int


class RandomTerm(Method):
    """FedIHGP of FedNest (Tarzanagh et al. 2022): with N' uniform on 0 .. N−1, the same for all clients,

        w ← (N/ℓ) Θ̂ ∂_x f,    then N' times    w ← Θ̂ (w − (1/ℓ) ∂²_x g w),

    so that with exact averaging E w = (1/ℓ) Σ_{k<N} (I − H̄/ℓ)^k ḡ, N terms of the Neumann series with η = 1/ℓ, for
    (N + 1)/2 averages instead of N; a single draw is off by its variance, however large N is. Iterations after the
    (N' + 1)-th add nothing and send nothing; give the run `iterations=N`.

    Parameters
    ----------
    terms, ell : N and ℓ >= the largest eigenvalue of any client's Hessian.
    seed, draw : N' is number `draw` of the sequence of `seed`.

    Raises
    ------
    TypeError, ValueError
        `terms` must be an integer ≥ 1, `ell` positive.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> draws = [hgp.methods.RandomTerm(8, ell=1.0, draw=k) for k in range(50)]
    >>> sorted({method.last for method in draws})
    [0, 1, 2, 3, 4, 5, 6, 7]
    >>> avg = hgp.mixing.ServerAverage(4)
    >>> est = hgp.hypergradient(problem, x, lam, avg, method=draws[0], iterations=8)
    >>> est.traffic.rounds == draws[0].last + 1
    True
    """

    def __init__(self, terms: int, ell: float, seed: int = 0, draw: int = 0) -> None:
        self.terms, self.ell = (
            validation.integer("terms", terms, 1, validation.LONGEST),
            validation.positive("ell", ell),
        )
        self.seed, self.draw = philox.check_seed(seed), validation.integer("draw", draw, 0, philox.MAX_STEP)
        words = philox.philox4x32(0, 0, *philox.step_words(self.draw, philox.TERMS), *philox.key(self.seed))
        self.last = int(philox.below(words[0], words[1], self.terms))  # N'

    def start(self, g: Array) -> _RandomTermState:
        return _RandomTermState(array_namespace(g).zeros_like(g), g, 0)

    def step(self, state: _RandomTermState, mixer: Mixer, linearization: Curvature) -> tuple[Array, _RandomTermState]:
        if state.m == 0:
            w = (self.terms / self.ell) * mixer.average(state.p)
        elif state.m <= self.last:
            w = mixer.average(state.w - linearization.hvp(state.w) / self.ell)
        else:
            w = state.w
        p = w - state.w
        return p, _RandomTermState(w, p, state.m + 1)

    def residual(self, state: _RandomTermState) -> Array:
        return state.p if state.m == 0 else (self.ell / self.terms) * state.p

    def __repr__(self) -> str:
        return f"RandomTerm(terms={self.terms}, ell={self.ell:g}, seed={self.seed}, draw={self.draw})"


# ----------------------------------------------------------------------------------------------------
# Gossip of Hessians: the estimator of GBDSBO, which sends d_x² numbers a message.


ENTRIES = 2**23  # numbers in the unit vectors of one product, at most


@dataclass(frozen=True)
class _HessianGossipState:
    own: Array  # ∂_x f_i, (..., n, d_x)
    h: Array  # of its mean
    V: Array | None  # of the mean Hessian, (..., n, d_x²)
    w: Array
    seen: Curvature | None  # of which H was formed
    H: Array | None


class HessianGossip(Method):
    """GBDSBO at a fixed point (Yang et al. 2022, arXiv 2206.10870): clients estimate the mean gradient and
    the mean Hessian by damped gossip and invert what they have got by a Neumann polynomial of degree b,

        h ← (1 − β) W h + β ∂_x f_i,    V ← (1 − β) W V + β H_i,    w_i = (1/ℓ) Σ_{j ≤ b} (I − V_i/ℓ)^j h_i.

    Class Global, with a bias that shrinks with β where clients differ, h = β (I − (1 − β) W)⁻¹ ∂_x f in the limit, and
    the polynomial's, (1 − λ/ℓ)^{b+1}. A message carries V, d_x² numbers, and h. ∂_λ f_i and J_i stay at home because
    λ_i belongs to client i here; `hgp.baselines.gbdsbo(shared=True)` sends them, too. The paper's b independent V_j of
    b mini-batches are one and the same on full batches and sent once, which is to the method's advantage.

    Parameters
    ----------
    step : β in (0, 1].
    ell : ℓ >= the largest eigenvalue of any client's Hessian.
    terms : degree b of the polynomial.

    Raises
    ------
    TypeError, ValueError
        `step` must lie in (0, 1], `ell` be positive, `terms` an integer ≥ 1.

    Examples
    --------
    >>> import numpy as np, hgp_ref as hgp
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> x, lam = np.ones((4, 3)), np.zeros((4, 2))
    >>> avg = hgp.Gossip(hgp.networks.StaticUndirected(n=4, seed=1), steps=1)
    >>> truth = hgp.exact.hypergradient(problem, x, lam)
    >>> def error(step):
    ...     method = hgp.methods.HessianGossip(step, ell=1.0, terms=200)
    ...     est = hgp.hypergradient(problem, x, lam, avg, method=method, iterations=int(40 / step))
    ...     return np.linalg.norm(est.value - truth)
    >>> bool(error(0.01) < 0.2 * error(0.1))
    True
    """

    def __init__(self, step: float, ell: float, terms: int) -> None:
        self.beta = validation.positive("step", step)
        if self.beta > 1:
            raise ValueError(f"step={step!r} given, needed a number in (0, 1]")
        self.ell = validation.positive("ell", ell)
        self.terms = validation.integer("terms", terms, 1, validation.LONGEST)

    def start(self, g: Array) -> _HessianGossipState:
        return _HessianGossipState(g, g, None, array_namespace(g).zeros_like(g), None, None)

    def begin(self, state: _HessianGossipState, mixer: Mixer, whole: Callable[[], Curvature]) -> _HessianGossipState:
        require_balanced(repr(self), mixer)
        return state

    def step(
        self, state: _HessianGossipState, mixer: Mixer, linearization: Curvature
    ) -> tuple[Array, _HessianGossipState]:
        H = state.H if state.seen is linearization else hessians(linearization, state.own)
        V = H if state.V is None else state.V
        ((h, V),) = run_round(mixer, damped(self.beta, (state.h, V), (state.own, H)))
        w = inverse_times(V, h, self.ell, self.terms)
        return w - state.w, _HessianGossipState(state.own, h, V, w, linearization, H)

    def __repr__(self) -> str:
        return f"HessianGossip(step={self.beta:g}, ell={self.ell:g}, terms={self.terms})"


def damped(beta: float, held: tuple[Array, ...], own: tuple[Array, ...]) -> MixingRoutine:
    """s ← (1 − β) W s + β d for each of the arrays s that are held, d what a client sees itself."""
    mixed = yield held
    return tuple((1 - beta) * s + beta * d for s, d in zip(mixed, own, strict=True))


def inverse_times(V: Array, h: Array, ell: float, terms: int) -> Array:
    """(1/ℓ) Σ_{j ≤ terms} (I − V_i/ℓ)^j h_i, V (..., n, d²)."""
    xp, d = array_namespace(h), h.shape[-1]
    matrices = xp.reshape(V, (*V.shape[:-1], d, d))
    a = h
    for _ in range(terms):
        a = h + a - xp.matmul(matrices, a[..., None])[..., 0] / ell
    return a / ell


def hessians(linearization: Curvature, like: Array) -> Array:
    """H_i of every client by products with unit vectors, flattened.  # (..., n, d_x²)"""
    return flattened(unit_products(linearization.hvp, like))


def unit_products(product: Callable[[Array], Array], like: Array) -> Array:
    """(d, ..., n, k) from rows u ↦ A_i u_i: entry [j] is A_i e_j at every client; like (..., n, d).

    Unit vectors go as a run axis, at most ENTRIES numbers at a time.
    """
    xp, d = array_namespace(like), like.shape[-1]
    unit = xp.reshape(xp.eye(d, dtype=like.dtype, device=device(like)), (d, *(1,) * (like.ndim - 1), d))
    most = max(1, ENTRIES // max(1, math.prod(like.shape)))
    parts = [product(unit[j : min(j + most, d), ...] + xp.zeros_like(like)[None, ...]) for j in range(0, d, most)]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def flattened(columns: Array) -> Array:
    """(..., n, k d) from (d, ..., n, k): A_i by rows."""
    xp = array_namespace(columns)
    A = xp.moveaxis(columns, 0, -1)
    return xp.reshape(A, (*A.shape[:-2], A.shape[-2] * A.shape[-1]))
