"""Decides which rows of Arrow data match a filter, exactly, by Spark SQL's rules in ANSI mode.

Pruning may leave a row undecided; a reader may not. What cannot be decided here is refused with an error that names it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.errors import EvaluationFailed, FilterNotEvaluable
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bind_terms import TermBinder
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundLeaf,
    BoundNot,
    BoundOperator,
    BoundOr,
    BoundPredicate,
    BoundTerm,
    BoundTest,
    Comparison,
    ConstantTerm,
    Derived,
    Fixed,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Pair,
    Prefix,
    columns_of,
    leaves_in,
    leaves_of,
)
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import (
    ANY,
    ONE,
    And,
    Constant,
    IsTrue,
    IsUnknown,
    Like,
    Not,
    Or,
    Part,
    Predicate,
    TermPredicate,
    Unknown,
    like_parts,
)
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.function.base import Vector, constant_vector
from lamella.snapshot.function.base import text_of as utf8_of
from lamella.snapshot.function.text import NOT_UTF8
from lamella.snapshot.schema import DataType, Leaf, Schema

# SQL's three truth values, row by row, with the rows that could not be decided.
#
# Connectives evaluate their sides from left to right, as in Spark: if the first side decides, the second is not needed,
# and a failure there is not an error.


class Truth(msgspec.Struct, frozen=True, eq=False):
    """Per row: whether it is true, whether it is false (neither: null), whether it failed and why."""

    true: Mask
    false: Mask
    failed: Mask | None = None
    reason: str = ""

    @property
    def null(self) -> Mask:
        """Returns where it is neither true nor false, nor failed."""
        decided = self.true | self.false
        return np.asarray(~decided if self.failed is None else ~decided & ~self.failed)

    def negated(self) -> Truth:
        """Returns SQL's NOT."""
        return Truth(self.false, self.true, self.failed, self.reason)

    def null_as_false(self) -> Truth:
        """Returns ``IS TRUE``: null becomes false."""
        return Truth(
            self.true, ~self.true if self.failed is None else ~self.true & ~self.failed, self.failed, self.reason
        )

    def unknown(self) -> Truth:
        """Returns ``IS UNKNOWN``: true for null, else false."""
        return Truth(self.null, self.true | self.false, self.failed, self.reason)

    def and_then(self, second: Truth) -> Truth:
        """Returns SQL's AND; the second side is only used where this one is not false."""
        if self.failed is None and second.failed is None:
            return Truth(self.true & second.true, self.false | second.false)
        mine = np.zeros(len(self.true), dtype=bool) if self.failed is None else self.failed
        other = np.zeros(len(mine), dtype=bool) if second.failed is None else second.failed & ~self.false & ~mine
        failed = mine | other
        reason = self.reason if mine.any() else second.reason
        return Truth(self.true & second.true, (self.false | second.false) & ~failed, failed, reason)

    def or_else(self, second: Truth) -> Truth:
        """Returns SQL's OR; the second side is only used where this one is not true."""
        return self.negated().and_then(second.negated()).negated()


def everywhere(value: bool | None, count: int) -> Truth:
    """Returns the same value in every row."""
    return Truth(np.full(count, value is True), np.full(count, value is False))


_LIMB = 1 << 64


