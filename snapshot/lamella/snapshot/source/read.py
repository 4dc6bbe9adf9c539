"""Reads a source: a folder's listing or a table's log, and its files as blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.deletes import Positions, VectorFile, checked_entry, decode_vector, deleted_rows
from lamella.snapshot.errors import CorruptDeletes, InvalidRequest, LamellaError, ValueOutsideFile
from lamella.snapshot.manifest import Block, DeleteFile
from lamella.snapshot.parquet import Footer, block_of, ingest, read_footer
from lamella.snapshot.parquet.block import optional_in_files, with_constants
from lamella.snapshot.parquet.file_values import verified, with_scanned_columns
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.source.delta import read_delta
from lamella.snapshot.source.evolution import Evolution
from lamella.snapshot.source.hive import read_hive
from lamella.snapshot.source.iceberg import Catalogs, IcebergReader, IcebergVersion
from lamella.snapshot.source.options import StoreOptions
from lamella.snapshot.source.path_values import (
    PathValues,
    columns_named,
    lacking_above,
    path_columns,
    require_columns,
    unproven_column,
    with_folders,
    with_log_values,
    with_partition_values,
)
from lamella.snapshot.source.state import (
    FIRST_OF_PARTS,
    HOSTED,
    IDENTITY,
    LOCATION,
    SNAPSHOT,
    Difference,
    SourceFile,
    SourceState,
    outside,
)
from lamella.snapshot.source.transforms import ordered_value, with_partition_bounds
from lamella.snapshot.stats import Bound
from lamella.snapshot.stats.constant import to_constant
from lamella.snapshot.storage import AllLocations, AllowedLocations, Store
from lamella.snapshot.storage.fail_fast import FailFastStore
from lamella.snapshot.storage.location import (
    Glob,
    Location,
    glob_root,
    has_magic,
    is_data_file,
    parse,
    refuse_other_formats,
)
from lamella.snapshot.wire import ExternalSource, HiveTable, RefusedFile


def read_directory(store: Store, source: ExternalSource, allowed: AllowedLocations) -> SourceState:
    """Returns the data files of a folder, or of the files and folders that a glob matches (as ``Store.expand``).

    Raises:
        LocationRefused: it is not in ``allowed``.
        OtherTableFormat: it is a table of another format, in which not all files count.
        StoreError: storage failed.
    """
    allowed.require_all_below(source.location or "")
    at = parse(source.location or "")
    folder = at.path.rstrip("/") + "/"
    listed = list(store.list(str(at)))
    root = folder
    if listed or not has_magic(at.path):
        chosen = [found for found in listed if is_data_file(parse(found.location).path[len(folder) :])]
    else:
        root = glob_root(at.path)
        if at.scheme == "s3" and "/" not in root:
            raise InvalidRequest(f"a bucket name cannot be a glob: {source.location!r}", location=source.location)
        glob = Glob(at.path)
        listed = list(store.list(str(Location(at.scheme, root))))
        chosen = [found for found in listed if glob.selects(parse(found.location).path)]
    everything = [found.location for found in listed]
    refuse_other_formats(everything, everything, "; a directory source can only have plain files")
    ignored = source.path_columns == "ignore"
    return SourceState(
        files=tuple(
            SourceFile(
                location=found.location,
                size_bytes=found.size_bytes,
                content_id=found.content_id,
                folders=() if ignored else path_columns(parse(found.location).path[len(root) :]),
            )
            for found in chosen
            if allowed.allows(found.location)
        ),
        refused=outside(allowed, [found.location for found in chosen]),
        above=() if ignored else path_columns(root),
    )


_ANYWHERE: Final = AllLocations()
_NO_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {}


class Reader:
    """Reads sources. ``options``: the store's own, by scheme; ``catalogs``: Iceberg catalogs by name."""

    def __init__(self, store: Store, *, options: StoreOptions = _NO_OPTIONS, catalogs: Catalogs = _NO_OPTIONS) -> None:
        self._store = store
        self._options = options
        self._iceberg = IcebergReader(store, options, catalogs)

    def read(
        self,
        source: ExternalSource,
        properties: Mapping[str, str],
        allowed: AllowedLocations = _ANYWHERE,
        hive: HiveTable | None = None,
        *,
        snapshot_id: int | None = None,
    ) -> SourceState:
        """Returns the current state of the source; nothing outside of ``allowed`` is read, whatever refers to it.

        ``hive``: what the metastore says of a Hive table. ``snapshot_id``: the snapshot of an Iceberg table, with the
        table's current columns; None: the current one.

        Raises:
            InvalidRequest, InvalidSchema: it cannot be followed, or is not the source that the table was created from.
            LocationRefused: it is outside of ``allowed``, or refers to something that is.
            ObjectNotFound, StoreError: it does not exist, or cannot be read.
        """
        if source.kind == "directory":
            return read_directory(self._store, source, allowed)
        if source.kind == "hive":
            if hive is None:
                raise InvalidRequest(
                    "the columns and partitions of a Hive table are those of its metastore: run lamella import again"
                )
            return read_hive(self._store, source, hive, allowed)
        if source.kind == "delta":
            state = read_delta(self._store, source, self._options, allowed)
        else:
            hosted = bool(properties.get(HOSTED))
            state = self._iceberg.read(source, allowed, hosted=hosted, snapshot_id=snapshot_id)
        _require_identity(properties, state)
        return state

    def iceberg_change(
        self, after: str, properties: Mapping[str, str], allowed: AllowedLocations, snapshot_id: int | None = None
    ) -> tuple[SourceState, Difference] | None:
        """Returns what changed in a table of Iceberg clients up to the metadata file ``after``, whose state has only
        the new files; None: all files have to be compared. ``properties``: before. ``snapshot_id``: as :meth:`read`.

        Raises as :meth:`read`.
        """
        number = properties.get(SNAPSHOT)
        before = IcebergVersion(properties[LOCATION], None if number is None else int(number))
        found = self._iceberg.change(before, IcebergVersion(after, snapshot_id), allowed)
        if found is not None:
            _require_identity(properties, found[0])
        return found


