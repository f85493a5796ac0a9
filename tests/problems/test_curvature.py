"""Damping and Gauss–Newton curvature: against explicit matrices, re-solved inner problems and exact solutions."""

from __future__ import annotations

import numpy as np
import pytest

import hgp_ref as hgp
from hgp_ref.neural import Linear, Sequential, Tanh
from hgp_ref.problems import Composite, Damped, InstanceWeights, NeuralInstanceWeights, PersonalBias, PersonalMask

SIZES = (5, 7, 4)
MU = 0.6
NET = hgp.networks.RandomDirected(3, 0.4, 0.8, seed=1)


def instances(seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((k, 3)) for k in sizes], [np.arange(k) % 3 for k in sizes]


def linear():
    problem = InstanceWeights(*instances(), *instances(1), loss="softmax", n_classes=3, l2=0.2)
    lam = 0.5 + np.random.default_rng(2).random((3, problem.dim_lam))
    return problem, lam, hgp.exact.inner_solution(problem, lam)


def neural(kind=NeuralInstanceWeights, layers=None, **options):
    model = Sequential((3,), *(layers or (Linear(3, 4), Tanh(), Linear(4, 3))))
    problem = kind(model, *instances(), *instances(1), l2=0.01, **options)
    lam = np.random.default_rng(2).random((3, problem.dim_lam))
    return problem, lam, np.repeat(model.init(1, seed=1), 3, axis=0) + 0.1 * np.arange(3)[:, None]


PROBLEMS = {"linear": linear, "neural": neural}


def unit_products(problem, x, lam, batch=None):
    """The matrices of hvp by unit vectors.  # (n, d, d)"""
    product = problem.linearize(x, lam, batch).hvp
    return np.stack([np.asarray(product(np.tile(e, (3, 1)))) for e in np.eye(problem.dim_x)], axis=-1)


# ---- Damping


@pytest.mark.parametrize("name", PROBLEMS)
def test_damping_adds_mu_to_the_curvature_and_to_nothing_else(name):
    problem, lam, x = PROBLEMS[name]()
    damped, u = Damped(problem, MU), np.random.default_rng(3).standard_normal(x.shape)
    identity, batch = MU * np.eye(problem.dim_x), np.array([[0, 2], [1, -1], [3, 0]])
    for chosen in (None, batch):
        expected = unit_products(problem, x, lam, chosen) + identity
        assert np.allclose(unit_products(damped, x, lam, chosen), expected, rtol=0, atol=1e-14)
        both, alone = damped.linearize(x, lam, chosen), problem.linearize(x, lam, chosen)
        assert np.array_equal(both.cross(u), alone.cross(u)) and np.array_equal(both.products(u)[0], both.hvp(u))
        assert np.array_equal(damped.inner_grad(x, lam, chosen), problem.inner_grad(x, lam, chosen))
        assert np.array_equal(damped.inner_cost(x, lam, chosen), problem.inner_cost(x, lam, chosen))
    assert np.allclose(hgp.exact.hessians(damped, x, lam), hgp.exact.hessians(problem, x, lam) + identity, atol=1e-14)
    assert np.allclose(hgp.exact.jacobians(damped, x, lam), hgp.exact.jacobians(problem, x, lam), atol=1e-14)
    part = damped.restrict([2, 0])
    assert part.mu == MU and np.allclose(
        part.linearize(x[[2, 0]], lam[[2, 0]]).hvp(u[[2, 0]]), both_rows(damped, x, lam, u)
    )
    single = damped.to("numpy", "float32")
    assert single.mu == MU and single.linearize(*(a.astype("f4") for a in (x, lam))).hvp(u.astype("f4")).dtype == "f4"
    assert damped.undamped is problem and Damped(problem, 0.0).data_digest() != damped.data_digest()


def both_rows(damped, x, lam, u):
    return damped.linearize(x, lam).hvp(u)[[2, 0]]


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", [None, hgp.methods.Chebyshev(low=0.05), hgp.methods.Tracking(0.1)], ids=repr)
def test_hypergradients_solve_the_damped_system(name, method):
    problem, lam, x = PROBLEMS[name]()
    damped = Damped(problem, 1.0)
    H = np.mean(unit_products(problem, x, lam), axis=0) + np.eye(problem.dim_x)
    f_x, f_lam = problem.outer_grad(x, lam)
    w = np.linalg.solve(H, np.mean(f_x, axis=0))
    expected = f_lam - np.einsum("ilx,x->il", hgp.exact.jacobians(problem, x, lam), w)
    assert np.allclose(hgp.exact.hypergradient(damped, x, lam), expected, atol=1e-13)
    found = hgp.hypergradient(damped, x, lam, hgp.PushSum(NET, 40), method, iterations=600)
    assert np.allclose(found.value, expected, atol=1e-9)


