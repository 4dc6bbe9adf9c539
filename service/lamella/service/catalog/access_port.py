"""What the service asks of a catalog about API keys and grants. A part of the port.

Times are Unix milliseconds of the caller's clock; nothing here reads one, so whether a key has expired is the caller's
to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from lamella.snapshot.wire import GrantInfo


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key; its members mean what they mean in :class:`~lamella.snapshot.wire.KeyInfo`.

    ``sha256``, ``old_sha256``: of its text, and of that from before the last rotation, hexadecimal.
    """

    name: str
    sha256: str
    created_ms: int
    created_by: str
    old_sha256: str | None = None
    old_until_ms: int | None = None
    expires_ms: int | None = None
    rotated_ms: int | None = None
    used_ms: int | None = None
    requests_per_s: float | None = None

    @property
    def principal(self) -> str:
        """Who a request with this key is from."""
        return f"key:{self.name}"


class AccessCatalog(Protocol):
    """The part of the port. Each method is one transaction, whatever other services do meanwhile."""

    def add_key(self, key: KeyRecord, grants: Sequence[GrantInfo]) -> None:
        """Add a key with these grants and no others. Raises AlreadyExists."""

    def api_keys(self) -> list[KeyRecord]:
        """All of them, by name."""

    def key(self, name: str) -> KeyRecord:
        """Raises KeyNotFound."""

    def key_of(self, sha256: str) -> KeyRecord | None:
        """The key whose text, or old text, has that hash."""

    def rotate_key(
        self, name: str, *, sha256: str, old_until_ms: int, expires_ms: int | None, now_ms: int, by: str
    ) -> KeyRecord:
        """Give a key another text; the one before it becomes the old one, until then or its own end, whichever comes
        first. It is theirs from then on who has the new one. Raises KeyNotFound."""

    def drop_key(self, name: str) -> None:
        """Forget a key and all that was granted to it. Keys that it made go to nobody, not even to another key that
        gets its name. Raises KeyNotFound."""

    def note_key_use(self, name: str, at_ms: int) -> None:
        """Note when a key was used; nothing for one that is gone."""

    def grants(self, principals: Sequence[str] | None = None) -> list[GrantInfo]:
        """What these were granted, or all: by principal, namespace and table."""

    def put_grant(self, grant: GrantInfo) -> None:
        """Give it, in place of another role on the same. Raises KeyNotFound for a key that is not there."""

    def drop_grant(self, principal: str, namespace: str | None, table: str | None) -> bool:
        """Take a grant away; False: there was none."""
