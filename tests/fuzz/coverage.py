"""The public functions, and the reasons why a few are not in the table."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable

import hgp_ref
from hgp_ref.validation import declared

MODULES = (
    *("mixing", "attribution", "bounds", "certificates", "data", "exact", "methods", "networks"),
    *("planning", "problems", "training", "results", "neural", "backend", "bilevel", "baselines", "mpi"),
    "personalization",
)

DRIVEN = "called in every iteration by the package, with arrays that public functions have checked"
RECORD = "a record that the package fills in; users read it"
ABSTRACT = "abstract: what a subclass defines"
PROTOCOL = "a protocol: what a problem has"

EXEMPT: dict[str, str] = {
    **{
        f"mixing.{kind}": DRIVEN
        for kind in ("Channel", "AllToAll", "Lossy", "ParameterServer", "Simulated", "Runs", "TreeChannel")
    },
    **{f"mpi.{kind}": DRIVEN for kind in ("RankChannel", "DistributedNetwork")},
    "mixing.WeightRule": "an enumeration",
    "training.TrainingMethod": ABSTRACT,
    **{f"training.{kind}.run": DRIVEN for kind in ("LocalRounds", "NewtonTracking", "SGP")},  # by training.train
    "baselines.RunOptions": "the keywords of all baselines, which are in the table",
    "mpi.spread": "starts MPI: bad values are in tests/mpi/refusals.py, on two ranks",
    **{f"mixing.{name}": DRIVEN for name in ("Mixer", "start_averaging", "SumPreserving", "run_round")},
    **{
        f"methods.{kind}": DRIVEN
        for kind in (
            "Chebyshev",
            "ConjugateGradient",
            "DirectSolve",
            "Neumann",
            "Method",
            "PreconditionedTracking",
            "Refined",
            "Tracking",
        )
    },
    **{
        f"neural.{kind}": DRIVEN
        for kind in ("AvgPool2d", "Conv2d", "Flatten", "Linear", "MaxPool2d", "ReLU", "Softplus", "Tanh", "Layer")
    },
    **{f"neural.{kind}": DRIVEN for kind in ("Tape", "Adjoint", "Tangent")},
    **{f"neural.Ensemble.{member}": DRIVEN for member in ("split",)},
    **{
        f"problems.NeuralCost.{member}": DRIVEN
        for member in ("value", "slope", "curvature", "along_lam", "cross", "scores", "softmax_curvature")
    },
    "problems.NeuralProblem.weighted_slope": DRIVEN,
    **{f"problems.{kind}.data_digest": "takes no arguments" for kind in ("NeuralProblem", "Quadratic")},
    "results.content_digest": DRIVEN,
    **{
        f"problems.NeuralProblem.{member}": "in the table for its three subclasses"
        for member in (
            "inner_cost",
            "outer_cost",
            "inner_grad",
            "outer_grad",
            "linearize",
            "accuracy",
        )
    },
    **{f"{name}": ABSTRACT for name in ("mixing.Averaging", "networks.Network", "problems.NeuralCost")},
    "bilevel.Update": ABSTRACT,
    "bilevel.Trainer.run": DRIVEN,
    "bilevel.Estimator.run": DRIVEN,
    "bilevel.Estimator.averaging": DRIVEN,
    **{f"bilevel.{kind}.{member}": DRIVEN for kind in ("Adam", "GradientDescent") for member in ("start", "step")},
    **{f"problems.{name}": PROTOCOL for name in ("Problem", "Linearization")},
    "problems.TermSizes": "a record that a problem fills in; certificates check it",
    **{
        name: RECORD
        for name in (
            *("mixing.SpanningTree", "mixing.Traffic", "methods.Estimate", "methods.Start", "training.Fit"),
            *(
                "certificates.Certificate",
                "certificates.MeasuredResidual",
                "attribution.Influence",
                "attribution.Retraining",
                "attribution.Scores",
            ),
            *("problems.Comparison", "problems.DerivativeCheck"),
            *("planning.Diagnostics", "planning.Outcome", "planning.Plan", "planning.Stage"),
            *("bounds.Bound", "bounds.Constants", "bounds.MeanSquareError", "bounds.ResidualBounds"),
            *("bounds.SampleConstants", "bounds.WorstCase", "networks.Periodic", "networks.Disconnected"),
            *("results.Result", "results.Described"),
            *("backend.Backend", "bilevel.Path", "bilevel.OuterStep", "mpi.MPITraffic"),
            *("baselines.FixedPointEstimate", "personalization.Personalized"),
        )
    },
    **{
        f"mixing.Traffic.{member}": "not looked at yet: made by channels from their own counts"
        for member in ("of", "side_by_side", "of_run", "per_run")
    },
    **{
        f"personalization.Task.{name}": DRIVEN for name in ("as_array", "check_network", "start", "to_backend", "zeros")
    },
    "personalization.GradientPush.method": DRIVEN,
    **{f"personalization.LocalSGD.{name}": DRIVEN for name in ("average", "method", "weights")},
    **{f"personalization.OuterLoop.{name}": DRIVEN for name in ("data", "estimator")},
    **{f"personalization.PersonalizationMethod{member}": PROTOCOL for member in ("", ".fit")},
    "personalization.ClusteredFL.split": DRIVEN,
}


def public() -> Iterable[tuple[str, object]]:
    """("module.name", object) of everything public; methods of classes as "module.Class.method"."""
    for module in MODULES:
        loaded = importlib.import_module(f"hgp_ref.{module}")
        names = getattr(loaded, "__all__", None) or [
            name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == loaded.__name__
        ]
        for name in names:
            value = getattr(loaded, name)
            if name[0] == "_" or not callable(value):
                continue
            yield f"{module}.{name}", value
            if inspect.isclass(value):
                for member, inner in vars(value).items():
                    if member[0] != "_" and callable(getattr(value, member)) and not isinstance(inner, type):
                        yield f"{module}.{name}.{member}", getattr(value, member)


def undeclared(value: object) -> set[str]:
    """The parameters of a function that are not declared by `validation.checked`."""
    return set(inspect.signature(value).parameters) - set(declared(value)) - {"self"}


def missing(table: Iterable[str]) -> set[str]:
    """Public functions with undeclared parameters that, like their class, are neither in the table nor exempt."""
    present = {name.split(" (")[0] for name in table}
    functions = {id(value) for name, value in public() if name in present}
    absent = set()
    for name, value in public():
        owner = name.rsplit(".", 1)[0]
        known = name in present or id(value) in functions or name in EXEMPT
        if not known and not (owner in EXEMPT and EXEMPT[owner] in (DRIVEN, ABSTRACT, PROTOCOL)) and undeclared(value):
            absent.add(name)
    exported = {name: getattr(hgp_ref, name) for name in hgp_ref.__all__ if callable(getattr(hgp_ref, name))}
    examined = {id(value) for _, value in public()}
    errors = {name for name, value in exported.items() if isinstance(value, type) and issubclass(value, Exception)}
    return absent | {name for name, value in exported.items() if id(value) not in examined} - errors
