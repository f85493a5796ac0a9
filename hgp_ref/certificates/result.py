"""What a certificate says: a bound on each client's error, its parts, and what it assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref.averaging import Traffic
from hgp_ref.results import Result

AT_SOLUTION = "the hyper-gradient at the exact inner solution"
AT_POINT = "the hyper-gradient formula at the given x"


@dataclass(frozen=True)
class Certificate(Result):
    """Bounds on ‖v_i − d_i‖, (n,) each; with a run axis in the estimate, (runs, n).

    `bound` is the one to use: `centralised` plus `inexact` where that is known. `against` says what d is. In
    matrix-free form (large d_x) there are no C2, C3 and identity. Where clients are spread over several processes there
    is only what they computed themselves, and `bound` is `decentralised_bound`.

    Attributes
    ----------
    centralised : consistency + min(C1, C2) + rounding.
    c1 : (n,), C1.
    c2 : (n,), C2.
    identity : ‖J_i (w* − w_i)‖: the error of ∂_λ f_i − J_i w_i itself, up to rounding.
    consistency : ‖v_i − (∂_λ f_i − J_i w_i)‖.
    rounding : allowance for arithmetic on gradients and products, and inside them where `rounding_complete`.
    residual : ‖ḡ − H̄ w_i‖.
    alpha_bar : a lower bound on λ_min(H̄) at x.
    inexact : (n,), what an inexact inner solution may add; None if constants are not known.
    inner_gradient : ‖mean ∂_x g‖ at the mean of x: 0 at the inner solution.
    consensus_gap : max_i ‖x_i − mean of x‖.
    decentralised : consistency + min(C3, C4) + the client's own rounding.
    c3 : (n,), C3.
    c4 : (n,), C4.
    decentralised_inexact : (n,), the same as `inexact` from what clients know.
    traffic : of the decentralised computation.
    matrix_free : whether products alone were used.
    against : which hyper-gradient it compares with.
    assumptions : what it rests on.
    rounding_complete : whether the rounding of the problem's own sums is included, as where it offers `term_sizes`.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> net = hgp.networks.RandomDirected(n=3, seed=0)
    >>> est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, steps=20), iterations=200)
    >>> certificate = hgp.certify(problem, x, lam, est)
    >>> certificate.bound.shape, certificate.against
    ((3,), 'the hyper-gradient at the exact inner solution')
    """

    centralised: np.ndarray | None
    c1: np.ndarray | None
    c2: np.ndarray | None
    identity: np.ndarray | None
    consistency: np.ndarray
    rounding: np.ndarray | None
    residual: np.ndarray | None
    alpha_bar: float
    inexact: np.ndarray | None
    inner_gradient: float | None
    consensus_gap: float | None
    decentralised: np.ndarray | None
    c3: np.ndarray | None
    c4: np.ndarray | None
    decentralised_inexact: np.ndarray | None
    traffic: Traffic | None
    matrix_free: bool
    against: str
    assumptions: tuple[str, ...]
    rounding_complete: bool = False

    @property
    def bound(self) -> np.ndarray:
        """Bounds on the error against what `against` names, centralised where someone saw all clients."""
        if self.centralised is None:
            by_clients = self.decentralised_bound
            assert by_clients is not None, "one of the two is always there"
            return by_clients
        return self.centralised if self.inexact is None else self.centralised + self.inexact

    @property
    def decentralised_bound(self) -> np.ndarray | None:
        """The same from the decentralised computation; None without an averaging, or where x is too far off for it."""
        if self.decentralised is None or self.against == AT_POINT:
            return self.decentralised
        return None if self.decentralised_inexact is None else self.decentralised + self.decentralised_inexact

    def plot(self) -> Any:
        """A matplotlib figure of the bound's parts for every client; needs `pip install 'hgp_ref[figures]'`.

        Returns
        -------
        matplotlib Figure, pyplot's current one: `plt.savefig` writes it, `plt.close(figure)` frees it.
        """
        from hgp_ref.certificates.plot import draw

        return draw(self)

    def __str__(self) -> str:
        lines = [f"certificate against {self.against}"]
        lines.append(f"  largest bound over clients   {np.max(self.bound):.3e}")
        if self.decentralised_bound is not None:
            lines.append(f"  the same, decentralised      {np.max(self.decentralised_bound):.3e}")
        if self.inner_gradient is not None:
            lines.append(f"  inner gradient, gap of x     {self.inner_gradient:.3e}, {self.consensus_gap:.3e}")
        return "\n".join([*lines, *(f"  assumes: {a}" for a in self.assumptions)])