def _require_identity(properties: Mapping[str, str], state: SourceState) -> None:
    known = properties.get(IDENTITY)
    if known is not None and known != state.identity:
        raise InvalidRequest(f"the source is {state.identity}, but the table was created from {known}")


class SourceBlocks(msgspec.Struct, frozen=True):
    """The blocks, and the files that cannot become blocks; each in the order of the files."""

    blocks: list[Block]
    refused: list[RefusedFile]


def take(
    store: Store,
    files: Sequence[SourceFile],
    state: SourceState,
    evolution: Evolution,
    *,
    workers: int,
    verify: bool = False,
    time_zone: str = "UTC",
    vectors: VectorFile,
    on_done: Callable[[], object] | None = None,
) -> SourceBlocks:
    """Returns the blocks of some of a source's files; ``on_done`` is called once per file, in the caller's thread.

    ``time_zone``: of timestamps in the names of folders. ``vectors``: gets the deletion vectors that are in no file of
    the source. A file without remaining rows gives no block.
    """
    store = FailFastStore(store)  # a refresh changes nothing if the store fails for one file
    current = evolution.history[-1]
    named = _named(files, state)

    def done(_: Block | RefusedFile) -> None:
        if on_done is not None:
            on_done()

    in_files = state.in_files
    if in_files is not None:
        current = schema_at(evolution, evolution.schema_of[in_files.schema_id])
    if evolution.schema_of if in_files is None else in_files.by_number:
        blocks, refused = _by_number(store, files, state, evolution, workers, verify, done)
    else:
        locations = [file.location for file in files]
        may_lack = optional_in_files(current, columns_named(current, named))
        blocks, refused = ingest(store, locations, may_lack, workers=workers, verify=verify, on_done=done)
    known = {file.location: file for file in files}
    if not named:
        return _with_deletes(store, SourceBlocks(blocks, refused), known, vectors, workers)

    def whole(block: Block) -> Block | RefusedFile:
        schema, file = schema_at(evolution, block.written_with), known[block.location]
        try:
            made = _with_values(store, block, file, state, schema, time_zone)
            require_columns(made, schema)
        except LamellaError as error:
            return RefusedFile(path=block.location, code=error.code, reason=error.message)
        return made

    with ContextThreadPool(max_workers=workers, thread_name_prefix="values") as pool:
        outcomes = list(pool.map(whole, blocks))
    refused += [each for each in outcomes if isinstance(each, RefusedFile)]
    made = SourceBlocks([each for each in outcomes if isinstance(each, Block)], refused)
    return _with_deletes(store, made, known, vectors, workers)


