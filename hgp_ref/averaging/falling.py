"""Steps that fall from call to call: as accurate as the first number throughout, at about half the rounds."""

from __future__ import annotations

import math

from hgp_ref import arguments

MOST = 10**7  # entries of the tuple
ROUNDED = 1e-9  # S_0 − m S_0/M is a whole number where M divides m S_0, up to rounding


def falling_steps(steps: int, iterations: int, slope: float | None = None) -> tuple[int, ...]:
    """S_m = max(1, ⌈S_0 − m·slope⌉) for the calls m = 0 … M−1, for `PushSum(net, steps=falling_steps(S_0, M))`.

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
    steps : S_0 ≥ 1.
    iterations : M.
    slope : how much S falls from one call to the next; S_0/M by default, 0 keeps it.

    Returns
    -------
    tuple of M integers, each at least 1.

    Raises
    ------
    TypeError, ValueError
        `steps` and `iterations` must be integers ≥ 1, `slope` a number ≥ 0.

    Examples
    --------
    >>> import hgp_ref as hgp
    >>> hgp.falling_steps(4, 8)
    (4, 4, 3, 3, 2, 2, 1, 1)
    >>> hgp.falling_steps(4, 6, slope=1.5)
    (4, 3, 1, 1, 1, 1)
    """
    S_0 = arguments.integer("steps", steps, 1, arguments.LONGEST)
    M = arguments.integer("iterations", iterations, 1, MOST)
    fall = S_0 / M if slope is None else arguments.nonnegative("slope", slope)
    return tuple(math.ceil(max(1.0, S_0 - m * fall - ROUNDED)) for m in range(M))
