"""The folder of an export: what its files are called, which metadata file is the current one, and the next.

::

    <folder>/metadata/
        <segment id>-<statistics>.avro        the manifest of a segment
        snap-<snapshot id>-<random>.avro      the manifest list of a snapshot
        v<number>.metadata.json               the table's metadata, as Hadoop's tables call it; the greatest counts
        version-hint.text                     that number

A file is never replaced, but for the hint, which readers follow to the number that it has and beyond.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import AlreadyExists, ManifestError, ObjectNotFound
from lamella.snapshot.iceberg.exported import KEPT_VERSIONS
from lamella.snapshot.layout import ReplacingStore

_VERSION: Final = re.compile(r"v([1-9][0-9]{0,17})\.metadata\.json")
_HINT: Final = "version-hint.text"
_METADATA: Final = msgspec.json.Decoder(dict[str, Any])


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A metadata file."""

    number: int
    location: str
    metadata: dict[str, Any]


class ExportFolder:
    """The files of an export. ``root``: the table's location in Iceberg's terms; ``metadata`` is below it."""

    def __init__(self, store: ReplacingStore, root: str) -> None:
        self._store = store
        self.root = root
        self._metadata = f"{root}/metadata"

    def manifest(self, segment_id: str, statistics: str) -> str:
        """The location of a segment's manifest. ``statistics``: a short name of what it has of them."""
        return f"{self._metadata}/{segment_id}-{statistics}.avro"

    def new_list(self, snapshot_id: str) -> str:
        """A location for a manifest list that no file has."""
        return f"{self._metadata}/snap-{snapshot_id}-{secrets.token_hex(4)}.avro"

    def manifests(self) -> dict[str, int]:
        """The manifests and lists that are there, and their sizes."""
        return {
            found.location: found.size_bytes
            for found in self._store.list(self._metadata + "/")
            if found.location.endswith(".avro")
        }

    def current(self) -> Version | None:
        """The current metadata file; None: nothing was exported yet. Raises ManifestError for one that is damaged."""
        number = self._newest()
        if number == 0:
            return None
        location = self._version(number)
        try:
            metadata = _METADATA.decode(self._store.read(location))
        except msgspec.DecodeError as error:
            raise ManifestError(f"{location} is not the metadata of a table: {error}", location=location) from error
        if metadata.get("format-version") != 2:
            raise ManifestError(f"{location} was not written by an export", location=location)
        return Version(number=number, location=location, metadata=metadata)

    def publish(self, metadata: Mapping[str, Any], *, after: Version | None) -> Version | None:
        """Make a metadata file the current one if ``after`` still is; None: another export was faster."""
        number = 1 if after is None else after.number + 1
        location = self._version(number)
        try:
            self._store.put(location, msgspec.json.encode(metadata))
        except AlreadyExists:
            return None
        if number > KEPT_VERSIONS + 1:
            self._store.delete(self._version(number - KEPT_VERSIONS - 1))
        self.hint(number)
        return Version(number=number, location=location, metadata=dict(metadata))

    def hint(self, number: int) -> None:
        """Let the hint name this number, or a greater one that is there by now."""
        location = f"{self._metadata}/{_HINT}"
        try:
            said = self._store.read(location)
        except ObjectNotFound:
            said = b""
        while said != str(number).encode():
            said = str(number).encode()
            self._store.replace(location, said)
            number = self._newest()

    def _newest(self) -> int:
        found = 0
        # Everything else but the hint sorts before the letter v.
        for each in self._store.list(self._metadata + "/", start_after=f"{self._metadata}/v"):
            name = _VERSION.fullmatch(each.location.rpartition("/")[2])
            if name is not None:
                found = max(found, int(name[1]))
        return found

    def _version(self, number: int) -> str:
        return f"{self._metadata}/v{number}.metadata.json"
