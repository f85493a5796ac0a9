"""Errors that users may want to catch."""


class DivergenceError(ArithmeticError):
    """An iteration grows instead of converging."""


class NonFiniteError(DivergenceError, ValueError):
    """A result that has left the range of floating point."""
