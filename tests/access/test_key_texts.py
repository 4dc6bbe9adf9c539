"""API keys as texts: their form, and what is refused without asking the catalog."""

from __future__ import annotations

import hashlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.tokens import PREFIX, RANDOM_BYTES, is_key, key_sha256, key_text

KEYS = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES).map(key_text)
CHARACTERS = string.ascii_letters + string.digits + "-_"


@given(KEYS)
def test_a_key_has_one_form_that_a_scanner_can_find(key: str) -> None:
    """Its prefix and 49 characters that need no quoting anywhere."""
    assert re.fullmatch(r"lamella_[A-Za-z0-9_-]{49}", key)
    assert is_key(key)


@given(KEYS, st.data())
def test_one_wrong_character_is_always_noticed(key: str, data: st.DataObject) -> None:
    """Whichever it is, of the prefix and the last six as of the rest."""
    at = data.draw(st.integers(0, len(key) - 1))
    other = data.draw(st.sampled_from(CHARACTERS + " é\n").filter(lambda character: character != key[at]))
    assert not is_key(key[:at] + other + key[at + 1 :])


@given(KEYS, st.data())
def test_two_neighbours_that_were_swapped_are_noticed(key: str, data: st.DataObject) -> None:
    """The other mistake that people make when they type."""
    at = data.draw(st.integers(0, len(key) - 2))
    swapped = key[:at] + key[at + 1] + key[at] + key[at + 2 :]
    assert is_key(swapped) == (swapped == key)


@given(KEYS, st.integers(0, 56))
def test_a_part_of_a_key_is_none(key: str, length: int) -> None:
    """A key that was cut off, or has something behind it, is refused."""
    assert not is_key(key[:length])
    assert not is_key(key + key[:1])
    assert not is_key(key + "\n")


@given(KEYS, KEYS)
def test_keys_are_known_by_the_hash_of_all_of_their_text(key: str, other: str) -> None:
    """SHA-256 as everybody computes it, so that `sha256sum` says the same."""
    assert key_sha256(key) == hashlib.sha256(key.encode()).hexdigest()
    assert (key_sha256(key) == key_sha256(other)) == (key == other)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_is_never_made_of_fewer_random_bytes(size: int) -> None:
    """Nor of more, which its text could not hold."""
    with pytest.raises(ValueError, match="32 random bytes"):
        key_text(bytes(size))


def test_keys_that_are_out_there_stay_keys() -> None:
    """The form is part of what users keep: a later release takes the keys of this one."""
    key = "lamella_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh876rsaQ"
    assert key_text(bytes(range(32))) == key
    assert key.startswith(PREFIX)
    assert is_key(key)
