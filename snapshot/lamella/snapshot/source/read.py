"""Reads a source: a folder's listing or a table's log, and its files as blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import InvalidRequest, LamellaError, ValueOutsideFile
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import Footer, block_of, ingest, read_footer
from lamella.snapshot.parquet.file_values import verified
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.source.delta import read_delta
from lamella.snapshot.source.evolution import Evolution
from lamella.snapshot.source.iceberg import Catalogs, read_iceberg
from lamella.snapshot.source.options import StoreOptions
from lamella.snapshot.source.path_values import lost_above, path_columns, require_constants, require_folders
from lamella.snapshot.source.state import IDENTITY, SourceFile, SourceState, outside
from lamella.snapshot.storage import AllLocations, AllowedLocations, Store
from lamella.snapshot.storage.location import (
    Glob,
    Location,
    glob_root,
    has_magic,
    is_data_file,
    parse,
    refuse_other_formats,
)
from lamella.snapshot.wire import ExternalSource, RefusedFile


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
        self._catalogs = catalogs

    def read(
        self, source: ExternalSource, properties: Mapping[str, str], allowed: AllowedLocations = _ANYWHERE
    ) -> SourceState:
        """Returns the current state of the source; nothing outside of ``allowed`` is read, whatever refers to it.

        Raises:
            InvalidRequest, InvalidSchema: it cannot be followed, or is not the source that the table was created from.
            LocationRefused: it is outside of ``allowed``, or refers to something that is.
            ObjectNotFound, StoreError: it does not exist, or cannot be read.
        """
        if source.kind == "directory":
            return read_directory(self._store, source, allowed)
        if source.kind == "delta":
            state = read_delta(self._store, source, self._options, allowed)
        else:
            state = read_iceberg(self._store, source, self._options, self._catalogs, allowed)
        known = properties.get(IDENTITY)
        if known is not None and known != state.identity:
            raise InvalidRequest(f"the source is {state.identity}, but the table was created from {known}")
        return state


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
    on_done: Callable[[], object] | None = None,
) -> SourceBlocks:
    """Returns the blocks of some of a source's files; ``on_done`` is called once per file, in the caller's thread."""
    current = evolution.history[-1]

    def done(_: Block | RefusedFile) -> None:
        if on_done is not None:
            on_done()

    if evolution.schema_of:
        blocks, refused = _by_number(store, files, state, evolution, workers, verify, done)
    else:
        locations = [file.location for file in files]
        blocks, refused = ingest(store, locations, current, workers=workers, verify=verify, on_done=done)
    if not state.above and not any(file.constants or file.folders for file in files):
        return SourceBlocks(blocks, refused)
    known = {file.location: file for file in files}
    good = []
    for block in blocks:
        schema, file = schema_at(evolution, block.written_with), known[block.location]
        try:
            require_constants(block, schema, file.constants)
            require_folders(block, schema, (*lost_above(block, schema, state.above), *file.folders))
        except ValueOutsideFile as error:
            refused.append(RefusedFile(path=block.location, code=error.code, reason=error.message))
        else:
            good.append(block)
    return SourceBlocks(good, refused)


def _by_number(
    store: Store,
    files: Sequence[SourceFile],
    state: SourceState,
    evolution: Evolution,
    workers: int,
    verify: bool,
    on_done: Callable[[Block | RefusedFile], None],
) -> tuple[list[Block], list[RefusedFile]]:
    names = [
        (dict(_paths(version.columns, ())), schema_at(evolution, evolution.schema_of[version.schema_id]))
        for version in reversed(state.schemas)
    ]

    def one(file: SourceFile) -> Block | RefusedFile:
        try:
            footer = read_footer(store, file.location)
            numbers = _numbers(footer, state.numbers)
            schema = _written_with(footer, numbers, names)
            if not file.in_file <= set(numbers):
                raise InvalidRequest("the values of a partition column are only in the metadata, not in the file")
            block = block_of(footer, schema)
            return verified(store, footer, schema, block) if verify else block
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


def _written_with(
    footer: Footer, numbers: Sequence[int], versions: Sequence[tuple[Mapping[int, tuple[str, ...]], Schema]]
) -> Schema:
    """Returns the newest schema that has the file's columns with the same field ids and names."""
    leaves = footer.metadata.schema.leaves
    for paths, schema in versions:
        if all(paths.get(number) == leaf.path for leaf, number in zip(leaves, numbers, strict=True)):
            return schema
    raise InvalidRequest("the table never had a schema with the ids and names of the file's columns")


def _paths(columns: Iterable[Column], above: tuple[str, ...]) -> Iterable[tuple[int, tuple[str, ...]]]:
    for column in columns:
        here = (*above, column.name)
        yield column.id, here
        yield from _paths(column.fields, here)
