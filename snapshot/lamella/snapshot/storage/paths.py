"""The locations of a table's objects, and which parts of the store a table may use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol
from urllib.parse import unquote
from uuid import UUID

import msgspec

from lamella.snapshot.errors import InvalidRequest, LocationRefused
from lamella.snapshot.storage.location import Location, glob_root, has_magic, normal, parse

# Where the objects of a table are. These names are part of the format: readers of older tables rely on them.
#
#     <warehouse>/<table id>/
#        _ss/<snapshot id>_v3.json     snapshot manifest      _ss/<snapshot id>_v3.arrow   its sidecar
#        _sl/<group id>_v3.json        manifest of a group    _sl/<group id>_v3.arrow      its sidecar
#                                                             _sl/<group id>_v3.loc        its location index
#        _sg/<segment id>_v3.json      segment manifest       _sg/<segment id>_v3.arrow    its sidecar
#                                      _sg/<segment id>_v3.pages its page sidecar, when one was built
#        _b/<block id>_v1.parquet      blocks that Lamella's jobs wrote
#        _dv/<file id>_v1.puffin       deletion vectors of blocks
#        _rf/<set id>_v1.set           registered files that left the table
#        _ix/<part id>_v1.part         part of a skip index   _ix/<directory id>_v1.dir    where parts know which blocks
#        _ts/<segment, group or snapshot id>_v1.hll   sketches of distinct values
#        _tmp/<id>_v1.run, .part       rows and parts of indexes on their way, while a job runs
#        _tmp/<id>_v1.blocks           blocks on their way to one commit, as JSON
#        _iceberg/metadata/            the table as Iceberg, see ``snapshot.iceberg.export``


def table_root(warehouse: str, table_id: str | UUID) -> str:
    """Returns the folder of a table, as a location without a trailing slash; raises InvalidRequest for an invalid
    warehouse."""
    return f"{normal(warehouse).rstrip('/')}/{table_id}"


class TableLayout(msgspec.Struct, frozen=True):
    """The locations of objects below one table's folder (``root``, see :func:`table_root`). Ids are v7 UUIDs."""

    root: str

    def snapshot(self, snapshot_id: str | UUID) -> str:
        """Returns the location of a snapshot's manifest in the current version; those of older versions end in
        ``_v1.json`` and ``_v2.json``."""
        return f"{self.root}/_ss/{snapshot_id}_v3.json"

    def snapshot_sidecar(self, snapshot_id: str | UUID) -> str:
        """Returns the location of a snapshot's sidecar: one row per segment."""
        return f"{self.root}/_ss/{snapshot_id}_v3.arrow"

    def group(self, group_id: str | UUID) -> str:
        """Returns the location of a segment group's manifest."""
        return f"{self.root}/_sl/{group_id}_v3.json"

    def group_sidecar(self, group_id: str | UUID) -> str:
        """Returns the location of a group's sidecar: one row per segment."""
        return f"{self.root}/_sl/{group_id}_v3.arrow"

    def group_locations(self, group_id: str | UUID) -> str:
        """Returns the location of a group's location index, which finds blocks by hash."""
        return f"{self.root}/_sl/{group_id}_v3.loc"

    def segment(self, segment_id: str | UUID) -> str:
        """Returns the location of a segment's manifest."""
        return f"{self.root}/_sg/{segment_id}_v3.json"

    def segment_sidecar(self, segment_id: str | UUID) -> str:
        """Returns the location of a segment's sidecar: one row per block."""
        return f"{self.root}/_sg/{segment_id}_v3.arrow"

    def sketches(self, owner_id: str | UUID) -> str:
        """Returns the location of the sketches of a segment and its blocks, or of a group or snapshot."""
        return f"{self.root}/_ts/{owner_id}_v1.hll"

    def index_part(self, part_id: str | UUID) -> str:
        """Returns the location of a part of a skip index."""
        return f"{self.root}/_ix/{part_id}_v1.part"

    def index_directory(self, directory_id: str | UUID) -> str:
        """Returns the location of a directory of a skip index."""
        return f"{self.root}/_ix/{directory_id}_v1.dir"

    def replaced_files(self, set_id: str | UUID) -> str:
        """Returns the location of a set of registered files that left the table."""
        return f"{self.root}/_rf/{set_id}_v1.set"

    def block(self, block_id: str | UUID) -> str:
        """Returns the location of a block that a Lamella job writes."""
        return f"{self.root}/_b/{block_id}_v1.parquet"

    def deletes(self, file_id: str | UUID) -> str:
        """Returns the location of a file of deletion vectors."""
        return f"{self.root}/_dv/{file_id}_v1.puffin"

    @property
    def scratch(self) -> str:
        """Returns the folder of objects that are needed only while a job runs."""
        return f"{self.root}/_tmp"

    def block_list(self, list_id: str | UUID) -> str:
        """Returns the location of a block list of a commit."""
        return f"{self.scratch}/{list_id}_v1.blocks"

    def sent_commit(self, commit_id: str | UUID) -> str:
        """Returns the location of a commit as it is sent, by which a writer can send it again."""
        return f"{self.scratch}/{commit_id}_v1.commit"

    @property
    def iceberg(self) -> str:
        """Returns the folder of the table's export as an Iceberg table."""
        return f"{self.root}/_iceberg"

    @property
    def blocks(self) -> str:
        """Returns the folder of blocks that Lamella jobs write."""
        return f"{self.root}/_b"


