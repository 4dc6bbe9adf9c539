"""JSON documents in text, read as Spark's ``get_json_object`` reads them, where that is certain.

Spark reads the tokens of a document up to the end of its first value, with Jackson: what follows is not looked at, and
whatever is wrong before makes the result null. Jackson takes what JSON allows, and some things more: control characters
in strings, which are read here too; single quotes, around strings and behind a backslash; and in escapes, letters of
other scripts for hexadecimal digits. So a text is JSON up to the end of its first value; or it is none, for Jackson
either; or what Spark makes of it is not certain.

Nor is that certain where versions of Jackson and Java differ: near Jackson's limits, for characters beyond 16 bits
inside objects and arrays, and for doubles that Java 17 and 25 write in two ways. All this was found by asking Spark
4.3.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: Jackson's limits are 20 million characters of a string, 50,000 of a name, 1,000 of a number, and 1,000 levels.
_MAX_CHARACTERS: Final = 5_000_000
_MAX_NAME: Final = 10_000
_MAX_LEVELS: Final = 100
_LONG_NUMBER: Final = re.compile(r"(?<![-+.0-9eE])[-+.0-9eE]{500}")
#: Text of so many characters has neither many levels, two brackets each, nor long numbers or names.
_SURELY_WITHIN: Final = 2 * _MAX_LEVELS

_BLANKS: Final = " \t\n\r"
#: No escape is longer, so what is wrong with one lies within so many characters of where Python says that it is.
_NEAR: Final = 8
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BEYOND_16_BITS: Final = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES: Final = {
    **{chr(code): f"\\u{code:04X}" for code in range(32)},
    **{"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"},
}

#: Doubles from the one to before the other, of so many digits, are written alike by every Java: older ones write some
#: others with digits that nobody needs (2E23 as 1.9999999999999998E23).
_LEAST_DOUBLE: Final = 1e-6
_DOUBLES_END: Final = 1e15
_SURE_DIGITS: Final = 15
#: Outside of these Java writes an exponent.
_PLAIN_FROM: Final = 1e-3
_PLAIN_END: Final = 1e7

_MANY_LEVELS: Final = "a JSON document has many levels"


class Uncertain(Exception):
    """It is not certain what Spark makes of a document; says why. Never leaves this package."""


class NoJson(Exception):
    """The text has no whole value at its beginning, for Spark either: every path is null in it.

    Never leaves this package.
    """


def read_document(text: str) -> Any:
    """The first value of a text: objects as tuples of pairs in their order, arrays as lists, and else Python's scalars.

    Raises:
        NoJson, Uncertain: it has none, or Spark may read it otherwise, or refuse it for its size.
    """
    if len(text) > _MAX_CHARACTERS:
        raise Uncertain("a JSON document is very long")
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        if _is_an_error(error):
            raise NoJson from error
        raise Uncertain("a document is not quite JSON") from error
    except RecursionError as error:
        raise Uncertain(_MANY_LEVELS) from error
    except ValueError as error:  # Python makes no integer of more than 4,300 digits
        raise Uncertain("a JSON document has a long number") from error
    if end - start > _SURELY_WITHIN:
        _require_within(value, text[start:end])
    return value


def written(value: Any) -> str:
    """A value that was read, as Spark writes it: numbers as Java does, no blanks between.

    Raises:
        Uncertain: versions of Java or Jackson write it in several ways.
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
    """A value as the result of ``get_json_object``: text itself, anything else as :func:`written`; raises as that."""
    if not isinstance(value, str):
        try:
            return written(value)
        except RecursionError as error:  # of a caller that is deep in calls itself
            raise Uncertain(_MANY_LEVELS) from error
    if not value.isascii() and _SURROGATE.search(value):
        raise Uncertain("a JSON string has half a character")
    return value


def _is_an_error(error: json.JSONDecodeError) -> bool:
    """True when Jackson stops there for certain."""
    near = error.doc[max(error.pos - _NEAR, 0) : error.pos + _NEAR]
    return error.msg.startswith("Unterminated string") or (near.isascii() and "'" not in near)


def _not_a_number(name: str) -> Any:
    """NaN and the infinities, which Python takes and Jackson does not."""
    raise NoJson(name)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_not_a_number, strict=False)


def _escape(found: re.Match[str]) -> str:
    return _ESCAPES[found[0]]


def _double_text(value: float) -> str:
    """A double as Java writes it, where that is the shortest text that stands for it."""
    size = abs(value)
    if size == 0:
        return repr(value)
    if not _LEAST_DOUBLE <= size < _DOUBLES_END:
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
