"""get_json_object: parses JSON documents as Spark does, and returns the value at a path."""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import MAY_NUMBER, Zones
from lamella.snapshot.function.base import Vector, failing, fails_of, strict, strict_flags, text_of
from lamella.snapshot.function.text import NOT_UTF8
from lamella.snapshot.schema import parse_type

# JSON documents in text, parsed as in Spark's ``get_json_object``, where that is certain.
#
# Spark reads the tokens of a document up to the end of its first value, with Jackson: what follows is ignored, and any
# error before makes the result null. Jackson accepts JSON, and some extensions: control characters in strings, which
# are accepted here too; single quotes, around strings and after a backslash; and in escapes, letters of other scripts
# for hexadecimal digits. So a text is JSON up to the end of its first value; or it is invalid, also for Jackson; or
# Spark's result is not certain.
#
# The result is also uncertain where versions of Jackson and Java differ: near Jackson's limits, for characters beyond
# 16 bits inside objects and arrays, and for doubles that Java 17 and 25 write differently. All this was determined with
# Spark 4.3.

#: Jackson's limits are 20 million characters of a string, 50,000 of a name, 1,000 of a number, and 1,000 levels.
_MAX_CHARACTERS: Final = 5_000_000
_MAX_NAME: Final = 10_000
_MAX_LEVELS: Final = 100
_LONG_NUMBER: Final = re.compile(r"(?<![-+.0-9eE])[-+.0-9eE]{500}")
#: Text of this many characters has neither many levels, two brackets each, nor long numbers or names.
_SURELY_WITHIN: Final = 2 * _MAX_LEVELS

_BLANKS: Final = " \t\n\r"
#: No escape is longer, so an error in one is within this many characters of Python's error position.
_NEAR: Final = 8
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BEYOND_16_BITS: Final = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES: Final = {
    **{chr(code): f"\\u{code:04X}" for code in range(32)},
    **{"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"},
}

#: Doubles from the first to before the second, with this many digits, are written equally by every Java version: older
#: ones write some others with unnecessary digits (2E23 as 1.9999999999999998E23).
_MIN_DOUBLE: Final = 1e-6
_DOUBLES_END: Final = 1e15
_SURE_DIGITS: Final = 15
#: Outside of these limits Java writes an exponent.
_PLAIN_FROM: Final = 1e-3
_PLAIN_END: Final = 1e7

_MANY_LEVELS: Final = "a JSON document is nested deeply"


class Uncertain(Exception):
    """Spark's result for a document is not certain; the message states why. Handled within this package."""


class NoJson(Exception):
    """The text has no complete value at its beginning, for Spark either: every path is null in it.

    Handled within this package.
    """


def read_document(text: str) -> Any:
    """Returns the first value of a text: objects as tuples of pairs in order, arrays as lists, and otherwise Python's
    scalars.

    Raises:
        NoJson, Uncertain: it has none, or Spark may read it differently, or refuse it for its size.
    """
    if len(text) > _MAX_CHARACTERS:
        raise Uncertain("a JSON document is very long")
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        if _is_an_error(error):
            raise NoJson from error
        raise Uncertain("a document is not strictly valid JSON") from error
    except RecursionError as error:
        raise Uncertain(_MANY_LEVELS) from error
    except ValueError as error:  # Python parses no integer of more than 4,300 digits
        raise Uncertain("a JSON document has a long number") from error
    if end - start > _SURELY_WITHIN:
        _require_within(value, text[start:end])
    return value


def written(value: Any) -> str:
    """Returns a parsed value as Spark writes it: numbers as in Java, without blanks.

    Raises:
        Uncertain: versions of Java or Jackson write it differently.
    """
    if isinstance(value, str):
        if _BEYOND_16_BITS.search(value):
            raise Uncertain("a JSON value has characters beyond 16 bits inside an object or array")
        return f'"{_ESCAPED.sub(_escape, value)}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return f"{{{','.join(f'{written(name)}:{written(member)}' for name, member in value)}}}"


def result_text(value: Any) -> str:
    """Returns a value as the result of ``get_json_object``: text itself, anything else as :func:`written`; raises as
    that."""
    if not isinstance(value, str):
        try:
            return written(value)
        except RecursionError as error:  # if the caller's stack is deep
            raise Uncertain(_MANY_LEVELS) from error
    if not value.isascii() and _SURROGATE.search(value):
        raise Uncertain("a JSON string has an unpaired surrogate")
    return value


def _is_an_error(error: json.JSONDecodeError) -> bool:
    """Returns whether Jackson certainly stops there."""
    near = error.doc[max(error.pos - _NEAR, 0) : error.pos + _NEAR]
    return error.msg.startswith("Unterminated string") or (near.isascii() and "'" not in near)


def _not_a_number(name: str) -> Any:
    """Rejects NaN and the infinities, which Python accepts and Jackson does not."""
    raise NoJson(name)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_not_a_number, strict=False)


def _escape(found: re.Match[str]) -> str:
    return _ESCAPES[found[0]]


