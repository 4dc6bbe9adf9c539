"""The truth of single predicates over the values of their term, row by row."""

from __future__ import annotations

from typing import assert_never

import numpy as np
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.expression.bound import (
    Anything,
    BoundTest,
    Comparison,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Prefix,
)
from lamella.snapshot.function.text import NOT_UTF8
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.function.vector import text_of as utf8_of
from lamella.snapshot.rows.compare import compared, member
from lamella.snapshot.rows.like import Pattern
from lamella.snapshot.rows.truth import Truth


def truth_of(test: BoundTest, vector: Vector) -> Truth | None:
    """What a predicate is for each value of its term; None when its bound form does not keep what decides it.

    Raises:
        FilterNotEvaluable: a LIKE pattern is too long to be evaluated.
    """
    match test:
        case NullTest():
            return _never_null(~vector.valid, vector)
        case NanTest():
            return _never_null(vector.valid & np.isnan(vector.values), vector)
        case NonNull(_, value, _):
            return where(np.full(len(vector), value), vector)
        case Comparison(_, op, value, _):
            return where(compared(vector, op, value), vector)
        case Membership(_, values, has_nan, has_null, _):
            found = where(member(vector, values, has_nan=has_nan), vector)
            return Truth(found.true, np.zeros_like(found.true), found.failed, found.reason) if has_null else found
        case Prefix(_, prefix, whole, _, parts):
            if not whole:
                return matched(Pattern(parts), vector)
            return where(pc.starts_with(vector.values, prefix).to_numpy(zero_copy_only=False), vector)
        case Anything():
            return None
        case _:
            assert_never(test)


def matched(pattern: Pattern, vector: Vector) -> Truth:
    """Where texts are like a pattern; those that are not UTF-8 have failed. Raises as :func:`truth_of`."""
    text, broken = utf8_of(vector)
    found = pattern.matches(text)
    if not broken.any():
        return where(found, vector)
    failed = broken & vector.valid if vector.failed is None else (broken & vector.valid) | vector.failed
    return where(found, Vector(vector.values, vector.valid, failed, vector.reason or NOT_UTF8))


def where(found: Mask, *vectors: Vector) -> Truth:
    """True and false as ``found`` says, null where a vector is; a null on the left hides a failure on the right."""
    usable = np.ones(len(found), dtype=bool)
    failed: Mask | None = None
    reason = ""
    for vector in vectors:
        if vector.failed is not None:
            here = vector.failed & usable
            failed = here if failed is None else failed | here
            reason = reason or vector.reason
        usable = usable & vector.valid
    if failed is not None:
        usable = usable & ~failed
    return Truth(found & usable, ~found & usable, failed, reason)


def _never_null(found: Mask, vector: Vector) -> Truth:
    if vector.failed is None:
        return Truth(found, ~found)
    return Truth(found & ~vector.failed, ~found & ~vector.failed, vector.failed, vector.reason)
