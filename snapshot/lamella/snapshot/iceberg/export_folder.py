"""The folder of an export: the names of its files, the current metadata file, and the next one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import AlreadyExists, ManifestError, ObjectNotFound
from lamella.snapshot.storage import ReplacingStore, Store

#: The versions of Iceberg's format that an export may have.
FORMAT: Final = 2
#: The first version with deletion vectors. Its readers read manifests of version 2, too.
FORMAT_OF_VECTORS: Final = 3
#: Number of earlier metadata files that are kept.
OLD_VERSIONS: Final = 100

#     <folder>/metadata/
#         <segment id>-<statistics>.avro        the manifest of a segment, or several, if it has constants in different
#         <segment id>-<statistics>-<n>.avro    columns
#         <segment id>-<statistics>-d<n>.avro   the manifest of its deletion vectors, or several, likewise
#         <segment id>-<hash>.puffin            one of its deletion vectors
#         snap-<snapshot id>-<random>.avro      the manifest list of a snapshot
#         v<number>.metadata.json               the table's metadata, as Hadoop's tables call it; the greatest counts
#         version-hint.text                     that number
#
# A file is never replaced, except for the hint; readers start at its number and look for higher ones.

_VERSION: Final = re.compile(r"v([1-9][0-9]{0,17})\.metadata\.json")
_HINT: Final = "version-hint.text"
_METADATA: Final = msgspec.json.Decoder(dict[str, Any])


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A metadata file."""

    number: int
    location: str
    metadata: dict[str, Any]


def current_version(store: Store, root: str) -> Version | None:
    """Returns the current metadata file of the export at ``root``; None if nothing was exported yet.

    Raises:
        ManifestError: it is damaged, or was not written by an export.
    """
    number = _newest(store, root)
    if number == 0:
        return None
    location = _version(root, number)
    try:
        metadata = _METADATA.decode(store.read(location))
    except msgspec.DecodeError as error:
        raise ManifestError(
            f"{location} is not the metadata of an Iceberg table: {error}", location=location
        ) from error
    if metadata.get("format-version") not in (FORMAT, FORMAT_OF_VECTORS) or "current-snapshot-id" not in metadata:
        raise ManifestError(f"{location} was not written by an export", location=location)
    return Version(number=number, location=location, metadata=metadata)


def _newest(store: Store, root: str) -> int:
    found = 0
    # Everything else except the hint sorts before the letter v.
    for each in store.list(f"{root}/metadata/", start_after=f"{root}/metadata/v"):
        name = _VERSION.fullmatch(each.location.rpartition("/")[2])
        if name is not None:
            found = max(found, int(name[1]))
    return found


def _version(root: str, number: int) -> str:
    return f"{root}/metadata/v{number}.metadata.json"


class ExportFolder:
    """The files of an export. ``root``: the table's location in Iceberg's terms; ``metadata`` is below it."""

    def __init__(self, store: ReplacingStore, root: str) -> None:
        self._store = store
        self.root = root
        self._metadata = f"{root}/metadata"

    def manifest(self, segment_id: str, statistics: str, part: str = "") -> str:
        """Returns the location of a segment's manifest.

        ``statistics``: a short name of its statistics. ``part``: which one, if it has several.
        """
        return f"{self._metadata}/{segment_id}-{statistics}{part}.avro"

    def vector(self, segment_id: str, sha256: str) -> str:
        """Returns the location of the deletion vector of a segment's block, by the hash of the file."""
        return f"{self._metadata}/{segment_id}-{sha256[:32]}.puffin"

    def new_list(self, snapshot_id: str) -> str:
        """Returns an unused location for a manifest list."""
        return f"{self._metadata}/snap-{snapshot_id}-{secrets.token_hex(4)}.avro"

    def manifests(self) -> dict[str, int]:
        """Returns the existing manifests and lists, and their sizes."""
        return {
            found.location: found.size_bytes
            for found in self._store.list(self._metadata + "/")
            if found.location.endswith(".avro")
        }

    def current(self) -> Version | None:
        """Returns the current metadata file, as :func:`current_version`."""
        return current_version(self._store, self.root)

    def publish(self, metadata: Mapping[str, Any], *, after: Version | None) -> Version | None:
        """Make a metadata file the current one if ``after`` still is; returns None if another export was faster."""
        number = 1 if after is None else after.number + 1
        location = self._version(number)
        try:
            self._store.put(location, msgspec.json.encode(metadata))
        except AlreadyExists:
            return None
        if number > OLD_VERSIONS + 1:
            self._store.delete(self._version(number - OLD_VERSIONS - 1))
        self.hint(number)
        return Version(number=number, location=location, metadata=dict(metadata))

    def hint(self, number: int) -> None:
        """Set the hint to this number, or to a greater one that exists by now."""
        location = f"{self._metadata}/{_HINT}"
        try:
            said = self._store.read(location)
        except ObjectNotFound:
            said = b""
        while said != str(number).encode():
            said = str(number).encode()
            self._store.replace(location, said)
            number = _newest(self._store, self.root)

    def _version(self, number: int) -> str:
        return _version(self.root, number)
