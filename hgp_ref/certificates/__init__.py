"""Rigorous bounds on the error of finished runs, seen from the centre and computed by the clients themselves."""

from hgp_ref.certificates.door import MATRIX_FREE_ABOVE, certify
from hgp_ref.certificates.lanczos import Lanczos
from hgp_ref.certificates.measured import MeasuredResidual, measured_residual
from hgp_ref.certificates.result import Certificate

__all__ = ["MATRIX_FREE_ABOVE", "Certificate", "Lanczos", "MeasuredResidual", "certify", "measured_residual"]
