"""Files that are forged, cut, swapped or linked: a result, or one kind of error with the path."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.attribution import Scores
from hgp_ref.mixing import Traffic
from hgp_ref.results import npz_bytes

ROOT = Path(__file__).parents[1]


def estimate():
    problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    return hgp.hypergradient(problem, np.ones((3, 4)), np.zeros((3, 2)), hgp.ExactAverage(3), eta=1.0, iterations=30)


def entries(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, parts, **options):
    """The file anew, of these entries."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def refused(path):
    with pytest.raises(ValueError) as caught:
        hgp.load(path)
    assert type(caught.value) is ValueError and str(caught.value).startswith(f"{path} cannot be read: ")
    return str(caught.value)


def measured(call):
    """Peak of traced memory and the time that a call takes."""
    tracemalloc.start()
    started = time.perf_counter()
    try:
        call()
        return tracemalloc.get_traced_memory()[1], time.perf_counter() - started
    finally:
        tracemalloc.stop()


def test_entries_that_the_result_does_not_name_are_not_read(tmp_path):
    path = estimate().save(tmp_path / "e.npz")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("unrelated.npy", bytes(200 * 2**20))
        archive.writestr("note.txt", b"\xff\xfe no text")
    peak, _ = measured(lambda: hgp.load(path))
    assert peak < 8 * 2**20 and hgp.load(path) == estimate()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_entry_is_refused_before_it_grows(tmp_path, method):
    path = estimate().save(tmp_path / "e.npz")
    parts = entries(path)
    parts["w.npy"] = parts["w.npy"][:128] + bytes(100 * 2**20)
    rewritten(path, parts, compression=method)
    assert path.stat().st_size < 10**6
    peak, _ = measured(lambda: refused(path))
    assert peak < 8 * 2**20 and "compressed or encrypted" in refused(path)


def test_a_record_that_is_compressed_is_refused_before_it_grows(tmp_path):
    path = rewritten(tmp_path / "e.npz", {"result.json": b" " * (100 * 2**20)}, compression=zipfile.ZIP_DEFLATED)
    peak, _ = measured(lambda: refused(path))
    assert peak < 8 * 2**20


def header(shape, dtype="<f8", version=1, text=None):
    """The beginning of a .npy file."""
    text = text or repr({"descr": dtype, "fortran_order": False, "shape": shape}) + "\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        header((10**12,)),
        header((10**12,)) + bytes(64),
        header((2**62, 2**62)),
        header((-3, -4)) + bytes(96),
        header((3, 4)) + bytes(88),
        header((3, 4)) + bytes(104),
        header((10**9,), "|V0"),
        header((10**9,), "<U0"),
        header((3, 4), "|O") + bytes(96),
        header((3, 4), [("a", "|O")]) + bytes(96),
        header((3, 4), [("a", "<f8")]) + bytes(96),
        header((3, 4), version=3) + bytes(96),
        header((3, 4), version=9) + bytes(96),
        header(0, text="(" * 9000),
        header(0, text="[" * 5000 + "]" * 5000),
        header(0, text="{'descr': '<f8'}"),
        header(0, text="{" + " " * 100_000 + "}", version=2),
        header("abc"),
        header((3, 4), "no dtype"),
        header((2.5, 4)) + bytes(80),
        header((True, 12)) + bytes(96),
        b"\x93NUMPY",
        b"",
        b"\x93NUMPY\x01\x00\xff\xff",
    ],
)
def test_an_array_that_does_not_fit_its_header_is_refused_at_once(tmp_path, data):
    path = estimate().save(tmp_path / "e.npz")
    parts = entries(path)
    parts["w.npy"] = data
    rewritten(path, parts)
    peak, spent = measured(lambda: refused(path))
    assert peak < 8 * 2**20 and spent < 5


def test_a_size_that_lies_is_refused(tmp_path):
    """The central directory says more than there is, and entries that share the same bytes many times over."""
    path = estimate().save(tmp_path / "e.npz")
    whole = bytearray(path.read_bytes())
    at = whole.index(b"PK\x01\x02")
    for offset in (20, 24):  # compressed and uncompressed size of the first entry
        whole[at + offset : at + offset + 4] = (0x7FFFFFF0).to_bytes(4, "little")
    path.write_bytes(whole)
    assert "more than the file can hold" in refused(path)


