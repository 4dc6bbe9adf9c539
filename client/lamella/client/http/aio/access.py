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
        """Those that one made, by name; all of them for an admin of everything."""
        return (await self._lake.run(keys_call())).keys

    async def get(self, name: str) -> KeyInfo:
        """One of them, without its text; raises KeyNotFound."""
        return await self._lake.run(key_call(name))

    async def create(
        self,
        name: str,
        grants: Sequence[Grant],
        *,
        expires_s: int | None = None,
        requests_per_s: float | None = None,
    ) -> NewKey:
        """Make a key; ``key`` of the answer is its text, which is shown only once.

        ``expires_s``: how long it holds; None: until it is revoked. ``requests_per_s``: how often it may be used, in
        place of the service's own limit.

        It is not sent again once it may have been carried out, whatever the client's policy says: the answer with the
        text would be lost all the same.

        Raises:
            AlreadyExists: a key has that name.
            PermissionDenied, NamespaceNotFound, TableNotFound: one is not admin of what the key may do.
            OutcomeUnknown: the key may exist, but its text is lost. Revoke it, and make it again.
        """
        request = CreateKey(name=name, grants=tuple(grants), expires_s=expires_s, requests_per_s=requests_per_s)
        return await self._lake.run(create_key_call(request))

    async def rotate(self, name: str, *, overlap_s: int = _DAY_S, expires_s: int | None = None) -> NewKey:
        """Give a key a new text. The old one holds for ``overlap_s`` seconds more, unless it ends before.

        ``expires_s``: how long the new text holds; None: as long again as the key did.

        Raises:
            KeyNotFound, PermissionDenied, NamespaceNotFound, TableNotFound.
            OutcomeUnknown: it may have been rotated, but the new text is lost, so the key ends with the overlap;
                rotating it again would end the old text at once. Make another key for its users.
        """
        return await self._lake.run(rotate_key_call(name, RotateKey(overlap_s=overlap_s, expires_s=expires_s)))

    async def revoke(self, name: str) -> None:
        """End a key, with all that was granted to it. Raises KeyNotFound, also when a lost first try revoked it."""
        await self._lake.run(revoke_key_call(name))


class AsyncGrants:
    """Who may do what; ``lake.grants``. ``namespace`` and ``table`` None: everything; ``table`` None: the namespace.

    Principals are ``key:NAME``, ``user:SUBJECT`` and ``group:NAME``.
    """

    def __init__(self, lake: AsyncCallRunner) -> None:
        self._lake = lake

    async def list(self, principal: str | None = None) -> tuple[GrantInfo, ...]:
        """One's own, and those on what one is admin of; ``principal``: only those to that one."""
        return (await self._lake.run(grants_call(principal))).grants

    async def give(
        self, principal: str, role: Role, namespace: str | None = None, table: str | None = None
    ) -> GrantInfo:
        """Give a role, in place of another one on the same; again it changes nothing.

        Raises PermissionDenied, NamespaceNotFound and TableNotFound where one is not admin of the place, and
        KeyNotFound for a key that is not there.
        """
        request = GrantRequest(principal=principal, role=role, namespace=namespace, table=table)
        return await self._lake.run(give_grant_call(request))

    async def take(self, principal: str, namespace: str | None = None, table: str | None = None) -> None:
        """Take a role away, whichever it is; one that is not there is taken away already. Raises as :meth:`give`."""
        await self._lake.run(take_grant_call(principal, namespace, table))


class AsyncLakeAccess:
    """Keys and grants; a part of :class:`lamella.client.AsyncLamella`."""

    @property
    def keys(self: AsyncCallRunner) -> AsyncKeys:
        """The API keys of the service."""
        return AsyncKeys(self)

    @property
    def grants(self: AsyncCallRunner) -> AsyncGrants:
        """Who may do what."""
        return AsyncGrants(self)

    async def whoami(self: AsyncCallRunner) -> WhoAmI:
        """Who the service takes this client to be, and what that one may do."""
        return await self.run(whoami_call())
