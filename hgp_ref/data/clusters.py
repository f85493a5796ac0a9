"""How clusters of clients normalise their inputs in the paper: X -> (X - m_c) / s_c, drawn anew for each cluster c.

    "paper"        m_c ~ U(0, 1),  s_c² ~ U(0, 1)      the text: a mean and a variance
    "published"    m_c ~ U(0, 1),  s_c  ~ U(0, 1)      the program that the authors published: a standard deviation

Both variants use the same numbers. A draw near zero multiplies inputs by a large number: s = 0.05, one published
cluster in twenty, makes inputs twenty times as large, which the networks of the paper do not survive. For runs that
are to be compared give means and standard deviations of your own to `Clients.clustered`.
"""

from __future__ import annotations

import numpy as np

from hgp_ref import arguments
from hgp_ref.memory import room

VARIANTS = ("paper", "published")


def draw_clusters(n_clusters: int = 3, seed: int = 0, variant: str = "paper") -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations, (n_clusters,) each, from NumPy's generator seeded with [seed, 2].

    Parameters
    ----------
    n_clusters : int
        How many.
    seed : int
        Another draw.
    variant : {"paper", "published"}
        Which of variance and standard deviation is uniform.

    Returns
    -------
    two arrays (n_clusters,)
        Means and standard deviations.

    Raises
    ------
    TypeError, ValueError
        `n_clusters` must be an integer ≥ 1, `variant` one of the two.

    Examples
    --------
    >>> means, stds = hgp.data.draw_clusters(3, seed=1, variant="published")
    >>> bool(np.all(stds**0.5 == hgp.data.draw_clusters(3, seed=1)[1]))
    True
    """
    n_clusters = arguments.integer("n_clusters", n_clusters, 1, arguments.LONGEST)
    seed = arguments.integer("seed", seed, 0)
    arguments.choice("variant", variant, VARIANTS)
    room(f"n_clusters={n_clusters}", 5 * n_clusters)
    means, spread = 1 - np.random.default_rng([seed, 2]).random((2, n_clusters))  # in (0, 1]: no division by zero
    return means, np.sqrt(spread) if variant == "paper" else spread