def _double_text(value: float) -> str:
    """Returns a double as Java writes it, if that is the shortest text that represents it."""
    size = abs(value)
    if size == 0:
        return repr(value)
    if not _MIN_DOUBLE <= size < _DOUBLES_END:
        raise Uncertain("a JSON number is very large or small")
    mantissa, _, power = f"{value:.{_SURE_DIGITS - 1}e}".partition("e")
    if float(f"{mantissa}e{power}") != value:
        raise Uncertain("a JSON number has many digits")
    if _PLAIN_FROM <= size < _PLAIN_END:
        return repr(value)
    whole, _, digits = mantissa.partition(".")
    return f"{whole}.{digits.rstrip('0') or '0'}E{int(power)}"


def _require_within(value: Any, text: str) -> None:
    """Raises Uncertain for what a version of Jackson may refuse."""
    if _LONG_NUMBER.search(text):
        raise Uncertain("a JSON document has a long number")
    if text.count("[") + text.count("{") <= _MAX_LEVELS and len(text) <= _MAX_NAME:
        return
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _MAX_LEVELS:
            raise Uncertain(_MANY_LEVELS)
        below: list[Any] = []
        for each in level:
            if isinstance(each, tuple):
                if any(len(name) > _MAX_NAME for name, _ in each):
                    raise Uncertain("a JSON document has a long name")
                below += (member for _, member in each)
            elif isinstance(each, list):
                below += each
        level = below


_TEXT: Final = parse_type("string")
#: A member's name, or an index in an array.
Step = str | int

# Spark drops blanks before names, and versions of it read ? differently; the name * stands for all.
_STEP: Final = re.compile(r"\.([\w-]+)|\['((?![\s*])[^'?\\\x00-\x1f]*[^'?\\\s\x00-\x1f])'\]|\[(0|[1-9][0-9]{0,3})\]")
_WORD: Final = re.compile(r"[\w-]+")
_MISSING: Final = object()


def steps_of(path: str) -> tuple[Step, ...] | None:
    """Returns the steps of a path of names and indexes; None for any other path, and for text that is not a path.

    A name is ``.word`` of letters, digits, ``_`` and ``-``, or anything in ``['…']`` without a quote, backslash or
    question mark that neither begins nor ends with a blank.
    """
    if not path.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        word, name, index = found.groups()
        steps.append(int(index) if index is not None else word if name is None else name)
        at = found.end()
    return tuple(steps) or None


def path_of(steps: tuple[Step, ...]) -> str:
    """Returns the normalized path of steps."""
    return "$" + "".join(map(_spelled, steps))


class JsonPath(msgspec.Struct, frozen=True, gc=False):
    """``get_json_object(text, path)``: null if the path is missing, a JSON null, or the text is not JSON.

    Of several members of one name, the first counts in which the rest of the path is found and is not null.
    """

    steps: tuple[Step, ...]

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the results: it is only known that null gives null."""
        (zones,) = arguments
        flags = failing(strict_flags([zones]), zones.has(MAY_NUMBER), _TEXT)
        return Zones(None, None, flags, fails_of(arguments))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the results; a document has failed if Spark's result is not certain."""
        (vector,) = arguments
        text, failed = text_of(vector)
        reason = NOT_UTF8 if failed.any() else ""
        found: list[str | None] = [None] * len(vector)
        rows = np.flatnonzero(self._possible(text) & vector.valid & ~failed)
        for row, document in zip(rows.tolist(), text.take(pa.array(rows)).to_pylist(), strict=True):
            try:
                found[row] = self._value(document)
            except Uncertain as doubt:
                failed[row], reason = True, reason or str(doubt)
        made = pa.array(found, pa.large_string())
        valid = made.is_valid().to_numpy(zero_copy_only=False) | failed
        if vector.failed is not None:
            valid = valid | vector.failed
        values = pc.fill_null(made, "").cast(pa.large_binary())
        return strict(values, arguments, failed=failed, reason=reason, valid=np.asarray(valid))

    def _possible(self, text: Any) -> Mask:
        """Returns where the path may exist: all its names occur, or escapes that may spell them."""
        names = {step for step in self.steps if isinstance(step, str)}
        if not names:
            return np.ones(len(text), dtype=bool)
        there = reduce(pc.and_, (pc.match_substring(text, name) for name in names))
        return np.asarray(pc.or_(there, pc.match_substring(text, "\\")).to_numpy(zero_copy_only=False))

    def _value(self, document: str) -> str | None:
        """Returns the result for a document; raises Uncertain."""
        try:
            value = _at(read_document(document), self.steps)
        except NoJson:
            return None
        return None if value is _MISSING else result_text(value)


def _at(value: Any, steps: tuple[Step, ...]) -> Any:
    """Returns the value at the end of a path."""
    for at, step in enumerate(steps):
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return _MISSING
            value = value[step]
            continue
        if not isinstance(value, tuple):
            return _MISSING
        members = [member for name, member in value if name == step and member is not None]
        if len(members) > 1:
            ends = (_at(member, steps[at + 1 :]) for member in members)
            return next((end for end in ends if end is not _MISSING), _MISSING)
        if not members:
            return _MISSING
        value = members[0]
    return value


def _spelled(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _WORD.fullmatch(step) else f"['{step}']"
