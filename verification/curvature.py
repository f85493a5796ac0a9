"""Local curvature: the preconditioned spectrum, exactness, small steps, and where local solves do not help.

Each statement of docs/theory/curvature.md is searched for violations in random settings: clients that differ little or
much, convex or not, with condition numbers up to 1e4.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

import hgp_ref as hgp
from hgp_ref.methods import ConjugateGradient, PreconditionedTracking, Tracking
from verification.cases import Case, case_of, logistic
from verification.fewer_messages import combination
from verification.rows import GOAL, Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Local curvature"
ROUNDING = 1e-9  # of eigenvalues, relative to the largest one
SLOPE = 0.1  # relative distance of the rate from 1 − γa, at the small γ used


def verify(run: Run) -> Result:
    """Violations of every statement, and tables of iterations and of the noise of mini-batches."""
    settings = run.pick(5000, 200)
    searches: dict[str, Callable[[np.random.Generator], float]] = {
        "spectrum of QH̄ at δ = ζ∞": similar_clients,
        "spectrum of QH̄, sharp": sharp_interval,
        "condition number at δ = ζ₂/2": condition_number,
        "relative differences": relative_differences,
        "exact averages": exact_averages,
        "small steps over graphs that repeat": small_steps,
        "the sum that is tracked": tracked_sum,
        "conjugate gradients along a tree": conjugate_gradients,
    }
    rows: list[Row] = []
    for stream, (name, excess) in enumerate(searches.items()):
        rng = run.rng(71, stream)
        worst = np.array([excess(rng) for _ in range(settings)])
        setting = f"{settings} random settings: violations (largest excess {worst.max():.2g})"
        rows.append(verdict_row(f"curvature, {name}", setting, int(np.sum(worst > 0)), 0.0))
    rows += limit_rows(run)
    row, rule = rule_table(run)
    return Result([*rows, row], tables=[differences_table(run), minibatch_table(run), rule])


# Random clients -------------------------------------------------------------------------------------------------------


def clients(rng: np.random.Generator, convex: bool = False) -> np.ndarray:
    """Hessians (n, d, d) with a positive definite mean."""
    n, d = int(rng.integers(2, 9)), int(rng.integers(1, 7))
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    mean = (basis * np.geomspace(10 ** rng.uniform(-4, 0), 1, d)) @ basis.T
    E = rng.normal(size=(n, d, d)) * 10 ** rng.uniform(-2, 0, (n, 1, 1))
    E = E + np.swapaxes(E, 1, 2)
    E -= E.mean(axis=0)
    H = mean + E * 10 ** rng.uniform(-4, 1) / max(np.abs(np.linalg.eigvalsh(E)).max(), 1e-300)
    if convex:
        H = H + max(0.0, -np.linalg.eigvalsh(H).min()) * np.eye(d)
    return (H + np.swapaxes(H, 1, 2)) / 2


def sizes(H: np.ndarray) -> tuple[np.ndarray, float, float]:
    """The eigenvalues of H̄, ζ∞ = max ‖E_i‖ and ζ₂ = ‖mean E_i²‖^½."""
    mean = H.mean(axis=0)
    E = H - mean
    zeta = float(np.abs(np.linalg.eigvalsh(E)).max())
    return np.linalg.eigvalsh(mean), zeta, float(np.linalg.eigvalsh((E @ E).mean(axis=0))[-1]) ** 0.5


def spectrum(H: np.ndarray, delta: float) -> tuple[float, float, float]:
    """The ends of the spectrum of QH̄, and p = min_i λ_min(P_i)."""
    P = H + delta * np.eye(H.shape[1])
    values, basis = np.linalg.eigh(H.mean(axis=0))
    root = (basis * np.sqrt(values)) @ basis.T
    seen = np.linalg.eigvalsh(root @ np.linalg.inv(P).mean(axis=0) @ root)
    return float(seen[0]), float(seen[-1]), float(np.linalg.eigvalsh(P).min())


def outside(low: float, high: float, interval: tuple[float, float], scale: float) -> float:
    """By how much [low, high] exceeds the interval, beyond rounding; at most 0 if it does not."""
    return max(interval[0] - low, high - interval[1]) - ROUNDING * scale


def sharp(lam: np.ndarray, zeta2: float, delta: float, p: float) -> tuple[float, float]:
    """[ᾱ/(ᾱ + δ), max_λ λ/(λ + δ) (1 + ζ₂²/(p(λ + δ)))] over the eigenvalues λ of H̄."""
    return float(lam[0] / (lam[0] + delta)), float(np.max(lam / (lam + delta) * (1 + zeta2**2 / (p * (lam + delta)))))


def definite_shift(H: np.ndarray, rng: np.random.Generator) -> float:
    """A shift of any size that makes all P_i definite."""
    return max(0.0, -float(np.linalg.eigvalsh(H).min())) * 1.01 + 10 ** rng.uniform(-3, 1)


# Statements -----------------------------------------------------------------------------------------------------------


def similar_clients(rng: np.random.Generator) -> float:
    H = clients(rng)
    lam, zeta, _ = sizes(H)
    zeta += 1e-12  # a single client has ζ∞ = 0
    low, high, p = spectrum(H, zeta)
    return outside(low, high, (lam[0] / (lam[0] + 2 * zeta), 1.0), high * (1 + 1 / p) * 1e-3)


def sharp_interval(rng: np.random.Generator) -> float:
    H = clients(rng)
    lam, _, zeta2 = sizes(H)
    delta = definite_shift(H, rng)
    low, high, p = spectrum(H, delta)
    return outside(low, high, sharp(lam, zeta2, delta, p), high)


def condition_number(rng: np.random.Generator) -> float:
    """(1 + δ/ᾱ)(1 + ζ₂²/(4pδ)) for any clients, 2 + ζ₂/ᾱ at δ = ζ₂/2 for convex ones."""
    H = clients(rng)
    lam, _, zeta2 = sizes(H)
    delta = definite_shift(H, rng)
    low, high, p = spectrum(H, delta)
    any_clients = (high / low) / ((1 + delta / lam[0]) * (1 + zeta2**2 / (4 * p * delta))) - 1
    H = clients(rng, convex=True)
    lam, _, zeta2 = sizes(H)
    if zeta2 < 1e-9:
        return any_clients - ROUNDING
    low, high, _ = spectrum(H, zeta2 / 2)
    return max(any_clients, (high / low) / (2 + zeta2 / lam[0]) - 1) - ROUNDING


def relative_differences(rng: np.random.Generator) -> float:
    """H_i = H̄^½ (I + Δ_i) H̄^½, ‖Δ_i‖ ≤ ε < 1, δ = 0: the spectrum lies in [1, 1 + ε₂²/(1 − ε)], whatever H̄ is."""
    E = clients(rng)
    d = E.shape[1]
    D = E - E.mean(axis=0)
    size = np.abs(np.linalg.eigvalsh(D)).max()
    D *= rng.uniform(0, 0.97) / max(size, 1e-300)
    epsilon = float(np.abs(np.linalg.eigvalsh(D)).max())
    squares = float(np.linalg.eigvalsh((D @ D).mean(axis=0))[-1])
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    root = (basis * np.geomspace(10 ** rng.uniform(-2, 0), 1, d)) @ basis.T
    H = root @ (np.eye(d) + D) @ root
    low, high, _ = spectrum((H + np.swapaxes(H, 1, 2)) / 2, 0.0)
    return outside(low, high, (1.0, 1 + squares / (1 - epsilon)), 100 * high)


def exact_averages(rng: np.random.Generator) -> float:
    """e⁺ = e − γQH̄e + γRS(e − e⁻): the iterates follow it, and it contracts as the (2, 2) matrix of the page says."""
    H = clients(rng)
    n, d = H.shape[:2]
    lam, basis = np.linalg.eigh(H.mean(axis=0))
    delta = definite_shift(H, rng)
    P = H + delta * np.eye(d)
    E, D = H - H.mean(axis=0), np.linalg.inv(P)
    R, Q = np.linalg.inv(H.mean(axis=0) + delta * np.eye(d)), D.mean(axis=0)
    S = (E @ D @ E).mean(axis=0)
    root, inverse = ((basis * lam**power) @ basis.T for power in (0.5, -0.5))
    seen = np.linalg.eigvalsh(root @ Q @ root)
    a, b, theta = float(seen[0]), float(seen[-1]), float(np.linalg.norm(root @ R @ S @ inverse, 2))
    gamma = rng.uniform(0.05, 0.99) * min(1 / b, a / (theta * (a + b)) if theta > 0 else np.inf)
    A, B = gamma * Q @ H.mean(axis=0), gamma * R @ S
    block = np.block([[np.eye(d) - A + B, -B], [np.eye(d), np.zeros((d, d))]])
    radius = float(np.abs(np.linalg.eigvals(block)).max())
    bound = float(np.abs(np.linalg.eigvals([[1 - gamma * a, gamma * theta], [gamma * b, gamma * theta]])).max())
    excess = max(radius - bound, bound - 1) - ROUNDING
    problem = hgp.problems.Quadratic(H, rng.normal(size=(n, d)), np.zeros((n, 1, d)), rng.normal(size=(n, d)))
    x, zero = np.zeros((n, d)), np.zeros((n, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # four iterations do not converge
        ws = [hgp.hypergradient(problem, x, zero, hgp.ExactAverage(n), PreconditionedTracking(delta, gamma),
                                iterations=m).w[0] for m in (2, 3, 4)]  # fmt: skip
    w_star = np.linalg.solve(H.mean(axis=0), hgp.exact.outer_gradients(problem, x, zero)[0].mean(axis=0))
    e = [w - w_star for w in ws]
    predicted = e[1] - A @ e[1] + B @ (e[1] - e[0])
    scale = max(np.abs(v).max() for v in (*ws, w_star)) * (1 + 1 / np.linalg.eigvalsh(P).min() + np.abs(P).max())
    return max(excess, float(np.abs(e[2] - predicted).max()) - ROUNDING * scale)


def period(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Mixing matrices of one period, with self-loops, jointly strongly connected."""
    T = int(rng.integers(1, 4))
    graphs = [rng.uniform(0.2, 1, (n, n)) * (rng.random((n, n)) < 0.6) + np.eye(n) for _ in range(T)]
    ring = rng.permutation(n)
    for k in range(n):
        graphs[int(rng.integers(T))][ring[k], ring[(k + 1) % n]] += rng.uniform(0.2, 1)
    return [W / W.sum(axis=0) for W in graphs]