def vector_of(column: pa.Array | pa.ChunkedArray, dtype: DataType) -> Vector:
    """Converts a column of ``dtype`` (in any corresponding Arrow type) to a vector.

    Values without order are left out: only their nulls are known.

    Raises:
        TypeError: the Arrow type does not hold such values.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if dtype.order is None:
        return Vector(np.zeros(len(array), dtype=np.int64), valid)
    if dtype.order == "bytes":
        return Vector(_filled(array, b"").cast(pa.large_binary()), valid)
    if dtype.order == "decimal":
        return Vector(_unscaled(array, dtype), valid)
    return Vector(_numbers(array, dtype), valid)


def _filled(array: Any, value: Any) -> Any:
    if not array.null_count:
        return array
    if pa.types.is_fixed_size_binary(array.type):
        value = b"\0" * array.type.byte_width
    return pc.fill_null(array, pa.scalar(value, array.type))


def _numbers(array: Any, dtype: DataType) -> Any:
    if dtype.order == "float":
        return _filled(array, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    if dtype.order == "uint":
        return _filled(array.cast(pa.uint64()), 0).to_numpy(zero_copy_only=False)
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return _filled(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def decimal_limbs(array: Any, dtype: DataType) -> tuple[Any, Any]:
    """Returns the unscaled integers of decimals as signed high and unsigned low limbs; arbitrary where the array is
    null.

    Raises:
        TypeError: the array does not hold decimals of the type's scale.
    """
    if not pa.types.is_decimal(array.type) or array.type.scale != dtype.scale:
        raise TypeError(f"{array.type} does not hold values of {dtype}")
    # Arrow stores them as little-endian two's complement.
    array = _filled(array.cast(pa.decimal128(min(38, max(array.type.precision, dtype.precision)), dtype.scale)), 0)
    words = np.frombuffer(array.buffers()[1], dtype="<u8")[2 * array.offset : 2 * (array.offset + len(array))]
    return words[1::2].astype(np.int64), words[0::2]


def _unscaled(array: Any, dtype: DataType) -> Any:
    """Returns the unscaled integers of decimals."""
    high, low = decimal_limbs(array, dtype)
    if not is_wide(dtype):
        return low.astype(np.int64)
    return np.array([int(h) * _LIMB + int(lo) for h, lo in zip(high, low, strict=True)], dtype=object)


class RowTerms:
    """Rows whose ``columns`` are Arrow arrays by column id; each term is computed once. ``vectors``: terms that are
    known already."""

    def __init__(
        self, columns: Mapping[int, Any], count: int, vectors: Mapping[BoundTerm, Vector] | None = None
    ) -> None:
        self.count = count
        self._columns = columns
        self._vectors: dict[BoundTerm, Vector] = dict(vectors or {})

    def vector(self, term: BoundTerm) -> Vector:
        """Returns a term's values."""
        found = self._vectors.get(term)
        if found is None:
            found = self._vectors[term] = self._made(term)
        return found

    def _made(self, term: BoundTerm) -> Vector:
        match term:
            case Leaf():
                return vector_of(self._columns[term.id], term.dtype)
            case ConstantTerm(value, dtype, _):
                return constant_vector(dtype, value, self.count)
            case Derived(function, arguments, _, _):
                return function.rows(*(self.vector(argument) for argument in arguments))
            case _:
                assert_never(term)


_BYTES = {
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
    "eq": pc.equal,
}
_NUMBERS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq}
_MIRRORED: dict[BoundOperator, BoundOperator] = {"gt": "lt", "ge": "le"}


def compared(left: Vector, op: BoundOperator, right: Vector | Any) -> Mask:
    """Returns where ``left op right`` is true; ``right`` is a vector of the same order or one value. Nulls decide
    nothing."""
    values = right.values if isinstance(right, Vector) else right
    if left.is_bytes:
        other = values if isinstance(right, Vector) else pa.scalar(values, pa.large_binary())
        return _mask(_BYTES[op](left.values, other))
    numbers = left.values
    if not isinstance(right, Vector) and numbers.dtype != object:
        values = numbers.dtype.type(values)  # int64 is never compared with a double
    if op in _MIRRORED:
        numbers, values, op = values, numbers, _MIRRORED[op]
    found = _NUMBERS[op](numbers, values)
    if left.values.dtype == np.float64:
        first, second = np.isnan(numbers), np.isnan(values)
        found = found | ((first & second) if op == "eq" else (second & ~first) if op == "lt" else second)
    return np.asarray(found).astype(bool)


def member(vector: Vector, values: Sequence[Any], *, has_nan: bool) -> Mask:
    """Returns where a value is in the list."""
    if vector.is_bytes:
        return _mask(pc.is_in(vector.values, value_set=pa.array(values, pa.large_binary())))
    numbers = vector.values
    if numbers.dtype == object:
        listed = frozenset(values)
        return np.fromiter((number in listed for number in numbers), bool, len(numbers))
    ordered = np.array(values, dtype=numbers.dtype)  # ascending
    at = np.searchsorted(ordered, numbers)
    found = ordered[np.minimum(at, len(ordered) - 1)] == numbers if len(ordered) else np.zeros(len(numbers), dtype=bool)
    return np.asarray(found | np.isnan(numbers) if has_nan else found)


