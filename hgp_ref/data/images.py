"""Labelled grey images, and the steps from them to clients:

    emnist_byclass().sample(0.01).only(range(10)).clients(3)                     the paper's influence experiment
    emnist_byclass().sample(81_425).clients(100).clustered(*draw_clusters(3))    its personalization experiment
    digit_images().clients(10)                                                   without a download

Pixels go from 0 to `white`; clients get them divided by it, as (N_i, 1, H, W) arrays in [0, 1].
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import numpy as np

from hgp_ref import validation
from hgp_ref import validation as arguments
from hgp_ref.data.clients import Clients, Part, check_shares, split_over_clients
from hgp_ref.results import Result

Self = TypeVar("Self", bound="Images")


@dataclass(frozen=True)
class Images(Result):
    """N images with their labels.

    Parameters
    ----------
    images : (N, H, W), uint8 as read.
    labels : (N,) integers 0 … n_classes − 1.
    split : "train" or "test", where there are two.
    name : of the data.
    n_classes : given as 0: the largest label and one.
    white : the value of the brightest pixel.

    Raises
    ------
    TypeError, ValueError
        Images must be (N, H, W), finite, labels (N,) integers 0 … n_classes − 1.

    Examples
    --------
    >>> images = hgp.data.Images(np.zeros((4, 8, 8)), np.array([0, 1, 2, 1]), n_classes=3)
    >>> images.only([1]).labels
    array([0, 0])
    """

    images: np.ndarray
    labels: np.ndarray
    split: str = ""
    name: str = "images"
    n_classes: int = 0
    white: int = 255

    def __post_init__(self) -> None:
        arguments.plain_numbers("images", self.images, "uif")
        arguments.plain_numbers("labels", self.labels, "iu")
        arguments.instance("split", self.split, str)
        arguments.instance("name", self.name, str)
        arguments.integer("n_classes", self.n_classes, 0, arguments.LONGEST)
        arguments.integer("white", self.white)
        if self.images.ndim != 3 or self.labels.shape != self.images.shape[:1] or self.labels.size == 0:
            raise ValueError(
                f"images {self.images.shape} and labels {self.labels.shape} do not fit together, "
                "needed (N, H, W) and (N,) with N >= 1"
            )
        if self.images.dtype.kind == "f":
            arguments.finite("images", self.images)
        top = int(self.labels.max())
        if self.n_classes == 0:
            object.__setattr__(self, "n_classes", top + 1)
        if not 0 <= int(self.labels.min()) <= top < self.n_classes:
            raise ValueError(f"labels: {self.labels.min()} … {top} given, needed 0 … {self.n_classes - 1}")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self: Self, which: np.ndarray) -> Self:
        """The images with the numbers `which`, or those where `which` (N,) is True.

        Parameters
        ----------
        which : indices, or booleans (N,).

        Returns
        -------
        Images.
        """
        numbers, N = arguments.host_array("which", which), len(self)
        if numbers.dtype.kind == "b" and numbers.shape == (N,):
            numbers = np.flatnonzero(numbers)
        arguments.plain_numbers("which", numbers, "iu")
        if numbers.ndim != 1 or numbers.size == 0:
            raise ValueError(f"which: numbers of shape {numbers.shape} given, needed a list of at least one image")
        if numbers.min() < -N or numbers.max() >= N:
            raise ValueError(f"which: {numbers.min()} … {numbers.max()} given, needed numbers of the {N} images")
        return replace(self, images=self.images[numbers], labels=self.labels[numbers])

    def sample(self: Self, size: float, seed: int = 0) -> Self:
        """A random choice of images, in their order: `size` of them, or for a float that share, rounded down.

        Drawn without replacement by NumPy's generator seeded with [seed, 4]. 10 % of the 814,255 images of EMNIST
        byclass are 81,425.

        Parameters
        ----------
        size : an integer, or a share as a float.
        seed : of the choice.

        Returns
        -------
        Images.
        """
        N = len(self)
        if isinstance(size, float | np.floating):
            share = arguments.probability("size", size)
            count = math.floor(Fraction(repr(share)) * N)  # the decimal as it is written: 0.29 of 100 are 29
        else:
            count = arguments.integer("size", size, 1, N)
        if count < 1:
            raise ValueError(f"size={size} given, which is none of {N} images, needed at least one")
        rng = np.random.default_rng([arguments.integer("seed", seed, 0), 4])
        return self.take(np.sort(rng.permutation(N)[:count]))

    def only(self: Self, labels: Iterable[int]) -> Self:
        """The images that carry one of `labels`, which become 0, 1, 2 … in the order given.

        Parameters
        ----------
        labels : those to keep.

        Returns
        -------
        Images.
        """
        if not isinstance(labels, Iterable) or getattr(labels, "ndim", 1) == 0:
            raise TypeError(f"labels={labels!r} given ({type(labels).__name__}), needed a list of labels")
        wanted = [arguments.integer(f"labels[{k}]", c, 0, self.n_classes - 1) for k, c in enumerate(labels)]
        if not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(f"labels={wanted} given, needed different labels, at least one")
        which = np.flatnonzero(np.isin(self.labels, wanted))
        if which.size == 0:
            raise ValueError(f"labels={wanted} given, which none of the {len(self)} images carries")
        number = np.zeros(self.n_classes, dtype=self.labels.dtype)
        number[wanted] = np.arange(len(wanted))
        return replace(self, images=self.images[which], labels=number[self.labels[which]], n_classes=len(wanted))

    def upright(self: Self) -> Self:
        """The images with rows and columns exchanged: EMNIST is stored transposed.

        Returns
        -------
        Images.
        """
        return replace(self, images=np.ascontiguousarray(self.images.transpose(0, 2, 1)))

    def shrunk(self: Self, size: int) -> Self:
        """Images of size × size pixels, each the mean of a block of pixels (28 to 14: blocks of 2 × 2), as float64.

        Parameters
        ----------
        size : pixels of a side; it must divide those there are.

        Returns
        -------
        Images.
        """
        size = arguments.integer("size", size)
        N, H, W = self.images.shape
        if H % size or W % size:
            raise ValueError(f"size={size} given, needed a divisor of {H} and {W}")
        blocks = self.images.reshape(N, size, H // size, size, W // size)
        return replace(self, images=blocks.mean(axis=(2, 4), dtype=np.float64))

    def clients(self, n_clients: int, alpha: float = 0.4, seed: int = 0, *, validation: float = 0.2, test: float = 0.2,
                dtype: str = "float32") -> Clients:  # fmt: skip
        """The images over clients by label, Dirichlet(alpha 1_n) for each, then 60 / 20 / 20 inside each client.

        See `data.split` for the rule and the generators.

        Parameters
        ----------
        n_clients : n.
        alpha : of the Dirichlet distribution: the smaller, the more clients differ.
        seed : of partition and split.
        validation : share.
        test : share.
        dtype : of the inputs.

        Returns
        -------
        Clients.
        """
        arguments.choice("dtype", dtype, ("float32", "float64"))
        shares = check_shares(validation, test)
        train, held_out, kept = split_over_clients(self.labels, n_clients, alpha, seed, *shares)

        def part(indices: list[np.ndarray], share: float) -> Part:
            inputs = [(self.images[k] / self.white).astype(dtype)[:, None] for k in indices if share > 0]
            return inputs, [self.labels[k].astype(np.int64) for k in indices if share > 0]

        parts = [part(train, 1.0), part(held_out, shares[0]), part(kept, shares[1])]
        (X, y), (X_val, y_val), (X_test, y_test) = parts
        return Clients(X, y, X_val, y_val, self.n_classes, self.name, X_test, y_test)


# ----------------------------------------------------------------------------------------------------
# Files whose SHA-256 sums are known: downloaded whole or not at all, looked at before they are opened.


CHUNK = 2**20  # bytes read at once
PATIENCE = 60  # seconds without an answer of the server


def download(url: str, path: Path, sha256: str) -> Path:
    """`url` at `path`, with the sum `sha256`; a file that is there already and has it is left alone.

    A download that is broken off or has another sum leaves nothing behind.
    """
    if path.is_file() and _sum(path) == sha256.lower():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file, urlopen(url, timeout=PATIENCE) as answer:
            while piece := answer.read(CHUNK):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256.lower():
            raise ValueError(f"{url} has SHA-256 {digest.hexdigest()}, needed {sha256}: cut short or another file")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def known_sum(path: Path, sums: Mapping[str, str]) -> None:
    """ValueError unless the file has the SHA-256 sum that `sums` holds under its name."""
    if path.name not in sums:
        raise ValueError(f"no SHA-256 sum is known for {path.name}: give it as sums={{{path.name!r}: '…'}}")
    given = _sum(path)
    if given != sums[path.name].lower():
        raise ValueError(f"{path} has SHA-256 {given}, needed {sums[path.name]}: the file is damaged or another one")


def zip_entry(path: Path, name: str) -> bytes | None:
    """The bytes of the file called `name`, in whatever folder inside the archive; None if there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.namelist() if entry.rsplit("/", 1)[-1] == name]
            if len(entries) > 1:
                raise ValueError(f"{path} holds {name} more than once: {', '.join(entries)}")
            return archive.read(entries[0]) if entries else None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:  # or encrypted
        raise ValueError(f"{path} is not a zip archive that can be read: {error}") from error


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ----------------------------------------------------------------------------------------------------
# EMNIST byclass (62 classes of characters): NIST's archive `gzip.zip`, or a folder with the files inside it.
#
# The files are gzipped IDX, a big-endian header (0, 0, type, number of axes; then the length of each axis as uint32)
# followed by the values. They are read without pickle, after SHA-256 sums have been compared with the ones below: those
# of the files themselves in a folder, that of the whole archive for any file inside it. `download_emnist` gets the
# archive; nothing is downloaded otherwise.
#
# The sums of the unpacked test split were computed from the files themselves. That of the archive was not, for it was
# never at hand when this was written: it is the one that public loaders state (MLDatasets.jl among them). A download
# with
# another one is refused, not accepted with a warning.
#
# Labels 0 … 9 are digits, 10 … 35 capitals, 36 … 61 small letters. The images are stored transposed; they are returned
# as stored, which is how the authors of the paper used them, unless `upright=True`.
#
# References: G. Cohen, S. Afshar, J. Tapson, A. van Schaik. EMNIST: an extension of MNIST to handwritten letters. 2017.


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
    place = validation.path("folder", folder)
    validation.instance("url", url, str)
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
    validation.choice("split", split, ("train", "test"))
    upright = validation.boolean("upright", upright)
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
        validation.instance(f"sums[{name!r}]", value, str)
    return sums


def _place(folder: str | Path | None) -> Path:
    given = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if given is None or (isinstance(given, str) and not given):
        raise FileNotFoundError(f"no folder of EMNIST given: {WHERE}")
    place = validation.path("folder", given)
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
