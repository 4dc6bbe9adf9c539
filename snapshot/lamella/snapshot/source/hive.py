"""Tables of a Hive Metastore: their files, as Spark lists them, and what changed since the last refresh.

The metastore alone says which folders are partitions and which values they have. A partition may be anywhere; a folder
of the table that is not a partition has no rows of the table, whatever its name is. So a refresh needs the complete
list of partitions, and nothing is taken from the names of folders.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import InvalidRequest, InvalidSchema
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.evolution import WidenColumn
from lamella.snapshot.source.evolution import Evolution
from lamella.snapshot.source.path_values import PathValues, partition_constant, partition_leaves
from lamella.snapshot.source.state import Difference, SourceFile, SourceSchema, SourceState, difference, outside
from lamella.snapshot.stats import Bound
from lamella.snapshot.storage import AllowedLocations, ListedObject, Store, normal
from lamella.snapshot.storage.location import is_hidden, parse, refuse_other_formats
from lamella.snapshot.wire import ExternalSource, HiveTable

#: Folders that are listed at once.
_LISTINGS: Final = 16


def read_hive(store: Store, source: ExternalSource, table: HiveTable, allowed: AllowedLocations) -> SourceState:
    """Returns the data files directly in the folders of a table's partitions, or in its own if it has none.

    Files that are hidden by Spark's rule or empty do not count; others do, whatever their names are. A folder that does
    not exist is empty.

    Raises:
        InvalidRequest: partitions whose values do not fit the partition columns, two with one folder, folders with
            values below a table without partitions.
        InvalidSchema: a partition column that is not a column with plain values.
        LocationRefused: a folder is not in ``allowed``.
        OtherTableFormat: it is a table of another format, in which not all files count.
        StoreError: storage failed.
    """
    root = normal(source.location or "").rstrip("/")
    folders = _folders(table, root)
    for folder in folders:
        allowed.require_all_below(folder)
    _require_plain(table)
    listed = _listed(store, root, folders)
    if not table.partitioned_by:
        _refuse_named_folders(root, listed)
    chosen = [
        (found, folders[folder])
        for found in listed
        if (folder := posixpath.dirname(found.location)) in folders
        and not is_hidden(posixpath.basename(found.location))
        and found.size_bytes
    ]
    everything = [found.location for found in listed]
    refuse_other_formats(everything, [found.location for found, _ in chosen])
    return SourceState(
        files=tuple(
            SourceFile(location=found.location, size_bytes=found.size_bytes, content_id=found.content_id, values=values)
            for found, values in chosen
            if allowed.allows(found.location)
        ),
        refused=outside(allowed, [found.location for found, _ in chosen]),
        schemas=(SourceSchema(schema_id=0, columns=table.columns, extra_columns=True),),
        partitioned_by=table.partitioned_by,
    )


def _folders(table: HiveTable, root: str) -> dict[str, PathValues]:
    """Returns the folders with files of the table, and the values that their rows have."""
    if not table.partitioned_by:
        if table.partitions:
            raise InvalidRequest("the table has partitions, but no partition columns")
        return {root: ()}
    found: dict[str, PathValues] = {}
    for partition in table.partitions:
        if len(partition.values) != len(table.partitioned_by):
            raise InvalidRequest(
                f"the partition at {partition.location} has {len(partition.values)} values for the columns "
                f"{list(table.partitioned_by)}",
                location=partition.location,
            )
        folder = normal(partition.location).rstrip("/")
        if folder in found:
            raise InvalidRequest(
                f"two partitions have the folder {folder}: its rows would count twice", location=folder
            )
        found[folder] = tuple(zip(table.partitioned_by, partition.values, strict=True))
    return found


def _require_plain(table: HiveTable) -> None:
    leaves = partition_leaves(Schema.assign(table.columns), table.partitioned_by)
    missing = [name for name in table.partitioned_by if name not in leaves]
    if missing or len({name.lower() for name in table.partitioned_by}) != len(table.partitioned_by):
        names = missing or list(table.partitioned_by)
        raise InvalidSchema(f"the table is partitioned by {names}, which are not columns with plain values")


def _listed(store: Store, root: str, folders: Iterable[str]) -> list[ListedObject]:
    """Returns what is in the folders: those below the table's own are listed with it, each of the others alone."""
    elsewhere = [folder for folder in folders if folder != root and not folder.startswith(root + "/")]
    # A folder below another one is listed with it.
    alone: list[str] = []
    for folder in sorted(elsewhere, key=lambda each: each + "/"):
        if not alone or not folder.startswith(alone[-1] + "/"):
            alone.append(folder)
    inside = any(folder == root or folder.startswith(root + "/") for folder in folders)
    if any(root.startswith(folder + "/") for folder in alone):
        inside = False  # the table's folder is below that of a partition
    with ContextThreadPool(max_workers=_LISTINGS, thread_name_prefix="partitions") as pool:

        def below(chosen: Iterable[str]) -> list[ListedObject]:
            each = pool.map(lambda folder: list(store.list(folder)), chosen)
            return [found for listing in each for found in listing]

        listed = below([root, *alone] if inside else alone)
        # A listing names a folder once, however many links lead to it.
        shown = {posixpath.dirname(found.location) for found in listed}
        linked = [each for each in folders if parse(each).scheme == "file" and each not in shown]
        known = {found.location for found in listed}
        return [*listed, *(found for found in below(linked) if found.location not in known)]


