"""What a problem is: the methods that the rest of the package calls, and nothing more.

Client i of n has an inner cost g_i(x_i, lam_i), which the clients minimise together under consensus
x_1 = ... = x_n, and an outer cost f_i(x_i, lam_i), whose sum is differentiated with respect to lam. A user's own
problem is any object with the members of `Problem`; it need not inherit from anything, and `isinstance(p, Problem)`
tells whether a member is missing.

Shapes. The client axis comes first: `x`, `u` are (n, dim_x), `lam` is (n, dim_lam), and row i of every argument and
of every result belongs to client i alone. Results have the namespace, device and dtype of `x`.

Batches. `batch` is None for all instances of every client, or an integer array (n, b) in the namespace and on the
device of `x`: row i lists instances of client i, -1 is padding and counts for nothing, and the mini-batch cost is the
mean over a client's valid entries. It must be an unbiased estimate of the full cost under uniform sampling. A problem
without instances raises ValueError when a batch is given.

Optional members, each used where it is present and never required:

- `hessian(x, lam, batch=None)` (n, dim_x, dim_x) and `jacobian(x, lam, batch=None)` (n, dim_lam, dim_x): closed forms
  of d²_x g_i and d²_{x lam} g_i for the explicit reference, which otherwise applies hvp and cross to unit vectors.
- `counts`: (n,) NumPy integers on the host, the instances of each client. Needed to draw mini-batches.
- `broadcasts = True`: every method also accepts leading run axes, x (..., n, dim_x), lam (..., n, dim_lam),
  u (..., n, dim_x) and batch (..., n, b), which broadcast against each other; many runs then go as one call.
  Absent or False: the package calls the problem once per run.
- `weighs_instances`: whether lam_ik is the weight of training instance k of client i, so that 0 removes it (needed for
  influence). Absent: decided by dim_lam being the largest of `counts`.
- `restrict(clients)`: the same problem with some of its clients (a slice or indices), for clients spread over machines.
- `lipschitz(lam)`: a `constants.Lipschitz` (or a mapping with its fields, or None) with which certificates speak of the
  exact inner solution, and `jacobian_norms(x, lam)` (n,): upper bounds on |d²_{x lam} g_i|, which certificates of
  large problems otherwise find from dim_x cross products.
- `term_sizes(x, lam)`: a `term_sizes.TermSizes`, how large the terms are that each cost, gradient and product adds.
  With it, certificates include the rounding of these sums; without, they state that they do not.
- `prepare_batches(host_batches, like)`: see `problems.normalised`, which is where every door of the package turns a
  problem into one that has all of these members.
- `data_digest()`: a text that is the same for equal data and another for others, which checkpoints of
  `bilevel.optimise` compare (see `digests`). Without it they compare costs and lengths of gradients at one point.
- `on(batch)` of a built-in full-batch linearization: the same point on a mini-batch, without computing l' and l'' anew.
- `products(u)` of a linearization: (hvp(u), cross(u)) where both share work.

What a problem may do. It may return the same array again and again with new contents: `as_problem` copies its answers.
It must not change its arguments: NumPy arrays are passed as read-only views, those of other mutable libraries are
compared with a copy at the first call of each method (see `unchanged`).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hgp_ref.backend import Array


@runtime_checkable
class Linearization(Protocol):
    """Second derivatives of g at a fixed point (x, lam, batch), applied to vectors as often as needed.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> problem.linearize(x, lam).hvp(x).shape, problem.linearize(x, lam).cross(x).shape
    ((3, 4), (3, 2))
    """

    def hvp(self, u: Array) -> Array:
        """d²_x g_i(x_i, lam_i) u_i for every client.  # (n, dim_x)

        Parameters
        ----------
        u : (n, d_x).

        Returns
        -------
        (n, d_x).
        """
        ...

    def cross(self, u: Array) -> Array:
        """d²_{x lam} g_i(x_i, lam_i) u_i, the derivative of <d_x g_i, u_i> along lam_i.  # (n, dim_lam)

        Parameters
        ----------
        u : (n, d_x).

        Returns
        -------
        (n, d_λ).
        """
        ...


class FullLinearization(Linearization, Protocol):
    """A linearization with `products`, as every normalised problem gives."""

    def products(self, u: Array) -> tuple[Array, Array]:
        """hvp(u) and cross(u).  # (n, dim_x), (n, dim_lam)"""
        ...


@runtime_checkable
class Problem(Protocol):
    """Client costs g_i (inner) and f_i (outer) with the derivatives that hyper-gradients need.

    Examples
    --------
    >>> isinstance(hgp.problems.Quadratic.random(3, 4, 2), hgp.problems.Problem)
    True
    """

    n_clients: int
    dim_x: int
    dim_lam: int

    def inner_cost(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """g_i(x_i, lam_i).  # (n,)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        batch : (n, b) indices of instances; None for all of them.

        Returns
        -------
        (n,).
        """
        ...

    def inner_grad(self, x: Array, lam: Array, batch: Array | None = None) -> Array:
        """d_x g_i(x_i, lam_i).  # (n, dim_x)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        batch : (n, b) indices of instances; None for all of them.

        Returns
        -------
        (n, d_x).
        """
        ...

    def outer_cost(self, x: Array, lam: Array) -> Array:
        """f_i(x_i, lam_i); the outer objective is their sum.  # (n,)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).

        Returns
        -------
        (n,).
        """
        ...

    def outer_grad(self, x: Array, lam: Array) -> tuple[Array, Array]:
        """d_x f_i and d_lam f_i.  # (n, dim_x), (n, dim_lam)

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).

        Returns
        -------
        (n, d_x) and (n, d_λ).
        """
        ...

    def linearize(self, x: Array, lam: Array, batch: Array | None = None) -> Linearization:
        """Fix the point and keep what can be kept; the result must not change if x is changed later.

        Parameters
        ----------
        x : (n, d_x).
        lam : (n, d_λ).
        batch : (n, b) indices of instances; None for all of them.

        Returns
        -------
        Linearization.
        """
        ...
