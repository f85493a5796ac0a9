"""The random graphs in Python integers, one client at a time: slow, and sharing only the stream numbers."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from hgp_ref import philox

ONES = 0xFFFFFFFF


def philox_in_python(counter, key):
    """Philox4x32-10."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k, q & ONES, (p >> 32) ^ d ^ m, p & ONES
        k, m = (k + 0x9E3779B9) & ONES, (m + 0xBB67AE85) & ONES
    return a, b, c, d


def word(seed, stream, step, client, number):
    """32-bit word `number` of a client at a step."""
    counter = (number // 4, client, step % 2**32, stream * 2**24 + step // 2**32)
    return philox_in_python(counter, (seed % 2**32, seed // 2**32))[number % 4]


def word64(seed, stream, step, client, number):
    return word(seed, stream, step, client, 2 * number) << 32 | word(seed, stream, step, client, 2 * number + 1)


def pair(i, sender, symmetric):
    return (min(i, sender), max(i, sender)) if symmetric else (sender, i)


def rate(low, high, seed, i, sender, *, symmetric):
    """Rate of the edge sender -> i in units of 2^-32."""
    if i == sender:
        return 2**32
    low, high = round(Fraction(low) * 2**32), round(Fraction(high) * 2**32)
    if high > 0:
        low = max(low, 1)
    stream = philox.UNDIRECTED_RATES if symmetric else philox.EDGE_RATES
    return low + (word(seed, stream, 0, *pair(i, sender, symmetric)) * (high - low + 1) >> 32)


def bernoulli(n, low, high, seed, step, sender, *, symmetric):
    """Receivers of a sender in RandomDirected or RandomUndirected."""
    stream = philox.UNDIRECTED_EDGES if symmetric else philox.EDGES
    words = [word(seed, stream, step, *pair(i, sender, symmetric)) for i in range(n)]
    return [i for i in range(n) if words[i] < rate(low, high, seed, i, sender, symmetric=symmetric)]


def floyd(n, k, seed, stream, step, sender):
    """The sender and k distinct others."""
    chosen = set()
    for d in range(k):
        top = n - 1 - k + d
        r = word64(seed, stream, step, sender, d) * (top + 1) >> 64
        chosen.add(top if r in chosen else r)
    return sorted({sender} | {r + (r >= sender) for r in chosen})


def random_out(n, k, seed, step, sender):
    return floyd(n, k, seed, philox.OUT_NEIGHBOURS, step, sender)


def binomial_distribution(trials, mean):
    """P(degree <= k), k = 0 .. trials, exactly."""
    p = Fraction(mean) / trials if trials else Fraction(0)
    total, out = Fraction(0), []
    for k in range(trials + 1):
        total += comb(trials, k) * p**k * (1 - p) ** (trials - k)
        out.append(total)
    return out


def sparse_erdos_renyi(n, mean, seed, step, sender):
    """Receivers of a sender: the degree by inversion of the exact distribution, then Floyd."""
    w = word64(seed, philox.SPARSE_DEGREES, step, sender, 0)
    degree = sum(int(c * 2**64) <= w for c in binomial_distribution(n - 1, mean)[:-1])
    return floyd(n, degree, seed, philox.SPARSE_NEIGHBOURS, step, sender)
