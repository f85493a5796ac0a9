"""`python -m figures [NAME…|all] [--variant paper|published|both] [--quick] [--recompute] [--backend NAME] …`"""

import sys

from figures.cli import main

sys.exit(main())
