"""Sparse features: the numbers of dense ones, exact kernels, certificates, memory, and errors for other input."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from support.libraries import assert_close, identity_rtol, open_library

import hgp_ref as hgp
from hgp_ref import rounding
from hgp_ref.problems import InstanceWeights, LeastSquares, LogisticRegression, SoftmaxRegression
from hgp_ref.problems.lipschitz import largest_moment
from hgp_ref.problems.sparse import read_sparse

from .cases import COUNTS, SPARSE, VAL_COUNTS, data, labels, linear, sparse, thinned
from .test_structure import assert_results, results
from .test_term_sizes import shares

TOL = identity_rtol("float64")


def pair(kind, d=6, dtype="float64"):
    """A sparse problem, the same one with dense arrays, and a point."""
    rng, classes = np.random.default_rng(7), labels(kind, 3)
    X, y = data(rng, COUNTS, d, classes, dtype)
    X_val, y_val = data(rng, VAL_COUNTS, d, classes, dtype)
    dense = linear(kind.removeprefix("sparse-"), (thinned(X), y, thinned(X_val), y_val), classes)
    other = linear(kind, (X, y, X_val, y_val), classes)
    x, u = rng.standard_normal((2, 3, dense.dim_x)).astype(dtype)
    return other, dense, x, rng.uniform(0.2, 1, (3, dense.dim_lam)).astype(dtype), u


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("mini", [False, True])
def test_sparse_features_give_the_numbers_of_dense_ones(kind, mini):
    problem, dense, x, lam, u = pair(kind)
    batch = np.array([[0, 0, 4], [4, -1, -1], [0, 0, 5]]) if mini else None
    assert_results(results(problem, x, lam, u, batch), results(dense, x, lam, u, batch))
    runs = np.stack([u, 3 * x])
    if mini:
        batch = np.stack([batch, batch[:, ::-1]])
    assert_results(results(problem, x, lam, runs, batch), results(dense, x, lam, runs, batch))


@pytest.mark.parametrize("kind", SPARSE)
def test_runs_are_a_loop_bit_for_bit(kind):
    problem, _, x, lam, u = pair(kind)
    lin, runs = problem.linearize(x, lam), np.stack([u, x, u - x])
    np.testing.assert_array_equal(lin.hvp(runs), np.stack([lin.hvp(v) for v in runs]))
    np.testing.assert_array_equal(problem.inner_grad(runs, lam), np.stack([problem.inner_grad(v, lam) for v in runs]))


@pytest.mark.parametrize("kind", SPARSE)
def test_constants_and_norms_agree_with_dense_ones(kind):
    problem, dense, x, lam, _ = pair(kind)
    ours, theirs = problem.lipschitz(lam), dense.lipschitz(lam)
    for name in ("nu_flam", "nu_fx", "nu_J", "nu_H", "strong_convexity"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert found == expected or found == pytest.approx(expected, rel=1e-12)
    assert_close(problem.jacobian_norms(x, lam), dense.jacobian_norms(x, lam), TOL)


def test_a_moment_that_is_too_large_for_eigenvalues_is_bounded_by_its_trace(monkeypatch):
    monkeypatch.setattr("hgp_ref.problems.lipschitz.LARGEST_MATRIX", 3)
    rng = np.random.default_rng(0)
    X, weight = [rng.normal(size=(5, 4)), rng.normal(size=(7, 4))], np.zeros((2, 7))
    weight[0, :5], weight[1] = 1 / 5, 1 / 7
    found = largest_moment(1.0, read_sparse("X", sparse(X))[0], weight, power=0)
    trace = max(np.mean(np.sum(A * A, axis=1)) for A in thinned(X))
    assert trace <= found <= trace * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(3, 9), (9, 3), (1, 1)])
def test_the_norm_of_a_sparse_matrix_is_an_upper_bound(shape):
    rng = np.random.default_rng(1)
    for scale in (1.0, 1e200, 1e-200):
        A = np.where(rng.random(shape) < 0.5, rng.normal(size=shape), 0)
        A[0, 0] = 1
        found, exact = rounding.sparse_spectral_norm(sp.csr_array(scale * A)), np.linalg.norm(A, 2) * scale
        assert exact * (1 - 1e-14) <= found <= exact * (1 + 1e-12)
    assert rounding.sparse_spectral_norm(sp.csr_array(shape)) == 0


def test_norms_of_rows_neither_overflow_nor_underflow():
    X = sp.csr_array(np.array([[3e200, 4e200, 0], [0, 3e-200, 4e-200], [0, 0, 0]]))
    assert read_sparse("X", [X])[0].norms().tolist()[0] == pytest.approx([5e200, 5e-200, 0.0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", SPARSE)
def test_rounding_stays_within_its_allowance(kind, dtype):
    """Against 80 digits; once with logits whose terms cancel, so that their error is far above an ulp of themselves."""
    rng, eps, classes = np.random.default_rng(8), float(np.finfo(dtype).eps), labels(kind, 3)
    largest = {}
    for offset in (0, 1e-4 / eps):
        for _ in range(4):
            X, y = data(rng, COUNTS, 4, classes, "float64")
            X = thinned([(A + offset * np.array([1, 1, 0, 0])).astype(dtype) for A in X])
            dense = linear(kind.removeprefix("sparse-"), (X, y, X, y), classes)
            problem = linear(kind, (X, y, X, y), classes)
            U = rng.normal(size=(3, 4, dense.dim_x // 4))
            U[:, 1] = -U[:, 0]
            x, lam = U.reshape(3, -1).astype(dtype), rng.uniform(0, 1, (3, dense.dim_lam)).astype(dtype)
            u = rng.normal(size=x.shape).astype(dtype)
            for name, share in shares(problem, x, lam, u, same=dense).items():
                largest[name] = max(largest.get(name, 0.0), share)
    assert min(largest[name] for name in ("inner_cost", "outer_cost", "f_x")) > 0.02, largest  # and not far below it


def test_the_whole_way_from_training_to_a_certificate():
    rng = np.random.default_rng(3)
    X, X_val = ([sp.random_array((k, 60), density=0.1, rng=rng, format="csr") for k in COUNTS] for _ in range(2))
    y, y_val = ([rng.integers(0, 2, k) for k in COUNTS] for _ in range(2))
    problem = LogisticRegression(X, y, X_val, y_val)
    lam, net = np.full((3, 60), 0.1), hgp.networks.RandomDirected(3, seed=0)
    x = hgp.exact.inner_solution(problem, lam)
    truth = hgp.exact.hypergradient(problem, x, lam)
    fit = hgp.sgp(problem, lam, net, steps=300, lr=0.5)
    assert np.linalg.norm(fit.x - x) < 0.1 * np.linalg.norm(x)
    est = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 30), iterations=300)
    assert_close(est.value, truth, 4 * np.sqrt(np.finfo(float).eps))
    for matrix_free in (False, True):
        cert = hgp.certify(problem, x, lam, est, matrix_free=matrix_free)
        assert np.all(np.linalg.norm(est.value - truth, axis=1) <= cert.bound)
    rough = hgp.hypergradient(problem, x, lam, hgp.PushSum(net, 30), iterations=300, batches=2)
    assert np.all(np.isfinite(rough.value))


def test_a_part_of_the_clients_stores_their_entries_alone():
    problem, _, x, lam, _ = pair("sparse-logistic-client")
    part = problem.restrict([2, 0])
    whole, own = problem._train.all.features, part._train.all.features
    kept = sum(whole.of_client(i).nnz for i in (2, 0))
    assert own.values.size == own.columns.size == own.starts[-1] == kept < whole.values.size
    np.testing.assert_array_equal(part.inner_grad(x[[2, 0]], lam[[2, 0]]), problem.inner_grad(x, lam)[[2, 0]])


def test_digests_depend_on_entries_and_not_on_the_format():
    rng = np.random.default_rng(0)
    X, y = thinned([rng.normal(size=(4, 3)), rng.normal(size=(2, 3))]), [np.ones(4), np.zeros(2)]
    duplicate = sp.coo_array(([0.5, 0.5, 0.0], ([0, 0, 1], [1, 1, 2])), shape=(4, 3))
    single = sp.csr_array(([1.0], ([0], [1])), shape=(4, 3))
    digests = [
        LeastSquares([change(X[0]), sp.csr_array(X[1])], y, [sp.csr_array(A) for A in X], y).data_digest()
        for change in (sp.csr_array, sp.csc_matrix, lambda _: duplicate, lambda _: single)
    ]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    assert duplicate.nnz == 3  # the caller's matrix is unchanged


def test_dense_arrays_of_the_size_of_the_data_are_never_formed():
    n, N, d = 2, 300, 50_000  # dense: 240 MB; sparse: 1 MB
    rng = np.random.default_rng(0)
    X = [sp.random_array((N, d), density=1e-3, rng=rng, format="csr") for _ in range(n)]
    y = [rng.integers(0, 2, N) for _ in range(n)]
    for kind in (LeastSquares, LogisticRegression, InstanceWeights):
        tracemalloc.start()
        problem = kind(X, y, X, y)
        x, lam = np.full((n, d), 1e-3), np.ones((n, problem.dim_lam))
        lin = problem.linearize(x, lam)
        problem.inner_cost(x, lam), problem.inner_grad(x, lam), problem.outer_grad(x, lam), lin.products(x)
        problem.linearize(x, lam, np.zeros((n, 5), dtype=int)).products(x)
        problem.term_sizes(x, lam).hvp(x), problem.lipschitz(lam), problem.jacobian_norms(x, lam)
        problem.restrict([1]).inner_cost(x[:1], lam[:1]), problem.data_digest()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * n * N * d / 8, peak
    with pytest.raises(MemoryError, match="Hessians of d_x=50000 would need"):
        hgp.problems.LeastSquares(10 * X, 10 * y, 10 * X, 10 * y).hessian(np.ones((20, d)), np.ones((20, d)))


CSR = sp.csr_array(np.eye(4, 3))
Y = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
BAD = {
    "one matrix": (CSR, TypeError, r"X must be a list of n sparse matrices .*, got one csr_array of shape \(4, 3\)"),
    "dense among them": ([CSR, CSR.toarray()], TypeError, r"X must be a list .*, got numpy.ndarray in X\[1\]"),
    "dense first": ([CSR.toarray(), CSR], TypeError, r"X must be a list .*, got numpy.ndarray in X\[0\]"),
    "other width": ([CSR, CSR[:, :2]], ValueError, r"X must be a list .*, got shape \(4, 2\) in X\[1\]"),
    "integers": ([CSR.astype(int)] * 2, TypeError, r"X\[0\] must hold real floating-point numbers, got int64"),
    "mixed dtypes": ([CSR, CSR.astype("float32")], TypeError, r"mixed dtypes: X\[0\] is float64, X\[1\] is float32"),
    "no rows": ([CSR, CSR[:0]], ValueError, "X must have at least one instance .*, got none for client 1"),
    "NaN": ([CSR, np.nan * CSR], ValueError, "X must not contain NaN or infinite values"),
    "one axis": ([sp.coo_array(np.ones(3)), CSR], ValueError, r"X must be a list .*, got shape \(3,\) in X\[0\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_wrong_matrices_are_refused(kind, name):
    X, error, message = BAD[name]
    with pytest.raises(error, match=message):
        kind(X, Y, [CSR, CSR], Y)
    with pytest.raises(error, match=message.replace("X", "X_val")):
        kind([CSR, CSR], Y, X, Y)


def with_wrong(member, position, value, kind="csr"):
    """A matrix of this format whose indices SciPy did not check, because they were changed afterwards."""
    part = sp.csr_array(np.eye(4, 3)).asformat(kind)
    getattr(part, member)[position] = value
    return part


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(("member", "value"), [("indices", 99), ("indices", -1), ("indptr", 10**6), ("indptr", -3)])
def test_indices_out_of_bounds_are_refused_before_compiled_code_reads_them(kind, member, value):
    part = with_wrong(member, 1, value, kind)
    with pytest.raises(ValueError, match=rf"^X\[1\] must have valid indices, got a {kind}_array with this error: "):
        LogisticRegression([CSR, part], Y, [CSR, CSR], Y)


def test_coordinates_out_of_bounds_are_refused():
    part = sp.coo_array(CSR)
    part.coords[0][0] = 50
    with pytest.raises(ValueError, match=r"^X_val\[0\] must have valid indices, got a coo_array with this error: "):
        LogisticRegression([CSR, CSR], Y, [part, CSR], Y)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_arrays_where_they_do_not_belong_are_named():
    torch = pytest.importorskip("torch")
    tensor = torch.eye(4, 3, dtype=torch.float64)
    for X in ([tensor.to_sparse_csr()] * 2, [CSR.toarray(), tensor.to_sparse()], tensor.to_sparse_csr()):
        with pytest.raises(TypeError, match=r"^X must be .* matrices of SciPy, got a tensor of layout torch.s"):
            LogisticRegression(X, Y, [CSR, CSR], Y)
    model = hgp.neural.Sequential((3,), hgp.neural.Linear(3, 2))
    with pytest.raises(TypeError, match=r"^X_val\[1\] must be an array, got scipy.sparse"):
        hgp.problems.NeuralInstanceWeights(model, [CSR.toarray()] * 2, Y, [CSR.toarray(), CSR], Y)


def test_dense_validation_instances_go_with_sparse_training_instances():
    x, lam = np.ones((2, 3)), np.ones((2, 3))
    mixed = LogisticRegression([CSR, CSR], Y, np.stack([CSR.toarray()] * 2), Y)
    same = LogisticRegression([CSR, CSR], Y, [CSR, CSR], Y)
    assert_close(mixed.outer_cost(x, lam), same.outer_cost(x, lam), TOL)


def test_a_client_without_any_entry():
    problem = LeastSquares([sp.csr_array((2, 3)), CSR], [np.ones(2), np.ones(4)], [CSR, CSR], Y)
    x, lam = np.ones((2, 3)), np.ones((2, 3))
    np.testing.assert_array_equal(problem.inner_grad(x, lam)[0], lam[0])
    assert problem.lipschitz(lam).nu_fx > 0 and problem.restrict([0]).lipschitz(lam[:1]).nu_H == 0


@pytest.mark.parametrize("name", ["torch", "cupy", pytest.param("jax", marks=pytest.mark.slow)])
def test_sparse_features_on_other_libraries(name):
    """Term sizes, constants, norms, digests, parts of the clients, and wrong indices; costs are in the tests above."""
    xp = open_library(name)
    for kind in ("sparse-squares", "sparse-weights-softmax"):
        problem, _, x, lam, u = pair(kind)
        moved, place = problem.to(xp.asarray(x)), xp.asarray
        here, there = problem.term_sizes(x, lam), moved.term_sizes(place(x), place(lam))
        assert_close(xp.to_numpy(there.inner_grad), here.inner_grad, TOL)
        assert_close(xp.to_numpy(there.hvp(place(u))), here.hvp(u), TOL)
        assert moved.lipschitz(place(lam)) == problem.lipschitz(lam)
        assert_close(np.asarray(hgp.backend.to_host(moved.jacobian_norms(place(x), place(lam)))),
                     problem.jacobian_norms(x, lam), TOL)  # fmt: skip
        assert moved.data_digest() == problem.data_digest()
        part = moved.restrict([2, 0])
        assert_close(
            xp.to_numpy(part.inner_grad(place(x[[2, 0]]), place(lam[[2, 0]]))), problem.inner_grad(x, lam)[[2, 0]], TOL
        )
        wrong = place(np.array([[0, 5], [0, 7], [0, 5]]))  # client 0 has 5 instances
        grad = xp.to_numpy(moved.inner_grad(place(x), place(lam), wrong))
        assert np.all(np.isnan(grad), axis=1).tolist() == [True, False, False] and np.all(np.isfinite(grad[1:]))
        back = moved.to("numpy")
        np.testing.assert_array_equal(back.inner_grad(x, lam), problem.inner_grad(x, lam))
    est = hgp.hypergradient(moved, place(x), place(lam), hgp.ExactAverage(3), eta=0.1, iterations=3, batches=2)
    same = hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=0.1, iterations=3, batches=2)
    assert_close(xp.to_numpy(est.value), same.value, 1e-12)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak memory is read from /proc")
def test_data_of_the_size_of_20_newsgroups():
    """11,314 × 130,107 with density 0.0012 over 8 clients: 12 GB as a dense array; seconds, below 2 GB."""
    code = """
