"""Results are compared by value, and are the same after saving and loading."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from support.examples import logistic
from support.libraries import LIBRARIES, open_library

import hgp_ref as hgp
from hgp_ref import results
from hgp_ref.attribution import retrain
from hgp_ref.attribution.prediction import Influence
from hgp_ref.mixing import Traffic
from hgp_ref.results import Described, Result, npz_bytes, read_npz, write_whole


@dataclass(frozen=True)
class Inner(Result):
    __module__ = "hgp_ref.results"  # a result of the package, as far as `load` can see
    count: Any = 0


@dataclass(frozen=True)
class Outer(Result):
    __module__ = "hgp_ref.results"
    value: Any
    inner: Any = None
    names: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Foreign(Result):
    value: Any


@pytest.fixture(scope="module", autouse=True)
def planted():
    """Takes the planted classes away when these tests are done."""
    yield
    for kind in (Inner, Outer):
        results._CLASSES.pop(kind.__name__)


def there_and_back(value, tmp_path):
    return hgp.load(Outer(value).save(tmp_path / "result.npz")).value


NAN = float("nan")
VALUES = [
    None,
    True,
    3,
    -(10**40),
    0.1,
    5e-324,
    -0.0,
    NAN,
    float("inf"),
    -float("inf"),
    "ü \0 \ud800 text",
    (),
    (1, (2.5, None), [NAN]),
    [[], ()],
    {"a": 1, 2: NAN, (0, 1): np.arange(2)},
    {"a.b": np.arange(2), "a": {"b": np.arange(3)}},
    np.arange(6.0).reshape(2, 3).T,
    np.array([np.nan, np.inf, -0.0], dtype=np.float32),
    np.array([], dtype=np.int8),
    np.array(True),
    np.array(["a", "bc"]),
    np.array([1 + 2j]),
    np.array([1.0], dtype=">f8"),
    np.float32(0.1),
    np.int64(7),
    np.bool_(False),
    Inner(np.array([1, 2])),
    Described("PushSum(…)"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_comes_back_is_what_was_saved(value, tmp_path):
    back = there_and_back(value, tmp_path)
    assert type(back) is type(value)
    assert Outer(back) == Outer(value) and not Outer(back) != Outer(value)
    assert hash(Outer(back)) == hash(Outer(value))
    assert repr(back) == repr(value)  # also the sign of zero and the kind of NumPy's scalars


def test_different_values_are_unequal_in_both_directions():
    for i, j in itertools.permutations(range(len(VALUES)), 2):
        assert Outer(VALUES[i]) != Outer(VALUES[j]), (VALUES[i], VALUES[j])


@settings(max_examples=50)
@given(data=st.data())
def test_any_array_comes_back_bit_for_bit(data, tmp_path_factory):
    kinds = st.one_of(
        arrays_of.floating_dtypes(endianness="<", sizes=(16, 32, 64)), arrays_of.integer_dtypes(endianness="<")
    )
    array = data.draw(arrays_of.arrays(kinds, arrays_of.array_shapes(min_dims=0, min_side=0)))
    back = there_and_back(array, tmp_path_factory.mktemp("bits"))
    assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        np.array([1.0, np.nan]),
        np.array([1.0, 2.0], dtype=np.float32),
        np.array([[1.0, 2.0]]),
        np.array([1, 2]),
        np.array([1.0, 2.0, 3.0]),
        [1.0, 2.0],
        None,
        1.0,
    ],
    ids=repr,
)
def test_arrays_differ_by_entry_dtype_shape_and_kind(other):
    assert Outer(np.array([1.0, 2.0])) != Outer(other)
    assert Outer(other) == Outer(np.copy(other) if isinstance(other, np.ndarray) else other)


def test_objects_of_other_classes_are_unequal():
    assert Inner(1) != Outer(1) and Inner(1) != 1 and (Inner(1) == None) is False  # noqa: E711
    assert Outer(Inner(1)) != Outer(Outer(1)) and Outer(Inner(np.ones(2))) == Outer(Inner(np.ones(2)))
    assert len({Inner(1), Inner(1.0), Inner(NAN), Inner(NAN), Outer(np.ones(2)), Outer(np.zeros(2))}) == 4


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_library_is_compared_and_kept_as_host_arrays(name, tmp_path):
    lib = open_library(name)
    numbers = np.array([[1.0, np.nan], [np.inf, -0.0]], dtype=np.float32)
    result = Outer(lib.asarray(numbers), (Inner(lib.asarray(np.arange(3))),))
    assert result == Outer(lib.asarray(numbers), (Inner(lib.asarray(np.arange(3))),))
    assert result == Outer(numbers, (Inner(np.arange(3)),)) and hash(result) == hash(
        Outer(numbers, (Inner(np.arange(3)),))
    )
    assert result != Outer(lib.asarray(numbers + 1), result.inner)
    back = hgp.load(result.save(tmp_path / "r.npz"))
    assert back == result and isinstance(back.value, np.ndarray) and isinstance(back.inner[0].count, np.ndarray)
    with zipfile.ZipFile(tmp_path / "r.npz") as archive:
        record = json.loads(archive.read("result.json"))
    assert record["fields"]["value"]["library"] in name and record["fields"]["value"]["dtype"] == "float32"


def test_arrays_with_a_gradient_are_compared():
    torch = pytest.importorskip("torch")
    a = torch.ones(2, requires_grad=True)
    assert Outer(a) == Outer(torch.ones(2)) and Outer(a) != Outer(torch.zeros(2))
    b = torch.ones(2, dtype=torch.bfloat16)
    assert Outer(b) == Outer(torch.ones(2, dtype=torch.bfloat16)) != Outer(torch.ones(2))


def test_bfloat16_is_refused_at_saving(tmp_path):
    torch = pytest.importorskip("torch")
    with pytest.raises(
        TypeError, match="^value must have a dtype of NumPy's numbers or text to be saved, got torch.bfloat16$"
    ):
        Outer(torch.ones(2, dtype=torch.bfloat16)).save(tmp_path / "r.npz")


def test_averagings_and_networks_come_back_as_what_they_were(tmp_path):
    avg = hgp.PushSum(hgp.networks.RandomDirected(n=3, low=0.4, high=0.8, seed=5), steps=4)
    result = Outer([avg, hgp.ExactAverage(3)], hgp.networks.FullyConnected(3))
    back = hgp.load(result.save(tmp_path / "r.npz"))
    assert repr(back.value) == repr(result.value) and repr(back.inner) == "FullyConnected(n=3)"
    assert all(isinstance(v, Described) for v in [*back.value, back.inner])
    assert back == result == hgp.load(back.save(tmp_path / "again.npz"))
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "r.npz").read_bytes()


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", 1j, print, np.array([None]), np.zeros(1, dtype="i4,f8")], ids=repr)
def test_what_cannot_come_back_is_refused_with_the_field(value, tmp_path):
    with pytest.raises(TypeError, match=r"^inner\.1 must "):
        Outer(0, (0, value)).save(tmp_path / "r.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_dataclass_with_arrays_that_is_no_result_is_refused(tmp_path):
    @dataclass(frozen=True)
    class Settings:
        step: Any

    assert repr(there_and_back(Settings(2), tmp_path)).endswith("Settings(step=2)")
    with pytest.raises(TypeError, match="^value cannot be saved: Settings has arrays but does not inherit Result$"):
        Outer(Settings(np.ones(2))).save(tmp_path / "r.npz")


def test_a_class_outside_of_the_package_is_compared_but_not_saved(tmp_path):
    assert Foreign(np.ones(2)) == Foreign(np.ones(2))
    with pytest.raises(
        TypeError, match="^the result must be a dataclass of hgp_ref that inherits Result, got Foreign$"
    ):
        Foreign(1).save(tmp_path / "r.npz")


def test_two_results_of_one_name_are_refused():
    with pytest.raises(TypeError, match="two results called Inner"):
        type("Inner", (Result,), {"__module__": "hgp_ref.elsewhere"})


def tampered(path, change):
    """The file at `path` with its record changed by `change(record)`."""
    arrays, texts = read_npz(path)
    record = json.loads(texts["result.json"])
    change(record)
    write_whole(path, npz_bytes(arrays, {"result.json": json.dumps(record)}))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(result="Popen"), "class 'Popen' is not a result of this hgp_ref"),
        (lambda r: r.update(result="subprocess.Popen"), "class 'subprocess.Popen' is not a result"),
        (lambda r: r["fields"].update(later=1), "Outer has a field 'later' that this hgp_ref does not know"),
        (lambda r: r["fields"].pop("value"), "Outer lacks the field 'value', which has no default"),
        (lambda r: r.update(version=2), "format version 2, this hgp_ref reads version 1"),
        (lambda r: r.update(format="other"), "not a result saved by hgp_ref: format 'other'"),
        (lambda r: r.pop("format"), "not a result saved by hgp_ref"),
        (lambda r: r["fields"]["value"].update(array="absent"), "damaged.*absent"),
        (lambda r: r["fields"]["value"].update(shape=[5]), r"array value is float64 \(2,\), result.json says"),
        (lambda r: r["fields"]["value"].update(dtype="int64"), r"array value is float64 \(2,\), result.json says"),
        (lambda r: r["fields"].update(inner={"eval": "1"}), "damaged.*eval"),
    ],
)
def test_a_changed_record_is_refused(change, message, tmp_path):
    path = Outer(np.ones(2)).save(tmp_path / "r.npz")
    with pytest.raises(ValueError, match=message) as caught:
        hgp.load(tampered(path, change))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["Estimate", "Fit", "Certificate"])
def test_fields_of_the_wrong_type_are_refused(name, tmp_path):
    """A file edited by hand: null, text or a list in place of any field that may not be that."""
    problem, x, lam = logistic()
    estimate = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=3)
    result = {
        "Estimate": lambda: estimate,
        "Fit": lambda: hgp.sgp(problem, lam, hgp.networks.FullyConnected(3), 5, 0.1),
        "Certificate": lambda: hgp.certify(problem, x, lam, estimate),
    }[name]()
    path, refused = result.save(tmp_path / "r.npz"), set()
    for key, wrong in itertools.product(vars(result), (None, "text", {"list": []}, True, 1.5, {"dict": []})):
        copy = tampered(result.save(tmp_path / "copy.npz"), lambda r, k=key, w=wrong: r["fields"].update({k: w}))
        try:
            hgp.load(copy)
        except ValueError as error:
            assert re.search(rf"copy.npz cannot be read: {name}.{key} must be of type .+, got .+", str(error))
            refused.add((key, repr(wrong)))
    assert {("traffic", "None"), ("traffic", "True")} <= refused or name == "Certificate"
    always = {key for key in vars(result) if {(key, "'text'"), (key, "{'dict': []}")} <= refused}
    assert len(always) > len(vars(result)) / 2
    assert hgp.load(path) == result


@pytest.mark.parametrize("wrong", [None, True, "3"], ids=repr)
def test_counts_of_traffic_are_numbers(wrong, tmp_path):
    path = tampered(Traffic(1, 2, 3, 4).save(tmp_path / "t.npz"), lambda r: r["fields"].update(messages=wrong))
    with pytest.raises(ValueError, match=rf"Traffic\.messages must be of type Numbers, got {wrong!r}"):
        hgp.load(path)


def test_a_field_added_since_takes_its_default(tmp_path):
    path = tampered(Outer(1, 2, {"a": 3}).save(tmp_path / "r.npz"), lambda r: r["fields"].pop("names"))
    assert hgp.load(path) == Outer(1, 2)


def test_a_file_cut_short_or_damaged_is_refused_at_every_byte(tmp_path):
    path = Outer(np.arange(3.0), "text").save(tmp_path / "r.npz")
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="r.npz"):
            hgp.load(path)
    for position in range(0, len(whole), 5):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        try:
            back = hgp.load(path)
        except ValueError as error:
            assert "r.npz" in str(error)
        else:  # a byte that carries nothing, such as a time
            assert back == Outer(np.arange(3.0), "text")


@pytest.mark.parametrize(
    "content", [b"", b"not a zip", npz_bytes({"a": np.ones(2)}), npz_bytes({}, {"result.json": "3"})]
)
def test_a_foreign_file_is_refused(content, tmp_path):
    (tmp_path / "other.npz").write_bytes(content)
    with pytest.raises(ValueError, match="other.npz"):
        hgp.load(tmp_path / "other.npz")


def test_objects_in_a_file_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "bad.npz", value=np.array([print], dtype=object))
    fields = {"value": {"array": "value", "library": "numpy", "dtype": "object", "shape": [1]}}
    record = {"format": "hgp_ref result", "version": 1, "result": "Outer", "fields": fields}
    with zipfile.ZipFile(tmp_path / "bad.npz", "a") as archive:
        archive.writestr("result.json", json.dumps(record))
    with pytest.raises(ValueError, match="bad.npz cannot be read.*pickle|bad.npz.*allow_pickle"):
        hgp.load(tmp_path / "bad.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = Outer(1).save(tmp_path / "r.npz")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Outer(2).save(path)
    assert hgp.load(path) == Outer(1) and [p.name for p in tmp_path.iterdir()] == ["r.npz"]


def test_retraining_and_scores_survive(tmp_path):
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(2, 2, 3, 2))
    y, y_val = rng.integers(0, 2, (2, 2, 3))
    problem = hgp.problems.InstanceWeights(X, y, X_val, y_val, l2=1.0)
    retraining = retrain(problem, np.ones((2, 3)), (((0, 1),), ((1, 0), (1, 2))))
    assert hgp.load(retraining.save(tmp_path / "r.npz")) == retraining
    scores = hgp.attribution.scores(retraining.actual, retraining.actual)
    assert hgp.load(scores.save(tmp_path / "s.npz")) == scores
    estimate = hgp.hypergradient(problem, np.ones((2, 2)), np.ones((2, 3)), hgp.ExactAverage(2), eta=0.1, iterations=2)
    influence = Influence(rng.normal(size=(2, 3)), np.array([3, 3]), estimate)
    back = hgp.load(influence.save(tmp_path / "i.npz"))
    assert back == influence != replace(influence, counts=np.array([3, 2]))
    assert back.most_influential(2) == influence.most_influential(2)


def test_data_of_clients_survive(tmp_path):
    mixture = hgp.data.synthetic_mixture(seed=3)
    assert mixture == hgp.data.synthetic_mixture(seed=3) == hgp.load(mixture.save(tmp_path / "m.npz"))
    assert mixture != hgp.data.synthetic_mixture(seed=4)
    parts = [[np.ones((k, 2)) for k in (1, 3)], [np.ones(k) for k in (1, 3)]] * 2
    clients = hgp.data.Clients(*parts, n_classes=2, name="two clients")
    assert hgp.load(clients.save(tmp_path / "c.npz")) == clients


def test_an_estimate_is_read_in_a_process_that_has_not_used_it(tmp_path):
    problem, x, lam = logistic()
    run = [hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=1.0, iterations=3) for _ in range(2)]
    assert run[0] == run[1] == hgp.load(run[0].save(tmp_path / "e.npz"))
    code = f"import hgp_ref as hgp; print(hgp.load({str(tmp_path / 'e.npz')!r}).traffic)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == repr(run[0].traffic)


def test_a_result_is_read_in_a_process_that_has_not_used_its_part(tmp_path):
    path = hgp.attribution.Scores(0.5, NAN, 1.0).save(tmp_path / "s.npz")
    code = f"import hgp_ref as hgp; print(hgp.load({str(path)!r}))"
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True).strip()
        == "R² 0.5, F1 undefined (no change is negative, actual or predicted), Spearman 1"
    )


def test_a_file_is_as_private_as_the_umask_says_and_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target.npz", tmp_path / "link.npz"
    link.symlink_to(target)
    before = os.umask(0o077)
    try:
        Traffic(1, 2, 3, 4).save(link)
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert hgp.load(target) == Traffic(1, 2, 3, 4)
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_replaced_by_one(tmp_path, make):
    path = tmp_path / "special"
    make(path)
    kind = path.stat().st_mode
    with pytest.raises(OSError, match="not a regular file"):
        Traffic(1, 2, 3, 4).save(path)
    assert path.stat().st_mode == kind
    assert list(tmp_path.iterdir()) == [path]
