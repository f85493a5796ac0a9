"""The same computations, written plainly with other libraries."""