import pathlib, re, time
import numpy as np, scipy.sparse as sp
import hgp_ref as hgp
rng, n, d = np.random.default_rng(0), 8, 130_107
counts = [11_314 // n + (i < 11_314 % n) for i in range(n)]
parts = [[sp.random_array((k // s, d), density=0.0012, rng=rng, format="csr") for k in counts] for s in (1, 4)]
labels = [[rng.integers(0, 2, k // s) for k in counts] for s in (1, 4)]
def timed(name, function):  # CPU time, which other load on the machine changes less
    start = time.process_time()
    result = function()
    seconds = time.process_time() - start
    print(f"{name:24} {seconds:8.3f} s", flush=True)
    return result, seconds
problem, _ = timed("constructor", lambda: hgp.problems.LogisticRegression(parts[0], labels[0], parts[1], labels[1]))
x, lam, net = rng.normal(size=(n, d)) / 100, np.full((n, d), 0.01), hgp.networks.RandomDirected(n, seed=0)
view, r = problem._train.all, rng.normal(size=(n, max(counts), 1))
products = {
    "X x": lambda: view.forward(x, xp=problem._xp),
    "X x by SciPy": lambda: [A @ row for A, row in zip(parts[0], x)],
    "X^T r": lambda: view.adjoint(r, xp=problem._xp),
    "X^T r by SciPy": lambda: [A.T @ row[: A.shape[0], 0] for A, row in zip(parts[0], r)],
}
for function in products.values():
    function()
times = {name: [] for name in products}
for _ in range(100):  # in turn, so that other load on the machine meets all of them
    for name, function in products.items():
        start = time.process_time()
        function()
        times[name].append(time.process_time() - start)
for name in ("X x", "X^T r"):
    ours, scipy = (1e3 * np.quantile(times[key], [0.1, 0.5]) for key in (name, f"{name} by SciPy"))
    print(f"{name:24} {ours[0]:.1f} ms (median {ours[1]:.1f}), SciPy {scipy[0]:.1f} ms (median {scipy[1]:.1f})")
hgp.sgp(problem, lam, net, steps=2, lr=1.0)
fit, a = timed("sgp, 100 steps", lambda: hgp.sgp(problem, lam, net, steps=100, lr=10.0))
_, b = timed("sgp, 100 steps, b = 32", lambda: hgp.sgp(problem, lam, net, steps=100, lr=10.0, batches=32))
est, c = timed("hypergradient, M=50 S=5", lambda: hgp.hypergradient(problem, fit.x, lam, hgp.PushSum(net, 5), eta=10.0,
                                                                   iterations=50))
cert, e = timed("certify", lambda: hgp.certify(problem, fit.x, lam, est))
assert np.all(np.isfinite(est.value)) and np.all(np.isfinite(cert.bound))
status = pathlib.Path("/proc/self/status").read_text()
peak = int(re.search("VmHWM: *([0-9]+) kB", status.replace("\\t", " "))[1]) / 2**20
print(f"peak {peak:.2f} GB")
assert peak < 2 and max(a, b, c, e) < 120
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
