"""The EMNIST loader on small files written here, and on NIST's files where HGP_REF_EMNIST names their folder."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile

import numpy as np
import pytest

import hgp_ref as hgp
import hgp_ref.data.images as archive_module
from hgp_ref.data.images import ARCHIVE, FOLDER_VARIABLE, download_emnist, emnist_byclass, read_idx

IMAGES = "emnist-byclass-train-images-idx3-ubyte.gz"
LABELS = "emnist-byclass-train-labels-idx1-ubyte.gz"


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


@pytest.fixture
def small(tmp_path):
    """A folder with five images and labels, the sums, and what they hold."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 62, 5, dtype=np.uint8)
    sums = {}
    for name, array in ((IMAGES, images), (LABELS, labels)):
        packed = gzip.compress(idx(array))
        (tmp_path / name).write_bytes(packed)
        sums[name] = hashlib.sha256(packed).hexdigest()
    return tmp_path, sums, images, labels


def test_reads_what_was_written(small, monkeypatch):
    folder, sums, images, labels = small
    data = emnist_byclass(folder, "train", sums=sums)
    assert np.array_equal(data.images, images) and np.array_equal(data.labels, labels)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    upright = emnist_byclass(split="train", upright=True, sums=sums)
    assert np.array_equal(upright.images, images.transpose(0, 2, 1))


def test_a_damaged_file_is_refused(small):
    folder, sums, _, labels = small
    (folder / LABELS).write_bytes(gzip.compress(idx(labels[::-1])))
    with pytest.raises(ValueError, match=f"{LABELS} must have SHA-256 .*, got"):
        emnist_byclass(folder, "train", sums=sums)


def test_a_file_without_a_known_sum_is_refused(small):
    with pytest.raises(
        ValueError, match="sums must contain the SHA-256 sum of emnist-byclass-train-images-idx3-ubyte.gz, got"
    ):
        emnist_byclass(small[0], "train")


def test_errors_of_missing_folder_and_file_name_the_source(small, tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match="nist.gov"):
        emnist_byclass()
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    with pytest.raises(FileNotFoundError, match="folder must name the files of EMNIST, got ''"):
        emnist_byclass()
    with pytest.raises(FileNotFoundError, match="folder must be a folder or an archive, got .*nowhere"):
        emnist_byclass(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="test-images.* is missing"):
        emnist_byclass(small[0], "test")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="train-images.* is missing"):  # which is asked before its sum
        emnist_byclass(tmp_path / "empty", "train")
    with pytest.raises(ValueError, match="split must be .*, got 'valid'"):
        emnist_byclass(small[0], "valid")


def test_labels_that_do_not_fit_are_refused(small):
    folder, sums, _, _ = small
    packed = gzip.compress(idx(np.zeros(4, dtype=np.uint8)))
    (folder / LABELS).write_bytes(packed)
    with pytest.raises(ValueError, match="must hold as many labels as images, got"):
        emnist_byclass(folder, "train", sums={**sums, LABELS: hashlib.sha256(packed).hexdigest()})


@pytest.fixture
def archive(small):
    """NIST's archive in small: a zip with a folder inside, and its sum."""
    folder, _, images, labels = small
    path = folder / "elsewhere" / ARCHIVE
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as packed:
        for name in (IMAGES, LABELS):
            packed.write(folder / name, f"gzip/{name}")
    return path, {ARCHIVE: hashlib.sha256(path.read_bytes()).hexdigest()}, images, labels


def test_the_archive_or_its_folder(archive):
    path, sums, images, labels = archive
    for place in (path, path.parent):
        data = emnist_byclass(place, "train", sums=sums)
        assert np.array_equal(data.images, images) and np.array_equal(data.labels, labels)
        assert (data.name, data.n_classes, data.split) == ("EMNIST byclass", 62, "train")
    with pytest.raises(FileNotFoundError, match="test-images.* is missing in .*gzip.zip"):
        emnist_byclass(path, sums=sums)


def test_a_damaged_archive_is_refused(archive):
    path, sums, _, _ = archive
    with pytest.raises(ValueError, match="gzip.zip must have SHA-256 .*, got"):
        emnist_byclass(path, "train")  # the sum of NIST's
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="gzip.zip must have SHA-256 .*, got"):
        emnist_byclass(path, "train", sums=sums)
    cut = {ARCHIVE: hashlib.sha256(path.read_bytes()).hexdigest()}
    with pytest.raises(ValueError, match="is not a readable zip archive"):
        emnist_byclass(path, "train", sums=cut)
    other = path.rename(path.with_name("other.zip"))
    with pytest.raises(ValueError, match="sums must contain the SHA-256 sum of other.zip, got"):
        emnist_byclass(other, "train", sums=sums)


