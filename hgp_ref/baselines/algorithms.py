"""Nine bilevel methods from the literature, each as rules for x and λ and an estimator of the hyper-gradient.

D-SOBA       x, z and λ in one round                               Kong et al., arXiv 2402.03167
SPARKLE      the same, with corrections for clients that differ    Zhu et al., arXiv 2411.14166
MA-DSBO      nested loops with gradient tracking                   Chen et al. 2022, arXiv 2210.12839
FAB          a penalty instead of second derivatives, over time-varying directed graphs      arXiv 2605.06328
FedNest      through a server                                      Tarzanagh, Li, Thrampoulidis, Oymak, ICML 2022
GBDSBO       gossip of gradients, Jacobians and Hessians           Yang, Zhang, Wang 2022, arXiv 2206.10870
DBO, DBOGT   the matrix H̄⁻¹ J̄ᵀ by gradient tracking (JHIP)         Chen, Huang, Ma 2022, arXiv 2206.05670
MDBO, VRDBO  the Local hyper-gradient, momentum or STORM           Gao, Gu, Thai 2022

Equations are for a shared λ. If λ_i belongs to client i, the default, it moves by λ_i ← λ_i − α v_i with the same
direction v_i, and is not sent. Step sizes are positive and constant. The class of a method is that of its estimator
(`hgp_ref.baselines.estimators`).
"""

from __future__ import annotations

from hgp_ref.baselines.driver import BilevelMethod, Filter, MovingAverage, Nested, SingleLoop, Storm, baseline
from hgp_ref.baselines.estimators import (
    COUNT,
    DIRECTED,
    SERVER,
    Auxiliary,
    HessianGossip,
    JacobianTracking,
    LocalSeries,
    Penalty,
    RandomTerm,
)
from hgp_ref.baselines.rules import CORRECTED, Consensus, Diffusion, Svrg, Tracking
from hgp_ref.validation import Between, Boolean, Choice, Positive, Probability

FRACTION = Between(0, 1, exclude_low=True)
RULE = Choice(*CORRECTED)


@baseline(aux_lr=Positive(), momentum=Probability())
def dsoba(*, lr: float, inner_lr: float, aux_lr: float, momentum: float = 1.0) -> BilevelMethod:
    """D-SOBA (arXiv 2402.03167): one loop of diffusion for x, z and λ; class Global.

    Each iteration is one round of

        x ← W (x − β ∂_x g_i),               z ← W (z − γ (H_i z_i − ∂_x f_i)),
        h ← (1 − θ) h + θ (∂_λ f_i − J_i z_i),    λ ← W (λ − α h),

    with all derivatives at the same (x, z, λ) and h starting as its first direction. If clients differ, x and z keep a
    bias proportional to β and γ. A message carries d_λ + 2 d_x numbers.

    Parameters
    ----------
    lr, inner_lr, aux_lr, momentum : α, β, γ and θ in [0, 1].

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(n=4, dim_x=3, dim_lam=2, seed=1)
    >>> net = hgp.networks.StaticUndirected(n=4, seed=1)
    >>> path = hgp.baselines.dsoba(problem, np.zeros((4, 2)), net, 600, lr=0.002, inner_lr=0.2, aux_lr=0.2, shared=True)
    >>> cost = lambda lam: problem.outer_cost(hgp.exact.inner_solution(problem, lam), lam).sum()
    >>> bool(cost(path.lam[-1]) < 0.8 * cost(path.lam[0]))
    True
    """
    estimator = Auxiliary(Diffusion(aux_lr))
    return SingleLoop("D-SOBA", Diffusion(inner_lr), estimator, Diffusion(lr), MovingAverage(momentum))


@baseline(aux_lr=Positive(), momentum=Probability(), inner_rule=RULE, aux_rule=RULE, outer_rule=RULE)
def sparkle(*, lr: float, inner_lr: float, aux_lr: float, inner_rule: str = "ED", aux_rule: str = "ED",
            outer_rule: str = "ED", momentum: float = 1.0) -> BilevelMethod:  # fmt: skip
    """SPARKLE (arXiv 2411.14166): `dsoba` with a correction for clients that differ; class Global.

    Each variable has a correction of its own: "ED", "EXTRA" or "GT" (see `hgp_ref.baselines.rules`), here with d
    eliminated.

        ED     s^{k+2} = W (2s^{k+1} − s^k − α Δd),            EXTRA  s^{k+2} = 2W s^{k+1} − W s^k − α Δd,
        GT     s^{k+2} = 2W s^{k+1} − W² s^k − α W² Δd,        Δd = d^{k+1} − d^k.

    In ED and EXTRA, W is the lazy (I + W)/2. They send one vector per variable and iteration; GT sends two, in two
    rounds. All derivatives are at the same (x, z, λ).

    Parameters
    ----------
    lr, inner_lr, aux_lr : steps of λ, x and z.
    inner_rule, aux_rule, outer_rule : the corrections of x, of z and, if it is shared, of λ.
    momentum : θ in [0, 1].
    """
    x_rule, aux, lam_rule = CORRECTED[inner_rule](inner_lr), CORRECTED[aux_rule](aux_lr), CORRECTED[outer_rule](lr)
    return SingleLoop("SPARKLE", x_rule, Auxiliary(aux), lam_rule, MovingAverage(momentum))


