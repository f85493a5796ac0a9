"""`python -m figures [NAME…|all] [--variant paper|published|both] [--size small|reduced|emnist|paper] [--quick] …`"""

import os
import sys

# One thread, before NumPy loads its library: sums in another order would change the last bits of the data.
for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

from reporting.extras import require  # noqa: E402

require("python -m figures", matplotlib="figures")

from figures.cli import main  # noqa: E402

sys.exit(main())
