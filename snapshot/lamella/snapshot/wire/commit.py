"""Requests and answers that change what a table holds."""

from __future__ import annotations

import msgspec


class Register(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../register``. ``strict``: refuse everything when one file is refused.

    ``verify``: take the statistics from the files' values, all of which are read, and not from their footers.
    """

    paths: tuple[str, ...]
    strict: bool = False
    verify: bool = False


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not registered, the code of the reason (as of errors) and a sentence."""

    path: str
    code: str
    reason: str


class RegisterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a registration did; ``snapshot_id`` is the snapshot that holds the blocks."""

    snapshot_id: str
    registered: int
    row_count: int
    file_size_bytes: int
    refused: tuple[RefusedFile, ...] = ()


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../commits``.

    ``added``: blocks as a writer made them (statistics in the manifest's own form; see
    :class:`lamella.snapshot.manifest.Block`); the service asks the store for each size itself. ``removed``: locations,
    with the snapshot they were read at in ``base_snapshot_id``.
    """

    added: tuple[msgspec.Raw, ...] = ()
    removed: tuple[str, ...] = ()
    base_snapshot_id: str | None = None
    operation: str = "append"
    properties: dict[str, str] = {}


class CommitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that a commit made."""

    snapshot_id: str
    prev_snapshot_id: str | None
    added: int
    removed: int
    row_count: int
    block_count: int
