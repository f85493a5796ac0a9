"""Training: solvers of the inner problem over a network."""

from hgp_ref.training.gradient_push import SGP, Fit, TrainingMethod, sgp, train
from hgp_ref.training.newton_tracking import NewtonTracking
from hgp_ref.training.rounds import LocalRounds, local_rounds

__all__ = ["SGP", "Fit", "LocalRounds", "NewtonTracking", "TrainingMethod", "local_rounds", "sgp", "train"]