def _mask(array: Any) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(bool)


class Pattern(msgspec.Struct, frozen=True):
    """A pattern's parts; no two texts and no two ``ANY`` are adjacent."""

    parts: tuple[Part, ...]

    def matches(self, text: Any) -> Mask:
        """Returns which of an Arrow array's texts (large strings without nulls) match as a whole."""
        texts = tuple(part for part in self.parts if isinstance(part, str))
        if ONE not in self.parts and len(texts) <= 1:
            found = self._simple(text, texts[0] if texts else "")
        else:
            try:
                found = pc.match_substring_regex(text, self._regex())
            except pa.ArrowInvalid as error:
                raise FilterNotEvaluable("a LIKE pattern is too long to be evaluated") from error
        return np.asarray(found.to_numpy(zero_copy_only=False)).astype(bool)

    def _simple(self, text: Any, fixed: str) -> Any:
        opens, closes = self.parts[:1] == (ANY,), self.parts[-1:] == (ANY,)
        if opens and closes:
            return pc.match_substring(text, fixed)
        if closes:
            return pc.starts_with(text, fixed)
        return pc.ends_with(text, fixed) if opens else pc.equal(text, pa.scalar(fixed, pa.large_string()))

    def _regex(self) -> str:
        body = "".join(
            (".*" if part == ANY else ".") if isinstance(part, int) else "".join(map(_quoted, part))
            for part in self.parts
        )
        return rf"(?s)\A{body}\z"


def like_pattern(pattern: str, escape: str) -> Pattern | None:
    """Returns a pattern's parts; None if the escape character precedes anything but a wildcard or itself."""
    parts = like_parts(pattern, escape)
    return None if parts is None else Pattern(parts)


def _quoted(character: str) -> str:
    return character if character.isalnum() or ord(character) > 127 else f"\\x{{{ord(character):x}}}"


