"""Methods for keys and grants: ``lake.keys``, ``lake.grants`` and ``lake.whoami``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lamella.client.http.access import (
    create_key_call,
    give_grant_call,
    grants_call,
    key_call,
    keys_call,
    revoke_key_call,
    rotate_key_call,
    take_grant_call,
    whoami_call,
)
from lamella.client.http.aio.runner import AsyncCallRunner
from lamella.snapshot.wire import CreateKey, Grant, GrantInfo, GrantRequest, KeyInfo, NewKey, Role, RotateKey, WhoAmI

_DAY_S: Final = 86_400


class AsyncKeys:
    """The API keys of a service; ``lake.keys``. See ``docs/access.md``."""

    def __init__(self, lake: AsyncCallRunner) -> None:
        self._lake = lake

    async def list(self) -> tuple[KeyInfo, ...]:
        """The keys that the caller created, by name; all keys for an admin of the whole service."""
        return (await self._lake.run(keys_call())).keys

    async def get(self, name: str) -> KeyInfo:
        """One key, without its text; raises KeyNotFound."""
        return await self._lake.run(key_call(name))

    async def create(
        self,
        name: str,
        grants: Sequence[Grant],
        *,
        expires_s: int | None = None,
        requests_per_s: float | None = None,
    ) -> NewKey:
        """Create a key; ``key`` in the answer is its text, which is shown only once.

        ``expires_s``: seconds until the key expires; None: it is valid until it is revoked. ``requests_per_s``: a rate
        limit for this key, in place of the service's default.

        The request is not retried once it may have been carried out, whatever the client's policy: the text of the key
        is only in the first answer.

        Raises:
            AlreadyExists: a key has that name.
            PermissionDenied, NamespaceNotFound, TableNotFound: the caller is not admin of what the key may access.
            OutcomeUnknown: the key may exist, but its text is lost. Revoke it, and create it again.
        """
        request = CreateKey(name=name, grants=tuple(grants), expires_s=expires_s, requests_per_s=requests_per_s)
        return await self._lake.run(create_key_call(request))

    async def rotate(self, name: str, *, overlap_s: int = _DAY_S, expires_s: int | None = None) -> NewKey:
        """Give a key a new text. The old text stays valid for ``overlap_s`` seconds, unless it expires before.

        ``expires_s``: seconds until the new text expires; None: the same lifetime as before.

        Raises:
            KeyNotFound, PermissionDenied, NamespaceNotFound, TableNotFound.
            OutcomeUnknown: the key may have been rotated, but the new text is lost, so the key stops working after the
                overlap; rotating it again would end the old text at once. Create another key for its users.
        """
        return await self._lake.run(rotate_key_call(name, RotateKey(overlap_s=overlap_s, expires_s=expires_s)))

    async def revoke(self, name: str) -> None:
        """Revoke a key and all its grants. Raises KeyNotFound, also when an attempt without a response revoked it."""
        await self._lake.run(revoke_key_call(name))


class AsyncGrants:
    """Grants; ``lake.grants``. ``namespace`` and ``table`` None: everything; ``table`` None: the namespace.

    Principals are ``key:NAME``, ``user:SUBJECT`` and ``group:NAME``.
    """

    def __init__(self, lake: AsyncCallRunner) -> None:
        self._lake = lake

    async def list(self, principal: str | None = None) -> tuple[GrantInfo, ...]:
        """The caller's grants, and all grants on what the caller is admin of; ``principal``: only grants to it."""
        return (await self._lake.run(grants_call(principal))).grants

    async def give(
        self, principal: str, role: Role, namespace: str | None = None, table: str | None = None
    ) -> GrantInfo:
        """Grant a role; it replaces another role on the same scope. Repeating the call changes nothing.

        Raises PermissionDenied, NamespaceNotFound or TableNotFound when the caller is not admin of the scope, and
        KeyNotFound when the principal is a key that does not exist.
        """
        request = GrantRequest(principal=principal, role=role, namespace=namespace, table=table)
        return await self._lake.run(give_grant_call(request))

    async def take(self, principal: str, namespace: str | None = None, table: str | None = None) -> None:
        """Revoke whatever role is granted; no error when there is none. Raises the errors of :meth:`give`."""
        await self._lake.run(take_grant_call(principal, namespace, table))


class AsyncLakeAccess:
    """Keys and grants; a part of :class:`lamella.client.AsyncLamella`."""

    @property
    def keys(self: AsyncCallRunner) -> AsyncKeys:
        """The API keys of the service.

        Example:
            >>> from lamella.snapshot.wire import Grant
            >>> created = await lake.keys.create("loader", [Grant(role="write", namespace="shop")])
            >>> [key.name for key in await lake.keys.list()]
            ['loader']
        """
        return AsyncKeys(self)

    @property
    def grants(self: AsyncCallRunner) -> AsyncGrants:
        """The grants of the service.

        Example:
            >>> grant = await lake.grants.give("group:analysts", "read", "shop")
            >>> [each.principal for each in await lake.grants.list()]
            ['group:analysts']
        """
        return AsyncGrants(self)

    async def whoami(self: AsyncCallRunner) -> WhoAmI:
        """The identity of this client, as the service sees it, and its grants.

        Example:
            >>> (await lake.whoami()).principal
            'anonymous'
        """
        return await self.run(whoami_call())
