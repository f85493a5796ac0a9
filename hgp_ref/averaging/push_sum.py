"""Push-Sum, Algorithm 1: averaging over directed graphs by dividing sums through weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from hgp_ref import arguments
from hgp_ref.averaging.base import Averaging, check_network, read_steps
from hgp_ref.channels import CARRIED, FRESH, Channel, connect
from hgp_ref.channels.simulated import MODES
from hgp_ref.networks import Network

DEBIAS = ("reset", "keep", "conserve")


class PushSum(Averaging):
    """Θ̂_m u = diag(P_m ω)⁻¹ P_m u with P_m = W_{(m+1)S} ... W_{mS+1}, column-stochastic.

    `steps` is S, or a sequence S_0, S_1, ... whose last entry repeats: call m then takes S_m graphs after those of the
    calls before. The weights ω before call m depend on `debias`:

    - "reset": ω = 1 at every call, as in Algorithm 1. Θ̂_m is row-stochastic, which is what the error bounds need.
    - "keep": ω = P_{m-1} ... P_0 1, while vectors restart from the divided values. Neither averages nor conserves:
      it is not covered by any bound and can diverge (erratum 25), hence a warning.
    - "conserve": the same ω, and an iteration goes on from the sums ω ū in place of ū (Algorithm 2 from
      ω ū − η ∂²_x g ū), so that sums over clients are conserved. More accurate than "reset" where it converges; it
      can diverge for large η on sparse networks.

    A message carries d numbers and one weight. `mode` is "composed" (the graphs of a call are multiplied first),
    "stepping" or "auto" for the cheaper one.

    Parameters
    ----------
    net : Network
        Who hears whom.
    steps : int or sequence
        S, or S_0, S_1, ... whose last entry repeats.
    debias : {"reset", "conserve", "keep"}
        What becomes of the weights between calls, see above.
    mode : {"auto", "composed", "stepping"}
        How the steps of a call are made; the result is the same up to rounding.

    Raises
    ------
    TypeError, ValueError
        `net` must be a network, `steps` hold integers ≥ 1, `debias` and `mode` be one of theirs.

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
        self.n, self.steps, self.mode = net.n, read_steps(steps), arguments.choice("mode", mode, MODES)
        self.debias = arguments.choice("debias", debias, DEBIAS)
        if debias == "keep":
            warnings.warn(
                "debias='keep' divides by weights of earlier calls: not an average, covered by no bound, and it can "
                "diverge (see ERRATA, 25); use 'reset' or 'conserve'",
                RuntimeWarning,
                stacklevel=2,
            )
        self.weights = FRESH if debias == "reset" else CARRIED
        self.conserves = debias == "conserve"

    def connect(self) -> Channel:
        return connect(self.net, self.mode)

    def __repr__(self) -> str:
        debias = "" if self.debias == "reset" else f", debias={self.debias!r}"
        return f"PushSum({self.net!r}, steps={self.steps}{debias})"