def truth_of(test: BoundTest, vector: Vector) -> Truth | None:
    """Returns the result of a predicate for each value of its term; None if its bound form lacks what decides it.

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
    """Returns where texts match a pattern; those that are not UTF-8 have failed. Raises as :func:`truth_of`."""
    text, broken = utf8_of(vector)
    found = pattern.matches(text)
    if not broken.any():
        return where(found, vector)
    failed = broken & vector.valid if vector.failed is None else (broken & vector.valid) | vector.failed
    return where(found, Vector(vector.values, vector.valid, failed, vector.reason or NOT_UTF8))


def where(found: Mask, *vectors: Vector) -> Truth:
    """Returns true and false as in ``found``, null where a vector is; a null on the left hides a failure on the
    right."""
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


class TextMatch(msgspec.Struct, frozen=True):
    """``term LIKE pattern``: the part of a filter that its bound form, made for zone maps, does not contain."""

    term: BoundTerm
    pattern: Pattern


class RowFilter:
    """A filter over the columns of ``schema``, ready to decide rows. May be shared between threads.

    ``time_zone`` and ``case_sensitive`` as for :func:`lamella.snapshot.expression.bind`.

    Raises:
        FilterNotEvaluable: a part of the filter cannot be decided exactly; the error names it.
        UnknownColumn, FilterTypeMismatch, InvalidRequest: as for binding.
    """

    def __init__(
        self, predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
    ) -> None:
        self._predicate = predicate
        self._schema = schema.without_shredding()
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive
        self._tests: dict[Predicate, BoundPredicate | TextMatch] = {}
        self._prepare(predicate)
        found = (
            leaf
            for test in self._tests.values()
            for leaf in (leaves_in(test.term) if isinstance(test, TextMatch) else columns_of(test))
        )
        self.columns: tuple[Leaf, ...] = tuple(dict.fromkeys(found))

    def matches(self, columns: Mapping[int, Any], count: int) -> Mask:
        """Returns which of ``count`` rows match; ``columns`` contains at least :attr:`columns` as Arrow arrays, by
        column id.

        Raises:
            EvaluationFailed: in some row a required value cannot be computed (an overflow, a division by zero, a cast
                out of range), as in Spark's ANSI mode; or Spark's result for a document is not certain.
        """
        truth = self.decide(columns, count)
        if truth.failed is not None and truth.failed.any():
            text = text_of(self._predicate)
            raise EvaluationFailed(f"{text}: {truth.reason}", predicate=text, reason=truth.reason)
        return truth.true

    def decide(self, columns: Mapping[int, Any], count: int) -> Truth:
        """Returns the filter's truth in every row, with the rows where it cannot be computed."""
        return self._truth(self._predicate, RowTerms(columns, count))

    def _prepare(self, node: Predicate) -> None:
        match node:
            case Constant():
                return
            case And(children) | Or(children):
                for child in children:
                    self._prepare(child)
            case Not(child) | IsTrue(child) | IsUnknown(child):
                self._prepare(child)
            case _:
                self._tests[node] = self._test(node)

    def _test(self, node: TermPredicate | Unknown) -> BoundPredicate | TextMatch:
        bound = bind(node, self._schema, time_zone=self._time_zone, case_sensitive=self._case_sensitive)
        vague = [
            leaf
            for leaf in leaves_of(bound)
            if isinstance(leaf, Anything) or (isinstance(leaf, Prefix) and not leaf.whole)
        ]
        if not vague:
            return bound
        made = self._text_match(node) if isinstance(node, Like) else None
        if made is not None:
            return made
        text = text_of(node)
        reason = next((leaf.reason for leaf in vague if isinstance(leaf, Anything)), "it is not supported")
        raise FilterNotEvaluable(f"the reader cannot evaluate {text}: {reason}", predicate=text, reason=reason)

    def _text_match(self, node: Like) -> TextMatch | None:
        term = TermBinder(self._schema, self._time_zone, self._case_sensitive).bind(node.term)
        pattern = like_pattern(node.pattern, node.escape)
        if pattern is None or isinstance(term, Unusable | ConstantTerm) or not term.dtype.is_text:
            return None
        return TextMatch(term, pattern)

    def _truth(self, node: Predicate, rows: RowTerms) -> Truth:
        match node:
            case Constant(value):
                return everywhere(value, rows.count)
            case And(children):
                parts = (self._truth(child, rows) for child in children)
                return reduce(Truth.and_then, parts, everywhere(True, rows.count))
            case Or(children):
                parts = (self._truth(child, rows) for child in children)
                return reduce(Truth.or_else, parts, everywhere(False, rows.count))
            case Not(child):
                return self._truth(child, rows).negated()
            case IsTrue(child):
                return self._truth(child, rows).null_as_false()
            case IsUnknown(child):
                return self._truth(child, rows).unknown()
            case _:
                test = self._tests[node]
                if isinstance(test, TextMatch):
                    return matched(test.pattern, rows.vector(test.term))
                return row_truth(test, rows)


def row_truth(node: BoundPredicate, rows: RowTerms) -> Truth:
    """Returns whether each row matches a filter without parts that cannot be evaluated row by row."""
    match node:
        case Fixed(value):
            return everywhere(value, rows.count)
        case BoundAnd(children):
            parts = (row_truth(child, rows) for child in children)
            return reduce(Truth.and_then, parts, everywhere(True, rows.count))
        case BoundOr(children):
            parts = (row_truth(child, rows) for child in children)
            return reduce(Truth.or_else, parts, everywhere(False, rows.count))
        case BoundNot(child):
            return row_truth(child, rows).negated()
        case BoundIsTrue(child):
            return row_truth(child, rows).null_as_false()
        case BoundIsUnknown(child):
            return row_truth(child, rows).unknown()
        case _:
            return _leaf_truth(node, rows)


def _leaf_truth(node: BoundLeaf, rows: RowTerms) -> Truth:
    if isinstance(node, Pair):
        left, right = rows.vector(node.left), rows.vector(node.right)
        return where(compared(left, node.op, right), left, right)
    if node.term is None:
        raise AssertionError("a filter with such a part is refused")
    truth = truth_of(node, rows.vector(node.term))
    if truth is None:
        raise AssertionError("a filter with such a part is refused")
    return truth