@baseline(higp_lr=Positive(), inner_steps=COUNT, higp_steps=COUNT, momentum=Probability())
def ma_dsbo(*, lr: float, inner_lr: float, higp_lr: float, inner_steps: int = 10, higp_steps: int = 10,
            momentum: float = 1.0) -> BilevelMethod:  # fmt: skip
    """MA-DSBO (arXiv 2210.12839): inner loops of descent for x and of gradient tracking for z; class Global.

    In each outer iteration

        T times    x ← W x − β ∂_x g_i(x_i, λ_i),    from the last x,
        N times    HIGP: z ← W z − γ d,  d ← W d + s⁺ − s,  s_i = H_i z_i − ∂_x f_i,    from the last z and d⁰ = s⁰,
        then       r ← (1 − θ) r + θ (∂_λ f_i − J_i z_i),    λ ← W λ − α r.

    Every edge carries T d_x + 2 N d_x + d_λ numbers. In the paper θ is proportional to α.

    Parameters
    ----------
    lr, inner_lr, higp_lr, momentum : α, β, γ and θ in [0, 1].
    inner_steps, higp_steps : T and N.
    """
    return Nested("MA-DSBO", Consensus(inner_lr), Auxiliary(Tracking(higp_lr)), Consensus(lr), MovingAverage(momentum),
                  inner_steps=inner_steps, estimator_steps=higp_steps)  # fmt: skip


@baseline()
def fab(*, lr: float, inner_lr: float, penalty: float, nodes: int = 2) -> BilevelMethod:
    """FAB (arXiv 2605.06328): a penalty and first derivatives only, over time-varying directed networks.

    With L_i = f_i(λ, y) + c (g_i(λ, y) − g_i(λ, x)), each round

        pull with A:   λ ← A λ − α t_λ,    y ← A y − η t_y,    x ← A x − η t_x,
        push with B:   t ← B t + d⁺ − d    for each,    d_y = ∂_x f_i + c ∂_x g_i at y,    d_x = c ∂_x g_i at x,
                       d_λ = ∂_λ f_i(λ, y) + c (∂_λ g_i(λ, y) − ∂_λ g_i(λ, x)),

    A row- and B column-stochastic with the edges of the round's graph. A message carries 2 d_λ + 4 d_x numbers and a
    weight. In the paper c = O(K^{1/3}) and η = O(K^{-1/3}); here both are arguments. `path.x` is x, which follows the
    inner solution.

    Parameters
    ----------
    net : any network, also time-varying and directed.
    lr, inner_lr, penalty : α, η and c. The step of x is η c, so that η c λ_max(H̄) < 2 is necessary, and less on sparse
        graphs.
    nodes : of the quadrature for ∂_λ g(y) − ∂_λ g(x), which is exact for polynomials in x of degree 2 · nodes.
    """
    estimator = Penalty(inner_lr, penalty, nodes)
    return SingleLoop("FAB", Tracking(inner_lr * estimator.penalty), estimator, Tracking(lr), network=DIRECTED)


@baseline(inner_steps=COUNT, local_steps=COUNT)
def fednest(*, lr: float, inner_lr: float, ell: float, terms: int = 20, inner_steps: int = 5, local_steps: int = 1,
            seed: int = 0) -> BilevelMethod:  # fmt: skip
    """FedNest: federated, through a server, with variance reduction and a random term of the Neumann series.

    This is the method of its paper; the published program differs. In each outer iteration

        T times    FedInn   d̄ = mean ∂_x g_i(x), τ times y_i ← y_i − β (∂_x g_i(y_i) − ∂_x g_i(x) + d̄), x = mean y_i,
        then       FedIHGP  p ← (N/ℓ) mean ∂_x f_i, N' times p ← mean (I − H_i/ℓ) p, N' uniform on 0 .. N−1,
        then       FedOut   the same with h_i = ∂_λ f_i − J_i p in place of ∂_x g_i and α in place of β.

    2T + N' + 3 rounds through a server. If λ is not shared, FedOut is λ_i ← λ_i − α h_i and sends nothing.

    Parameters
    ----------
    net : FullyConnected(n). A round is counted as n messages to the server and n back.
    lr, inner_lr : α and β of every local step.
    ell, terms : ℓ and N.
    inner_steps, local_steps : T and τ.
    seed : of N'.
    """
    estimator = RandomTerm(terms, ell, seed)
    return Nested("FedNest", Svrg(inner_lr, local_steps), estimator, Svrg(lr, local_steps), network=SERVER,
                  inner_steps=inner_steps, estimator_steps=estimator.terms)  # fmt: skip