def test_a_damped_influence_is_the_slope_for_training_that_is_held_near_x():
    """The derivative of argmin Σ_i g_i(x, λ_i) + (n μ/2)|x − x₀|², re-solved by Newton's method for other weights."""
    problem, lam, x = linear()
    found = hgp.influence(Damped(problem, MU), x, lam, hgp.ExactAverage(3), eta=0.5, iterations=200)

    def cost(weights):
        z = x[0].copy()
        for _ in range(30):
            rows = np.tile(z, (3, 1))
            gradient = problem.inner_grad(rows, weights).sum(axis=0) + 3 * MU * (z - x[0])
            z -= np.linalg.solve(problem.hessian(rows, weights).sum(axis=0) + 3 * MU * np.eye(z.size), gradient)
        return problem.outer_cost(np.tile(z, (3, 1)), weights).sum()

    t = 1e-4
    for i, k in ((0, 1), (1, 6), (2, 3)):
        less, more = lam.copy(), lam.copy()
        less[i, k] *= 1 - t
        more[i, k] *= 1 + t
        assert found.per_instance[i, k] == pytest.approx((cost(less) - cost(more)) / (2 * t), rel=1e-6)


def test_runs_side_by_side_mini_batches_and_single_losses():
    problem, lam, x = linear()
    damped, lists = Damped(problem, MU), [hgp.PushSum(NET, 3), hgp.PushSum(NET.after(9), 3)]
    both = hgp.hypergradient(damped, x, lam, lists, eta=0.3, iterations=6)
    for r, avg in enumerate(lists):
        alone = hgp.hypergradient(damped, x, lam, avg, eta=0.3, iterations=6)
        assert np.allclose(both.value[r], alone.value, rtol=1e-12, atol=1e-15)
    l2 = InstanceWeights(*instances(), *instances(1), loss="softmax", n_classes=3, l2=0.2 + MU)  # the same curvature
    options = {"eta": 0.3, "iterations": 6, "batches": hgp.MiniBatches(2, seed=1)}
    a, b = (hgp.influence(p, x, lam, hgp.PushSum(NET, 3), **options) for p in (damped, l2))
    assert np.allclose(a.per_instance, b.per_instance, rtol=1e-11, atol=1e-15)
    options = {"eta": 0.3, "iterations": 6, "on": "instances"}
    a, b = (hgp.influence(p, x, lam, hgp.PushSum(NET, 3), **options) for p in (damped, l2))
    assert np.allclose(a.per_instance, b.per_instance, rtol=1e-11, atol=1e-15)


def test_certificates_refer_to_the_damped_system_and_say_so():
    problem, lam, x = neural()
    low = np.linalg.eigvalsh(np.mean(unit_products(problem, x, lam), axis=0))[0]
    assert low < 0  # not convex here
    with pytest.raises(ValueError, match=r"must be positive definite.*problems.Damped\(problem, mu\)"):
        hgp.certify(problem, x, lam, hgp.hypergradient(Damped(problem, MU), x, lam, hgp.ExactAverage(3), eta=0.5))
    damped = Damped(problem, MU)
    est = hgp.hypergradient(damped, x, lam, hgp.PushSum(NET, 8), eta=0.5, iterations=200)
    found = hgp.certify(damped, x, lam, est, hgp.PushSum(NET, 20), strong_convexity=0.9 * (low + MU))
    error = np.linalg.norm(est.value - hgp.exact.hypergradient(damped, x, lam), axis=1)
    assert np.all(error <= found.bound) and np.all(error <= found.decentralised_bound)
    assert np.max(error) > 1e-12 and np.max(found.bound) <= 1e3 * np.max(error)
    assert found.rounding_complete and found.damping == MU and found.curvature == "hessian"
    assert found.smallest_eigenvalue == pytest.approx(low, abs=1e-10) and low + MU >= found.alpha_bar
    assert found.against.endswith("with the mean Hessian + μI, μ = 0.6, in place of the mean Hessian")
    assert "damped by 6.000e-01" in str(found) and "μ = 0.6" in found.assumptions[0]
    free = hgp.certify(damped, x, lam, est, matrix_free=True, strong_convexity=0.9 * (low + MU))
    assert np.all(error <= free.bound) and free.smallest_eigenvalue == pytest.approx(low, abs=1e-6)
    nu = hgp.bounds.Lipschitz(nu_flam=0.0, nu_fx=1.0, nu_J=1.0, nu_H=1.0)
    with pytest.raises(ValueError, match="^lipschitz must be None: the bound is against the formula at x, with"):
        hgp.certify(damped, x, lam, est, lipschitz=nu)
    plain, lam, x = linear()
    undamped = hgp.certify(plain, x, lam, hgp.hypergradient(plain, x, lam, hgp.ExactAverage(3), eta=0.5))
    assert undamped.damping == 0.0 and "place of" not in undamped.against + undamped.assumptions[0]
    outcome = hgp.plan(Damped(plain, MU), x, lam, NET, target=1e-6).run()
    expected = hgp.exact.hypergradient(Damped(plain, MU), x, lam)
    assert outcome.met and "place of the mean Hessian" in outcome.against
    assert np.linalg.norm(outcome.value - expected) <= outcome.bound * np.linalg.norm(expected)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_negative_damping_is_refused(bad):
    with pytest.raises(ValueError, match="^mu must be a finite number >= 0, got"):
        Damped(linear()[0], bad)
    with pytest.raises(TypeError, match="^mu must be"):
        Damped(linear()[0], "0.1")


