"""EMNIST byclass (62 classes of characters): NIST's archive `gzip.zip`, or a folder with the files inside it.

The files are gzipped IDX, a big-endian header (0, 0, type, number of axes; then the length of each axis as uint32)
followed by the values. They are read without pickle, after SHA-256 sums have been compared with the ones below: those
of the files themselves in a folder, that of the whole archive for any file inside it. `download_emnist` gets the
archive; nothing is downloaded otherwise.

The sums of the unpacked test split were computed from the files themselves. That of the archive was not, for it was
never at hand when this was written: it is the one that public loaders state (MLDatasets.jl among them). A download with
another one is refused, not accepted with a warning.

Labels 0 … 9 are digits, 10 … 35 capitals, 36 … 61 small letters. The images are stored transposed; they are returned
as stored, which is how the authors of the paper used them, unless `upright=True`.

References: G. Cohen, S. Afshar, J. Tapson, A. van Schaik. EMNIST: an extension of MNIST to handwritten letters. 2017.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hgp_ref import arguments
from hgp_ref.data.archive import download, known_sum, zip_entry
from hgp_ref.data.images import Images

FOLDER_VARIABLE = "HGP_REF_EMNIST"
ARCHIVE = "gzip.zip"
URL = f"https://biometrics.nist.gov/cs_links/EMNIST/{ARCHIVE}"
SHA256 = {
    ARCHIVE: "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",  # 561,753,746 bytes
    "emnist-byclass-test-images-idx3-ubyte.gz": "5ec835bd5d5b1a66378a132e727fef20fe994b3cc666899befcca5ac766f50cd",
    "emnist-byclass-test-labels-idx1-ubyte.gz": "501e305eeeacb093b162592d80e8a2632040872360fa6d85cfcb2200d91ca92a",
}
WHERE = (
    f"get NIST's archive {URL} (described at https://www.nist.gov/itl/products-and-services/emnist-dataset; "
    "hgp_ref.data.download_emnist does) and give it, or the folder that holds it or its emnist-byclass-*-ubyte.gz, "
    f"as an argument or in the environment variable {FOLDER_VARIABLE}"
)
UNSIGNED_BYTE = 8  # IDX type code


@dataclass(frozen=True)
class Emnist(Images):
    """Images and labels of one split of EMNIST byclass, or some of them.

    Attributes
    ----------
    name : of the data.
    n_classes : ten digits and 52 letters.

    Examples
    --------
    >>> hgp.data.Emnist(np.zeros((2, 28, 28), np.uint8), np.array([3, 61])).n_classes
    62
    """

    name: str = "EMNIST byclass"
    n_classes: int = 62


def download_emnist(folder: str | Path, *, url: str = URL, sums: Mapping[str, str] = SHA256) -> Path:
    """NIST's archive (560 MB) in `folder`, its sum compared; nothing is done if it is there already.

    The sum known here is that of public loaders (see the module): if NIST's file should have another, give it in sums.

    Parameters
    ----------
    folder : where it is kept.
    url : of the archive.
    sums : SHA-256 sums by file name.

    Returns
    -------
    Path of the archive.

    Raises
    ------
    TypeError, ValueError
        `url` must be an address, `sums` have the archive's SHA-256.
    OSError
        The download fails.

    Examples
    --------
    A small file stands in for the archive:

    >>> import hashlib, pathlib, tempfile
    >>> source = pathlib.Path(tempfile.mkdtemp()) / "gzip.zip"
    >>> _ = source.write_bytes(b"stands in for 560 MB")
    >>> sums = {"gzip.zip": hashlib.sha256(source.read_bytes()).hexdigest()}
    >>> hgp.data.download_emnist(tempfile.mkdtemp(), url=source.as_uri(), sums=sums).name
    'gzip.zip'
    """
    place = arguments.path("folder", folder)
    arguments.kind("url", url, str)
    if "://" not in url:
        raise ValueError(f"url={url!r} given, needed an address such as {URL}")
    if ARCHIVE not in _checked(sums):
        raise ValueError(f"sums: no SHA-256 sum of {ARCHIVE} given, needed one to compare the download with")
    return download(url, place / ARCHIVE, sums[ARCHIVE])


def emnist_byclass(
    folder: str | Path | None = None,
    split: str = "test",
    *,
    upright: bool = False,
    sums: Mapping[str, str] = SHA256,
) -> Emnist:
    """Read one split of EMNIST byclass from `folder` (None: what the variable HGP_REF_EMNIST names).

    folder: one that holds NIST's .gz files or else NIST's archive gzip.zip, or the archive itself. `sums` maps file
    names to SHA-256 sums in hexadecimal; a file whose sum is not in it is refused. The sums known here are those of the
    archive, which has both splits (697,932 and 116,323 images), and of the unpacked test split; for the unpacked
    train split give the sums of your files.

    Parameters
    ----------
    folder : see above.
    split : "train" or "test".
    upright : whether to turn the images, which are stored transposed.
    sums : SHA-256 sums by file name.

    Returns
    -------
    Emnist, with `images` (N, 28, 28) and `labels` (N,).

    Raises
    ------
    TypeError, ValueError
        `split` must be "train" or "test".
    FileNotFoundError
        The files are not there; the message says how to get them.
    ValueError
        A file's SHA-256 differs, or images and labels do not fit together.

    Examples
    --------
    Two images in NIST's format:

    >>> import gzip, hashlib, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> images, labels = np.zeros((2, 28, 28), np.uint8), np.array([3, 61], np.uint8)
    >>> for kind, a in (("images-idx3", images), ("labels-idx1", labels)):
    ...     head = bytes([0, 0, 8, a.ndim]) + np.array(a.shape, ">u4").tobytes()
    ...     _ = (folder / f"emnist-byclass-test-{kind}-ubyte.gz").write_bytes(gzip.compress(head + a.tobytes()))
    >>> sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    >>> hgp.data.emnist_byclass(folder, sums=sums).labels.tolist()
    [3, 61]
    """
    arguments.choice("split", split, ("train", "test"))
    upright = arguments.boolean("upright", upright)
    _checked(sums)
    place = _place(folder)
    names = [f"emnist-byclass-{split}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    images, labels = (_unpacked(packed, name, place) for name, packed in _packed(place, names, sums).items())
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(f"images {images.shape} and labels {labels.shape} in {place} do not fit together")
    data = Emnist(images, labels, split)
    return data.upright() if upright else data


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
    try:
        return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
    except ValueError as error:  # more axes, or a larger length beside a zero, than arrays have
        raise ValueError(f"{name} announces {shape}, which no array has: {error}") from error


def _checked(sums: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(sums, Mapping):
        raise TypeError(f"sums={sums!r} given ({type(sums).__name__}), needed a mapping of file names to sums")
    for name, value in sums.items():
        arguments.kind(f"sums[{name!r}]", value, str)
    return sums


def _place(folder: str | Path | None) -> Path:
    given = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if given is None or (isinstance(given, str) and not given):
        raise FileNotFoundError(f"no folder of EMNIST given: {WHERE}")
    place = arguments.path("folder", given)
    if not place.is_dir() and not (place.is_file() and place.suffix == ".zip"):
        raise FileNotFoundError(f"{place} is not a folder and no archive: {WHERE}")
    return place


def _packed(place: Path, names: list[str], sums: Mapping[str, str]) -> dict[str, bytes]:
    """The gzipped files called `names`, from a folder or out of the archive."""
    inside = place / ARCHIVE if place.is_dir() else place
    if inside.is_file() and not all((place / name).is_file() for name in names):
        known_sum(inside, sums)  # and with it everything inside
        entries = {name: zip_entry(inside, name) for name in names}
        for name, entry in entries.items():
            if entry is None:
                raise FileNotFoundError(f"{name} is missing in {inside}: {WHERE}")
        return {name: entry for name, entry in entries.items() if entry is not None}
    for name in names:
        if not (place / name).is_file():
            raise FileNotFoundError(f"{place / name} is missing: {WHERE}")
        known_sum(place / name, sums)
    return {name: (place / name).read_bytes() for name in names}


def _unpacked(packed: bytes, name: str, place: Path) -> np.ndarray:
    try:
        return read_idx(gzip.decompress(packed), name)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name} in {place} is not a gzipped file: {error}") from error
