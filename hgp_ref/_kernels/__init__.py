"""Numba kernels: loops over edges, rows and words that NumPy cannot say; called through the modules that need them."""
