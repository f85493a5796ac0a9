"""Speed, scale and precision, each compared with another program in the same run: `python -m benchmarks [NAME ...]`."""

NAMES = (
    "figure",
    "dense",
    "mixing",
    "sampling",
    "scale",
    "clients",
    "precision",
    "startup",
    "neural",
    "adapters",
    "mpi",
)
# Libraries to compare with, and the extras of hgp_ref that bring them.
PEERS = {
    "adapters": {"torch": "torch", "jax": "jax"},
    "figure": {"torch": "torch", "jax": "jax"},
    "dense": {"jax": "jax"},
    "mixing": {"torch": "torch"},
    "mpi": {"mpi4py": "mpi"},
    "neural": {"torch": "torch"},
    "sampling": {"networkx": "dev"},
}