def _refuse_named_folders(root: str, listed: Iterable[ListedObject]) -> None:
    """Raise InvalidRequest for data files below folders such as ``day=1``: for Spark these are columns of the table."""
    for found in listed:
        parts = found.location[len(root) + 1 :].split("/")
        if found.size_bytes and any("=" in part for part in parts[:-1]) and not any(map(is_hidden, parts)):
            raise InvalidRequest(
                f"the metastore knows no partitions of the table, but its folder contains {found.location}: readers "
                "disagree whether its rows are in the table",
                location=found.location,
            )


def hive_difference(
    known: Sequence[Identity], state: SourceState, schema: Schema, *, time_zone: str = "UTC"
) -> Difference:
    """Returns the difference to a table's blocks, whose values may have changed although their files are the same: a
    partition can be renamed, or dropped and added with another value. ``schema``: the table's after the refresh."""
    found = difference(known, state.files)
    blocks = {block.location: block for block in known}
    leaves = partition_leaves(schema, state.partitioned_by)
    wanted: dict[PathValues, Mapping[int, Bound | None] | None] = {}
    unchanged, replaced = [], list(found.replaced)
    unsure = False
    for file in found.unchanged:
        if file.values not in wanted:
            wanted[file.values] = _constants(file.values, leaves, time_zone)
        if blocks[file.location].constants == wanted[file.values]:
            unchanged.append(file)
        else:
            replaced.append(file)
            # What the file contains itself is no constant, and only its statistics tell whether it has that value.
            unsure = True
    return Difference(
        added=found.added,
        removed=found.removed,
        replaced=tuple(replaced),
        unchanged=tuple(unchanged),
        unsure=unsure,
    )


def _constants(values: PathValues, leaves: Mapping[str, Leaf], time_zone: str) -> dict[int, Bound | None] | None:
    """Returns the constants of a file's block by column id; None if a text is no value of its column's type."""
    found = {leaves[name].id: partition_constant(leaves[name], text, time_zone) for name, text in values}
    texts = {leaves[name].id: text for name, text in values}
    return None if any(found[each] is None and texts[each] is not None for each in found) else found


def partition_types_change(state: SourceState, evolution: Evolution) -> bool:
    """Returns whether a partition column gets a wider type: the same text may then be another value."""
    names = {name.lower() for name in state.partitioned_by}
    changes = [change for step in evolution.steps for change in step]
    return any(isinstance(change, WidenColumn) and change.column[0].lower() in names for change in changes)
