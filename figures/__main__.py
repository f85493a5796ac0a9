"""`python -m figures [NAME … | all] [--list] [--variant paper|published|both] [--size small|reduced|emnist|paper] …`"""

import os
import sys

# Before NumPy is loaded: with several threads BLAS adds in another order, which changes the last bits.
for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

from reporting.extras import require  # noqa: E402

require("python -m figures", matplotlib="figures")

from figures.cli import main  # noqa: E402

sys.exit(main())
