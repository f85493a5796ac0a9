"""Data of n clients: the paper's synthetic mixture, real data, images, EMNIST, and partitions of labelled data."""

from hgp_ref.data.clients import Clients, dirichlet_partition, draw_clusters, quantity_partition, shard_partition
from hgp_ref.data.images import Images, download_emnist, emnist_byclass
from hgp_ref.data.packaged import breast_cancer, digit_images, digits, mnist_sample
from hgp_ref.data.synthetic import synthetic_mixture

__all__ = [
    "Clients",
    "Images",
    "breast_cancer",
    "digit_images",
    "digits",
    "dirichlet_partition",
    "download_emnist",
    "draw_clusters",
    "emnist_byclass",
    "mnist_sample",
    "quantity_partition",
    "shard_partition",
    "synthetic_mixture",
]
