"""Ctrl-C ends the commands of `make reproduce` promptly, with every process that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reporting.workers import as_finished

ROOT = Path(__file__).parents[2]
PROMPT = 10.0  # seconds, on a machine with much else to do; a statement of the verification takes longer than that


# A shell's background jobs begin with SIGINT ignored, and so would what these tests start from there.
HEARING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def group(leader: int) -> list[int]:
    """Processes of the group that are alive, from /proc; zombies are not."""
    alive = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = status.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if int(process_group) == leader and state != "Z":
            alive.append(int(status.parent.name))
    return alive


def interrupted(command: list[str], ready, processes: int) -> tuple[int, str, float]:
    """The command's status, what it said, and how long it went on after SIGINT to all its processes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    run = subprocess.Popen([sys.executable, "-c", HEARING, *command], cwd=ROOT, env=environment, text=True,
                           start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        patience = time.monotonic() + 100
        while run.poll() is None and time.monotonic() < patience:
            if len(group(run.pid)) >= processes and ready():
                break
            time.sleep(0.05)
        assert run.poll() is None and time.monotonic() < patience, "it never came so far"
        sent = time.monotonic()
        os.killpg(run.pid, signal.SIGINT)
        said, _ = run.communicate(timeout=60)
        while group(run.pid) and time.monotonic() < sent + 60:  # a process that nobody waits for
            time.sleep(0.01)
        return run.returncode, said, time.monotonic() - sent
    finally:
        if group(run.pid):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


@needs_proc
@pytest.mark.parametrize("wait", [0.0, 4.0], ids=["while workers start", "while they work"])
def test_ctrl_c_ends_the_verification(wait, tmp_path):
    pytest.importorskip("latex2mathml")
    begun = []

    def ready():
        begun.append(time.monotonic())
        return begun[-1] - begun[0] >= wait

    # the parent, what multiprocessing keeps beside it, two workers
    command = ["-m", "verification", "--jobs", "2", "--out", str(tmp_path)]
    status, said, seconds = interrupted(command, ready, 4)
    assert status == 130 and "interrupted, nothing written" in said and seconds < PROMPT
    assert "Traceback" not in said and not list(tmp_path.iterdir())


@needs_proc
def test_ctrl_c_ends_the_figures(tmp_path):
    pytest.importorskip("matplotlib")
    command = ["-m", "figures", "all", "--variant", "both", "--out", str(tmp_path)]
    status, said, seconds = interrupted(command, lambda: any(tmp_path.rglob("*.parts/*.npz")), 1)
    assert status == 130 and "figures: interrupted" in said and seconds < PROMPT
    assert list(tmp_path.rglob("*.npz"))  # what is done is kept


def slow(seconds: float, answer: int) -> int:
    time.sleep(seconds)
    return answer


def failing() -> None:
    raise KeyError("of a worker")


def test_work_is_handed_over_as_it_finishes():
    found = list(as_finished(slow, [(1.5, 1), (0.0, 2)], 2))
    assert found == [((0.0, 2), 2), ((1.5, 1), 1)]


def hears_interrupts() -> bool:
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_workers_ignore_interrupts():
    """The process that started them ends them; one that heard Ctrl-C would print a traceback and go on."""
    assert hears_interrupts() and [heard for _, heard in as_finished(hears_interrupts, [(), ()], 2)] == [False, False]


def test_an_error_of_one_worker_ends_the_others():
    start = time.monotonic()
    with pytest.raises(KeyError, match="of a worker"):
        list(as_finished(_either, [(60.0,), (None,), (60.0,)], 2))
    assert time.monotonic() - start < 30


def _either(seconds: float | None) -> None:
    failing() if seconds is None else time.sleep(seconds)


def test_workers_end_when_the_results_are_closed():
    start = time.monotonic()
    results = as_finished(slow, [(0.0, 1), (60.0, 2), (60.0, 3)], 2)
    assert next(results) == ((0.0, 1), 1)
    results.close()
    assert time.monotonic() - start < 30
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) & {signal.SIGINT} == set()
