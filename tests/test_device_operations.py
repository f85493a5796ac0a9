"""Operations that a run launches on the device, per iteration: what an iteration costs where arrays are small.

The device double counts, whichever class of the package does the work. Two lengths of the same run are compared, so
that what is done once, or once for each of its chunks of graphs, falls out.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import REAL_CUPY
from support.device_double import operations
from support.four_clients import NET, PROBLEMS, point
from support.libraries import CUPY, open_library

import hgp_ref as hgp

pytestmark = pytest.mark.skipif(REAL_CUPY, reason="operations are counted by the device double only")

SHORT, LONG = 64, 128  # as many chunks of graphs in both
LINEAR = ["logistic", "softmax", "weights"]

# Most operations of an iteration. Full batch: Θ̂ u, η ū, w + η ū, H ū, η H ū, ū − η H ū, where H of so few features is
# kept as a matrix. Mini-batches and training: as measured. Linearizing twice an iteration, with batches checked and
# masks made anew on the device each time, is most of it; 30 for every problem is what is to come, once batches are
# checked on the host where they are drawn.
FULL_BATCH = 5
MINI_BATCH = {"logistic": 30, "softmax": 30, "weights": 30}
SGP = {"quadratic": 8, "logistic": 21, "softmax": 19, "weights": 22}
SGP_MINI_BATCH = {"logistic": 23, "softmax": 21, "weights": 25}


def launched(run) -> int:
    """How many operations `run()` launches."""
    operations.reset()
    run()
    return operations.number


def per_step(run) -> float:
    """Operations of `run(length)` for each unit of its length."""
    run(2)  # what is kept from the first use of a problem is not an iteration's
    few, many = (launched(lambda length=length: run(length)) for length in (SHORT, LONG))
    return (many - few) / (LONG - SHORT)


def there(name):
    """A problem on the device, with x and lam beside it."""
    lib, host = open_library(CUPY), PROBLEMS[name]()
    return host.to(lib.backend), *(lib.asarray(a) for a in point(host))


def hgp_iteration(name, batch_size=None) -> float:
    problem, x, lam = there(name)
    avg = hgp.PushSum(NET, 3, mode="composed")
    options = {"eta": 0.3, "batches": batch_size}
    return per_step(lambda M: hgp.hypergradient(problem, x, lam, avg, iterations=M, **options))


def sgp_step(name, batch_size=None) -> float:
    problem, _, lam = there(name)
    options = {"lr": 0.1, "milestones": (), "batches": batch_size}
    return per_step(lambda steps: hgp.sgp(problem, lam, NET, steps=steps, **options))


@pytest.mark.parametrize("name", ["quadratic", *LINEAR])
def test_full_batch_iterations_launch_few_operations(name):
    assert 0 < hgp_iteration(name) <= FULL_BATCH


@pytest.mark.parametrize("name", LINEAR)
def test_mini_batch_iterations_launch_few_operations(name):
    assert FULL_BATCH < hgp_iteration(name, batch_size=3) <= MINI_BATCH[name]


@pytest.mark.parametrize("name", ["quadratic", *LINEAR])
def test_training_steps_launch_few_operations(name):
    assert 0 < sgp_step(name) <= SGP[name]


@pytest.mark.parametrize("name", LINEAR)
def test_training_steps_on_mini_batches_launch_few_operations(name):
    assert SGP[name] < sgp_step(name, batch_size=3) <= SGP_MINI_BATCH[name]


def test_an_operation_more_in_every_product_is_seen(monkeypatch):
    problem, x, lam = there("quadratic")
    kind = type(problem.linearize(x, lam))
    product = kind.hvp
    monkeypatch.setattr(kind, "hvp", lambda self, u: product(self, u) + 0.0)
    assert hgp_iteration("quadratic") == FULL_BATCH + 1


def test_what_is_an_operation():
    lib = open_library(CUPY)
    xp, x = lib.xp, lib.asarray(np.arange(12.0).reshape(3, 4))
    chosen, mask = lib.asarray(np.array([2, 0])), x > 5.0
    expected = {
        "views": (0, lambda: (x[1:, ::2], x[0, 0], x[None], x.T, xp.reshape(x, (4, 3)), xp.broadcast_to(x, (2, 3, 4)))),
        "views by name": (0, lambda: (xp.expand_dims(x, axis=0), xp.matrix_transpose(x), xp.moveaxis(x, 0, 1))),
        "what the shape tells": (0, lambda: (x.shape, x.dtype, xp.result_type(x, xp.float32), xp.empty((2, 2)))),
        "already there": (0, lambda: xp.astype(x, x.dtype, copy=False)),
        "operators": (3, lambda: -(x * 2.0 + x)),
        "products and sums": (3, lambda: (x @ x.T, xp.sum(x), xp.max(x, axis=0))),
        "made": (2, lambda: (xp.zeros_like(x), xp.ones((2, 2)))),
        "gathered": (3, lambda: (xp.take(x, chosen, axis=0), x[mask], x[chosen, ...])),
        "joined": (2, lambda: (xp.stack([x, x]), xp.concat([x, x]))),
        "copied": (3, lambda: (xp.astype(x, xp.float32), xp.asarray(x, copy=True), xp.reshape(x.T, (12,)))),
        "written": (2, lambda: (x.__setitem__(0, 1.0), x.__iadd__(1.0))),
    }
    counts = {name: (launched(run), number) for name, (number, run) in expected.items()}
    assert all(counted == number for counted, number in counts.values()), counts