def test_a_sparse_file_is_not_read_into_memory(tmp_path):
    path = tmp_path / "large.npz"
    with open(path, "wb") as file:
        file.truncate(2**41)
        file.seek(2**41)
        file.write(npz_bytes({}))
    peak, spent = measured(lambda: refused(path))
    assert peak < 8 * 2**20 and spent < 5
    assert "it has 2048.0 GiB, but this process may use only" in refused(path)


RECORDS = {
    "nested lists": '{"format": "hgp_ref result", "version": 1, "a": ' + "[" * 10**5 + "]" * 10**5 + "}",
    "nested objects": '{"format": "hgp_ref result", "version": 1, "result": '
    + '{"list": [' * 10**5
    + "1"
    + "]}" * 10**5
    + "}",
    "a long number": '{"format": "hgp_ref result", "version": 1, "a": ' + "1" * 10**5 + "}",
    "NaN": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": NaN, "f1": 1, "spearman": 1}}',
    "text": '"text"',
    "a list": "[]",
    "nothing": "",
    "no JSON": "{",
    "no UTF-8": b"\xff\xfe\xff",
    "no class": '{"format": "hgp_ref result", "version": 1}',
    "an unhashable class": '{"format": "hgp_ref result", "version": 1, "result": [], "fields": {}}',
    "fields of another kind": '{"format": "hgp_ref result", "version": 1, "result": "Scores", "fields": []}',
    "fields without keys": '{"format": "hgp_ref result", "version": 1, "result": "Scores"}',
    "an unhashable key": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": {"dict": [[{"list": []}, 1]]}, "f1": 1, "spearman": 1}}',
    "a float that is none": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": {"float": "1e999"}, "f1": 1, "spearman": 1}}',
    "a bare list": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": [1], "f1": 1, "spearman": 1}}',
    "a description that is none": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": {"described": 3}, "f1": 1, "spearman": 1}}',
    "two kinds": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": {"list": [], "tuple": []}, "f1": 1, "spearman": 1}}',
    "an array of no name": '{"format": "hgp_ref result", "version": 1, "result": "Scores", '
    '"fields": {"r2": {"array": [], "shape": [], "dtype": ""}, "f1": 1, "spearman": 1}}',
    "another version": '{"format": "hgp_ref result", "version": "1", "result": "Scores", "fields": {}}',
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_makes_no_sense_is_refused(tmp_path, name):
    refused(rewritten(tmp_path / "r.npz", {"result.json": RECORDS[name]}))


def test_an_encrypted_entry_is_refused(tmp_path):
    path = Scores(1.0, 1.0, 1.0).save(tmp_path / "s.npz")
    whole = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = whole.index(mark) + offset
        whole[at] |= 1
    path.write_bytes(whole)
    assert "compressed or encrypted" in refused(path)


ALARM = """
import signal, sys
signal.alarm(20)
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
import hgp_ref as hgp
try:
    hgp.load(sys.argv[1])
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["fifo", "zero", "null", "socket", "directory"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "special"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        path.symlink_to(f"/dev/{kind}")
    done = subprocess.run([sys.executable, "-c", ALARM, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{path} cannot be read: it is not a regular file"


def test_a_file_that_is_missing_or_private_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        hgp.load(tmp_path / "absent.npz")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError):
        hgp.load(tmp_path / "loop")
    with pytest.raises(ValueError, match=r"cannot be read: embedded null"):
        hgp.load("a\0b")
    private = Scores(1.0, 1.0, 1.0).save(tmp_path / "private.npz")
    private.chmod(0)
    if os.geteuid():
        with pytest.raises(PermissionError):
            hgp.load(private)


def test_every_byte_of_an_estimate_may_be_damaged(tmp_path):
    """All of them flipped, one by one: the same estimate, or ValueError with the path."""
    path, whole = tmp_path / "t.npz", Traffic(1, 2, np.arange(3), 4).save(tmp_path / "t.npz").read_bytes()
    for mask in (0x01, 0x10, 0x80, 0xFF):
        for position in range(len(whole)):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ mask]) + whole[position + 1 :])
            try:
                back = hgp.load(path)
            except ValueError as error:
                assert str(path) in str(error)
            else:  # a byte that carries nothing, such as a time
                assert back == Traffic(1, 2, np.arange(3), 4)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path)


@pytest.mark.parametrize("length", [1, 100, 249, 255])
def test_names_as_long_as_the_system_allows_are_written(tmp_path, length):
    path = tmp_path / ("n" * length)
    assert hgp.load(Scores(1.0, 1.0, 1.0).save(path)) == Scores(1.0, 1.0, 1.0)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        Scores(1.0, 1.0, 1.0).save(tmp_path / ("n" * 256))


def test_names_of_many_bytes_a_character_are_written(tmp_path):
    path = tmp_path / ("\U0001f600" * 63)  # 252 bytes
    assert hgp.load(Scores(1.0, 1.0, 1.0).save(path)) == Scores(1.0, 1.0, 1.0)


def test_a_checkpoint_of_a_long_name_is_written(tmp_path):
    problem, lam = hgp.problems.Quadratic.random(3, 4, 2, seed=0), np.zeros((3, 2))
    net, file = hgp.networks.FullyConnected(3), tmp_path / ("n" * 249)
    given = dict(train=hgp.training.SGP(20, 0.5), estimate=hgp.bilevel.Estimator(1, 20, eta=1.0), file=file)
    hgp.bilevel.optimise(problem, lam, net, outer_steps=1, **given)
    assert len(hgp.bilevel.optimise(problem, lam, net, outer_steps=2, **given).lam) == 3


WRITER = """
import sys, numpy as np, hgp_ref as hgp
from hgp_ref.mixing import Traffic
number = int(sys.argv[2])
print("ready", flush=True)
for k in range(int(sys.argv[3])):
    Traffic(number, k, np.full(20_000, number), 0).save(sys.argv[1])
"""


def writer(path, number, times):
    code = textwrap.dedent(WRITER)
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(number), str(times)], cwd=ROOT, stdout=subprocess.PIPE
    )
    with run.stdout:
        run.stdout.readline()
    return run


def test_two_writers_of_one_file_leave_a_complete_file(tmp_path):
    path = tmp_path / "t.npz"
    runs = [writer(path, number, 60) for number in (1, 2)]
    while any(run.poll() is None for run in runs):
        if path.exists():
            seen = hgp.load(path)
            assert (seen.bytes == seen.messages).all()
    assert [run.wait() for run in runs] == [0, 0] and [p.name for p in tmp_path.iterdir()] == ["t.npz"]


def test_a_writer_that_is_killed_leaves_a_complete_file(tmp_path):
    path, rng = Traffic(7, 0, np.full(20_000, 7), 0).save(tmp_path / "t.npz"), np.random.default_rng(0)
    for number in range(4):
        run = writer(path, number, 10**6)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        seen = hgp.load(path)
        assert (seen.bytes == seen.messages).all()


def test_files_rewritten_by_another_tool_are_read(tmp_path):
    """np.savez writes entries as they are, with other times and version flags."""
    path, copy = estimate().save(tmp_path / "e.npz"), tmp_path / "copy.npz"
    parts = entries(path)
    arrays = {
        name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(data))
        for name, data in parts.items()
        if name.endswith(".npy")
    }
    np.savez(copy, **arrays)
    with zipfile.ZipFile(copy, "a") as archive:
        archive.writestr("result.json", json.dumps(json.loads(parts["result.json"])))
    assert hgp.load(copy) == estimate()
    arrays["w"] = np.asfortranarray(arrays["w"])
    np.savez(copy, **arrays)
    with zipfile.ZipFile(copy, "a") as archive:
        archive.writestr("result.json", parts["result.json"])
    assert hgp.load(copy) == estimate() and hgp.load(copy).w.flags.writeable