@baseline(mixing=FRACTION)
def gbdsbo(*, lr: float, inner_lr: float, mixing: float, ell: float, terms: int = 20, shared: bool = False
           ) -> BilevelMethod:  # fmt: skip
    """GBDSBO (arXiv 2206.10870): gossip of Hessians; class Global with a bias.

    Each iteration is one round of

        λ ← W λ − α (s − U Q h),    x ← W x − β' ∂_x g_i,    and s, h, U, V as in `HessianGossip`.

    The paper couples the steps, α, β = Θ(√(n/K)); here each is an argument.

    Parameters
    ----------
    lr, inner_lr, mixing : α, β' and the β of the means, in (0, 1].
    ell, terms : ℓ and the degree b of the polynomial.
    """
    return SingleLoop("GBDSBO", Consensus(inner_lr), HessianGossip(mixing, ell, terms, shared), Consensus(lr))


@baseline(jhip_lr=Positive(), inner_steps=COUNT, jhip_steps=COUNT, tracking=Boolean())
def dbo(*, lr: float, inner_lr: float, jhip_lr: float, inner_steps: int = 10, jhip_steps: int = 10,
        tracking: bool = False, shared: bool = False) -> BilevelMethod:  # fmt: skip
    """DBO (arXiv 2206.05670), with `tracking` DBOGT: tracks the matrix H̄⁻¹ J̄ᵀ.

    In each outer iteration

        T times    x_i ← Σ_j W_ij x_j − β ∂_x g_i(x_i, λ_i),
        N times    JHIP (`JacobianTracking`), from the last Z,
        then       λ_i ← Σ_j W_ij λ_j − α u_i,    u_i = ∂_λ f_i − Z_iᵀ ∂_x f_i,    or with u_i tracked (DBOGT).

    u_i is of class Client, its mean Global. If λ_i belongs to client i, λ_i ← λ_i − α v_i with the Global v_i, for
    which the products Zᵀ ∂_x f are tracked together with Z.

    Parameters
    ----------
    lr, inner_lr, jhip_lr : α, β and γ.
    inner_steps, jhip_steps : T and N.
    tracking : DBOGT. It differs from DBO only if λ is shared.
    """
    name, lam_rule = ("DBOGT", Tracking(lr)) if tracking else ("DBO", Consensus(lr))
    return Nested(name, Consensus(inner_lr), JacobianTracking(jhip_lr, shared), lam_rule,
                  inner_steps=inner_steps, estimator_steps=jhip_steps)  # fmt: skip


@baseline(eta=FRACTION, momentum=Probability())
def mdbo(*, lr: float, inner_lr: float, ell: float, terms: int = 20, eta: float = 0.5,
         momentum: float = 1.0) -> BilevelMethod:  # fmt: skip
    """MDBO (Gao, Gu, Thai 2022): gradient tracking with momentum of the Local hyper-gradient.

    From "On the convergence of distributed stochastic bilevel optimization algorithms over a network":

        u ← (1 − θ) u + θ d,    t ← W t + u⁺ − u,    s ← s + η (W s − α t − s),    θ = α₁ η,

    for s = x with d_i = ∂_x g_i and for s = λ with the Local hyper-gradient of `LocalSeries`,
    d_i = ∂_λ f_i − J_i (1/ℓ) Σ_{j<J} (I − H_i/ℓ)^j ∂_x f_i, the mean over the paper's random J̃. Its class is Local,
    with or without tracking: if clients differ, it is not the derivative of Σ_k f_k. A message carries 2 d_λ + 2 d_x
    numbers. If λ is not shared, λ_i ← λ_i − η α u_i.

    Parameters
    ----------
    lr, inner_lr : α of λ and of x.
    ell, terms : ℓ and J.
    eta, momentum : η in (0, 1] and θ in [0, 1].
    """
    return _tracked_local("MDBO", MovingAverage(momentum), lr, inner_lr, ell, terms, eta)


@baseline(eta=FRACTION, momentum=Probability())
def vrdbo(*, lr: float, inner_lr: float, ell: float, terms: int = 20, eta: float = 0.5,
          momentum: float = 0.1) -> BilevelMethod:  # fmt: skip
    """VRDBO (Gao, Gu, Thai 2022): `mdbo` with STORM in place of momentum.

    With θ = α₁ η²,

        u ← (1 − θ) (u − d₋) + d,    d₋ the direction one iteration ago, on this iteration's mini-batch.

    On full batches u = d for every θ. Parameters and class are those of `mdbo`.
    """
    return _tracked_local("VRDBO", Storm(momentum), lr, inner_lr, ell, terms, eta)


def _tracked_local(
    name: str, rule: Filter, lr: float, inner_lr: float, ell: float, terms: int, eta: float
) -> BilevelMethod:
    series, x_rule, lam_rule = LocalSeries(terms, ell), Tracking(inner_lr, eta), Tracking(lr, eta)
    return SingleLoop(name, x_rule, series, lam_rule, lam_filter=rule, x_filter=rule)