@pytest.mark.parametrize(
    ("local", "central", "value"),
    [((b"PK\x03\x04", 6), (b"PK\x01\x02", 8), 1), ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10), 14)],
    ids=["encrypted", "packed by LZMA, which it is not"],
)
def test_an_archive_that_cannot_be_unpacked_is_named(local, central, value, archive):
    """A flag or a method in the headers of every entry that its bytes do not have."""
    path, raw = archive[0], bytearray(archive[0].read_bytes())
    for name, place in (local, central):
        at = raw.find(name)
        while at >= 0:
            raw[at + place] = value
            at = raw.find(name, at + 4)
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="gzip.zip is not a readable zip archive"):
        emnist_byclass(path, "train", sums={ARCHIVE: hashlib.sha256(raw).hexdigest()})


def test_a_download_is_complete_and_checked(archive, tmp_path, monkeypatch):
    path, sums, images, _ = archive
    target = tmp_path / "new" / "folder"
    downloaded = download_emnist(target, url=path.as_uri(), sums=sums)
    assert downloaded == target / ARCHIVE and downloaded.read_bytes() == path.read_bytes()
    assert np.array_equal(emnist_byclass(target, "train", sums=sums).images, images)

    def refuse(*args, **options):
        raise AssertionError("downloaded although it was there")

    monkeypatch.setattr(archive_module, "urlopen", refuse)
    assert download_emnist(target, url=path.as_uri(), sums=sums) == downloaded


def test_a_broken_download_leaves_nothing(archive, tmp_path, monkeypatch):
    path, sums, _, _ = archive
    target = tmp_path / "new"
    with pytest.raises(ValueError, match="must have SHA-256 .*, got .*: incomplete or another file"):
        download_emnist(target, url=path.as_uri())
    with pytest.raises(OSError, match="nowhere"):
        download_emnist(target, url=(path.parent / "nowhere.zip").as_uri(), sums=sums)
    assert list(target.iterdir()) == []


def test_steps_keep_name_and_classes(small):
    folder, sums, _, _ = small
    data = emnist_byclass(folder, "train", sums=sums)
    some = data.sample(3).shrunk(14)
    assert (some.name, some.n_classes, some.split) == ("EMNIST byclass", 62, "train")
    assert hgp.load(data.save(folder / "e.npz")) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x80\x04\x95\x00", "not an IDX file"),
        (b"\0\0\x0d\x01" + bytes(4), "not an IDX file"),
        (b"\0\0\x08\x03" + bytes(4), "ends inside its header"),
        (b"\0\0\x08\x01" + b"\0\0\0\x05" + bytes(4), "declares"),
        (b"\0\0\x08\x01" + b"\0\0\0\x03" + bytes(4), "declares"),
        (b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 3, "declares"),
        (b"\0\0\x08\x04" + bytes(4) + b"\xff" * 12, "data declares .* which no array has"),
        (b"\0\0\x08\xff" + b"\0\0\0\x01" * 255 + b"x", "data declares .* which no array has"),
    ],
)
def test_bad_idx(data, message):
    with pytest.raises(ValueError, match=message):
        read_idx(data)


@pytest.mark.skipif(FOLDER_VARIABLE not in os.environ, reason=f"{FOLDER_VARIABLE} names no folder of EMNIST")
def test_nists_files():
    data = emnist_byclass()
    assert data.images.shape == (116_323, 28, 28)
    assert np.unique(data.labels).size == 62


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"folder": None}, TypeError, "folder must be .*, got None"),
        ({"url": 3}, TypeError, "url must be .*, got 3"),
        ({"url": "gzip.zip"}, ValueError, "url must be an address such as .*, got 'gzip.zip'"),
        ({"sums": ["ab"]}, TypeError, r"sums must be a mapping of file names to SHA-256 sums, got \['ab'\]"),
        ({"sums": {}}, ValueError, r"sums must contain the SHA-256 sum of gzip.zip, got \[\]"),
        ({"sums": {ARCHIVE: 3}}, TypeError, r"sums\['gzip.zip'\] must be .*, got 3"),
    ],
)
def test_a_download_with_bad_arguments_is_not_begun(bad, error, message, tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "urlopen", None)
    good = {"folder": tmp_path / "new", "url": "file:///nowhere", "sums": {ARCHIVE: "00"}}
    with pytest.raises(error, match=message):
        download_emnist(**{**good, **bad})
    assert not (tmp_path / "new").exists()