def small_steps(rng: np.random.Generator) -> float:
    """The rate over one period is 1 − γ Σ_t a_t + O(γ²) for any fixed definite P_i, and below 1."""
    H = clients(rng)[:4, :2, :2]
    H = (H + np.swapaxes(H, 1, 2)) / 2
    H = H - H.mean(axis=0) + np.diag(rng.uniform(0.3, 1, H.shape[1]))
    H = H.mean(axis=0) + (H - H.mean(axis=0)) * min(1, 1 / max(np.abs(H - H.mean(axis=0)).max(), 1e-300))
    n, d = H.shape[:2]
    matrices = period(rng, n)
    product = np.linalg.multi_dot([*matrices[::-1], np.eye(n)])
    values, vectors = np.linalg.eig(product)
    omega = np.real(vectors[:, np.argmax(np.real(values))])
    omega = omega / omega.sum() * n  # the weights at the start of a period, in the limit
    D = np.stack([np.linalg.inv(H_i + max(0.0, -np.linalg.eigvalsh(H_i)[0]) * np.eye(d)
                                + rng.uniform(0.3, 2) * np.eye(d)) for H_i in H])  # fmt: skip
    gap = 1 - np.sort(np.abs(values))[-2] if n > 1 else 1.0
    gamma = 1e-4 * gap**2 * min(1.0, float(omega.min())) ** 2
    big = np.eye(2 * n * d)
    Q = np.zeros((d, d))
    blocks = np.zeros((n * d, n * d)), np.zeros((n * d, n * d))
    for i in range(n):
        at = slice(i * d, (i + 1) * d)
        blocks[0][at, at], blocks[1][at, at] = D[i], H[i]
    for W in matrices:
        Q += np.einsum("i,ijk->jk", omega, D) / n
        mix, before = np.kron(W, np.eye(d)), np.kron(np.diag(1 / omega), np.eye(d))
        omega = W @ omega
        after = np.kron(np.diag(1 / omega), np.eye(d))
        u_u, u_y = mix, -gamma * mix @ blocks[0]
        y_u, y_y = blocks[1] @ (after @ u_u - before), mix + blocks[1] @ after @ u_y
        big = np.block([[u_u, u_y], [y_u, y_y]]) @ big
    values = np.linalg.eigvals(big)
    values = values[np.argsort(np.abs(values - 1))][d:]  # d of them are 1: the sum that is conserved
    rate = float(np.abs(values).max())
    a = float(np.min(np.real(np.linalg.eigvals(Q @ H.mean(axis=0)))))
    return max(rate - 1, abs((1 - rate) / (gamma * a) - 1) - SLOPE)


