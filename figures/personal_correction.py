"""`python -m figures.personal_correction [SIZE]`: how large HGP's correction of ∂_λ f is at λ = 0, over RandD.

‖v^(M) − ∂_λ f‖ / ‖∂_λ f‖ of all clients together after SGP, with f on training and on validation data, M = 10 as in the
experiment (mini-batches, its η) and M = 100 (full batches).
"""

from __future__ import annotations

import os
import sys
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its library

import numpy as np  # noqa: E402

import hgp_ref as hgp  # noqa: E402
from figures.personal import COMMON, SIZES  # noqa: E402
from figures.personal_parts import make_network, make_recipe, make_task  # noqa: E402


def ways(settings: dict[str, Any], seed: int) -> tuple[dict[str, Any], ...]:
    """As in the experiment, and with ten times the terms on full batches."""
    terms = settings["iterations"]
    batches = hgp.MiniBatches(settings["batch"], seed=seed, share=True)
    return dict(iterations=terms, batches=batches), dict(iterations=10 * terms)


def corrections(settings: dict[str, Any], seed: int) -> dict[str, list[float]]:
    """Of f on "train" and on "validation": the share for each of `ways`."""
    task, net = make_task(settings, seed), make_network(settings, "RandD", seed)
    recipe, lam = make_recipe(settings, "RandD", "hgp_pl"), task.zeros(task.classes)
    shares = {}
    for on in ("train", "validation"):
        data = task.data.train if on == "train" else (*task.data.train, *task.data.validation)
        problem = task.moved(
            hgp.problems.PersonalMask(task.model, *data, l2=task.l2, outer_l2=settings["outer_l2"]["push"]["hgp_pl"])
        )
        x = recipe(problem, net, lam, x0=task.start(), seed=seed).x
        direct = problem.outer_grad(x, lam)[1]
        avg = hgp.PushSum(net.after(settings["steps"]), settings["consensus_steps"])
        eta = settings["eta"]["push"]
        chosen = ways(settings, seed)
        estimates = [hgp.hypergradient(problem, x, lam, avg, eta=eta, **way).value for way in chosen]
        shares[on] = [float(np.linalg.norm(v - direct) / np.linalg.norm(direct)) for v in estimates]
    return shares


def main(size: str) -> None:
    """A line for each seed."""
    settings = {**COMMON, **SIZES[size], "backend": "numpy"}
    for seed in settings["seeds"]:
        for on, (ten, hundred) in corrections(settings, seed).items():
            print(f"seed {seed}, f on {on:10s} data: {ten:.2f} with M = 10, {hundred:.2f} with M = 100", flush=True)


if __name__ == "__main__":
    main((sys.argv[1:] or ["reduced"])[0])
