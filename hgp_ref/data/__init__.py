"""Data for n clients: the synthetic mixture of the paper, real data, images, EMNIST, partitions of labelled data."""

from hgp_ref.data.clients import Clients
from hgp_ref.data.clusters import draw_clusters
from hgp_ref.data.emnist import Emnist, download_emnist, emnist_byclass
from hgp_ref.data.images import Images
from hgp_ref.data.packaged import digit_images, mnist_sample
from hgp_ref.data.partition import dirichlet_partition
from hgp_ref.data.real import ClientData, breast_cancer, digits
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
