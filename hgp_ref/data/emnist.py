"""EMNIST byclass (62 classes of characters) from a folder with the files that NIST distributes.

Nothing is downloaded. The files are those of NIST's archive `gzip.zip`: gzipped IDX, a big-endian header
(0, 0, type, number of axes; then the length of each axis as uint32) followed by the values. They are read without
pickle, after their SHA-256 sums have been compared with the ones below.

The images are stored transposed; they are returned as stored unless `upright=True`.

References: G. Cohen, S. Afshar, J. Tapson, A. van Schaik. EMNIST: an extension of MNIST to handwritten letters. 2017.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hgp_ref import arguments
from hgp_ref.results import Result

FOLDER_VARIABLE = "HGP_REF_EMNIST"
SHA256 = {
    "emnist-byclass-test-images-idx3-ubyte.gz": "5ec835bd5d5b1a66378a132e727fef20fe994b3cc666899befcca5ac766f50cd",
    "emnist-byclass-test-labels-idx1-ubyte.gz": "501e305eeeacb093b162592d80e8a2632040872360fa6d85cfcb2200d91ca92a",
}
WHERE = (
    "get NIST's archive https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip (described at "
    "https://www.nist.gov/itl/products-and-services/emnist-dataset), unpack it and give the folder that holds "
    f"emnist-byclass-*-ubyte.gz, as an argument or in the environment variable {FOLDER_VARIABLE}"
)
UNSIGNED_BYTE = 8  # IDX type code


@dataclass(frozen=True)
class Emnist(Result):
    """Images and labels of one split of EMNIST byclass."""

    images: np.ndarray  # (N, 28, 28) uint8
    labels: np.ndarray  # (N,) uint8, 0 … 61
    split: str


def emnist_byclass(
    folder: str | Path | None = None,
    split: str = "test",
    *,
    upright: bool = False,
    sums: Mapping[str, str] = SHA256,
) -> Emnist:
    """Read one split of EMNIST byclass from `folder` (None: the folder named by HGP_REF_EMNIST).

    `sums` maps file names to SHA-256 sums in hexadecimal; a file whose sum is not in it is refused. The sums known
    here are those of the test split (116,323 images); for `split="train"` give the sums of your files.
    """
    arguments.choice("split", split, ("train", "test"))
    upright = arguments.boolean("upright", upright)
    if not isinstance(sums, Mapping):
        raise TypeError(f"sums={sums!r} given ({type(sums).__name__}), needed a mapping of file names to sums")
    place = _folder(folder)
    images = _read_checked(place, f"emnist-byclass-{split}-images-idx3-ubyte.gz", sums)
    labels = _read_checked(place, f"emnist-byclass-{split}-labels-idx1-ubyte.gz", sums)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(f"images {images.shape} and labels {labels.shape} in {place} do not fit together")
    return Emnist(np.ascontiguousarray(images.transpose(0, 2, 1)) if upright else images, labels, split)


def read_idx(data: bytes, name: str = "data") -> np.ndarray:
    """The array in the bytes of an IDX file of unsigned bytes; ValueError if they are anything else."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UNSIGNED_BYTE:
        raise ValueError(f"{name} is not an IDX file of unsigned bytes: it begins with {data[:4].hex(' ')}")
    axes = data[3]
    start = 4 + 4 * axes
    if len(data) < start:
        raise ValueError(f"{name} ends inside its header of {axes} axes")
    shape = tuple(int(length) for length in np.frombuffer(data, dtype=">u4", count=axes, offset=4))
    size = int(np.prod(shape, dtype=object))
    if len(data) - start != size:
        raise ValueError(f"{name} announces {shape} = {size} values and holds {len(data) - start}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _folder(folder: str | Path | None) -> Path:
    given = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if given is None:
        raise FileNotFoundError(f"no folder of EMNIST given: {WHERE}")
    place = arguments.path("folder", given)
    if not place.is_dir():
        raise FileNotFoundError(f"{place} is not a folder: {WHERE}")
    return place


def _read_checked(place: Path, name: str, sums: Mapping[str, str]) -> np.ndarray:
    if name not in sums:
        raise ValueError(f"no SHA-256 sum is known for {name}: give it as sums={{{name!r}: '…'}}")
    path = place / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: {WHERE}")
    packed = path.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != sums[name].lower():
        raise ValueError(f"{path} has SHA-256 {found}, needed {sums[name]}: the file is damaged or another one")
    try:
        return read_idx(gzip.decompress(packed), name)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is not a gzipped file: {error}") from error
