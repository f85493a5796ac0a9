"""A stand-in for CuPy on a machine without a GPU: same names, same refusals, transfers counted.

It lets the real `array_api_compat.cupy` wrapper and the package's own CuPy path run. It is no evidence of speed, nor
of CuPy's kernels; `python -m hgp_ref check --backend cupy` on a machine with a GPU is.
"""

from .array import CONVERSION, Device, Transfers, ndarray, transfers
from .module import NAMES, install
from .operations import Operations, operations

__all__ = ["CONVERSION", "NAMES", "Device", "Operations", "Transfers", "install", "ndarray", "operations", "transfers"]
