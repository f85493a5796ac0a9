"""Labelled grey-scale images, and the steps from them to clients:

    emnist_byclass().sample(0.01).only(range(10)).clients(3)                     the paper's influence experiment
    emnist_byclass().sample(81_425).clients(100).clustered(*draw_clusters(3))    its personalization experiment
    digit_images().clients(10)                                                   without a download

Pixels go from 0 to `white`. Clients get them divided by it, as (N_i, 1, H, W) arrays in [0, 1].
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
from urllib.request import urlopen

import numpy as np

from hgp_ref import validation
from hgp_ref.data.clients import Clients, check_shares, split_over_clients
from hgp_ref.results import Result
from hgp_ref.validation import Boolean, Choice, Integer, Positive, checked


@dataclass(frozen=True)
class Images(Result):
    """N images with their labels.

    Parameters
    ----------
    images : (N, H, W), uint8 in files.
    labels : (N,) integers 0 … n_classes − 1.
    split : "train" or "test", if the data set has two.
    n_classes : 0 for the largest label + 1.
    white : the value of the brightest pixel.

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
        validation.plain_numbers("images", self.images, "uif")
        validation.plain_numbers("labels", self.labels, "iu")
        validation.instance("split", self.split, str)
        validation.instance("name", self.name, str)
        validation.integer("n_classes", self.n_classes, 0, validation.LONGEST)
        validation.integer("white", self.white)
        if self.images.ndim != 3 or self.labels.shape != self.images.shape[:1] or self.labels.size == 0:
            raise ValueError(
                "images and labels must have shapes (N, H, W) and (N,) with N >= 1, "
                f"got {self.images.shape} and {self.labels.shape}"
            )
        if self.images.dtype.kind == "f":
            validation.finite("images", self.images)
        largest = int(self.labels.max())
        if self.n_classes == 0:
            object.__setattr__(self, "n_classes", largest + 1)
        if not 0 <= int(self.labels.min()) <= largest < self.n_classes:
            raise ValueError(f"labels must be 0 … {self.n_classes - 1}, got {self.labels.min()} … {largest}")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: np.ndarray) -> Images:
        """The images with the indices `which`, or those where a mask `which` (N,) is True."""
        indices, N = validation.host_array("which", which), len(self)
        if indices.dtype.kind == "b" and indices.shape == (N,):
            indices = np.flatnonzero(indices)
        validation.plain_numbers("which", indices, "iu")
        if indices.ndim != 1 or indices.size == 0:
            raise ValueError(f"which must have shape (k,) with k >= 1, got {indices.shape}")
        if indices.min() < -N or indices.max() >= N:
            raise ValueError(f"which must be indices of the {N} images, got {indices.min()} … {indices.max()}")
        return replace(self, images=self.images[indices], labels=self.labels[indices])

    def sample(self, size: float, seed: int = 0) -> Images:
        """A random sample without replacement, in the order of the images.

        `size` is an integer, or a float for a share of the images, rounded down: 10 % of the 814,255 images of EMNIST
        byclass are 81,425. NumPy's generator seeded with [seed, 4] draws them.
        """
        N = len(self)
        if isinstance(size, float | np.floating):
            share = validation.probability("size", size)
            count = math.floor(Fraction(repr(share)) * N)  # of the decimal as it is written: 0.29 of 100 are 29
        else:
            count = validation.integer("size", size, 1, N)
        if count < 1:
            raise ValueError(f"size must be at least one of {N} images, got {size}")
        rng = np.random.default_rng([validation.integer("seed", seed, 0), 4])
        return self.take(np.sort(rng.permutation(N)[:count]))

    def only(self, labels: Iterable[int]) -> Images:
        """The images with one of `labels`, which become 0, 1, 2 … in this order."""
        if not isinstance(labels, Iterable) or getattr(labels, "ndim", 1) == 0:
            validation.wrong_type("labels", labels, "a list of labels")
        chosen = [validation.integer(f"labels[{k}]", c, 0, self.n_classes - 1) for k, c in enumerate(labels)]
        if not chosen or len(set(chosen)) != len(chosen):
            validation.wrong_value("labels", chosen, "different labels, at least one")
        which = np.flatnonzero(np.isin(self.labels, chosen))
        if which.size == 0:
            validation.wrong_value("labels", chosen, f"labels of the {len(self)} images")
        new_label = np.zeros(self.n_classes, dtype=self.labels.dtype)
        new_label[chosen] = np.arange(len(chosen))
        return replace(self, images=self.images[which], labels=new_label[self.labels[which]], n_classes=len(chosen))

    def upright(self) -> Images:
        """The images with rows and columns exchanged: EMNIST is stored transposed."""
        return replace(self, images=np.ascontiguousarray(self.images.transpose(0, 2, 1)))

    @checked(size=Integer(1))
    def shrunk(self, size: int) -> Images:
        """Images of size × size pixels in float64, each pixel the mean of a block (28 to 14: blocks of 2 × 2)."""
        N, H, W = self.images.shape
        if H % size or W % size:
            validation.wrong_value("size", size, f"a divisor of {H} and {W}")
        blocks = self.images.reshape(N, size, H // size, size, W // size)
        return replace(self, images=blocks.mean(axis=(2, 4), dtype=np.float64))

    @checked(n_clients=Integer(1), alpha=Positive(), seed=Integer(0), dtype=Choice("float32", "float64"))
    def clients(self, n_clients: int, alpha: float = 0.4, seed: int = 0, *, validation: float = 0.2, test: float = 0.2,
                dtype: str = "float32") -> Clients:  # fmt: skip
        """Split the images over clients by `dirichlet_partition`, then into training, validation and test.

        `validation` and `test` are shares of each client's images.
        """
        val_share, test_share = check_shares(validation, test)
        split = split_over_clients(self.labels, n_clients, alpha, seed, val_share, test_share)
        parts: list[list[np.ndarray]] = []
        for indices, share in zip(split, (1.0, val_share, test_share), strict=True):
            parts.append([(self.images[k] / self.white).astype(dtype)[:, None] for k in indices if share > 0])
            parts.append([self.labels[k].astype(np.int64) for k in indices if share > 0])
        X, y, X_val, y_val, X_test, y_test = parts
        return Clients(X, y, X_val, y_val, self.n_classes, self.name, X_test, y_test)


# EMNIST byclass -------------------------------------------------------------------------------------------------------
#
# NIST's archive gzip.zip holds gzipped IDX files: a big-endian header (0, 0, type, number of axes; then the length of
# each axis as uint32) followed by the values. They are read without pickle, after their SHA-256 sums were compared with
# the ones below. A file in a folder has its own sum; the sum of the archive covers every file inside it.
#
# The sums of the test split were computed from the files themselves. The archive was not available here; its sum is the
# one that public loaders state (MLDatasets.jl among them). A download with another sum is refused.
#
# Labels 0 … 9 are digits, 10 … 35 capitals, 36 … 61 small letters. Images are stored transposed. The authors of the
# paper used them as stored, and so they are returned, unless upright=True.
#
# Reference: G. Cohen, S. Afshar, J. Tapson, A. van Schaik. EMNIST: an extension of MNIST to handwritten letters. 2017.

FOLDER_VARIABLE = "HGP_REF_EMNIST"
ARCHIVE = "gzip.zip"
URL = f"https://biometrics.nist.gov/cs_links/EMNIST/{ARCHIVE}"
SHA256 = {
    ARCHIVE: "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",  # 561,753,746 bytes
    "emnist-byclass-test-images-idx3-ubyte.gz": "5ec835bd5d5b1a66378a132e727fef20fe994b3cc666899befcca5ac766f50cd",
    "emnist-byclass-test-labels-idx1-ubyte.gz": "501e305eeeacb093b162592d80e8a2632040872360fa6d85cfcb2200d91ca92a",
}
WHERE = (
    f"get NIST's archive {URL} (described at https://www.nist.gov/itl/products-and-services/emnist-dataset) with "
    "hgp_ref.data.download_emnist and pass it, or a folder that holds it or its emnist-byclass-*-ubyte.gz, as "
    f"`folder` or in the environment variable {FOLDER_VARIABLE}"
)
UNSIGNED_BYTE = 8  # IDX type code


def download_emnist(folder: str | Path, *, url: str = URL, sums: Mapping[str, str] = SHA256) -> Path:
    """Download NIST's archive (560 MB) into `folder`, unless it is there already. Returns its path.

    `sums` maps file names to SHA-256 sums. The known sum is that of public loaders (see above).

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
    target = validation.path("folder", folder) / ARCHIVE
    validation.instance("url", url, str)
    if "://" not in url:
        validation.wrong_value("url", url, f"an address such as {URL}")
    _check_sums(sums)
    if ARCHIVE not in sums:
        raise ValueError(f"sums must contain the SHA-256 sum of {ARCHIVE}, got {sorted(sums)}")
    return _download(url, target, sums[ARCHIVE])


@checked(split=Choice("train", "test"), upright=Boolean())
def emnist_byclass(
    folder: str | Path | None = None,
    split: str = "test",
    *,
    upright: bool = False,
    sums: Mapping[str, str] = SHA256,
) -> Images:
    """Read one split of EMNIST byclass: `images` (N, 28, 28) and `labels` (N,), 62 classes.

    Parameters
    ----------
    folder : NIST's archive gzip.zip, or a folder that holds it or NIST's .gz files. By default the value of the
        environment variable HGP_REF_EMNIST.
    split : "train" (697,932 images) or "test" (116,323 images).
    upright : transpose the images, which are stored transposed.
    sums : file names and their SHA-256 sums in hexadecimal; a file without a sum is refused. Known are those of the
        archive and of the .gz files of the test split. For .gz files of the train split give the sums of your files.

    Raises
    ------
    FileNotFoundError
        A file is missing; the message says how to get it.
    ValueError
        A file has another SHA-256 sum, or images and labels do not fit together.

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
    _check_sums(sums)
    location = _location(folder)
    names = [f"emnist-byclass-{split}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    arrays = []
    for name, packed in _packed_files(location, names, sums).items():
        try:
            arrays.append(read_idx(gzip.decompress(packed), name))
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{name} in {location} is not a gzipped file: {error}") from error
    images, labels = arrays
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(f"{location} must hold as many labels as images, got {labels.shape} and {images.shape}")
    data = Images(images, labels, split, "EMNIST byclass", 62)
    return data.upright() if upright else data


def read_idx(data: bytes, name: str = "data") -> np.ndarray:
    """The array in an IDX file of unsigned bytes; ValueError for anything else."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UNSIGNED_BYTE:
        raise ValueError(f"{name} is not an IDX file of unsigned bytes: it begins with {data[:4].hex(' ')}")
    axes = data[3]
    start = 4 + 4 * axes
    if len(data) < start:
        raise ValueError(f"{name} ends inside its header of {axes} axes")
    shape = tuple(int(length) for length in np.frombuffer(data, dtype=">u4", count=axes, offset=4))
    size = int(np.prod(shape, dtype=object))
    if len(data) - start != size:
        raise ValueError(f"{name} declares {shape} = {size} values and holds {len(data) - start}")
    try:
        return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
    except ValueError as error:  # more axes or longer ones than arrays can have
        raise ValueError(f"{name} declares {shape}, which no array has: {error}") from error


def _check_sums(sums: Mapping[str, str]) -> None:
    if not isinstance(sums, Mapping):
        validation.wrong_type("sums", sums, "a mapping of file names to SHA-256 sums")
    for name, value in sums.items():
        validation.instance(f"sums[{name!r}]", value, str)


def _location(folder: str | Path | None) -> Path:
    """The folder or the archive that holds the files."""
    if folder is None:
        folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None or (isinstance(folder, str) and not folder):
        raise FileNotFoundError(f"folder must name the files of EMNIST, got {folder!r}: {WHERE}")
    location = validation.path("folder", folder)
    if not location.is_dir() and not (location.is_file() and location.suffix == ".zip"):
        raise FileNotFoundError(f"folder must be a folder or an archive, got {location}: {WHERE}")
    return location


def _packed_files(location: Path, names: list[str], sums: Mapping[str, str]) -> dict[str, bytes]:
    """The gzipped files called `names`, from a folder or from the archive."""
    archive = location / ARCHIVE if location.is_dir() else location
    if archive.is_file() and not all((location / name).is_file() for name in names):
        check_sum(archive, sums)
        files = {}
        for name in names:
            entry = zip_entry(archive, name)
            if entry is None:
                raise FileNotFoundError(f"{name} is missing in {archive}: {WHERE}")
            files[name] = entry
        return files
    for name in names:
        if not (location / name).is_file():
            raise FileNotFoundError(f"{location / name} is missing: {WHERE}")
        check_sum(location / name, sums)
    return {name: (location / name).read_bytes() for name in names}


# Files with known SHA-256 sums ----------------------------------------------------------------------------------------

CHUNK = 2**20  # bytes read at once
TIMEOUT = 60  # seconds without an answer of the server


def _download(url: str, target: Path, sha256: str) -> Path:
    """Download `url` to `target` and compare its sum. A failed download leaves nothing behind."""
    if target.is_file() and _sha256(target) == sha256.lower():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file, urlopen(url, timeout=TIMEOUT) as response:
            while chunk := response.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != sha256.lower():
            raise ValueError(f"{url} must have SHA-256 {sha256}, got {digest.hexdigest()}: incomplete or another file")
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def check_sum(file: Path, sums: Mapping[str, str]) -> None:
    """ValueError unless the file has the SHA-256 sum that `sums` holds for its name."""
    if file.name not in sums:
        raise ValueError(f"sums must contain the SHA-256 sum of {file.name}, got {sorted(sums)}")
    checksum = _sha256(file)
    if checksum != sums[file.name].lower():
        raise ValueError(f"{file} must have SHA-256 {sums[file.name]}, got {checksum}: damaged or another file")


def zip_entry(archive: Path, name: str) -> bytes | None:
    """The content of the file called `name`, in any folder inside the archive; None if there is none."""
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = [entry for entry in opened.namelist() if entry.rsplit("/", 1)[-1] == name]
            if len(entries) > 1:
                raise ValueError(f"{archive} contains {name} more than once: {', '.join(entries)}")
            return opened.read(entries[0]) if entries else None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:  # or encrypted
        raise ValueError(f"{archive} is not a readable zip archive: {error}") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
