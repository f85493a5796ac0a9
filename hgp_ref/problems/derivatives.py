"""A test of a problem's derivatives, batches, run axis, restriction and dtype: `check_derivatives`.

First derivatives are compared with central differences of costs, second derivatives with those of gradients,

    ⟨∂_x g, p⟩ ≈ (g(x + hp) − g(x − hp))/2h,    H p ≈ (∂_x g(x + hp) − ∂_x g(x − hp))/2h,

along random directions p of all clients at once. The error of a difference is h² times a third derivative plus eps/h
times a value, neither of which is known. So differences are taken for several h. Where two of them agree best, four
times their distance plus the rounding of the values is taken as the accuracy. A derivative is wrong if it misses the
difference by more than this and 4 √eps of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgp_ref import validation
from hgp_ref.backend import Array, from_host, host_dtype, to_host
from hgp_ref.problems.base import FullProblem, Problem, as_problem, check_point, optional
from hgp_ref.problems.transforms import modified_curvature
from hgp_ref.results import Result
from hgp_ref.validation import Integer, Seed, checked

STEPS = tuple(4.0**k for k in range(3, -4, -1))  # times eps^(1/3)
IDENTITY = 1000  # rounding errors of two ways to compute the same number, in eps of its size
UNCLEAR = 0.05  # relative accuracy of differences from which on they tell nothing

Values = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Comparison(Result):
    """One row of the table of `check_derivatives`.

    Attributes
    ----------
    quantity, reference : what was compared with what.
    error, allowed : the largest error of a client relative to the size of the quantity, and what is allowed for it;
        None without numbers to compare.
    verdict : "ok", "wrong", "unclear" (differences are too inaccurate) or "skipped".
    note : the client with the largest error, the exception, or why the comparison was skipped.
    """

    quantity: str
    reference: str
    error: float | None
    allowed: float | None
    verdict: str
    note: str


@dataclass(frozen=True)
class DerivativeCheck(Result):
    """What `check_derivatives` found; `print` shows a table.

    Attributes
    ----------
    problem : the class of the problem.
    rows : the comparisons.
    """

    problem: str
    rows: tuple[Comparison, ...]

    @property
    def ok(self) -> bool:
        """Whether no comparison is wrong or unclear."""
        return not self.failed

    @property
    def failed(self) -> tuple[Comparison, ...]:
        """The rows that are wrong or unclear."""
        return tuple(row for row in self.rows if row.verdict in ("wrong", "unclear"))

    def _summary(self) -> list[str]:
        done = [row for row in self.rows if row.verdict != "skipped"]
        count = f"{len(self.failed)} of {len(done)} comparisons failed" if self.failed else f"all {len(done)} agree"
        first, second = (max(len(getattr(row, name)) for row in self.rows) for name in ("quantity", "reference"))
        lines = [f"derivatives of {self.problem}: {count}"]
        for row in self.rows:
            numbers = " " * 17 if row.error is None or row.allowed is None else f"{row.error:8.1e} {row.allowed:8.1e}"
            text = f"  {row.quantity:{first}}  {row.reference:{second}}  {numbers}  {row.verdict:7}  {row.note}"
            lines.append(text.rstrip())
        return lines


@checked(directions=Integer(1, 1000), seed=Seed())
def check_derivatives(problem: Problem, x: Array, lam: Array, *, directions: int = 3, seed: int = 0) -> DerivativeCheck:
    """Compare the members of a problem with each other near (x, lam), and return a table.

    - gradients with differences of costs, hvp and cross with differences of `inner_grad`, on full batches and on a
      mini-batch; `hessian`, `jacobian` and `products` with hvp and cross;
    - each client with itself when the rows of other clients change;
    - mini-batches: the mean over batches, and the batch of all instances with padding, with the full batch;
    - a run axis with a loop, `restrict` with the rows of the whole, float32 at a float32 point;
    - bounds: `jacobian_norms`, and `lipschitz` constants along segments;
    - `validation_grad` on batches of all validation instances with `outer_grad`.

    Comparisons of costs and optional members that the problem lacks are skipped, and those of Gauss–Newton products
    with differences. The point of comparison is a random one within 10 % of every entry of x and lam, since gradients
    vanish at a solution.

    Parameters
    ----------
    directions : the number of random directions for every derivative.
    seed : selects the point and the directions.

    Returns
    -------
    DerivativeCheck
        Its `ok` is False if a comparison failed; a method that raises an error or modifies its arguments fails, too.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> result = hgp.problems.check_derivatives(problem, np.ones((3, 4)), np.ones((3, 2)))
    >>> result.ok, result.rows[0].quantity, result.rows[0].reference
    (True, 'inner_grad', 'differences of inner_cost along x')
    """
    full = as_problem(problem, needs=("inner_grad", "outer_grad", "linearize"))
    check_point(full, x, lam)
    return _Checks(full, x, lam, directions, seed).run()


class _Skipped(Exception):
    """Raised by a comparison that does not apply to the problem, with the reason."""


class _Calls:
    """Calls of a problem with host arrays in float64; the problem gets the library and dtype of `like`."""

    def __init__(self, problem: FullProblem, like: Array) -> None:
        self.problem, self.like = problem, like

    def _place(self, a: Any) -> Any:
        """A host array in the library and dtype of x; integers, None and prepared batches as they are."""
        if not isinstance(a, np.ndarray):
            return a
        return from_host(a.astype(host_dtype(self.like)) if a.dtype.kind == "f" else a, like=self.like)

    def _call(self, name: str, x: np.ndarray, lam: np.ndarray, batch: Any = None) -> Any:
        options = {} if batch is None else {"batch": self._place(batch)}
        result = getattr(self.problem, name)(self._place(x), self._place(lam), **options)
        return tuple(map(_host, result)) if isinstance(result, tuple) else _host(result)

    def _linearize(self, x: np.ndarray, lam: np.ndarray, batch: Any = None) -> Any:
        return self.problem.linearize(self._place(x), self._place(lam), self._place(batch))

    def _inner(self, x: np.ndarray, lam: np.ndarray, u: np.ndarray, batch: Any = None) -> dict[str, np.ndarray]:
        """The inner cost and its derivatives, (..., n, k) each."""
        lin = self._linearize(x, lam, batch)
        return self._cost("inner_cost", x, lam, batch) | {
            "inner_grad": self._call("inner_grad", x, lam, batch),
            "hvp": _host(lin.hvp(self._place(u))),
            "cross": _host(lin.cross(self._place(u))),
        }

    def _outer(self, x: np.ndarray, lam: np.ndarray) -> dict[str, np.ndarray]:
        f_x, f_lam = self._call("outer_grad", x, lam)
        return self._cost("outer_cost", x, lam) | {"f_x": f_x, "f_lam": f_lam}

    def _cost(self, name: str, x: np.ndarray, lam: np.ndarray, batch: Any = None) -> dict[str, np.ndarray]:
        """A cost (..., n, 1) by its name; nothing if the problem lacks it."""
        return {name: self._call(name, x, lam, batch)[..., None]} if self._has(name) else {}

    def _has(self, name: str) -> bool:
        return callable(optional(self.problem.wrapped, name))

    def _everything(self, x: np.ndarray, lam: np.ndarray, u: np.ndarray) -> np.ndarray:
        """All numbers of every client at a point, (n, k)."""
        return np.concatenate(list((self._inner(x, lam, u) | self._outer(x, lam)).values()), axis=1)


class _Checks(_Calls):
    """The comparisons at one point."""

    def __init__(self, problem: FullProblem, x: Array, lam: Array, directions: int, seed: int) -> None:
        super().__init__(problem, x)
        self.directions = directions
        self.rng = np.random.default_rng(seed)
        self.eps = float(np.finfo(host_dtype(x)).eps)
        self.x, self.lam = (self._near(to_host(a).astype(np.float64)) for a in (x, lam))
        self.rows: list[Comparison] = []
        counts = problem.counts
        self.batch = None if counts is None else self._random_batch(counts)

    def run(self) -> DerivativeCheck:
        """All comparisons."""
        self._derivatives("", None)
        if self.batch is not None:
            self._derivatives(" on a batch", self.batch)
        self._closed_forms()
        self._clients()
        self._batches()
        self._runs()
        self._restriction()
        self._dtype()
        self._bounds()
        self._validation()
        return DerivativeCheck(type(self.problem.wrapped).__name__, tuple(self.rows))

    def _derivatives(self, where: str, batch: np.ndarray | None) -> None:
        """First and second derivatives against differences."""
        at_x, at_lam = (lambda z: (z, self.lam)), (lambda z: (self.x, z))

        def costs(x: np.ndarray, lam: np.ndarray) -> np.ndarray:
            return self._call("inner_cost", x, lam, batch)[:, None]

        def grads(x: np.ndarray, lam: np.ndarray) -> np.ndarray:
            return self._call("inner_grad", x, lam, batch)

        def outer(x: np.ndarray, lam: np.ndarray) -> np.ndarray:
            return self._call("outer_cost", x, lam)[:, None]

        def first(
            cost: str, values: Values, at: Any, point: np.ndarray, gradient: Callable[[], np.ndarray]
        ) -> Callable[[], Any]:
            def compare() -> Any:
                if not self._has(cost):
                    raise _Skipped(f"the problem has no {cost}")
                p, g = self._direction(point), gradient()
                slope, accuracy = self._difference(lambda z: values(*at(z)), point, p)
                size = _norms(g) * _norms(p) / np.sqrt(p.shape[1])
                return np.sum(g * p, axis=1)[:, None], slope, accuracy, size

            return compare

        mu, curvature = modified_curvature(self.problem.wrapped)

        def hvp() -> Any:
            if curvature != "hessian":
                raise _Skipped(f"curvature={curvature!r}: H is not the derivative of inner_grad")
            p = self._direction(self.x)
            slope, accuracy = self._difference(lambda z: grads(z, self.lam), self.x, p)
            return self._product("hvp", p, batch), slope + mu * p, accuracy, 0.0

        def cross() -> Any:
            u, p = self._direction(self.x), self._direction(self.lam)
            slope, accuracy = self._difference(
                lambda z: np.sum(grads(self.x, z) * u, axis=1)[:, None],
                self.lam,
                p,
                _norms(grads(self.x, self.lam) * u),
            )
            Ju = self._product("cross", u, batch)
            return np.sum(Ju * p, axis=1)[:, None], slope, accuracy, _norms(Ju) * _norms(p) / np.sqrt(p.shape[1])

        along = "differences of {} along {}".format
        inner_grad = first("inner_cost", costs, at_x, self.x, lambda: grads(self.x, self.lam))
        self._compare(f"inner_grad{where}", along("inner_cost", "x"), inner_grad)
        self._compare(f"hvp{where}", along("inner_grad", "x") + (f", + {mu:g} u" if mu else ""), hvp)
        self._compare(f"cross{where}", along("inner_grad", "lam"), cross)
        if batch is None:
            for k, (at, point, name) in enumerate(((at_x, self.x, "x"), (at_lam, self.lam, "lam"))):
                grad = lambda k=k: self._call("outer_grad", self.x, self.lam)[k]  # noqa: E731
                compare = first("outer_cost", outer, at, point, grad)
                self._compare(f"outer_grad[{k}]", along("outer_cost", name), compare)

    def _closed_forms(self) -> None:
        """`hessian`, `jacobian` and `products` against hvp and cross."""
        for name, product in (("hessian", "hvp"), ("jacobian", "cross")):
            if getattr(self.problem, name) is None:
                self._skip(name, f"{product} of a vector", "the problem has none")
                continue

            def compare(name: str = name, product: str = product) -> Any:
                u = self._direction(self.x)
                matrix = self._call(name, self.x, self.lam)
                return (matrix @ u[..., None])[..., 0], self._product(product, u), 0.0, 0.0

            self._compare(name, f"{product} of a vector", compare)

        def products() -> Any:
            lin = self.problem.wrapped.linearize(self._place(self.x), self._place(self.lam))
            if optional(lin, "products") is None:
                raise _Skipped("the linearization has none")
            u = self._direction(self.x)
            both = self._linearize(self.x, self.lam).products(self._place(u))
            single = self._product("hvp", u), self._product("cross", u)
            return np.concatenate(list(map(_host, both)), axis=1), np.concatenate(single, axis=1), 0.0, 0.0

        self._compare("products", "hvp and cross", products)

    def _clients(self) -> None:
        """Every client when the rows of others change: for each bit of a client's number, those with it and without."""
        n, at = self.problem.n_clients, (self.x, self.lam, self._direction(self.x))

        def compare() -> Any:
            if n < 2:
                raise _Skipped("there is one client")
            whole, parts = self._everything(*at), []
            for bit in range((n - 1).bit_length()):
                for value in (0, 1):
                    other = (np.arange(n) >> bit) % 2 == value
                    changed = self._everything(*(np.where(other[:, None], self._near(a), a) for a in at))
                    parts.append(np.where(other[:, None], whole, changed))
            return np.concatenate(parts, axis=1), np.tile(whole, (1, len(parts))), 0.0, 0.0

        self._compare("every client", "itself, rows of other clients changed", compare)
        self._compare("every method", "the same call again", lambda: (*(self._everything(*at) for _ in "12"), 0.0, 0.0))

    def _batches(self) -> None:
        """Mini-batches against the full batch."""
        counts = self.problem.counts
        if counts is None:
            self._skip("batches", "full batch", "the problem has no counts")
            return
        u, (everything, halves, shares) = self._direction(self.x), self._split(counts)

        def inner(batch: np.ndarray | None) -> np.ndarray:
            return np.concatenate(list(self._inner(self.x, self.lam, u, batch).values()), axis=1)

        def mean() -> np.ndarray:
            first, second = map(inner, halves)
            if np.any(counts > 1) and np.array_equal(first[counts > 1], second[counts > 1]):
                raise ValueError("both batches give the same costs and derivatives; is `batch` used?")
            return shares[0][:, None] * first + shares[1][:, None] * second

        self._compare("batch of all instances", "full batch", lambda: (inner(everything), inner(None), 0.0, 0.0))
        self._compare("mean over two batches", "full batch", lambda: (mean(), inner(None), 0.0, 0.0))
        if optional(self.problem.wrapped, "prepare_batches") is not None:

            def prepared() -> np.ndarray:
                entry = self.problem.prepare_batches(halves[0][None, None], self.like)[0, 0]
                return np.concatenate(list(self._inner(self.x, self.lam, u, entry).values()), axis=1)

            self._compare("prepare_batches", "the batch itself", lambda: (prepared(), inner(halves[0]), 0.0, 0.0))

    def _validation(self) -> None:
        """`validation_grad`: the mean over batches, and the batch of all instances, against the outer gradient."""
        p = self.problem.wrapped
        counts, gradient = (optional(self.problem, f"validation_{name}") for name in ("counts", "grad"))
        if counts is None or gradient is None:
            return

        def gradients(batch: np.ndarray) -> np.ndarray:
            return _host(gradient(self._place(self.x), self._place(self.lam), batch=self._place(batch)))

        def compare() -> Any:
            everything, halves, shares = self._split(counts)
            parts = [gradients(everything), *map(gradients, halves)]
            mean = sum(share[:, None] * part for share, part in zip(shares, parts[1:], strict=True))
            penalties = getattr(optional(p, "undamped") or p, "_penalties", {})  # of `from_torch`
            penalized = penalties.get("outer_cost") is not None
            whole = parts[0] if penalized else self._call("outer_grad", self.x, self.lam)[0]
            return np.concatenate([parts[0], mean], axis=1), np.concatenate([whole, whole], axis=1), 0.0, 0.0

        self._compare("validation_grad", "outer_grad[0]", compare)

    def _split(self, counts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        """A batch of all instances, with padding; two halves of them; and the share of each half, (2, n)."""
        n, longest = len(counts), int(np.max(counts))
        everything = np.full((n, longest + 1), -1, dtype=np.int64)
        halves = [np.full((n, (longest + 2) // 2), -1, dtype=np.int64) for _ in range(2)]
        shares = np.full((2, n), 0.5)
        for i, count in enumerate(counts):
            order = self.rng.permutation(int(count))
            everything[i, 1 : count + 1] = order
            cut = (int(count) + 2) // 2 if count > 2 else 1
            for k, part in enumerate((order[:cut], order[cut:]) if count > 1 else (order, order)):
                halves[k][i, : len(part)] = part
                shares[k, i] = len(part) / count if count > 1 else 0.5
        return everything, halves, shares

    def _runs(self) -> None:
        """A run axis against a loop."""
        if not optional(self.problem.wrapped, "broadcasts"):
            self._skip("run axis", "loop over runs", "broadcasts is not set")
            return
        x, u = (np.stack([a, self._near(a)]) for a in (self.x, self._direction(self.x)))

        def compare(batched: bool) -> Any:
            batch = np.stack([self.batch, self.batch[:, ::-1]]) if batched and self.batch is not None else None
            batched_results = self._inner(x, self.lam, u, batch) | ({} if batched else self._outer(x, self.lam))
            loop = []
            for r in range(2):
                of_run = self._inner(x[r], self.lam, u[r], None if batch is None else batch[r])
                loop.append(of_run | ({} if batched else self._outer(x[r], self.lam)))
            expected = {name: np.stack([of_run[name] for of_run in loop]) for name in batched_results}
            both = (np.concatenate(list(part.values()), axis=-1) for part in (batched_results, expected))
            left, right = (np.moveaxis(part, 1, 0).reshape(part.shape[1], -1) for part in both)
            return left, right, 0.0, 0.0

        self._compare("run axis", "loop over runs", lambda: compare(False))
        if self.batch is not None:
            self._compare("run axis of batches", "loop over runs", lambda: compare(True))

    def _restriction(self) -> None:
        """`restrict` against the rows of the whole problem."""
        if optional(self.problem.wrapped, "restrict") is None:
            self._skip("restrict", "rows of the whole", "the problem has none")
            return
        n = self.problem.n_clients
        clients = sorted({n - 1, n // 2}, reverse=True)

        def compare() -> Any:
            u = self._direction(self.x)
            part = _Calls(self.problem.restrict(clients), self.like)
            if (part.problem.n_clients, part.problem.dim_lam) != (len(clients), self.problem.dim_lam):
                sizes = f"n_clients={part.problem.n_clients}, dim_lam={part.problem.dim_lam}"
                raise ValueError(f"restrict({clients}) must keep dim_lam and have {len(clients)} clients, got {sizes}")
            x, lam, v = (a[clients] for a in (self.x, self.lam, u))
            whole, restricted = [self._everything(self.x, self.lam, u)[clients]], [part._everything(x, lam, v)]
            if self.batch is not None:
                whole += [a[clients] for a in self._inner(self.x, self.lam, u, self.batch).values()]
                restricted += part._inner(x, lam, v, self.batch[clients]).values()
            return np.concatenate(restricted, axis=1), np.concatenate(whole, axis=1), 0.0, 0.0

        self._compare("restrict", "rows of the whole", compare)

    def _dtype(self) -> None:
        """The dtype of results at a float32 point. A problem whose data are float64 is only noted."""
        if self.eps > 1e-10:
            self._skip("float32", "dtype of x", "x is float32: all comparisons were made in it")
            return
        p, (x, lam, u) = self.problem.wrapped, (from_host(a.astype("float32"), like=self.like)
                                                for a in (self.x, self.lam, self._direction(self.x)))  # fmt: skip
        try:
            lin, f = p.linearize(x, lam), p.outer_grad(x, lam)
            results = {"inner_grad": p.inner_grad(x, lam), "hvp": lin.hvp(u), "outer_grad[0]": f[0],
                     "outer_grad[1]": f[1], "cross": lin.cross(u)}  # fmt: skip
            results |= {name: getattr(p, name)(x, lam) for name in ("inner_cost", "outer_cost") if self._has(name)}
        except Exception as error:  # a problem may refuse float32 in any way
            self._skip("float32", "dtype of x", f"refused: {validation.cut(str(error), 80)}")
            return
        wrong = [name for name, a in results.items() if a.dtype != x.dtype]
        inner = results.keys() & {"inner_cost", "inner_grad"}
        if inner <= set(wrong) or {"inner_cost", "outer_cost"} <= set(wrong):
            self._skip("float32", "dtype of x", "results are float64, not float32")
            return
        verdict, note = ("wrong", f"{', '.join(wrong)} must have the dtype of x") if wrong else ("ok", "")
        self.rows.append(Comparison("float32", "dtype of x", None, None, verdict, note))

    def _bounds(self) -> None:
        """`jacobian_norms` and `lipschitz` against products at pairs of points."""
        p = self.problem
        if p.jacobian_norms is not None:

            def norms() -> Any:
                u = self._direction(self.x)
                most = _host(p.jacobian_norms(self._place(self.x), self._place(self.lam))) * _norms(u)
                return np.maximum(_norms(self._product("cross", u)), most)[:, None], most[:, None], 0.0, 0.0

            self._compare("jacobian_norms", "norms of cross(u) / norms of u", norms)
        if p.lipschitz is None:
            return

        def lipschitz() -> Any:
            constants = p.lipschitz(self._place(self.lam))
            if constants is None:
                raise _Skipped("lipschitz(lam) is None")
            nu: Any = constants if isinstance(constants, dict) else vars(constants)
            step, u = self._direction(self.x), self._direction(self.x)
            length = _norms(step)
            pairs = []
            for name, size in (("hvp", nu["nu_H"]), ("cross", nu["nu_J"])):
                change = self._product(name, u, x=self.x + step) - self._product(name, u)
                pairs.append((_norms(change), size * length * _norms(u)))
            ends = [self._call("outer_grad", x, self.lam) for x in (self.x, self.x + step)]
            for k, size in enumerate((nu["nu_fx"], nu["nu_flam"])):
                pairs.append((_norms(ends[1][k] - ends[0][k]), size * length))
            changes, most = (np.stack(part, axis=1) for part in zip(*pairs, strict=True))
            slack = IDENTITY * self.eps * (1 + np.max(np.abs(ends[0][0])))  # of differences that are zero
            return np.maximum(changes, most + slack), most + slack, 0.0, 0.0

        self._compare("lipschitz", "changes along segments", lipschitz)

    def _compare(self, quantity: str, reference: str, compare: Callable[[], Any]) -> None:
        """Add a row: compare() returns computed (n, k), expected (n, k), the accuracy and the size of it (n,) or 0."""
        error, allowed, note = 0.0, 0.0, ""
        for _ in range(self.directions):
            try:
                computed, expected, accuracy, size = compare()
            except _Skipped as reason:
                self._skip(quantity, reference, str(reason))
                return
            except Exception as raised:  # whatever the user's code raises is a row of the table
                text = validation.cut(f"{type(raised).__name__}: {raised}", 160)
                self.rows.append(Comparison(quantity, reference, None, None, "wrong", text))
                return
            largest = np.maximum(np.maximum(_norms(computed), _norms(expected)), size)
            identity = np.ndim(accuracy) == 0
            allowance = IDENTITY * self.eps * largest if identity else accuracy + 4 * np.sqrt(self.eps) * largest
            finite = np.isfinite(largest)
            allowance, scale = np.where(finite, allowance, 0.0), np.where(finite & (largest > 0), largest, 1.0)
            off = _norms(np.where(finite[:, None], computed - expected, np.inf))
            # the client that misses its allowance by the largest factor
            i = int(np.argmax(off / np.maximum(allowance, np.finfo(np.float64).tiny)))
            worse = off[i] * max(allowed, 1e-300) > error * scale[i] * max(allowance[i] / scale[i], 1e-300)
            if worse or not allowed:
                error, allowed = float(off[i] / scale[i]), float(allowance[i] / scale[i])
                note = f"client {i}"
        wrong = not error <= allowed
        unclear = allowed > UNCLEAR and not wrong
        if unclear:
            note = "differences are too inaccurate here; use float64 or another point"
        verdict = "wrong" if wrong else "unclear" if unclear else "ok"
        note = f"{note}, not finite" if np.isinf(error) else note
        self.rows.append(Comparison(quantity, reference, error, allowed, verdict, note if verdict != "ok" else ""))

    def _skip(self, quantity: str, reference: str, why: str) -> None:
        self.rows.append(Comparison(quantity, reference, None, None, "skipped", why))

    def _product(self, name: str, u: np.ndarray, batch: Any = None, x: np.ndarray | None = None) -> np.ndarray:
        """H_i u_i or J_i u_i at the point, or at another x."""
        return _host(getattr(self._linearize(self.x if x is None else x, self.lam, batch), name)(self._place(u)))

    def _near(self, a: np.ndarray) -> np.ndarray:
        """A random point within 10 % of every entry."""
        return self._rounded(a + 0.1 * _sizes(a) * self.rng.uniform(-1, 1, a.shape))

    def _direction(self, a: np.ndarray) -> np.ndarray:
        """A random direction with entries of the size of those of a."""
        return self._rounded(_sizes(a) * self.rng.standard_normal(a.shape))

    def _rounded(self, a: np.ndarray) -> np.ndarray:
        return a.astype(host_dtype(self.like)).astype(np.float64)

    def _random_batch(self, counts: np.ndarray) -> np.ndarray:
        """A batch (n, 4): three entries of every client, drawn with replacement, and padding."""
        drawn = [[*self.rng.integers(0, count, 3), -1] for count in counts]
        return np.array(drawn, dtype=np.int64)

    def _difference(
        self, values: Callable[[np.ndarray], np.ndarray], point: np.ndarray, p: np.ndarray, size: Any = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """The derivative of values (n, k) at `point` along p, and its accuracy (n,); `size` (n,) of terms of values."""
        quotients, rounding = [], []
        for factor in STEPS:
            h = factor * self.eps ** (1 / 3)
            up, down = self._rounded(point + h * p), self._rounded(point - h * p)
            plus, minus = values(up), values(down)
            # the step that was taken, after rounding of the points
            taken = np.sum((up - down) * p, axis=1) / np.where(np.any(p, axis=1), np.sum(p * p, axis=1), 1.0)
            taken = np.where(taken > 0, taken, 2 * h)[:, None]
            quotients.append((plus - minus) / taken)
            rounding.append(4 * self.eps * np.maximum(np.maximum(_norms(plus), _norms(minus)), size) / taken[:, 0])
        apart = np.stack([_norms(a - b) for a, b in zip(quotients[1:], quotients[:-1], strict=True)])  # (steps − 1, n)
        accuracy = 4 * np.where(np.isfinite(apart), apart, np.inf) + np.stack(rounding[1:])
        best = np.argmin(accuracy, axis=0)
        rows = np.arange(len(point))
        return np.stack(quotients[1:])[best, rows], accuracy[best, rows]


def _host(a: Array) -> np.ndarray:
    return np.array(to_host(a), dtype=np.float64)


def _norms(a: np.ndarray) -> np.ndarray:
    """Norms of the rows; NaN counts as infinite."""
    if a.ndim == 1:
        return np.where(np.isnan(a), np.inf, np.abs(a))
    largest = np.max(np.abs(a), axis=1, initial=0.0)
    scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)[:, None]  # squares neither over- nor underflow
    norms = scale[:, 0] * np.sqrt(np.sum((a / scale) ** 2, axis=1))
    return np.where(np.isnan(norms), np.inf, norms)


def _sizes(a: np.ndarray) -> np.ndarray:
    """|a|, at least a tenth of the root mean square of its row, and 1 in a row of zeros."""
    rms = np.sqrt(np.mean(a * a, axis=1, keepdims=True))
    return np.where(rms > 0, np.maximum(np.abs(a), 0.1 * rms), 1.0)
