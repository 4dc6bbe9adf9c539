"""API keys and grants in the catalog's database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from sqlalchemy import RowMapping, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog.records import KeyRecord
from lamella.service.catalog.schema import api_keys, grants
from lamella.service.catalog.session import SqlSession
from lamella.snapshot.errors import AlreadyExists, KeyNotFound
from lamella.snapshot.wire import GrantInfo, Role

_AT_ONCE: Final = 500
_KEY: Final = "key:"
_named = api_keys.c.name == bindparam("key")
_hashed = or_(api_keys.c.sha256 == bindparam("sha256"), api_keys.c.old_sha256 == bindparam("sha256"))
_on = and_(
    grants.c.principal == bindparam("whose"),
    grants.c.namespace == bindparam("in_namespace"),
    grants.c.table_name == bindparam("on_table"),
)
_KEYS: Final = select(api_keys)
_ONE: Final = _KEYS.where(_named)
_LOCKED: Final = _ONE.with_for_update()
_BY_HASH: Final = _KEYS.where(_hashed)
_ROTATE: Final = (
    update(api_keys)
    .where(_named)
    .values(
        sha256=bindparam("fresh"),
        old_sha256=bindparam("former"),
        old_until_ms=bindparam("former_until_ms"),
        expires_ms=bindparam("until_ms"),
        rotated_ms=bindparam("now_ms"),
        created_by=bindparam("rotated_by"),
    )
)
_USED: Final = update(api_keys).where(_named).values(used_ms=bindparam("at_ms"))
_DROP: Final = delete(api_keys).where(_named)
_DISOWN: Final = (
    update(api_keys).where(api_keys.c.created_by == bindparam("maker")).values(created_by=bindparam("gone"))
)
_GRANTS: Final = select(grants)
_OF: Final = _GRANTS.where(grants.c.principal.in_(bindparam("whose", expanding=True)))
_INSERT_GRANT: Final = insert(grants)
_DROP_ALL: Final = delete(grants).where(grants.c.principal == bindparam("whose"))
_DROP_ONE: Final = delete(grants).where(_on)


class SqlAccess(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for API keys and grants."""

    def add_key(self, key: KeyRecord, grants: Sequence[GrantInfo]) -> None:
        with self._transaction(None) as connection:
            try:
                connection.execute(insert(api_keys), msgspec.structs.asdict(key))
            except IntegrityError as error:
                raise AlreadyExists(f"an API key {key.name!r} exists", key=key.name) from error
            connection.execute(_DROP_ALL, {"whose": key.principal})
            rows = [_grant_row(grant) for grant in grants]
            if rows:
                connection.execute(_INSERT_GRANT, rows)

    def api_keys(self) -> list[KeyRecord]:
        return sorted((_key(row) for row in self._rows(_KEYS, {})), key=lambda key: key.name)

    def key(self, name: str) -> KeyRecord:
        for row in self._rows(_ONE, {"key": name}):
            return _key(row)
        raise _no_key(name)

    def key_of(self, sha256: str) -> KeyRecord | None:
        for row in self._rows(_BY_HASH, {"sha256": sha256}):
            return _key(row)
        return None

    def rotate_key(
        self, name: str, *, sha256: str, old_until_ms: int, expires_ms: int | None, now_ms: int, by: str
    ) -> KeyRecord:
        with self._transaction(None) as connection:
            row = connection.execute(_LOCKED, {"key": name}).mappings().first()
            if row is None:
                raise _no_key(name)
            ends = row["expires_ms"]
            given = {
                "key": name,
                "fresh": sha256,
                "former": row["sha256"],
                # an old text that has expired does not become valid again
                "former_until_ms": old_until_ms if ends is None else min(old_until_ms, ends),
                "until_ms": expires_ms,
                "now_ms": now_ms,
                "rotated_by": by,
            }
            connection.execute(_ROTATE, given)
            return _key(connection.execute(_ONE, {"key": name}).mappings().one())

    def drop_key(self, name: str) -> None:
        with self._transaction(None) as connection:
            if connection.execute(_DROP, {"key": name}).rowcount == 0:
                raise _no_key(name)
            connection.execute(_DROP_ALL, {"whose": _KEY + name})
            connection.execute(_DISOWN, {"maker": _KEY + name, "gone": f"{_KEY}{name} (revoked)"})

    def note_key_use(self, name: str, at_ms: int) -> None:
        with self._transaction(None) as connection:
            connection.execute(_USED, {"key": name, "at_ms": at_ms})

    def grants(self, principals: Sequence[str] | None = None) -> list[GrantInfo]:
        found: list[GrantInfo] = []
        if principals is None:
            found = [_grant(row) for row in self._rows(_GRANTS, {})]
        else:
            valid = [each for each in principals if "\0" not in each]
            for start in range(0, len(valid), _AT_ONCE):
                some = valid[start : start + _AT_ONCE]
                found += [_grant(row) for row in self._rows(_OF, {"whose": some})]
        return sorted(found, key=lambda grant: (grant.principal, grant.namespace or "", grant.table or ""))

    def put_grant(self, grant: GrantInfo) -> None:
        row = _grant_row(grant)
        with self._transaction(None) as connection:
            if grant.principal.startswith(_KEY):
                # Locked, so that a grant cannot be added to a key that is being dropped and then belong to the next key
                # of that name.
                name = grant.principal.removeprefix(_KEY)
                if connection.execute(_LOCKED, {"key": name}).first() is None:
                    raise _no_key(name)
            given = self._insert(grants)
            newer = {name: given.excluded[name] for name in ("role", "created_ms", "created_by")}
            which = ["principal", "namespace", "table_name"]
            connection.execute(given.on_conflict_do_update(index_elements=which, set_=newer), row)

    def drop_grant(self, principal: str, namespace: str | None, table: str | None) -> bool:
        with self._transaction(None) as connection:
            return connection.execute(_DROP_ONE, _scope_params(principal, namespace, table)).rowcount > 0


def _scope_params(principal: str, namespace: str | None, table: str | None) -> dict[str, str]:
    return {"whose": principal, "in_namespace": namespace or "", "on_table": table or ""}


def _grant_row(grant: GrantInfo) -> dict[str, Any]:
    return {
        "principal": grant.principal,
        "namespace": grant.namespace or "",
        "table_name": grant.table or "",
        "role": grant.role,
        "created_ms": grant.created_ms,
        "created_by": grant.created_by,
    }


def _grant(row: RowMapping) -> GrantInfo:
    return GrantInfo(
        principal=row["principal"],
        role=cast("Role", row["role"]),
        namespace=row["namespace"] or None,
        table=row["table_name"] or None,
        created_ms=row["created_ms"],
        created_by=row["created_by"],
    )


def _key(row: RowMapping) -> KeyRecord:
    return KeyRecord(**row)


def _no_key(name: str) -> KeyNotFound:
    return KeyNotFound(f"there is no API key {name!r}", key=name)