# Allowed locations: a table may use its own folder, and everything below its prefixes.
#
# A prefix ends at a slash, whether written or not, so ``s3://b/sales`` never covers ``s3://b/sales-secret``. The
# meaning of a location must not depend on its reader: stores that are folders underneath resolve ``..`` to the parent
# folder, some programs decode ``%2e`` to a dot, some file systems treat ``A`` as ``a``. So a location is allowed only
# if every such reading of it is, while a prefix is compared character by character. All decisions use the text alone;
# nothing here calls the store.
#
# Links are followed by the file system, not checked here: anyone who can create links in an allowed folder can expose
# their targets.

#: Maximum levels of percent-encoding in a name; no legitimate name has more.
_MAX_ENCODED: Final = 3
_SLASHES: Final = re.compile("/+")


class AllowedLocations(Protocol):
    """Decides whether a table may use locations."""

    def allows(self, location: str) -> bool:
        """Returns whether an object may be used; raises InvalidRequest for an invalid location."""
        ...

    def require(self, location: str) -> None:
        """Raise LocationRefused for an object that may not be used."""
        ...

    def require_all_below(self, url: str) -> None:
        """Raise LocationRefused unless everything that a URL can stand for (see ``Store.expand``) is in allowed
        locations."""
        ...


class AllLocations:
    """Allows every location."""

    def allows(self, location: str) -> bool:  # noqa: ARG002  # the port's signature
        """Returns True."""
        return True

    def require(self, location: str) -> None:
        """Accept every location."""

    def require_all_below(self, url: str) -> None:
        """Accept every URL."""


class TableLocations:
    """The rules of one table. ``own`` is its folder, None if it has none yet.

    ``warehouse`` is the folder of all tables: except for ``own`` nothing in it is allowed, whatever the prefixes are.
    """

    def __init__(self, warehouse: str, own: str | None, prefixes: Iterable[str] = ()) -> None:
        self._warehouse = _loosely(_folder(warehouse))
        self._own = None if own is None else str(_folder(own))
        self._prefixes = tuple(str(_folder(prefix)) for prefix in prefixes)

    def allows(self, location: str) -> bool:
        """Returns whether an object may be used; raises InvalidRequest for an invalid location."""
        at = parse(location)
        if self._own is not None and is_below(self._own, str(at)):
            return True
        return any(is_below(prefix, str(at)) for prefix in self._prefixes) and not _is_inside(self._warehouse, at)

    def require(self, location: str) -> None:
        """Raise LocationRefused for an object that may not be used."""
        if not self.allows(location):
            raise _refused(location)

    def require_all_below(self, url: str) -> None:
        """Raise LocationRefused unless everything that a URL can stand for (see ``Store.expand``) is in allowed
        locations."""
        at = parse(url)
        if not self._allows_folder(at):
            raise _refused(url)
        if has_magic(at.path):
            root = glob_root(at.path)
            if not root.strip("/") or not self._allows_folder(Location(at.scheme, root)):
                raise _refused(url)

    def _allows_folder(self, at: Location) -> bool:
        folder = _folder_of(at)
        text = str(folder)
        if self._own is not None and (text == self._own or is_below(self._own, text)):
            return True
        if not any(text == prefix or is_below(prefix, text) for prefix in self._prefixes):
            return False
        # A folder above the warehouse contains all tables.
        scheme, root = self._warehouse
        around = any(scheme == of and root.startswith(path) for of, path in _loose(folder))
        return not around and not _is_inside(self._warehouse, folder)


def check_prefix(prefix: str, warehouse: str) -> None:
    """Raise InvalidRequest for a text that is not a valid prefix of allowed locations."""
    at = parse(prefix)
    if has_magic(at.path):
        raise InvalidRequest(
            f"{prefix!r} is a glob; an allowed location must be a folder, and includes everything in it",
            location=prefix,
        )
    if any(_climbs(reading) for reading in _readings(at.path) or ("..",)):
        raise InvalidRequest(f"{prefix!r} has a part '.' or '..', or is encoded too often", location=prefix)
    if _is_inside(_loosely(_folder(warehouse)), at):
        raise InvalidRequest(
            f"{prefix!r} is in the warehouse {warehouse}, where tables have their own folders; use another location",
            location=prefix,
        )


def _refused(location: str) -> LocationRefused:
    return LocationRefused(
        f"{location} is not in a location that this table may use; the setting allowed_locations allows others",
        location=location,
    )


def _folder(text: str) -> Location:
    return _folder_of(parse(text))


def _folder_of(at: Location) -> Location:
    return Location(at.scheme, at.path.rstrip("/") + "/")


def _is_inside(root: tuple[str, str], at: Location) -> bool:
    """Returns whether a location is a folder or in it, in any reading."""
    return any(scheme == root[0] and path.startswith(root[1]) for scheme, path in _loose(_folder_of(at)))


def is_below(folder: str, location: str) -> bool:
    """Returns whether a location is in a folder, character by character, and stays there in every reading of the
    rest."""
    if not location.startswith(folder):
        return False
    readings = _readings(location[len(folder) :])
    return bool(readings) and all(reading.strip("/") and not _climbs(reading) for reading in readings)


def _climbs(path: str) -> bool:
    return "." in path and any(part in (".", "..") for part in path.split("/"))


def _readings(text: str) -> list[str]:
    """Returns the text itself, and its readings by programs that decode percent signs; empty if there are too many
    levels."""
    found = [text]
    while "%" in found[-1]:
        decoded = unquote(found[-1])
        if decoded == found[-1]:
            break
        if len(found) > _MAX_ENCODED:
            return []
        found.append(decoded)
    return found


def _loose(at: Location) -> Iterator[tuple[str, str]]:
    """Yields the scheme and path in every reading, so that locations that may be the same give the same text."""
    for path in _readings(at.path):
        yield _loosely(Location(at.scheme, path))


def _loosely(at: Location) -> tuple[str, str]:
    return at.scheme, _SLASHES.sub("/", at.path).casefold()
