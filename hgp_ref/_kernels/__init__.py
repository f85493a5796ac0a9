"""Loops compiled by Numba, one file for each kind of work: what the folders above them call where arrays are NumPy's.

A kernel takes arrays and numbers, knows no class of the package, and believes what it is given: lengths, ranges and
dtypes are checked by its callers. What it computes is said in the docstring by the equation it stands for.

    dense, dense_many, dense_products    Bernoulli graphs with a rate for every pair
    sparse                               distinct random receivers, never an n x n array
    mixing                               one step of a sparse mixing matrix; registers holds its instructions
    compose                              products of the mixing matrices of a call
    lists                                from lists of receivers to the rows of the mixing matrix
    faults                               what is wrong with a graph that somebody else has made
"""
