"""FedProx: FedAvg whose local epochs are held near the model they started from,

    w_i ≈ argmin_w g_i(w) + (μ/2) ‖w − z‖²,      z = Σ_i (N_i/N) w_i,

by plain proximal gradient steps without momentum, as the published program does too.

[1] T. Li et al. Federated optimization in heterogeneous networks. MLSys 2020.
"""

from __future__ import annotations

from dataclasses import replace

from hgp_ref import arguments
from hgp_ref.networks import Network
from hgp_ref.personalization.global_model import fedavg
from hgp_ref.personalization.recipes import Recipe, need_rounds
from hgp_ref.personalization.result import Personalized
from hgp_ref.personalization.task import Task


def fedprox(task: Task, net: Network, recipe: Recipe, *, mu: float = 0.01) -> Personalized:
    """Rounds with the proximal weight μ and no momentum.

    Parameters
    ----------
    task : model, clients' data and when to look.
    net : who hears whom, as many clients as the data have.
    recipe : how clients train, `Rounds`.
    mu : μ >= 0.

    Returns
    -------
    Personalized: accuracies of every client at every look, and what was sent.

    Raises
    ------
    TypeError, ValueError
        `mu` must be ≥ 0, `net` of as many clients.
    DivergenceError
        Training diverged.

    Examples
    --------
    >>> from hgp_ref.neural import Flatten, Linear, Sequential
    >>> personal = hgp.personalization
    >>> data = hgp.data.digit_images().clients(4, seed=0)
    >>> task = personal.Task(Sequential((1, 8, 8), Flatten(), Linear(64, 10)), data)
    >>> net = hgp.networks.FullyConnected(4)
    >>> personal.fedprox(task, net, personal.Rounds(rounds=10, lr=0.3)).method
    'FedProx'
    """
    recipe, mu = replace(need_rounds(recipe, "FedProx"), momentum=0.0), arguments.nonnegative("mu", mu)
    return replace(fedavg(task, net, recipe, prox=mu), method="FedProx")
