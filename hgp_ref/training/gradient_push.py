"""Stochastic gradient push: the inner problem over directed networks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from hgp_ref import arguments
from hgp_ref.averaging import PushSum, RobustPushSum, open_mean, push_sum_over
from hgp_ref.backend import Array, detached
from hgp_ref.errors import outside
from hgp_ref.networks import Network
from hgp_ref.philox import MAX_STEP, check_seeds
from hgp_ref.problems import Problem, as_problem
from hgp_ref.problems.minibatches import MiniBatches
from hgp_ref.problems.normalised import Normalised
from hgp_ref.training.alternation import Alternation
from hgp_ref.training.descent import Descent, Rate, Rates
from hgp_ref.training.divergence import TrainingWatch
from hgp_ref.training.fit import Fit
from hgp_ref.training.start import check_clients, check_lam, one_per_seed, read_start

VARIANTS = ("assran", "nedic")
LOOK = 256  # steps between two looks at how large things have grown
TOLERANCE_LOOK = 32  # steps between two looks at the mean gradient, where a tolerance is given


def sgp(
    problem: Problem,
    net: Network,
    lam: Array,
    steps: int = 5000,
    lr: Rate = 2.0,
    milestones: Sequence[int] | None = None,
    variant: str = "assran",
    *,
    decay: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    batch_size: int | None = None,
    seed: int | Sequence[int] = 0,
    first_batch: int = 0,
    x0: Array | None = None,
    tol: float | None = None,
    callback: Callable[[int, Array], object] | None = None,
    mode: str = "auto",
    progress: bool = False,
) -> Fit:
    """Minimise Σ_k g_k(x, λ_k) by gradient steps on what Push-Sum has mixed so far.

    With z = x / ω and the learning rate a, step s takes graph s of the network:

        "assran":  x ← W_s (x − a ∂g(z)),  ω ← W_s ω
        "nedic":   x ← W_s x,  ω ← W_s ω,  z = x / ω,  x ← x − a ∂g(z)

    and, with momentum m and weight decay c, each client's own b ← m b + ∂g(z) + c z in place of ∂g(z).

    Where the links of `net` lose or delay messages (`networks.Unreliable`), x and ω go over running sums that are never
    reset, `RobustPushSum(net, 1, debias="conserve")`: the sum of all parameters, those under way included, then moves
    by gradients alone, as over reliable links. A client steps by a / ω_i, and ω_i falls with what is under way: large
    delays take a smaller a. A warning says so.

    Parameters
    ----------
    problem : client costs, any object that meets `hgp_ref.problems.Problem`.
    net : who hears whom at each step; also one that loses messages.
    lam : (n, d_lam), or (runs, n, d_lam) to train for several λ at once.
    steps, lr : number of steps and learning rate a, a number or a function of the step (from 0).
    milestones : step numbers (from 0) at which a is multiplied by `decay`; by default after 3/5 and 4/5 of the steps.
    momentum, weight_decay : m in [0, 1) and c >= 0.
    batch_size : None for full batches, else b instances a client, drawn anew at each step from `seed`; `first_batch`
        is the number of the first one in its sequence. A list of seeds trains all of them along a leading run axis.
    x0 : (n, d_x), zeros by default.
    tol : stop once ‖mean_i ∂g_i(x̄)‖ on full batches is at most tol times what it was at the start; looked at every
        TOLERANCE_LOOK steps by someone who sees all clients.
    callback : called as callback(step, z) after each step; a true result stops the training.
    mode : how graphs meet the parameters, as in `PushSum`.
    progress : show a bar.

    Returns
    -------
    Fit, with `x` (n, d_x), the consensus gap and the gradient that is left. Training that grows raises DivergenceError,
    training that ends before it has met `tol` gives a ConvergenceWarning.

    Raises
    ------
    TypeError, ValueError
        λ or x0 does not fit the problem or the network, settings are out of their range.
    DivergenceError
        x or its gradient is not finite any more, or grew without end.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> fit = hgp.sgp(problem, hgp.networks.FullyConnected(3), lam, steps=500, lr=0.5)
    >>> bool(np.abs(fit.x - x).max() < 1e-3)
    True
    """
    problem = as_problem(problem, needs=("inner_grad",))
    check_lam(problem, lam, x0)
    steps = arguments.integer("steps", steps, 1, arguments.LONGEST)
    tol = None if tol is None else arguments.positive("tol", tol)
    arguments.choice("variant", variant, VARIANTS)
    first_batch = arguments.integer("first_batch", first_batch, 0, MAX_STEP)
    progress = arguments.boolean("progress", progress)
    if callback is not None:
        arguments.function("callback", callback)
    seeds, many = check_seeds(seed)
    lam = one_per_seed(detached(lam), seeds) if many else detached(lam)
    z = read_start(problem, lam, x0)
    average = open_mean([_averaging(net, mode, problem)], problem.n_clients, z, steps)
    rates = Rates(steps, lr, milestones, decay)
    rule = Descent(problem, lam, momentum, weight_decay)
    average.channel.meet(problem.clients)
    average.channel.agree("hgp.sgp", variant=variant, tol=tol, batch_size=batch_size, seed=seeds,
                          first_batch=first_batch, rates=rates.sample(), milestones=rates.milestones,
                          momentum=rule.momentum, weight_decay=rule.weight_decay, dim_lam=problem.dim_lam,
                          callback=callback is not None)  # fmt: skip
    batches = None
    if batch_size is not None:
        batches = MiniBatches(problem, batch_size, seeds, steps, lam, runs=many, first=first_batch)
    work, watch = GradientStep(rule, rates, batches), TrainingWatch(rule, z, rates.largest, average)
    turns = Alternation(average, work, watch, steps, variant == "nedic", LOOK, tol, TOLERANCE_LOOK, callback)
    return turns.fit(
        z,
        "sgp" if progress else None,
        lr=rates[0],
        milestones=rates.milestones,
        decay=float(decay),
        variant=variant,
        batch_size=batch_size,
        seed=seeds if many else seeds[0],
        first_batch=first_batch,
    )


def _averaging(net: Network, mode: str, problem: Normalised) -> PushSum:
    """Push-Sum whose weights and sums run on; with running sums where links lose or delay messages."""
    average = push_sum_over(net, 1, debias="conserve", mode=mode)
    check_clients(net, average.connect(), problem.n_clients)
    if isinstance(average, RobustPushSum):
        warnings.warn(
            "sgp: the links of net lose or delay messages; training goes over RobustPushSum with "
            "debias='conserve' in place of PushSum, which would lose parameters. While mass is under way weights are "
            "small and steps lr / weight large: it may take a smaller lr",
            RuntimeWarning,
            stacklevel=outside(),
        )
    return average


class GradientStep:
    """δ(z) = −a b, one mini-batch a turn."""

    def __init__(self, rule: Descent, rates: Rates, batches: MiniBatches | None) -> None:
        self.rule, self.rates, self.batches = rule, rates, batches
        self.last: Array = None

    def __call__(self, turn: int, z: Array) -> Array:
        batch = None if self.batches is None else self.batches.at(turn - 1)[0]
        self.rate, self.last = self.rates[turn - 1], self.rule.direction(z, batch, self.last)
        return -self.rate * self.last
