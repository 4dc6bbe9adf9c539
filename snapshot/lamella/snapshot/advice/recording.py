"""What is kept of the filters that are asked: nothing, their shape, their shape with hashes, or all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

import msgspec

from lamella.snapshot.errors import InvalidRequest

Mode = Literal["off", "shape", "hashed", "full"]

#: The table's property that says what is kept of its filters, where the service keeps any.
PROPERTY: Final = "lamella.record_prunes"


def check_recording(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a value that the property cannot have."""
    value = properties.get(PROPERTY)
    if value is not None and value not in get_args(Mode):
        raise InvalidRequest(f"{PROPERTY} is one of {', '.join(get_args(Mode))}, not {value!r}", property=PROPERTY)


def mode_of(properties: Mapping[str, str], default: Mode) -> Mode:
    """What is kept for a table; a service that keeps nothing keeps nothing for any."""
    value = properties.get(PROPERTY)
    return cast("Mode", value) if default != "off" and value in get_args(Mode) else default


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A filter as it was kept: ``tree`` in JSON, without constants unless ``is_full``; asked ``times`` times.

    ``considered`` and ``kept``: blocks, of all times together.
    """

    tree: str
    text: str
    is_full: bool
    times: int
    considered: int
    kept: int
    time_zone: str = "UTC"
