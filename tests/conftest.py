"""The array libraries of the test suite as one fixture, and a note on whether CuPy was used."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two cores, many tests: libraries do not fight for them
os.environ.setdefault("NUMBA_NUM_THREADS", "4")  # so that tests may ask for up to four threads on any machine

REAL_CUPY = os.environ.get("HGP_REF_TEST_CUPY") == "1"

if not REAL_CUPY:  # before anything imports array_api_compat's wrapper of CuPy
    from support import device_double

    device_double.install()

import hypothesis  # noqa: E402
import numba  # noqa: E402
import pytest  # noqa: E402
from support import strict_on_numpy1  # noqa: E402
from support.libraries import LIBRARIES, open_library  # noqa: E402

strict_on_numpy1.repair()

numba.set_num_threads(min(2, os.cpu_count() or 1))

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(params=LIBRARIES, scope="session")
def xp(request):
    """A `Library` for each importable array library: name, xp, device, asarray(host, dtype), to_numpy(x)."""
    return open_library(request.param)


@pytest.fixture
def transfers():
    """The double's count of transfers, at zero."""
    if REAL_CUPY:
        pytest.skip("transfers are counted by the device double only")
    device_double.transfers.reset()
    return device_double.transfers


def pytest_terminal_summary(terminalreporter):
    if not REAL_CUPY:
        terminalreporter.write_line("CuPy not exercised: a device double stood in for it")
