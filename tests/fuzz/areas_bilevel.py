"""The outer loop."""

from __future__ import annotations

import numpy as np

from fuzz import small
from fuzz.table import function, method
from hgp_ref import baselines, bilevel, networks
from hgp_ref.training import SGP

function("bilevel.Adam", bilevel.Adam, lambda: dict(lr=0.1, betas=(0.9, 0.999), eps=1e-8))
function("bilevel.Estimator", bilevel.Estimator, lambda: dict(averaging_steps=2, iterations=4, eta=1.0))
function("bilevel.Monitor", bilevel.Monitor, lambda: dict(measure=lambda x, lam: 1.0, patience=3))
function("bilevel.Trainer", bilevel.Trainer, lambda: dict(method=SGP(8, 0.3), warm_start=True))
method("bilevel.Path.plot", small.path, lambda: dict(over="floats"))
function(
    "bilevel.optimise",
    bilevel.optimise,
    lambda: (
        dict(problem=small.quadratic(), net=small.net(), lam=small.point(small.quadratic())["lam"], outer_steps=2)
        | dict(train=SGP(8, 0.3), estimate=bilevel.Estimator(2, 4, eta=1.0), update=bilevel.Adam(0.1))
        | dict(project=None, callback=lambda *given: False, progress=False)
        | dict(monitor=bilevel.Monitor(lambda x, lam: 1.0, 3), file=None)
    ),
    speaks_of=("x",),  # made like lam
)
function(
    "bilevel.optimise (certified)",
    bilevel.optimise,
    lambda: (
        dict(problem=small.logistic(), net=small.net(), lam=small.point(small.logistic())["lam"], outer_steps=1)
        | dict(train=SGP(8, 0.3), estimate=bilevel.Estimator(2, 4, eta=1.0))
        | dict(update=bilevel.CertifiedDescent(0.1))
    ),
    speaks_of=("x",),  # made like lam
)

# baselines
STEPS = dict(lr=0.01, inner_lr=0.1)
BASELINES = {
    "fednest": dict(ell=1.5, terms=3, inner_steps=2, local_steps=2, seed=0),
    "dbo": dict(jhip_lr=0.1, inner_steps=2, jhip_steps=2, tracking=False),
    "gbdsbo": dict(mixing=0.1, ell=1.5, terms=3),
    "mdbo": dict(ell=1.5, terms=3, eta=0.5, momentum=0.5),
    "vrdbo": dict(ell=1.5, terms=3, eta=0.5, momentum=0.5),
    "ma_dsbo": dict(higp_lr=0.1, inner_steps=2, higp_steps=2, momentum=0.5),
    "dsoba": dict(aux_lr=0.1, momentum=0.5),
    "sparkle": dict(aux_lr=0.1, inner_rule="ED", aux_rule="GT", outer_rule="EXTRA", momentum=0.5),
    "fab": dict(penalty=2.0, nodes=2),
}
for name, settings in BASELINES.items():
    kind = networks.RandomDirected if name == "fab" else networks.FullyConnected
    function(
        f"baselines.{name}",
        getattr(baselines, name),
        lambda settings=settings, kind=kind: (
            dict(problem=small.quadratic(), net=kind(3), lam=small.point(small.quadratic())["lam"], outer_steps=2)
            | STEPS | settings | dict(shared=True, x0=np.zeros((3, 4)), project=None, batches=None, every=1)
            | dict(callback=lambda *given: False)
        ),
        speaks_of=("step", "penalty", "jhip_lr"),  # a rule's step is called a rate by a method
    )  # fmt: skip
function(
    "baselines.at_point",
    baselines.at_point,
    lambda: (
        dict(method="dbo", problem=small.quadratic(), **small.point(small.quadratic()), net=networks.FullyConnected(3))
        | dict(iterations=3, every=1, callback=lambda m, v: False, step=0.1, shared=False)
    ),
)
