"""Texts that are no longer than the word they are compared by: the word decides, exactly."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar.keys import SharedKeys, bytes_keys


def check(seed: int) -> bool:
    """Compare random texts that begin alike with others; whether they were short."""
    rng = Random(seed)
    shared = rng.choice([b"", b"a", b"\0", b"\xff\xff", b"abcdefgh", b"zz\0"])

    def text() -> bytes:
        return shared + bytes(rng.choice(b"\0ab\xff") for _ in range(rng.choice([0, 1, 2, 3, 7, 8, 8, 9])))

    texts = [text() for _ in range(rng.randint(1, 40))]
    if rng.random() < 0.6:
        texts = [shared + each[len(shared) :][:8].rstrip(b"\0") for each in texts]
    keys = SharedKeys(bytes_keys(texts), np.ones(len(texts), dtype=bool))
    start = rng.randrange(len(texts))
    stop = rng.randint(start, len(texts))
    values = [*texts[:10], *(text() for _ in range(10)), b"", shared[:-1], shared + b"\0", shared + b"\xff" * 9]
    again = SharedKeys.of(bytes_keys(texts), keys.shared, keys.words)
    for one, some in ((keys, texts), (again, texts), (keys.cut(start, stop), texts[start:stop])):
        for value in values:
            assert one.less(value).tolist() == [each < value for each in some], f"seed {seed}: {value!r}"
            assert one.less_equal(value).tolist() == [each <= value for each in some], f"seed {seed}: {value!r}"
    return keys.is_short


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**48))
def test_short_texts_are_compared_exactly(seed: int) -> None:
    """Zero bytes at the end, longer values and values that only begin alike included."""
    check(seed)


def test_many_texts_are_short_and_many_are_not() -> None:
    """The random texts above go both ways."""
    assert 60 < sum(check(seed) for seed in range(200)) < 190
