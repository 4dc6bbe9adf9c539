"""Options of index kinds: numbers and flags with a default, bounds and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import DataType


class Option(msgspec.Struct, frozen=True):
    """One option. Its values are of the type of ``default``; ``least`` and ``most`` bound numbers."""

    default: Any
    text: str
    least: float | None = None
    most: float | None = None


def checked(
    kind: str, known: Mapping[str, Option], given: Mapping[str, Any], dtype: DataType, *, fits: bool
) -> dict[str, Any]:
    """All options with their values.

    Raises:
        InvalidRequest: the kind does not fit the type; an option that there is not, of another type, or out of bounds.
    """
    if not fits:
        raise InvalidRequest(f"an index of the kind {kind} cannot be made over {dtype}", kind=kind, type=str(dtype))
    for name in given:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(f"the index kind {kind} has no option {name!r}; it has {there}", option=name)
    return {name: _value(kind, name, option, given.get(name, option.default)) for name, option in known.items()}


def _value(kind: str, name: str, option: Option, value: Any) -> Any:
    wanted = type(option.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise InvalidRequest(f"option {name!r} of the index kind {kind} is a {wanted.__name__}", option=name)
    too_small = option.least is not None and not value >= option.least
    too_large = option.most is not None and not value <= option.most
    if too_small or too_large:
        raise InvalidRequest(
            f"option {name!r} of the index kind {kind} lies between {option.least} and {option.most}", option=name
        )
    return value
