"""What listings of shares hold."""

from __future__ import annotations

import msgspec


class SharedShare(msgspec.Struct, frozen=True, kw_only=True):
    """A share."""

    name: str


class SharedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema of a share: a namespace."""

    name: str
    share: str


class SharedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a share."""

    name: str
    schema: str
    share: str


class ShareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One share."""

    share: SharedShare


class ShareList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Shares."""

    items: tuple[SharedShare, ...]
    next_page_token: str | None = None


class SharedSchemaList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Schemas of a share, by name."""

    items: tuple[SharedSchema, ...]
    next_page_token: str | None = None


class SharedTableList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Tables, by name."""

    items: tuple[SharedTable, ...]
    next_page_token: str | None = None


class SharingError(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a request failed: a code of docs/errors.md in upper case, and a text for people."""

    error_code: str
    message: str
