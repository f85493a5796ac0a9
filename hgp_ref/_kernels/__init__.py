"""Loops compiled by Numba, for NumPy arrays.

    graphs    random graphs by Philox counters, and conversions between edge lists, CSR and dense matrices
    mixing    z ← W z along sparse graphs, and products of small dense mixing matrices
    links     loss and delay of messages, and the matrices of calls over such links

A kernel takes arrays and numbers and knows no class of the package. It does not check lengths, ranges or dtypes: its
callers do. Each docstring states the formula that the loop computes.

What must not change: the Philox counter of every random number (it defines the graph of a seed), and the order and the
rounding of every sum (results are compared bit for bit between threads, ranks and ways to compute them).
"""
