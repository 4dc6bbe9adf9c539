"""Reading JSON that a client sent."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from lamella.snapshot.errors import InvalidRequest, LimitExceeded

#: Values that a body may have. Small ones take up to thirty times their text once they are read; this bounds that.
MOST_VALUES: Final = 4_000_000
#: Of a body whose values stay text for now, such as the blocks of a commit.
MOST_RAW_VALUES: Final = 16_000_000

_T = TypeVar("_T")
_TOO_LONG: Final = re.compile(r"Expected `(?P<kind>\w+)` of length <= (?P<most>\d+)")
_UNITS: Final = {"str": "characters", "bytes": "bytes"}
_PLACE: Final = re.compile(r"(?P<message>.*) - at (?P<key>`key` in )?`\$(?P<path>.*)`", re.DOTALL)


def read_json(
    decoder: msgspec.json.Decoder[_T],
    data: bytes | msgspec.Raw,
    *,
    root: str = "$",
    most_values: int = MOST_VALUES,
) -> _T:
    """What ``decoder`` makes of ``data``; ``root`` is the JSON path at which ``data`` stands in the request.

    Raises:
        InvalidRequest: not JSON, or not of that form; then ``details.path`` is the JSON path of the mistake.
        LimitExceeded: nested too deeply, more than ``most_values`` values, or a member that is longer than it may be.
    """
    if len(data) > most_values and _separators(data) > most_values:
        raise LimitExceeded(f"the body has more than {most_values} values", limit="json_values", most=most_values)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        message, path = (found["message"], root + found["path"]) if found else (str(error), root)
        where = f"a key of {path}" if found and found["key"] else path
        too_long = _TOO_LONG.fullmatch(message)
        if too_long is not None:
            text = f"{where} has more than {too_long['most']} {_UNITS.get(too_long['kind'], 'entries')}"
            raise LimitExceeded(text, limit="length", most=int(too_long["most"]), path=path) from error
        raise InvalidRequest(f"{message} at {where}", path=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise LimitExceeded("the body is nested too deeply", limit="depth", path=root) from error


def _separators(data: bytes | msgspec.Raw) -> int:
    """At least as many as there are values: each comes first in what it is in, or behind a comma."""
    text = bytes(data)
    return text.count(b",") + text.count(b"[") + text.count(b"{")