# ---- Gauss–Newton


def explicit(problem, x, lam, weights, batch=None):
    """Σ_k weight_k J_kᵀ (diag(p) − p pᵀ) J_k of every client, J_k by differences of the logits; without the L2 term."""
    X, _ = instances()
    matrices = []
    for i in range(3):
        rows = np.arange(SIZES[i]) if batch is None else batch[i][batch[i] >= 0]
        scale, total = weights(i, rows), 0.0
        images = X[i][rows][None]

        def logits(v, images=images):
            return problem.model.logits(v[None], images)[0]

        J = np.stack([(logits(x[i] + h) - logits(x[i] - h)) / 2e-6 for h in 1e-6 * np.eye(x.shape[1])], axis=-1)
        z = problem.model.logits(x[i : i + 1], images)[0]
        for k in range(len(rows)):
            mask, shift = scale[k][1], scale[k][2]
            p = np.exp(mask * z[k] + shift)
            p /= p.sum()
            M = mask[:, None] * J[k]
            total = total + scale[k][0] / len(rows) * M.T @ (np.diag(p) - np.outer(p, p)) @ M
        matrices.append(total)
    return np.stack(matrices)


def settings_of(kind, lam):
    """(weight, mask, shift) of the logits for the instances of a client."""
    one = np.ones(3)

    def masks(i):
        s = np.exp(lam[i]) / np.exp(lam[i]).sum()
        return 3 * s

    return {
        NeuralInstanceWeights: lambda i, rows: [(lam[i, k], one, 0 * one) for k in rows],
        PersonalBias: lambda i, rows: [(1.0, one, lam[i]) for _ in rows],
        PersonalMask: lambda i, rows: [(1.0, masks(i), 0 * one) for _ in rows],
    }[kind]


@pytest.mark.parametrize("kind", [NeuralInstanceWeights, PersonalBias, PersonalMask])
@pytest.mark.parametrize("batch", [None, np.array([[0, 2, 4], [1, 5, -1], [3, -1, -1]])], ids=["full", "batch"])
def test_a_network_multiplies_by_the_gauss_newton_matrix(kind, batch):
    problem, lam, x = neural(kind, curvature="gauss-newton")
    whole, _, _ = neural(kind)
    found = unit_products(problem, x, lam, batch)
    expected = explicit(problem, x, lam, settings_of(kind, lam), batch) + 0.01 * np.eye(problem.dim_x)
    assert np.allclose(found, expected, rtol=1e-7, atol=1e-8)
    assert (
        np.linalg.eigvalsh(found).min() >= 0.01 - 1e-14 > np.linalg.eigvalsh(unit_products(whole, x, lam, batch)).min()
    )
    u = np.random.default_rng(0).standard_normal(x.shape)
    assert np.array_equal(problem.linearize(x, lam, batch).cross(u), whole.linearize(x, lam, batch).cross(u))
    assert np.array_equal(problem.inner_grad(x, lam, batch), whole.inner_grad(x, lam, batch))
    assert problem.term_sizes is None and problem.data_digest() != whole.data_digest()


def test_it_is_the_hessian_of_a_model_that_is_linear_in_x():
    problems = [neural(layers=(Linear(3, 3),), curvature=kind) for kind in ("hessian", "gauss-newton")]
    a, b = (unit_products(problem, x, lam) for problem, lam, x in problems)
    assert np.allclose(a, b, rtol=0, atol=1e-14)


