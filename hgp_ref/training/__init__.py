"""Training: the inner problem, solved by the clients together."""

from hgp_ref.training.sgp import Fit, sgp

__all__ = ["Fit", "sgp"]
