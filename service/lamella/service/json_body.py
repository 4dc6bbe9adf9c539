"""Reading JSON that a client sent."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from lamella.snapshot.errors import InvalidRequest, LimitExceeded

_T = TypeVar("_T")
_PLACE: Final = re.compile(r"(?P<message>.*) - at (?P<key>`key` in )?`\$(?P<path>.*)`", re.DOTALL)


def read_json(decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw, *, root: str = "$") -> _T:
    """What ``decoder`` makes of ``data``; ``root`` is the JSON path at which ``data`` stands in the request.

    Raises:
        InvalidRequest: not JSON, or not of that form; then ``details.path`` is the JSON path of the mistake.
        LimitExceeded: nested too deeply.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        message, path = (found["message"], root + found["path"]) if found else (str(error), root)
        where = f"a key of {path}" if found and found["key"] else path
        raise InvalidRequest(f"{message} at {where}", path=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise LimitExceeded("the body is nested too deeply", path=root) from error
