"""Data for n clients: the synthetic mixture of the paper, real data, EMNIST, and partitions of any labelled data."""

from hgp_ref.data.emnist import Emnist, emnist_byclass
from hgp_ref.data.partition import dirichlet_partition
from hgp_ref.data.real import ClientData, breast_cancer, digits
from hgp_ref.data.synthetic import SyntheticMixture, synthetic_mixture

__all__ = [
    "ClientData",
    "Emnist",
    "SyntheticMixture",
    "breast_cancer",
    "digits",
    "dirichlet_partition",
    "emnist_byclass",
    "synthetic_mixture",
]