def _with_deletes(
    store: Store, taken: SourceBlocks, files: Mapping[str, SourceFile], vectors: VectorFile, workers: int
) -> SourceBlocks:
    """Returns the blocks with the files' deleted rows, without blocks of which no row is left."""

    def deleted(block: Block) -> tuple[tuple[DeleteFile, ...], Positions] | RefusedFile:
        file = files[block.location]
        try:
            if file.vector is not None:
                positions = decode_vector(file.vector, block.row_count, location=block.location)
                if file.cardinality not in (None, len(positions)):
                    raise CorruptDeletes(f"a deletion vector has {len(positions)} positions, not {file.cardinality}")
                return (), positions
            entries = tuple(checked_entry(store, each, block.row_count) for each in file.deletes)
            return entries, deleted_rows(store, entries, block.row_count)
        except LamellaError as error:
            return RefusedFile(path=block.location, code=error.code, reason=error.message)

    affected = [block for block in taken.blocks if files[block.location].deletes or files[block.location].vector]
    if not affected:
        return taken
    with ContextThreadPool(max_workers=workers, thread_name_prefix="deletes") as pool:
        outcomes = dict(zip((block.location for block in affected), pool.map(deleted, affected), strict=True))
    blocks: list[Block] = []
    refused = list(taken.refused)
    for block in taken.blocks:
        outcome = outcomes.get(block.location)
        if outcome is None:
            blocks.append(block)
        elif isinstance(outcome, RefusedFile):
            refused.append(outcome)
        elif len(outcome[1]) < block.row_count:
            entries = outcome[0] or (vectors.add(block.location, outcome[1]),)
            blocks.append(msgspec.structs.replace(block, deletes=entries))
    return SourceBlocks(blocks, refused)


def _with_values(
    store: Store, block: Block, file: SourceFile, state: SourceState, schema: Schema, time_zone: str
) -> Block:
    """Returns the block with the values of the log and of folders; reads columns whose statistics do not prove them.

    Some writers keep partition columns in the files, and timestamps of Spark (INT96) have no statistics.
    """
    while True:
        try:
            made = with_log_values(block, schema, file.constants)
            made = with_partition_values(made, schema, file.values, time_zone=time_zone)
            folders = (*lacking_above(made, schema, state.above), *file.folders)
            return with_folders(made, schema, folders, time_zone=time_zone)
        except ValueOutsideFile as error:
            column_id = unproven_column(block, schema, str(error.details.get("column")))
            if column_id is None:
                raise
            footer = read_footer(store, block.location)
            if footer.sha256 != block.footer_sha256:
                raise
            block = with_scanned_columns(store, footer, optional_in_files(schema, block.constants), block, (column_id,))
            if block.col_stats[column_id].source != "scan":
                raise


def _named(files: Iterable[SourceFile], state: SourceState) -> PathValues:
    """Returns all values outside of files, each once."""
    each = (value for file in files for values in (file.constants, file.folders, file.values) for value in values)
    return tuple(dict.fromkeys((*state.above, *each)))


def _by_number(
    store: Store,
    files: Sequence[SourceFile],
    state: SourceState,
    evolution: Evolution,
    workers: int,
    verify: bool,
    on_done: Callable[[Block | RefusedFile], None],
) -> tuple[list[Block], list[RefusedFile]]:
    by_source_id = {
        version.schema_id: (
            dict(_paths(version.columns, ())),
            schema_at(evolution, evolution.schema_of[version.schema_id]),
        )
        for version in reversed(state.schemas)
    }
    names = list(by_source_id.values())

    in_files = state.in_files

    def one(file: SourceFile) -> Block | RefusedFile:
        try:
            footer = read_footer(store, file.location)
            if in_files is None:
                numbers = _numbers(footer, state.numbers)
                paths, schema = _written_with(footer, numbers, names)
                values = _outside(file.partition, numbers, paths, schema, has_exact_doubles=state.exact_doubles)
            else:
                paths, schema = by_source_id[in_files.schema_id]
                _require_numbers(footer, paths)
                values = {}
            may_lack = optional_in_files(schema, values)
            block = block_of(footer, may_lack)
            block = verified(store, footer, may_lack, block) if verify else block
            block = with_partition_bounds(block, file.transformed, paths, schema)
            return with_constants(block, values, schema) if values else block
        except LamellaError as error:
            return RefusedFile(path=file.location, code=error.code, reason=error.message)

    outcomes = []
    with ContextThreadPool(max_workers=workers, thread_name_prefix="footer") as pool:
        for outcome in pool.map(one, files):
            outcomes.append(outcome)
            on_done(outcome)
    blocks = [each for each in outcomes if isinstance(each, Block)]
    return blocks, [each for each in outcomes if isinstance(each, RefusedFile)]


