"""Personalization."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import hgp_ref as hgp
from hgp_ref import personalization as personal
from hgp_ref.data import Clients

from . import small
from .table import function, method


def clients() -> Clients:
    g = small.rng()
    parts: list[Any] = []
    for _ in range(3):
        parts += [[g.standard_normal((6, small.D)) for _ in range(3)], [np.arange(6) % 2 for _ in range(3)]]
    X, y, X_val, y_val, X_test, y_test = parts
    return Clients(X, y, X_val, y_val, 2, "points", X_test, y_test)


def task() -> personal.Task:
    return personal.Task(small.model(), clients(), eval_every=2)


ROUNDS = personal.LocalSGD(rounds=3, lr=0.1, batch_size=4)
PUSH = personal.GradientPush(steps=4, lr=0.1, batch_size=4)
OUTER = personal.OuterLoop(outer_steps=1, iterations=2, averaging_steps=2, batch_size=4)


@functools.cache
def result() -> personal.Personalized:
    return personal.FedAvg().fit(task(), small.net(), PUSH)


function(
    "personalization.Task",
    personal.Task,
    lambda: dict(model=small.model(), data=clients(), l2=0.1, seed=0, eval_every=2, like=np.zeros(1)),
    passes_nan=True,  # only the library and the dtype of `like` matter
)
function(
    "personalization.GradientPush",
    personal.GradientPush,
    lambda: dict(steps=4, lr=0.1, milestones=(2,), decay=0.1, momentum=0.5, batch_size=4, variant="nedic"),
)
function(
    "personalization.LocalSGD",
    personal.LocalSGD,
    lambda: (
        dict(rounds=4, lr=0.1, milestones=(2,), decay=0.1, momentum=0.5, batch_size=4, epochs=1, averaging="exact")
        | dict(averaging_steps=1, by_size=True, prox=0.1)
    ),
)
SETTINGS: dict[str, dict[str, Any]] = {
    "Local": {},
    "FedAvg": {},
    "FedProx": dict(mu=0.1),
    "FedAvgPlus": dict(tuning_epochs=1, tuning_lr=0.1, as_published=False),
    "ClusteredFL": dict(tol_mean=0.4, tol_client=1.6, first_split=2, as_published=False),
    "PFedMe": dict(mu=1.0, inner_steps=2, local_lr=0.5, beta=1.0, as_published=False),
    "FedEM": dict(components=2),
    "ClassPrior": {},
    "HGPPersonalLayer": dict(outer=OUTER, as_printed=False),
    "HGPMultiTask": dict(outer=OUTER, components=2),
    "HGPInstanceWeights": dict(outer=personal.OuterLoop(1, outer_data="validation", averaging_steps=2)),
}


def fit(name: str) -> Any:
    """Construct a method and run it."""

    def call(task: Any, net: Any, trainer: Any, **settings: Any) -> personal.Personalized:
        return getattr(personal, name)(**settings).fit(task, net, trainer)

    return call


for name, settings in SETTINGS.items():
    rounds = not name.startswith(("HGP", "Local"))
    trainer = ROUNDS if rounds else PUSH
    net = hgp.networks.FullyConnected(3) if rounds else small.net()
    function(
        f"personalization.{name}",
        fit(name),
        lambda settings=settings, net=net, trainer=trainer: dict(task=task(), net=net, trainer=trainer, **settings),
    )
for part in ("curve", "accuracy"):
    method(f"personalization.Personalized.{part}", result, lambda: dict(part="test", weighted=True))
method("personalization.Personalized.bottom", result, lambda: dict(share=0.1, part="test"))
