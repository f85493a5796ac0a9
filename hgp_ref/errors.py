"""Errors that users may want to catch."""


class DivergenceError(ArithmeticError):
    """An iteration grows instead of converging.

    Examples
    --------
    >>> problem = hgp.problems.Quadratic.random(3, 4, 2, seed=0)
    >>> lam = np.zeros((3, 2))
    >>> x = hgp.exact.inner_solution(problem, lam)
    >>> try:
    ...     hgp.hypergradient(problem, x, lam, hgp.ExactAverage(3), eta=100.0)
    ... except hgp.DivergenceError as error:
    ...     print(str(error)[:40])
    diverged: after 250 iterations the large
    """


class NonFiniteError(DivergenceError, ValueError):
    """A result that has left the range of floating point."""
