"""Training: solvers of the inner problem over a network."""

from hgp_ref.training.gradient_push import SGP, Fit, TrainingMethod, sgp, train
from hgp_ref.training.rounds import LocalRounds, local_rounds

__all__ = ["SGP", "Fit", "LocalRounds", "TrainingMethod", "local_rounds", "sgp", "train"]
