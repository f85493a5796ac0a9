"""`hgp.methods.Refined`: the factor by which a cycle reduces the error, on full batches and on mini-batches."""

from __future__ import annotations

import numpy as np

import hgp_ref as hgp
from verification.cases import Case, logistic, quadratic
from verification.rows import GOAL, Row, verdict_row
from verification.run import Result, Run, Table

TITLE = "Iterative refinement"
GAIN = 100.0  # by which refinement must beat plain mini-batches at the same number of products


def verify(run: Run) -> Result:
    """Contraction per cycle, and mini-batches at equal numbers of products."""
    rows: list[Row] = []
    lines = []
    for case, S in ((quadratic(10, 10, seed=run.seed, condition=100.0, heterogeneity=0.05), 5), (logistic(3, 5), 5)):
        more, line = cycles_rows(case, S, run)
        rows += more
        lines.append(line)
    more, table = mini_batch_rows(run)
    head = ("setting", *(f"after cycle {k}" for k in range(1, 6)))
    return Result([*rows, *more], tables=[Table("Relative error, S = 40 at restarts only", head, lines), table])


def cycles_rows(case: Case, S: int, run: Run) -> tuple[list[Row], list[str]]:
    """Every cycle reduces the error to a tenth until near rounding; without restarts the same calls stop at a floor."""
    cycles, length = 5, 60
    avg = hgp.PushSum(hgp.networks.RandomDirected(case.n, seed=run.seed + 3), S)
    eigenvalues = np.linalg.eigvalsh(case.H)
    inner = hgp.methods.Chebyshev(float(eigenvalues.min()), float(eigenvalues.max()))
    est = case.estimate(avg, method=hgp.methods.Refined(inner, cycles, 40), iterations=cycles * length, history=True)
    scale = float(np.linalg.norm(case.truth))
    errors = case.errors(est)[length - 1 :: length] / scale
    rows = []
    for k in range(1, cycles):
        if errors[k - 1] > 1e-9:
            setting = f"{case.name}, S={S}, cycle {k + 1}: share of the error that it leaves"
            rows.append(verdict_row("refinement", setting, errors[k] / errors[k - 1], 0.1))
    plain = float(case.error(case.estimate(avg, method=inner, iterations=cycles * length))) / scale
    rows.append(verdict_row("refinement", f"{case.name}, S={S}: against no restarts", 1e3 * errors[-1], plain))
    bound = hgp.certify(case.problem, case.x, case.lam, est).bound
    rows.append(verdict_row("certify", f"{case.name}, refined", case.client_errors(est).max(), bound.max()))
    return rows, [f"{case.name}, S={S}", *(f"{e:.1e}" for e in errors)]


def mini_batch_rows(run: Run) -> tuple[list[Row], Table]:
    """Logistic regression, batches of 20 of 100: both sides use equally many products of instances per client."""
    case, size, M, N = logistic(3, 5, seed=run.seed), 20, 80, 100
    avg = hgp.PushSum(hgp.networks.RandomDirected(3, seed=run.seed + 4), 30)
    eta, scale = 1 / case.L, float(np.linalg.norm(case.truth))
    seeds = run.seeds(run.pick(20, 6), stream=61)
    rows, lines = [], []
    for cycles in (4, 8):
        products = M * cycles * size + (cycles - 1) * N + N  # of H in steps and at restarts, of J at the end
        refined = case.estimate(
            avg, method=hgp.methods.Refined(hgp.methods.Neumann(eta), cycles, 40), iterations=M * cycles,
            batches=hgp.MiniBatches(size, seed=seeds, full_jacobian=True),
        )  # fmt: skip
        plain = case.estimate(avg, eta=eta, iterations=products // size, batches=hgp.MiniBatches(size, seed=seeds))
        errors = [float(np.median(np.asarray(case.error(e)))) / scale for e in (refined, plain)]
        setting = f"{case.name}, b={size}, {products} products a client, {cycles} cycles: {GAIN:g} × relative error"
        rows.append(verdict_row("refinement, mini-batches", setting, GAIN * errors[0], errors[1], form=GOAL))
        lines.append((str(cycles), str(products), f"{errors[0]:.1e}", f"{errors[1]:.1e}"))
    head = ("cycles", "products of an instance, per client", "refined", "Algorithm 2")
    return rows, Table("Mini-batches: median relative error at the same number of products", head, lines)
