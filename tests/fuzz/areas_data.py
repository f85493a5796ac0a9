"""Data: synthetic and packaged data sets, clients, images, EMNIST."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any

import numpy as np

import hgp_ref as hgp
from fuzz import small
from fuzz.small import FOLDER
from fuzz.table import function, method

PARTITION = dict(labels=np.arange(40) % 4, n_clients=3, alpha=0.4, seed=0, min_per_client=1)
function("data.dirichlet_partition", hgp.data.dirichlet_partition, lambda: dict(PARTITION))
SHARDS = dict(labels=np.arange(40) % 4, n_clients=3, shards=2, seed=0)
function("data.shard_partition", hgp.data.shard_partition, lambda: dict(SHARDS))
QUANTITY = dict(data=np.zeros((40, 2)), n_clients=3, alpha=1.0, seed=0, min_per_client=1)
function("data.quantity_partition", hgp.data.quantity_partition, lambda: dict(QUANTITY))
MIXTURE = dict(n_clients=3, n_train=4, n_val=4, n_test=4, dim=3, n_components=3, alpha=0.4, seed=0)
for name in ("breast_cancer", "digits"):
    function(
        f"data.{name}",
        getattr(hgp.data, name),
        lambda: dict(n_clients=3, alpha=1.0, seed=0, validation=0.4, bias=True),
    )


def _emnist() -> dict[str, Any]:
    """Two images in NIST's format, and the sums of their files."""
    folder, sums = FOLDER / "emnist", dict[str, str]()
    folder.mkdir(exist_ok=True)
    for kind, a in (("images-idx3", np.zeros((2, 28, 28), np.uint8)), ("labels-idx1", np.array([3, 61], np.uint8))):
        head = bytes([0, 0, 8, a.ndim]) + np.array(a.shape, ">u4").tobytes()
        file = folder / f"emnist-byclass-test-{kind}-ubyte.gz"
        file.write_bytes(gzip.compress(head + a.tobytes(), mtime=0))
        sums[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return dict(folder=folder, split="test", upright=False, sums=sums)


function("data.emnist_byclass", hgp.data.emnist_byclass, _emnist)

# clients
LISTS = ("X", "y", "X_val", "y_val", "X_test", "y_test")
MIXED = dict(mixture=np.ones((3, 2)) / 2, components=np.ones((2, 3)))
CLUSTERS = dict(clusters=np.array([0, 1, 0]), means=np.array([0.2, 0.3]), stds=np.array([0.5, 0.6]))


def _clients() -> hgp.data.Clients:
    return hgp.data.synthetic_mixture(**MIXTURE)


def _lists() -> dict[str, Any]:
    return {name: list(getattr(_clients(), name)) for name in LISTS}


function("data.Clients", hgp.data.Clients, lambda: _lists() | CLUSTERS | dict(n_classes=2, name="mixture") | MIXED)
function(
    "data.Clients (an entry of each list)",
    lambda **first: hgp.data.Clients(
        **{name: [first[name], *rest[1:]] for name, rest in _lists().items()}, n_classes=2, name="mixture"
    ),
    lambda: {name: entries[0] for name, entries in _lists().items()},
    passes_nan=True,
)
method("data.Clients.restrict", _clients, lambda: dict(clients=np.array([0, 2])))
method("data.Clients.map_inputs", _clients, lambda: dict(change=lambda i, X: X - i))
method("data.Clients.clustered", _clients, lambda: dict(means=np.array([0.2, 0.3]), stds=np.array([0.5, 0.6]), seed=0))

# images
PIXELS = small.rng().integers(0, 256, (40, 4, 4), dtype=np.uint8)
IMAGES = dict(images=PIXELS, labels=np.arange(40) % 4)


def _images() -> hgp.data.Images:
    return hgp.data.Images(**IMAGES)


function("data.Images", hgp.data.Images, lambda: IMAGES | dict(split="test", name="noise", n_classes=4, white=255))
method("data.Images.take", _images, lambda: dict(which=np.array([0, 3, 5])))
method("data.Images.sample", _images, lambda: dict(size=20, seed=0))
function("data.Images.sample (a share)", lambda **given: _images().sample(**given), lambda: dict(size=0.5, seed=0))
method("data.Images.only", _images, lambda: dict(labels=np.array([2, 0])))
method(
    "data.Images.clients",
    _images,
    lambda: dict(n_clients=3, alpha=5.0, seed=0, validation=0.2, test=0.2, dtype="float32"),
)

# EMNIST: a local archive, never a download
ARCHIVE = FOLDER / "archive.zip"
ARCHIVE.write_bytes(b"no images")
SUMS = {"gzip.zip": hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()}


def _download() -> dict[str, Any]:
    (FOLDER / "gzip.zip").unlink(missing_ok=True)  # what is there already is not downloaded
    return dict(folder=FOLDER, url=ARCHIVE.as_uri(), sums=SUMS)


function("data.download_emnist", hgp.data.download_emnist, _download)
