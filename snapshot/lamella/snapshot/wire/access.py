"""Access control: roles, grants, API keys."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire.limits import Word

_ALL: Final = "*"


def parse_scope(text: str) -> tuple[str | None, str | None]:
    """Returns the namespace and the table; None stands for all of them. Raises InvalidRequest."""
    if text == _ALL:
        return None, None
    namespace, _, table = text.rpartition(".")
    if not namespace or not table or _ALL in namespace or (_ALL in table and table != _ALL):
        raise InvalidRequest(
            f"{text!r} is not a scope: write * for everything, NAMESPACE.* for a namespace with all of its tables, or "
            "NAMESPACE.TABLE",
            place=text,
        )
    return namespace, None if table == _ALL else table


def scope_text(grant: Grant) -> str:
    """Returns the text of a grant's scope, which :func:`parse_scope` parses."""
    return _ALL if grant.namespace is None else f"{grant.namespace}.{grant.table or _ALL}"


#: Each role includes the rights of those before it.
Role = Literal["read", "write", "maintain", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "write", "maintain", "admin")


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role on a table, on all tables of a namespace (``table`` None), or on everything (both None).

    A grant applies to names: a role on ``sales.orders`` also applies to a table that is created there later. A
    namespace contains only its own tables; ``sales`` does not include ``sales.eu``.
    """

    role: Role
    namespace: Word | None = None
    table: Word | None = None


class GrantInfo(Grant, frozen=True, kw_only=True, forbid_unknown_fields=False, omit_defaults=False):
    """A stored grant: its principal (``key:NAME``, ``user:SUBJECT``, ``group:NAME``), when it was granted and by
    whom."""

    principal: str
    created_ms: int = 0
    created_by: str = ""


class GrantList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/grants``: ordered by principal, namespace and table."""

    grants: tuple[GrantInfo, ...]


class GrantRequest(Grant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``PUT /v1/grants`` grants a role, ``POST /v1/grants/take`` revokes it."""

    principal: Word


class CreateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/keys``. ``expires_s``: lifetime in seconds (None: until it is revoked). ``requests_per_s``: rate limit
    of the key, in place of the service's own."""

    name: Word
    grants: Annotated[tuple[Grant, ...], Meta(max_length=1_000)]
    expires_s: int | None = None
    requests_per_s: float | None = None


class RotateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/keys/{key}/rotate``. ``overlap_s``: how long the old secret remains valid, unless it expires before.
    ``expires_s``: as in :class:`CreateKey`, from now on; None: the same lifetime as before."""

    overlap_s: int = 86_400
    expires_s: int | None = None


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret, which only its recipient has.

    ``created_by``: the principal that created it, or rotated it last, and so knows its secret. ``old_until_ms``: until
    then the secret from before the last rotation is valid too. ``used_ms``: time of the last use, to about a minute.
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
    """A key that was created or rotated, with its secret, which is returned only once."""

    key: str
    info: KeyInfo


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/keys``: ordered by name."""

    keys: tuple[KeyInfo, ...]


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/whoami``: the principal of a request, and its rights.

    ``kind``: ``open``: the service does not authenticate. ``groups``: as the token's issuer names them.
    """

    principal: str
    kind: Literal["open", "root", "key", "token"]
    groups: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    expires_ms: int | None = None
