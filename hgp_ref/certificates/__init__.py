"""Rigorous bounds on the error of finished runs, by an observer of all clients and by the clients themselves."""

from hgp_ref.certificates.certification import MATRIX_FREE_ABOVE, MeasuredResidual, certify, measured_residual
from hgp_ref.certificates.point import Lanczos
from hgp_ref.certificates.result import Certificate

__all__ = ["MATRIX_FREE_ABOVE", "Certificate", "Lanczos", "MeasuredResidual", "certify", "measured_residual"]
