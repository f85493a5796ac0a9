"""The array libraries of the test suite as one fixture, and a note on whether CuPy was used."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two cores, many tests: libraries do not fight for them
os.environ.setdefault("NUMBA_NUM_THREADS", "4")  # so that tests may ask for up to four threads on any machine

import hypothesis
import numba
import pytest
from support import strict_on_numpy1
from support.device_counters import DeviceCounters
from support.libraries import JAX_SLOW, USES_CUPY, open_library

strict_on_numpy1.repair()

TESTS = Path(__file__).parent

numba.set_num_threads(min(2, os.cpu_count() or 1))

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

if USES_CUPY and os.environ.get("RIG_GUARD") == "1":  # without CuPy's pool, which rounds sizes up to 512 bytes
    importlib.import_module("cupy").cuda.set_allocator(None)

# Files that take long beside their number of tests. Workers begin with them and share out the short ones at the end.
LONG_FILES = (
    "verification/test_verification_command.py",
    "figures/test_figures.py",
    "fuzz/test_fuzz.py",
    "figures/test_personalization.py",
    "figures/test_cnn.py",
    "benchmarks/test_benchmarks.py",
    "attribution/test_influence_neural.py",
    "reporting/test_interrupts.py",
)


def pytest_configure(config):
    config.option.loadscopereorder = False  # xdist's own order: files with most tests first


@pytest.fixture(params=JAX_SLOW, scope="session")
def xp(request):
    """A `Library` for each importable array library: name, xp, device, asarray(host, dtype), to_numpy(x)."""
    return open_library(request.param)


@pytest.fixture
def counted():
    """Counters of launches and transfers on the device, at zero."""
    return DeviceCounters(pytest.importorskip("cupy_on_cpu", reason="launches and transfers are counted on the rig"))


def pytest_collection_modifyitems(items):
    """Tests of CuPy are marked: those with "cupy" among their parameters, and those that count on the device."""
    first = [TESTS / name for name in LONG_FILES]
    items.sort(key=lambda item: first.index(item.path) if item.path in first else len(first))
    skip = pytest.mark.skip(reason="CuPy not exercised: make test-cupy runs it on the CPU")
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        values = [part for value in parameters for part in (value if isinstance(value, tuple) else (value,))]
        if any(isinstance(v, str) and v == "cupy" for v in values) or "counted" in item.fixturenames:
            item.add_marker(pytest.mark.cupy)
        if not USES_CUPY and item.get_closest_marker("cupy"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    if not USES_CUPY:
        terminalreporter.write_line("CuPy not exercised: make test-cupy runs it on the CPU")
