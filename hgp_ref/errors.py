"""Errors that users may want to catch."""


class DivergenceError(ArithmeticError):
    """An iteration grows instead of converging."""
