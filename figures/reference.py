"""Numbers to compare with: the paper's, and those of the program that its authors published.

`ERROR_SCALAR` and the other errors are means over 10 seeds of ‖v^(m) − d_λ f‖ with f divided by n, measured by running
that program. It computes in float32: its numbers below about 1e-6 (`FLOAT32_FLOOR`) are rounding errors. The data are
the same, but graphs and batches come from other random numbers, so agreement is required within a factor of 3.
"""

from __future__ import annotations

SOURCE = "the paper's published program (mean of 10 seeds)"
FACTOR = 3.0
FLOAT32_FLOOR = 2e-6
STEPS = (1, 2, 5, 10, 100)  # S
ITERATIONS = (1, 10, 50, 100, 200, 500, 1000)  # m

# Full batch, one rate of L2 per client.
ERROR_SCALAR = {
    1: (0.0604, 0.0403, 0.101, 0.138, 0.157, 0.160, 0.160),
    2: (0.0625, 0.0508, 0.0382, 0.0439, 0.0480, 0.0488, 0.0488),
    5: (0.0620, 0.0463, 0.0153, 0.0065, 0.0039, 0.0038, 0.0038),
    10: (0.0620, 0.0460, 0.0143, 0.0044, 5.4e-4, 1.3e-5, 1.3e-5),
    100: (0.0620, 0.0460, 0.0143, 0.0044, 5.3e-4, 7e-7, 1e-6),
}
# At m = 1000 only: mini-batches of 20 against the full-batch truth; and one rate of L2 per coordinate, full batch.
ERROR_MINI_BATCH = {1: 0.170, 2: 0.061, 5: 0.024, 10: 0.026, 100: 0.026}
ERROR_VECTOR = {1: 0.125, 2: 0.0406, 5: 0.0032, 10: 1.6e-5, 100: 9e-9}

# Standard deviation over seeds of the published mini-batch reference, whose mean is about 0.038.
REFERENCE_STD = 0.112

# Influence of the 50 most influential instances, synthetic data: the paper's table, and what its program gives.
R2_PAPER, F1_PAPER = 0.99, 1.00
R2_PUBLISHED, F1_PUBLISHED = 0.9968, 1.000

# The same with a CNN on a subset of EMNIST, full batch and mini-batches of 512: the paper's table.
CNN_PAPER = {"full": (0.53, 1.00), "mini": (0.41, 0.91)}  # R², F1

# Test accuracy of personalized models, average / bottom 10 % of clients, in per cent: the paper's table (n = 100).
PERSONAL_PAPER = {
    "fedavg": {"FC": (82.9, 74.5), "FixU": (83.8, 76.8), "RandU": (80.0, 71.8), "RandD": (80.1, 72.4)},
    "fedprox": {"FC": (82.9, 74.5)},
    "local": {"FC": (74.7, 63.0), "FixU": (74.7, 63.0), "RandU": (73.4, 64.0), "RandD": (73.4, 64.0)},
    "fedavg_plus": {"FC": (83.2, 74.3)},
    "clustered_fl": {"FC": (83.0, 74.6)},
    "pfedme": {"FC": (85.1, 79.0)},
    "fedem": {"FC": (84.0, 75.4), "FixU": (83.9, 75.7)},
    "hgp_mtl": {"FC": (84.0, 76.1), "FixU": (84.0, 76.3), "RandU": (82.6, 74.3), "RandD": (81.8, 72.9)},
    "hgp_pl": {"FC": (88.1, 82.6), "FixU": (88.0, 82.2), "RandU": (85.5, 79.6), "RandD": (85.6, 79.6)},
}
# The size `reduced` over RandD, as another program gave it (three seeds).
PERSONAL_REDUCED = {"hgp_pl": (76.2, 70.1), "fedavg": (70.8, 63.6), "local": (65.0, 56.8)}
