"""What a grant is on, as people write it: ``*``, ``namespace.*`` or ``namespace.table``."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire.access import Grant

_ALL: Final = "*"


def read_place(text: str) -> tuple[str | None, str | None]:
    """The namespace and the table; None stands for all of them. Raises InvalidRequest."""
    if text == _ALL:
        return None, None
    namespace, _, table = text.rpartition(".")
    if not namespace or not table or _ALL in namespace or (_ALL in table and table != _ALL):
        raise InvalidRequest(
            f"{text!r} is no place: write * for everything, NAMESPACE.* for a namespace with all of its tables, or "
            "NAMESPACE.TABLE",
            place=text,
        )
    return namespace, None if table == _ALL else table


def place_text(grant: Grant) -> str:
    """As :func:`read_place` reads it."""
    return _ALL if grant.namespace is None else f"{grant.namespace}.{grant.table or _ALL}"