def tracked_sum(rng: np.random.Generator) -> float:
    """Σ y_i = Σ (H_i w_i − ∂_x f_i) in runs of the library, with shifts and steps that clients adapt.

    Settings in which the residual grows so fast that the run raises DivergenceError are drawn again.
    """
    try:
        return _tracked_sum(rng)
    except hgp.DivergenceError:
        return tracked_sum(rng)


def _tracked_sum(rng: np.random.Generator) -> float:
    H = clients(rng)
    n, d = H.shape[:2]
    problem = hgp.problems.Quadratic(H, rng.normal(size=(n, d)), np.zeros((n, 1, d)), rng.normal(size=(n, d)))
    x, zero = rng.normal(size=(n, d)), np.zeros((n, 1))
    avg = hgp.PushSum(hgp.networks.Schedule(period(rng, n)), int(rng.integers(1, 4)))
    method = PreconditionedTracking(degree=None if rng.random() < 0.7 else int(rng.integers(2, 9)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a few iterations do not converge
        est = hgp.hypergradient(problem, x, zero, avg, method, iterations=int(rng.integers(1, 9)))
    f_x = hgp.exact.outer_gradients(problem, x, zero)[0]
    Hw = np.einsum("nij,nj->ni", H, est.w)
    scale = max(np.abs(f_x).max(), np.abs(Hw).max(), np.abs(est.state.y).max(), np.abs(est.w).max())
    return float(np.abs(est.state.y.sum(axis=0) - (Hw - f_x).sum(axis=0)).max()) - 1e-11 * n * scale


def preconditioner(H: np.ndarray, f_x: np.ndarray) -> np.ndarray:
    """P = |H_0| + δI of conjugate gradients, δ = 0.3 ‖(H̄ − H_0)r‖/‖r‖, r = mean ∂_x f_i."""
    r = f_x.mean(axis=0)
    values, vectors = np.linalg.eigh(H[0])
    delta = 0.3 * np.linalg.norm((H.mean(axis=0) - H[0]) @ r) / np.linalg.norm(r)
    return (vectors * (np.abs(values) + delta)) @ vectors.T


def conjugate_gradients(rng: np.random.Generator) -> float:
    """Errors in the norm of H̄: 2q^(m−1) of that of w^(1), which is no worse than 0; and none after d + 1 iterations.

    J_i = −I and ∂_λ f = 0, so that hyper-gradients are w. Where P⁻¹H̄ is ill-conditioned, rounding may leave
    1e-3 after d + 1 iterations, in any implementation; one more iteration removes that.
    """
    H = clients(rng, convex=bool(rng.random() < 0.5))
    n, d = H.shape[:2]
    f_x, mean = rng.normal(size=(n, d)), H.mean(axis=0)
    zero, tree = np.zeros((n, d)), hgp.mixing.TreeAverage(hgp.networks.FullyConnected(n))
    problem = hgp.problems.Quadratic(H, zero, np.broadcast_to(-np.eye(d), (n, d, d)).copy(), -f_x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a few iterations do not converge
        est = hgp.hypergradient(problem, zero, zero, tree, ConjugateGradient(), iterations=d + 2, history=True)
    w_star = np.linalg.solve(mean, f_x.mean(axis=0))
    error = [float(np.sqrt(e @ mean @ e)) for e in (w_star, *(est.history[:, 0] - w_star))]
    root = np.linalg.inv(np.linalg.cholesky(preconditioner(H, f_x)))
    seen = np.sqrt(np.linalg.eigvalsh(root @ mean @ root.T))
    q = (seen[-1] - seen[0]) / (seen[-1] + seen[0])
    excess = max(e - 2 * q**m * error[1] for m, e in enumerate(error[1:]))
    left = max(error[d + 1] - 1e-2 * error[0], error[d + 2] - 1e-7 * error[0])
    return max(excess, error[1] - error[0], left) - 1e-8 * error[0]


# Runs -----------------------------------------------------------------------------------------------------------------


def limit_rows(run: Run) -> list[Row]:
    """One round a call: the limit is exact, and certificates hold."""
    rows = []
    for n, d, rate in run.pick(((3, 5, 0.1), (8, 10, 0.01), (20, 5, 0.03)), ((3, 5, 0.1),)):
        case = logistic(n, d, seed=run.seed, rate=rate)
        avg = hgp.PushSum(hgp.networks.RandomDirected(n, seed=run.seed + 7), 1)
        est = case.estimate(avg, method=PreconditionedTracking(), iterations=600)
        error = float(case.error(est) / np.linalg.norm(case.truth))
        rows.append(verdict_row("curvature, no floor", f"{case.name}, S=1: relative error", error, 1e-12))
        bound = hgp.certify(case.problem, case.x, case.lam, est).bound
        rows.append(verdict_row("certify", f"{case.name}, S=1", case.client_errors(est).max(), bound.max()))
    return rows


def uneven_logistic(run: Run, smallest: float, differing: float) -> Case:
    """Eight clients, ten features of sizes between `smallest` and 1, which differ between clients by `differing`."""
    rng = run.rng(72)
    features = np.geomspace(smallest, 1, 10) * np.exp(differing * rng.normal(size=(8, 1, 10)))
    X, X_val = rng.normal(size=(2, 8, 60, 10)) * features
    y, y_val = ((a @ rng.normal(size=10) + 0.5 * rng.normal(size=(8, 60)) > 0).astype(float) for a in (X, X_val))
    problem = hgp.problems.LogisticRegression(X, y, X_val, y_val)
    return case_of(f"features {smallest:g} to 1", problem, np.full((8, 10), 1e-3))


def differences_table(run: Run) -> Table:
    """Rounds to a relative error of 1e-6 against the condition number and how much clients differ."""
    lines = []
    for smallest, differing in run.pick(((1, 0), (0.1, 0), (0.03, 0), (0.1, 0.5), (0.1, 1), (0.03, 1)), ((0.1, 0.5),)):
        case = uneven_logistic(run, smallest, differing)
        lam, zeta, zeta2 = sizes(case.H)
        net = hgp.networks.RandomDirected(8, seed=run.seed + 9)
        rounds = [rounds_to(case, net, method, 3000) for method in (Tracking(), PreconditionedTracking())]
        shown = (f"{lam[-1] / lam[0]:.0f}", f"{zeta / lam[0]:.1f}", f"{zeta2 / lam[0]:.1f}")
        lines.append((*shown, *("more than 3000" if r is None else str(r) for r in rounds)))
    head = ("κ of H̄", "ζ∞/ᾱ", "ζ₂/ᾱ", "Tracking", "PreconditionedTracking")
    title = "Rounds to 1e-6 at S = 1, logistic regression with 8 clients, RandomDirected; two vectors a round"
    return Table(title, head, lines)


def rounds_to(
    case: Case, net: hgp.networks.Network, method: hgp.methods.Method, most: int, S: int = 1, tol: float | None = None
) -> int | None:
    """Iterations after which the relative error stays below 1e-6."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # not all converge
        est = case.estimate(hgp.PushSum(net, S), method=method, iterations=most, history=True, tol=tol)
    above = np.flatnonzero(case.errors(est) > 1e-6 * np.linalg.norm(case.truth))
    last = int(above[-1]) + 2 if above.size else 1
    return last if last <= most else None


def rule_table(run: Run) -> tuple[Row, Table]:
    """The rule for shifts and steps in random settings on which none of its constants was chosen."""
    count, lines = run.sized(200, 20, 4), []
    settings = [combination(run, k)[:2] for k in range(count)]
    named = {"methods": ["PreconditionedTracking"], "target": 1e-6}
    planned = [int(hgp.plan(case.problem, case.x, case.lam, net, **named).steps) for case, net in settings]
    for name, steps in (("1", [1] * count), ("of the plan", planned)):
        found = [iterations_of_rule(case, net, S) for (case, net), S in zip(settings, steps, strict=True)]
        reached = [m for m in found if isinstance(m, int)]
        lines.append((name, str(len(reached)), str(found.count(None)), str(found.count("diverged")),
                      f"{np.median(reached):.0f}"))  # fmt: skip
    setting = f"{count} random settings, S of the plan: not below 1e-6 after 1200 iterations"
    row = verdict_row("curvature, shifts and steps", setting, count - int(lines[-1][1]), 0.05 * count, form=GOAL)
    title = f"PreconditionedTracking() to 1e-6 in {count} random settings, at most 1200 iterations"
    return row, Table(title, ("S", "reached", "not reached", "diverged", "median iterations"), lines)


def iterations_of_rule(case: Case, net: hgp.networks.Network, S: int) -> int | str | None:
    """Iterations to 1e-6; None if more than 1200, "diverged" if the run raises DivergenceError."""
    try:
        return rounds_to(case, net, PreconditionedTracking(), 1200, S, tol=1e-11)
    except hgp.DivergenceError:
        return "diverged"


def minibatch_table(run: Run) -> Table:
    """The error that mini-batches leave: P_i⁻¹ amplifies their noise along weak directions."""
    lines = []
    for smallest in run.pick((1, 0.3, 0.1), (0.3,)):
        case = uneven_logistic(run, smallest, 0.0)
        lam = sizes(case.H)[0]
        avg = hgp.PushSum(hgp.networks.RandomDirected(8, seed=run.seed + 9), 5)
        for size in (10, 30):
            errors = []
            for method in (Tracking(0.2 / case.L), PreconditionedTracking(), PreconditionedTracking(0.0, 0.05)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # noise does not shrink
                    est = case.estimate(avg, method=method, iterations=run.pick(1500, 200), history=True,
                                        batches=hgp.MiniBatches(size, seed=run.seed))  # fmt: skip
                errors.append(f"{np.median(case.errors(est)[-100:]) / np.linalg.norm(case.truth):.1e}")
            lines.append((f"{lam[-1] / lam[0]:.0f}", str(size), *errors))
    head = ("κ of H̄", "batch of 60", "Tracking(0.2/L)", "PreconditionedTracking()", "PreconditionedTracking(0, 0.05)")
    title = "Relative error that remains with mini-batches, S = 5, median of the last 100 of 1500 iterations"
    return Table(title, head, lines)
