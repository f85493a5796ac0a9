"""The table: personalization."""

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
    return personal.Task(small.model(), clients(), look=2)


ROUNDS = personal.Rounds(rounds=3, lr=0.1, batch_size=4)
PUSH = personal.Push(steps=4, lr=0.1, batch_size=4)
OUTER = personal.Outer(outer_steps=1, iterations=2, steps=2, batch_size=4)


@functools.cache
def result() -> personal.Personalized:
    return personal.fedavg(task(), small.net(), PUSH)


def given(**more: Any) -> Any:
    return lambda: dict(task=task(), net=hgp.networks.FullyConnected(3), recipe=ROUNDS, **more)


function(
    "personalization.Task",
    personal.Task,
    lambda: dict(model=small.model(), data=clients(), l2=0.1, seed=0, look=2, like=np.zeros(1)),
    passes_nan=True,  # of `like` the kind matters alone
)
function(
    "personalization.Push",
    personal.Push,
    lambda: dict(steps=4, lr=0.1, milestones=(2,), decay=0.1, momentum=0.5, batch_size=4, variant="nedic"),
)
function(
    "personalization.Rounds",
    personal.Rounds,
    lambda: (
        dict(rounds=4, lr=0.1, milestones=(2,), decay=0.1, momentum=0.5, batch_size=4, epochs=1, averaging="exact")
        | dict(steps=1, by_size=True)
    ),
)
function(
    "personalization.Outer",
    personal.Outer,
    lambda: (
        dict(outer_steps=1, rate=0.1, outer_l2=0.1, iterations=2, steps=2, eta=0.1, batch_size=4)
        | dict(averaging="exact", outer_on="train")
    ),
)
function("personalization.local", personal.local, lambda: dict(task=task(), net=small.net(), recipe=PUSH))
function("personalization.fedavg", personal.fedavg, given())
function("personalization.fedprox", personal.fedprox, given(mu=0.1))
function("personalization.fedavg_plus", personal.fedavg_plus, given(epochs=1, tuning_rate=0.1, as_published=False))
function(
    "personalization.clustered_fl",
    personal.clustered_fl,
    given(tol_mean=0.4, tol_client=1.6, first_split=2, as_published=False),
)
function(
    "personalization.pfedme",
    personal.pfedme,
    given(mu=1.0, inner_steps=2, local_rate=0.5, beta=1.0, as_published=False),
)
function("personalization.fedem", personal.fedem, given(components=2))
function("personalization.class_prior", personal.class_prior, given())
function(
    "personalization.hgp_pl",
    personal.hgp_pl,
    lambda: dict(task=task(), net=small.net(), recipe=PUSH, outer=OUTER, as_printed=False),
)
function(
    "personalization.hgp_mtl",
    personal.hgp_mtl,
    lambda: dict(task=task(), net=small.net(), recipe=PUSH, outer=OUTER, components=2),
)
function(
    "personalization.hgp_weights",
    personal.hgp_weights,
    lambda: dict(task=task(), net=small.net(), recipe=PUSH, outer=personal.Outer(1, outer_on="validation", steps=2)),
)
for part in ("curve", "accuracy"):
    method(f"personalization.Personalized.{part}", result, lambda: dict(part="test", weighted=True))
method("personalization.Personalized.bottom", result, lambda: dict(share=0.1, part="test"))
