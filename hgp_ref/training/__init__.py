"""Training: the inner problem, solved by the clients together."""

from hgp_ref.training.gradient_push import Fit, sgp
from hgp_ref.training.rounds import local_rounds

__all__ = ["Fit", "local_rounds", "sgp"]