def _numbers(footer: Footer, named: Mapping[tuple[str, ...], int]) -> list[int]:
    """Returns the field ids of a file's leaves: its own, or if it has none those of the source's name mapping."""
    leaves = footer.metadata.schema.leaves
    own = [leaf.field_id for leaf in leaves]
    found = own if any(number is not None for number in own) else [named.get(leaf.path) for leaf in leaves]
    unnumbered = [leaf.name for leaf, number in zip(leaves, found, strict=True) if number is None]
    if unnumbered:
        raise InvalidRequest(f"columns have no field ids in the file: {unnumbered[:10]}")
    return [number or 0 for number in found]


def _require_numbers(footer: Footer, paths: Mapping[int, tuple[str, ...]]) -> None:
    """Raise InvalidRequest unless the file's columns with the source's names have its field ids, and no others have
    them; ``paths`` by field id."""
    wanted = {path: number for number, path in paths.items() if number < FIRST_OF_PARTS}
    known = set(wanted.values())
    for leaf in footer.metadata.schema.leaves:
        for end, number in enumerate(leaf.numbers, 1):
            path = leaf.path[:end]
            if wanted.get(path, number) != number or (number in known and path not in wanted):
                raise InvalidRequest(
                    f"column {'.'.join(path)!r} has field id {number} in the file; according to the table's log "
                    f"it is {wanted.get(path, 'another column')}"
                )


def _outside(
    partition: Mapping[int, Any],
    numbers: Sequence[int],
    paths: Mapping[int, tuple[str, ...]],
    schema: Schema,
    *,
    has_exact_doubles: bool,
) -> dict[int, Bound | None]:
    """Returns the partition values of columns that the file lacks, by column id; ``paths`` are those of ``schema`` by
    field id.

    Raises:
        InvalidRequest: a partition column that the schema does not have, or that is inside a struct; a double that
            pyiceberg (0.12) has rounded to a float when it read the manifest.
    """
    found: dict[int, Bound | None] = {}
    leaves = {leaf.path: leaf for leaf in schema.leaves()}
    for number, value in partition.items():
        if number in numbers:
            continue
        path = paths.get(number, ())
        leaf = leaves.get(path)
        if leaf is None or len(path) != 1:
            raise InvalidRequest("the values of a partition column are only in the metadata, not in the file")
        if leaf.dtype.name == "float64" and value is not None and not has_exact_doubles:
            raise InvalidRequest(
                f"the value of partition column {leaf.name!r} is only in the metadata, where doubles are read as floats"
            )
        found[leaf.id] = to_constant(leaf.dtype, ordered_value(leaf.dtype, value))
    return found


def _written_with(
    footer: Footer, numbers: Sequence[int], versions: Sequence[tuple[Mapping[int, tuple[str, ...]], Schema]]
) -> tuple[Mapping[int, tuple[str, ...]], Schema]:
    """Returns the newest schema that has the file's columns with the same field ids and names, and its paths by field
    id."""
    leaves = footer.metadata.schema.leaves
    for paths, schema in versions:
        if all(
            paths.get(number) == leaf.path or leaf.path[0] in schema.ignored_columns
            for leaf, number in zip(leaves, numbers, strict=True)
        ):
            return paths, schema
    raise InvalidRequest("the table never had a schema with the ids and names of the file's columns")


def _paths(columns: Iterable[Column], above: tuple[str, ...]) -> Iterable[tuple[int, tuple[str, ...]]]:
    for column in columns:
        here = (*above, column.name)
        yield column.id, here
        yield from _paths(column.fields, here)
