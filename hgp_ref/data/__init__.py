"""Data for n clients: the synthetic mixture of the paper, real data, images, EMNIST, partitions of labelled data."""

from hgp_ref.data.clients import Clients, dirichlet_partition, draw_clusters
from hgp_ref.data.images import Emnist, Images, download_emnist, emnist_byclass
from hgp_ref.data.packaged import ClientData, breast_cancer, digit_images, digits, mnist_sample
from hgp_ref.data.synthetic import SyntheticMixture, synthetic_mixture

__all__ = [
    "ClientData",
    "Clients",
    "Emnist",
    "Images",
    "SyntheticMixture",
    "breast_cancer",
    "digit_images",
    "digits",
    "dirichlet_partition",
    "download_emnist",
    "draw_clusters",
    "emnist_byclass",
    "mnist_sample",
    "synthetic_mixture",
]
