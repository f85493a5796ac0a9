"""The outer loop."""

from __future__ import annotations

import numpy as np

from fuzz import small
from fuzz.table import function, method
from hgp_ref import bilevel

function("bilevel.Adam", bilevel.Adam, lambda: dict(lr=0.1, betas=(0.9, 0.999), eps=1e-8))
function("bilevel.GradientDescent", bilevel.GradientDescent, lambda: dict(lr=0.1))
function("bilevel.Box", bilevel.Box, lambda: dict(low=0.0, high=1.0))
function("bilevel.NonNegative", bilevel.NonNegative, dict)
function("bilevel.Simplex", bilevel.Simplex, lambda: dict(total=1.0))
method("bilevel.Path.plot", small.path, lambda: dict(over="floats"))
function(
    "bilevel.optimise",
    bilevel.optimise,
    lambda: (
        dict(problem=small.quadratic(), net=small.net(), lam=small.point(small.quadratic())["lam"], outer_steps=2)
        | dict(train=dict(steps=8, lr=0.3), estimate=dict(steps=2, iterations=4), update=bilevel.Adam(0.1), seed=0)
        | dict(project=None, warm_start=True, x0=np.zeros((3, 4)), callback=lambda *given: False, progress=False)
        | dict(log=True, measure=lambda x, lam: 1.0, patience=3, file=None)
    ),
)
