"""Who may do what: roles, what they are given on, API keys."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire.limits import Word

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


#: Each one may also do what those before it may.
Role = Literal["read", "write", "maintain", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "write", "maintain", "admin")


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role on a table, on all tables of a namespace (``table`` None), or on everything (both None).

    Names, and not what has them now: who may read ``sales.orders`` may also read a table that is made there later.
    A namespace has only the tables that stand in it by name; ``sales`` does not include ``sales.eu``.
    """

    role: Role
    namespace: Word | None = None
    table: Word | None = None


class GrantInfo(Grant, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """A grant that was given: to whom (``key:NAME``, ``user:SUBJECT``, ``group:NAME``), when and by whom."""

    principal: str
    created_ms: int = 0
    created_by: str = ""


class GrantList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/grants``: by principal, namespace and table."""

    grants: tuple[GrantInfo, ...]


class GrantRequest(Grant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``PUT /v1/grants`` gives it, ``POST /v1/grants/take`` takes it away."""

    principal: Word


class CreateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/keys``. ``expires_s``: how long it holds (None: until it is revoked). ``requests_per_s``: how often it
    may be used, in place of the service's own limit."""

    name: Word
    grants: Annotated[tuple[Grant, ...], Meta(max_length=1_000)]
    expires_s: int | None = None
    requests_per_s: float | None = None


class RotateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/keys/{key}/rotate``. ``overlap_s``: how long the old text still holds, unless it ends before.
    ``expires_s``: as in :class:`CreateKey`, from now on; None: as long again as it was before."""

    overlap_s: int = 86_400
    expires_s: int | None = None


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its text, which nobody has but who it was made for.

    ``created_by``: who made it, or rotated it last, and so has its text. ``old_until_ms``: until then the text from
    before the last rotation holds too. ``used_ms``: about when it was last used, to a minute.
    """

    name: str
    grants: tuple[GrantInfo, ...]
    created_ms: int
    created_by: str
    expires_ms: int | None = None
    rotated_ms: int | None = None
    old_until_ms: int | None = None
    used_ms: int | None = None
    requests_per_s: float | None = None


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was made or rotated, with its text, which is told this once."""

    key: str
    info: KeyInfo


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/keys``: by name."""

    keys: tuple[KeyInfo, ...]


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/whoami``: who the service takes a request to be from, and what that one may do.

    ``kind``: ``open``: the service asks nobody who they are. ``groups``: as the token's issuer names them.
    """

    principal: str
    kind: Literal["open", "root", "key", "token"]
    groups: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    expires_ms: int | None = None
