"""Quotas: limits on what may be stored, from the settings, and for a namespace from its properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from lamella.snapshot.errors import InvalidRequest, QuotaExceeded

#: Prefix of the namespace properties that only server admins may set.
PREFIX: Final = "lamella.quota."
_MEMBERS: Final = ("tables", "blocks", "bytes")
_MAX_VALUE: Final = (1 << 63) - 1

Member = Literal["namespaces", "tables", "blocks", "bytes", "table_blocks", "table_leases"]


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Limits; None: no limit. ``namespaces``: of the server. ``tables``, ``blocks``, ``bytes``: of one namespace, over
    the current snapshots of its tables. ``table_blocks``, ``table_leases``: of one table.
    """

    namespaces: int | None = None
    tables: int | None = None
    blocks: int | None = None
    bytes: int | None = None
    table_blocks: int | None = None
    table_leases: int | None = None

    def within(self, properties: Mapping[str, str]) -> Quotas:
        """Return the quotas of a namespace with these properties."""
        own = {name: int(properties[PREFIX + name]) for name in _MEMBERS if PREFIX + name in properties}
        return msgspec.structs.replace(self, **own) if own else self

    @property
    def bounds_commits(self) -> bool:
        """Return True if a commit can exceed them."""
        return (self.blocks, self.bytes, self.table_blocks) != (None, None, None)

    def check(self, member: Member, used: int, *, before: int = -1) -> None:
        """Raise QuotaExceeded if ``used`` is above the limit and above what was used ``before``."""
        limit: int | None = getattr(self, member)
        if limit is not None and used > max(limit, before):
            raise QuotaExceeded(
                f"{_TEXTS[member]}: the limit is {limit}, and there would be {used}",
                limit=f"quota_{member}",
                maximum=limit,
                used=used,
            )


NO_QUOTAS: Final = Quotas()

_TEXTS: Final[dict[Member, str]] = {
    "namespaces": "namespaces",
    "tables": "tables of the namespace",
    "blocks": "blocks of the tables of the namespace",
    "bytes": "bytes of the blocks of the namespace",
    "table_blocks": "blocks of the table",
    "table_leases": "leases of the table",
}


def sets_quotas(names: Iterable[str]) -> bool:
    """Return True if one of these properties is a quota."""
    return any(name.startswith(PREFIX) for name in names)


def check_quotas(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an unknown quota, or one that is not a number."""
    for name, text in properties.items():
        if not name.startswith(PREFIX):
            continue
        if name.removeprefix(PREFIX) not in _MEMBERS:
            known = ", ".join(PREFIX + member for member in _MEMBERS)
            raise InvalidRequest(f"there is no property {name}; quotas of a namespace are {known}", property=name)
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX_VALUE):
            raise InvalidRequest(f"{name} must be a number from 0 on, not {text[:100]!r}", property=name)