def test_gauss_newton_with_damping_in_all_that_uses_curvature():
    problem, lam, x = neural(curvature="gauss-newton")
    damped = Damped(problem, 0.3)
    est = hgp.hypergradient(damped, x, lam, hgp.PushSum(NET, 10), eta=0.5, iterations=300)
    exact = hgp.exact.hypergradient(damped, x, lam)
    assert np.allclose(est.value, exact, atol=1e-6)
    found = hgp.certify(damped, x, lam, est, hgp.PushSum(NET, 20))  # every client is convex: no modulus is needed
    assert np.all(np.linalg.norm(est.value - exact, axis=1) <= found.bound)
    assert found.curvature == "gauss-newton" and found.damping == 0.3 and not found.rounding_complete
    assert "with the Gauss-Newton matrix + μI, μ = 0.3, in place of the mean Hessian" in found.against
    assert hgp.plan(damped, x, lam, NET, target=1e-4).run().met
    influence = hgp.influence(damped, x, lam, hgp.PushSum(NET, 10), eta=0.5, iterations=300, on=[(0, 1), (2, 0)])
    G = np.mean(unit_products(damped, x, lam), axis=0)
    for r, (i, k) in enumerate([(0, 1), (2, 0)]):
        batch = np.full((3, 1), -1)
        batch[i] = k
        w = np.linalg.solve(G, problem.validation_grad(x, lam, batch)[i] / 3)
        expected = lam * np.einsum("ilx,x->il", hgp.exact.jacobians(problem, x, lam), w)
        assert np.allclose(influence.per_instance[r], expected, atol=1e-6)
    part = problem.restrict([1])
    assert np.array_equal(unit_rows(part, x[1:2], lam[1:2]), unit_rows(problem, x, lam)[1:2])


def unit_rows(problem, x, lam):
    return problem.linearize(x, lam).hvp(np.ones_like(x))


def test_an_unknown_curvature_is_refused():
    with pytest.raises(ValueError, match="^curvature must be one of 'hessian', 'gauss-newton', got 'fisher'"):
        neural(curvature="fisher")


# ---- PyTorch and JAX, with matrices by their own Jacobians


