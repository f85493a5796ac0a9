"""A client's results on NumPy depend on that client alone, bit for bit, not on the other clients in its array."""

from __future__ import annotations

import numpy as np
import pytest

from hgp_ref.problems import as_problem, from_torch, sample_batches
from hgp_ref.problems import linear as fused
from hgp_ref.problems.instances import View
from hgp_ref.problems.linear import LinearProblem

from .cases import KINDS, LINEAR, data, labels, linear, make

ROOM = 40  # bytes of one client's data from which on products go in one pass: small, so that small problems have both
EQUAL, UNEQUAL = "equal sizes", "unequal sizes"


def sizes(n, how, rng):
    return (6,) * n if how == EQUAL else tuple(int(k) for k in rng.integers(1, 14, n))


def splits(n, rng):
    """Single clients, a slice, every other one, a random choice in random order."""
    some = sorted({0, n // 2, n - 1})
    yield from ([i] for i in some)
    yield slice(n // 2, n)
    yield slice(0, n, 2)
    yield rng.permutation(n)[: max(1, n // 2)]


def answers(problem, x, lam, u, host_batches):
    """Everything a problem says at a point, by name, with the axis of clients."""
    ours = as_problem(problem)
    prepared = None if host_batches is None else ours.prepare_batches(host_batches, like=x)
    batches = {"full": None}
    if host_batches is not None:
        batches |= {"plain": host_batches[1, 0], "prepared": prepared[1, 0]}
    f_x, f_lam = ours.outer_grad(x, lam)
    found = {"outer_cost": (ours.outer_cost(x, lam), -1), "outer_grad x": (f_x, -2), "outer_grad lam": (f_lam, -2)}
    for name, batch in batches.items():
        lin = ours.linearize(x, lam, batch=batch)
        both = lin.products(u)
        found |= {
            f"inner_cost {name}": (ours.inner_cost(x, lam, batch=batch), -1),
            f"inner_grad {name}": (ours.inner_grad(x, lam, batch=batch), -2),
            f"hvp {name}": (lin.hvp(u), -2),
            f"cross {name}": (lin.cross(u), -2),
            f"products {name} 0": (both[0], -2),
            f"products {name} 1": (both[1], -2),
        }
        if ours.hessian is not None:
            found[f"hessian {name}"] = (ours.hessian(x, lam, batch), -3)
            found[f"jacobian {name}"] = (ours.jacobian(x, lam, batch), -3)
    return found


def draw(problem, size, runs):
    """Mini-batches as a run draws them, (2, 1, [runs,] n, b)."""
    if as_problem(problem).counts is None:
        return None
    each = [sample_batches(problem.counts, size, 5 + r, 0, 2, clients=problem.clients) for r in range(runs or 1)]
    return (np.stack(each, axis=1) if runs else each[0])[:, None]


def compare(whole, x, lam, u, rng, size, runs):
    together = answers(whole, x, lam, u, draw(whole, size, runs))
    for clients in splits(whole.n_clients, rng):
        part = whole.restrict(clients)
        own = [np.ascontiguousarray(a[..., clients, :]) for a in (x, lam, u)]
        for name, (value, axis) in answers(part, *own, draw(part, size, runs)).items():
            expected = np.moveaxis(np.moveaxis(together[name][0], axis, 0)[clients], 0, axis)
            np.testing.assert_array_equal(value, expected, err_msg=f"{name}, clients {clients}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", [EQUAL, UNEQUAL])
@pytest.mark.parametrize("kind", KINDS)
def test_a_subset_gives_the_bits_of_the_whole(kind, how, dtype, monkeypatch):
    monkeypatch.setattr(fused, "SMALLEST", ROOM * np.dtype(dtype).itemsize)
    rng = np.random.default_rng(1)
    for n, d, runs in ((1, 3, None), (2, 5, 3), (5, 7, None), (9, 5, 2), (20, 5, None)):
        c = make(kind, d, counts=sizes(n, how, rng), val_counts=sizes(n, how, rng), seed=n, dtype=dtype)
        lead = () if runs is None else (runs,)
        x, u = rng.standard_normal((2, *lead, n, c.problem.dim_x)).astype(dtype)
        compare(c.problem, x, c.lam, u, rng, 4, runs)


@pytest.mark.parametrize("kind", LINEAR)
def test_sizes_that_real_data_have(kind):
    """More rows and columns than BLAS and NumPy add up in one go, sizes on either side of every rule."""
    rng = np.random.default_rng(2)
    counts = (130, 7, 66, 40, 33, 200)
    c = make(kind, 37, counts=counts, val_counts=counts[::-1], dtype="float64")
    compare(c.problem, c.x, c.lam, c.u, rng, 50, None)
    compare(c.problem, np.stack([c.x, 2 * c.x]), c.lam, np.stack([c.u] * 2), rng, 50, 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", LINEAR)
def test_padding_does_not_reach_a_client(kind, dtype):
    """A problem made of some clients' data alone, with less padding, gives the bits of the whole."""
    rng = np.random.default_rng(4)
    classes = labels(kind, 3)
    for d, counts in ((3, (5, 130, 66, 7, 21)), (11, (20, 9, 3, 35, 64)), (40, (31, 90, 17, 2, 50))):
        X, y = data(rng, counts, d, classes, dtype)
        X_val, y_val = data(rng, counts[::-1], d, classes, dtype)
        whole = linear(kind, (X, y, X_val, y_val), classes)
        x, u = rng.standard_normal((2, 5, whole.dim_x)).astype(dtype)
        lam = rng.uniform(0.2, 1, (5, whole.dim_lam)).astype(dtype)
        together = answers(whole, x, lam, u, draw(whole, 40, None))
        for clients in ([0], [2], [3], [4, 0], [2, 3]):
            part = linear(kind, tuple([a[i] for i in clients] for a in (X, y, X_val, y_val)), classes)
            part.clients = np.array(clients)
            own = answers(part, x[clients], lam[clients, : part.dim_lam], u[clients], draw(part, 40, None))
            for name, (value, _) in own.items():
                expected = together[name][0][clients]
                if expected.shape != value.shape:  # weights of padding instances
                    expected = expected[:, : part.dim_lam]
                np.testing.assert_array_equal(value, expected, err_msg=f"{name}, d={d}, clients {clients}")


def test_every_way_of_a_product_is_met(monkeypatch):
    """One problem whose clients go all three ways, and the truth from its dense Hessians."""
    monkeypatch.setattr(fused, "SMALLEST", ROOM * 8)
    c = make("weights", 7, counts=(9, 2, 6, 8, 1), val_counts=(1,) * 5)
    lin = c.problem.linearize(c.x, c.lam)
    assert [clients.tolist() for clients, _ in lin._strategies] == [[0, 3], [2], [1, 4]]
    expected = (c.problem.hessian(c.x, c.lam) @ c.u[..., None])[..., 0]
    np.testing.assert_allclose(lin.hvp(c.u), expected, rtol=1e-12, atol=1e-14)
    batch = np.array([[0, 1, 2, 3, 4, 5], [0, 1] + [-1] * 4, [0, 1, 2, -1, -1, -1], [7] * 6, [-1] * 6])
    lin = c.problem.linearize(c.x, c.lam, batch)
    assert [clients.tolist() for clients, _ in lin._strategies] == [[0, 3], [1, 2, 4]]
    expected = (c.problem.hessian(c.x, c.lam, batch) @ c.u[..., None])[..., 0]
    np.testing.assert_allclose(lin.hvp(c.u), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restricted_problem_stores_the_numbers_of_its_clients(kind):
    c = make(kind, counts=(5, 8, 6, 2), val_counts=(4, 1, 3, 3))
    part = c.problem.restrict([3, 1, 0]).restrict(slice(1, None))
    assert part.n_clients == 2 and part.clients.tolist() == [1, 0]
    assert (part.dim_x, part.dim_lam) == (c.problem.dim_x, c.problem.dim_lam)
    if isinstance(part, LinearProblem):
        assert part.counts.tolist() == [8, 5]
    assert as_problem(c.problem).restrict([2]).clients.tolist() == [2]


@pytest.mark.parametrize(
    "clients, error",
    [([], ValueError), ([0, 0], ValueError), ([3], ValueError), ([-1], ValueError), ([0.0], TypeError),
     ([True], TypeError), (slice(3, None), ValueError), (1, TypeError), (None, TypeError)],
    ids=str,
)  # fmt: skip
def test_clients_that_are_not_there_are_refused(clients, error):
    for problem in (make("logistic").problem, make("quadratic").problem):
        with pytest.raises(error, match="clients"):
            problem.restrict(clients)


def test_costs_in_torch_see_the_numbers_of_the_whole():
    torch = pytest.importorskip("torch", reason="torch not exercised: it is not installed")
    data = torch.linspace(-1, 1, 4 * 5 * 3, dtype=torch.float64).reshape(4, 5, 3)

    def inner(i, x, lam, batch):
        rows = data[i] if batch is None else data[i][batch]
        return torch.log1p(torch.exp(rows @ x)).mean() + (lam * x * x).sum()

    problem = from_torch(inner, lambda i, x, lam: (data[i] @ x).square().mean(), 4, 3, 3, counts=[5, 5, 5, 5])
    rng = np.random.default_rng(0)
    x, lam, u = (torch.asarray(a) for a in rng.standard_normal((3, 4, 3)))
    whole, part = as_problem(problem), as_problem(problem).restrict([3, 1])
    for name in ("inner_cost", "inner_grad", "outer_cost"):
        assert torch.equal(getattr(part, name)(x[[3, 1]], lam[[3, 1]]), getattr(whole, name)(x, lam)[[3, 1]])
    ours, theirs = part.linearize(x[[3, 1]], lam[[3, 1]]), whole.linearize(x, lam)
    for a, b in zip(ours.products(u[[3, 1]]), theirs.products(u), strict=True):
        assert torch.equal(a, b[[3, 1]])
    assert part.counts.tolist() == [5, 5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [2, 9])
def test_both_products_at_once_are_the_single_ones(kind, d):
    c = make(kind, d)
    for batch in (None, c.batch):
        lin = c.problem.linearize(c.x, c.lam, batch)
        u = np.stack([c.u, 2 * c.u])
        for vector in (c.u, u):
            for found, expected in zip(lin.products(vector), (lin.hvp(vector), lin.cross(vector)), strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["weights", "weights-softmax"])
def test_both_products_share_the_product_with_the_data(kind, monkeypatch):
    c = make(kind, 9)
    lin = c.problem.linearize(c.x, c.lam)
    lin.products(c.u)
    calls, right = [], View.forward
    monkeypatch.setattr(View, "forward", lambda self, u, **options: calls.append(1) or right(self, u, **options))
    lin.products(c.u)
    assert calls == [1]
