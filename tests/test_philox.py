"""Philox4x32-10: Random123's known answers, integer arithmetic against Python's, counters that never meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks.oracle import philox_in_python

from hgp_ref import philox

WORD = st.integers(0, 2**32 - 1)
ONES = 0xFFFFFFFF
KNOWN = [  # kat_vectors of Random123: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    assert tuple(map(int, philox.philox4x32(*counter, *key))) == words
    assert philox_in_python(counter, key) == words


@given(st.tuples(WORD, WORD, WORD, WORD), st.tuples(WORD, WORD))
def test_equals_python(counter, key):
    assert tuple(map(int, philox.philox4x32(*counter, *key))) == philox_in_python(counter, key)


@given(WORD, WORD, WORD)
def test_below_is_exact(hi, lo, m):
    assert int(philox.below(hi, lo, m)) == (((hi << 32) | lo) * m) >> 64


@given(st.integers(0, philox.MAX_STEP), st.integers(0, 255))
def test_step_and_stream_can_be_read_back(step, stream):
    c2, c3 = map(int, philox.step_counter(step, stream))
    assert max(c2, c3) < 2**32
    assert (c2 | (c3 & 0xFFFFFF) << 32, c3 >> 24) == (step, stream)


def test_streams_never_meet():
    tags = [v for k, v in vars(philox).items() if k.isupper() and not k.startswith(("_", "MAX"))]
    assert len(tags) == len(set(tags)) == 14
    assert max(t for t in tags if t != philox.BATCHES) < philox.BATCHES  # mini-batch streams are BATCHES .. 255


@given(st.integers(0, 2**64 - 1))
def test_key_is_the_seed(seed):
    k0, k1 = map(int, philox.key(seed))
    assert (k1 << 32) | k0 == seed
    assert philox.check_seed(np.uint64(seed)) == seed


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_out_of_range(seed):
    with pytest.raises(ValueError, match=f"seed must be an integer from 0 .*, got {seed}"):
        philox.key(seed)


@pytest.mark.parametrize("seed", [1.0, "1", None, True, np.float64(3)])
def test_seed_of_wrong_type(seed):
    with pytest.raises(TypeError, match="seed must be an integer .*, got .*"):
        philox.key(seed)