def test_a_module_of_torch_multiplies_by_the_gauss_newton_matrix():
    torch = pytest.importorskip("torch")
    (X, y), rng = instances(), np.random.default_rng(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double()

    def loss(outputs, y, lam):
        return lam[0] * torch.nn.functional.cross_entropy(outputs, y, reduction="none")

    options = {"dim_lam": 1, "penalty": lambda x, lam: lam[0] * (x**2).sum() / 2, "curvature": "gauss-newton"}
    for chunk in (None, 2):
        problem = hgp.problems.from_torch(module, loss, X, y, chunk=chunk, **options)
        x, lam = problem.parameters() + 0.1, torch.tensor([[0.5], [1.0], [2.0]]).double()
        for batch in (None, torch.tensor([[0, 2], [1, -1], [3, 0]])):
            linearization = problem.linearize(x, lam, batch)
            u = torch.tensor(rng.standard_normal(x.shape))
            found = linearization.hvp(u).numpy()
            for i in range(3):
                rows = torch.arange(SIZES[i]) if batch is None else batch[i][batch[i] >= 0]
                images = torch.tensor(X[i])[rows]
                J = torch.autograd.functional.jacobian(
                    lambda v, images=images, problem=problem: problem._outputs(v, images), x[i]
                ).numpy()
                p = torch.softmax(problem._outputs(x[i], images), dim=1).detach().numpy()
                weight, total = float(lam[i]), float(lam[i]) * np.eye(x.shape[1])
                for k in range(len(rows)):
                    total += weight / len(rows) * J[k].T @ (np.diag(p[k]) - np.outer(p[k], p[k])) @ J[k]
                assert np.allclose(found[i], total @ u[i].numpy(), rtol=1e-10, atol=1e-12)
            plain = hgp.problems.from_torch(module, loss, X, y, **{**options, "curvature": "hessian"})
            assert torch.equal(linearization.cross(u), plain.linearize(x, lam, batch).cross(u)) or chunk
            both = linearization.products(u)
            assert torch.equal(both[0], linearization.hvp(u)) and torch.equal(both[1], linearization.cross(u))
            assert not both[0].requires_grad
    est = hgp.hypergradient(Damped(problem, 0.1), x, lam, hgp.ExactAverage(3), eta=0.2, iterations=80)
    assert np.allclose(est.value, hgp.exact.hypergradient(Damped(problem, 0.1), x, lam), atol=1e-6)


def composite(np_like, arrays):
    """z = tanh(A_i x) with losses Σ λ z²/2 + z⁴/4 and a penalty, in PyTorch or JAX."""
    A = arrays

    def outputs(i, x, batch=None):
        rows = A[i] if batch is None else A[i][batch]
        return np_like.tanh(rows @ x)

    def loss(i, z, lam, batch=None):
        return (lam[0] * z**2 / 2 + z**4 / 4).mean()

    return Composite(outputs, loss, lambda i, x, lam: lam[1] * (x**4).sum())


def composite_matrix(A, x, lam):
    z = np.tanh(A @ x)
    J = (1 - z**2)[:, None] * A
    return J.T @ np.diag((lam[0] + 3 * z**2) / len(z)) @ J + np.diag(12 * lam[1] * x**2)


def check_composite(problem, x, lam, host, tolerance, batches):
    A, x_host, lam_host = host
    for batch in batches:
        linearization = problem.linearize(x, lam, batch)
        for u in np.eye(4):
            rows = type_like(np.tile(u, (3, 1)), x)
            found = np.asarray(linearization.hvp(rows))
            for i in range(3):
                chosen = A[i] if batch is None else A[i][np.asarray(batch)[i][np.asarray(batch)[i] >= 0]]
                expected = composite_matrix(chosen, x_host[i], lam_host[i]) @ u
                assert np.allclose(found[i], expected, rtol=tolerance, atol=tolerance)
            assert np.allclose(np.asarray(linearization.products(rows)[0]), found, rtol=tolerance, atol=tolerance)


def type_like(a, like):
    from hgp_ref.backend import from_host, host_dtype

    return from_host(a.astype(host_dtype(like)), like=like)


def point():
    rng = np.random.default_rng(5)
    return rng.standard_normal((3, 6, 4)), rng.standard_normal((3, 4)), rng.random((3, 2))


def test_a_composite_cost_of_torch():
    torch = pytest.importorskip("torch")
    A, x, lam = point()
    cost = composite(torch, torch.tensor(A))
    outer = lambda i, x, lam: (x**2).sum()  # noqa: E731
    problem = hgp.problems.from_torch(cost, outer, 3, 4, 2, counts=[6] * 3, curvature="gauss-newton")
    batches = (None, torch.tensor([[0, 1], [2, -1], [5, 3]]))
    check_composite(problem, torch.tensor(x), torch.tensor(lam), (A, x, lam), 1e-12, batches)
    part = problem.restrict([2])
    u = torch.ones(1, 4).double()
    found = part.linearize(torch.tensor(x[2:]), torch.tensor(lam[2:])).hvp(u)[0].numpy()
    assert np.allclose(found, composite_matrix(A[2], x[2], lam[2]) @ np.ones(4))
    with pytest.raises(TypeError, match="^inner_cost must be a hgp.problems.Composite.*got function"):
        hgp.problems.from_torch(lambda i, x, lam, batch: x.sum(), outer, 3, 4, 2, curvature="gauss-newton")


@pytest.mark.parametrize("vmap", [False, True])
def test_a_composite_cost_of_jax(vmap):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    A, x, lam = point()
    cost = composite(jnp, jnp.asarray(A))
    outer = lambda i, x, lam: (x**2).sum()  # noqa: E731
    problem = hgp.problems.from_jax(cost, outer, 3, 4, 2, counts=[6] * 3, vmap=vmap, curvature="gauss-newton")
    x_device, lam_device = jnp.asarray(x), jnp.asarray(lam)
    tolerance = 1e3 * float(jnp.finfo(x_device.dtype).eps)
    batches = (None, jnp.asarray([[0, 1], [2, 4], [5, 3]]), jnp.asarray([[0, 1], [2, -1], [5, 3]]))
    check_composite(problem, x_device, lam_device, (A, x, lam), tolerance, batches)
    part = problem.restrict([2])
    found = np.asarray(part.linearize(x_device[2:], lam_device[2:]).hvp(jnp.ones((1, 4), x_device.dtype))[0])
    assert np.allclose(found, composite_matrix(A[2], x[2], lam[2]) @ np.ones(4), rtol=tolerance)
    with pytest.raises(TypeError, match="^inner_cost must be a hgp.problems.Composite.*got function"):
        hgp.problems.from_jax(lambda i, x, lam, batch: x.sum(), outer, 3, 4, 2, curvature="gauss-newton")
