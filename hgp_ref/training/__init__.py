"""Training: the inner problem, solved by the clients together."""

from hgp_ref.training.fit import Fit
from hgp_ref.training.gradient_push import sgp

__all__ = ["Fit", "sgp"]
