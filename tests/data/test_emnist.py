"""The EMNIST loader on small files written here, and on NIST's files where HGP_REF_EMNIST names their folder."""

from __future__ import annotations

import gzip
import hashlib
import os

import numpy as np
import pytest

from hgp_ref.data.emnist import FOLDER_VARIABLE, emnist_byclass, read_idx

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
    with pytest.raises(ValueError, match=f"{LABELS} has SHA-256"):
        emnist_byclass(folder, "train", sums=sums)


def test_a_file_without_a_known_sum_is_refused(small):
    with pytest.raises(ValueError, match="no SHA-256 sum is known"):
        emnist_byclass(small[0], "train")


def test_missing_folder_and_file_say_where_to_get_it(small, tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match="nist.gov"):
        emnist_byclass()
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        emnist_byclass(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="test-images.* is missing"):
        emnist_byclass(small[0], "test")
    with pytest.raises(ValueError, match="split='valid'"):
        emnist_byclass(small[0], "valid")


def test_labels_that_do_not_fit_are_refused(small):
    folder, sums, _, _ = small
    packed = gzip.compress(idx(np.zeros(4, dtype=np.uint8)))
    (folder / LABELS).write_bytes(packed)
    with pytest.raises(ValueError, match="do not fit together"):
        emnist_byclass(folder, "train", sums={**sums, LABELS: hashlib.sha256(packed).hexdigest()})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x80\x04\x95\x00", "not an IDX file"),
        (b"\0\0\x0d\x01" + bytes(4), "not an IDX file"),
        (b"\0\0\x08\x03" + bytes(4), "ends inside its header"),
        (b"\0\0\x08\x01" + b"\0\0\0\x05" + bytes(4), "announces"),
        (b"\0\0\x08\x01" + b"\0\0\0\x03" + bytes(4), "announces"),
        (b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 3, "announces"),
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
