"""A table of a Lamella service as Spark reads it: its blocks for a filter, under the names that Spark's readers use.

The service's answers are cached for the current statement.

A :class:`LakeTable` is one table at one snapshot. Snapshots never change, so neither does what is cached here.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from lamella.client.http import Lamella
from lamella.client.http.credential import token_of
from lamella.client.http.transport import FOLDER, folder_of
from lamella.client.spark.row_ids import BlockNumbers, block_numbers
from lamella.snapshot.cluster.key import key_terms
from lamella.snapshot.errors import (
    BodyTooLarge,
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    InvalidSchema,
    LamellaError,
    LimitExceeded,
)
from lamella.snapshot.manifest import DELETES, FEATURES, DeleteFile
from lamella.snapshot.schema import Column, Leaf, Schema
from lamella.snapshot.schema.evolution import evolve
from lamella.snapshot.schema.shredding import SHREDDING, shredding_text
from lamella.snapshot.schema.spark_types import SparkSchema, spark_schema
from lamella.snapshot.stats import Bound, ColumnStats
from lamella.snapshot.storage import TableLayout
from lamella.snapshot.storage.location import parse
from lamella.snapshot.wire import BlockFacts, JoinKeys, OrderBy, SchemaUpdate, TableInfo, Verdict

#: Characters for which a local path is normalised.
_UNUSUAL: Final = re.compile(r"//|/\.|/$|\0")


def hadoop_path(location: str) -> str:
    """Return the text for ``org.apache.hadoop.fs.Path``: unescaped, with ``s3://`` as ``s3a://``.

    Raises:
        InvalidRequest: a location that Hadoop would change (``//``, ``.`` or ``..`` within an S3 key), or that only
            this process can read (``memory://``).
    """
    if location.startswith("file:///") and not _UNUSUAL.search(location, 7):
        return location
    at = parse(location)
    if at.scheme == "file":
        return f"file://{at.path}"
    if at.scheme == "s3":
        if any(part in ("", ".", "..") for part in at.path.split("/")):
            raise InvalidRequest(
                f"Spark cannot name {location!r}: Hadoop removes empty parts, '.' and '..' from a path",
                location=location,
            )
        return f"s3a://{at.path}"
    raise InvalidRequest(f"Spark cannot read {location!r}: no executor can access it", location=location)


def refuse_hidden(locations: Iterable[str]) -> None:
    """Raise InvalidRequest when Spark's file index would ignore a file because of its name.

    Spark silently ignores names that start with ``.``, or with ``_`` unless they contain ``=``.
    """
    for location in locations:
        name = location.rpartition("/")[2]
        if name.startswith(".") or (name.startswith("_") and "=" not in name):
            raise InvalidRequest(
                f"Spark's file index leaves out {location!r} because of its name; rename it and register it again",
                location=location,
            )


# The column names inside blocks of older schemas, as schemas for Spark's own Parquet reader.
#
# A file has the names that the table had when the file was written. The reader returns columns by position, so the
# names it is given may differ from those of Spark's plan: one schema with the names of the files is enough if all files
# of a scan agree.

#: The metadata key by which Spark's reader finds a column by Parquet field id.
_FIELD_ID: Final = "parquet.field.id"


def written_struct(wanted: dict[str, Any], current: Schema, written: Schema) -> dict[str, Any]:
    """Return a Spark struct type (its JSON as Python), given with the names of ``current``, with the names of
    ``written``.

    A column that blocks of ``written`` cannot contain keeps its name, or gets an unused one, so that Spark finds none
    and returns null or the default.
    """
    return _written(wanted, current.columns, written.columns, _Absent(written.extra_columns, {}))


def identified_struct(wanted: dict[str, Any], current: Schema) -> dict[str, Any]:
    """Return the struct type with every field's column id, for files whose field ids are the table's column ids."""
    return _identified(wanted, current.columns)


def layouts(wanted: dict[str, Any], history: Sequence[Schema], schema_ids: Iterable[int]) -> dict[str, list[int]]:
    """Return the distinct structs (as JSON) that the blocks of these schemas need, each with its schemas."""
    schemas = {schema.schema_id: schema for schema in history}
    used = [schemas[schema_id] for schema_id in sorted(set(schema_ids))]
    current = history[-1]
    # A column that some blocks lack gets the name that it has in the others, so that one struct fits all of them.
    names: dict[int, str] = {}
    for schema in used:
        names |= {column_id: path[-1] for column_id, path in schema.paths().items()}
    found: dict[str, list[int]] = {}
    for schema in used:
        struct = wanted
        if schema is not current:
            struct = _written(wanted, current.columns, schema.columns, _Absent(schema.extra_columns, names))
        found.setdefault(json.dumps(struct), []).append(schema.schema_id)
    return found


class _Absent(NamedTuple):
    """How a column is named that blocks of a schema cannot contain.

    ``extra_columns``: the files may have columns that the schema does not list, so only names that no file can have by
    chance are used. ``names``: by column id, the names in other blocks.
    """

    extra_columns: bool
    names: Mapping[int, str]

    def name(self, column: Column, taken: set[str]) -> str:
        wanted = self.names.get(column.id, column.name)
        if wanted.lower() in taken or (self.extra_columns and _RANDOM_NAME.fullmatch(wanted) is None):
            return _free(column.id, taken)
        return wanted


#: Delta's names for columns that are added while columns are mapped.
_RANDOM_NAME: Final = re.compile(r"col-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _written(struct: dict[str, Any], now: Sequence[Column], then: Sequence[Column], absent: _Absent) -> dict[str, Any]:
    before = {column.id: column for column in then}
    taken = {column.name.lower() for column in then}
    fields = []
    for field in struct["fields"]:
        column = _named(now, field["name"])
        old = before.get(column.id)
        if old is not None:
            mapped = {**field, "name": old.name, "type": _written_type(field["type"], column, old, absent)}
        else:
            mapped = {**field, "name": absent.name(column, taken)}
            taken.add(mapped["name"].lower())
        fields.append(mapped)
    return {**struct, "fields": fields}


def _written_type(spark: Any, now: Column, then: Column, absent: _Absent) -> Any:
    if isinstance(spark, str) or not now.fields:
        return spark
    if spark["type"] == "struct":
        return _written(spark, now.fields, then.fields, absent)
    if spark["type"] == "array":
        return {**spark, "elementType": _written_type(spark["elementType"], now.fields[0], then.fields[0], absent)}
    return {
        **spark,
        "keyType": _written_type(spark["keyType"], now.fields[0], then.fields[0], absent),
        "valueType": _written_type(spark["valueType"], now.fields[1], then.fields[1], absent),
    }


def _identified(struct: dict[str, Any], now: Sequence[Column]) -> dict[str, Any]:
    fields = []
    for field in struct["fields"]:
        column = _named(now, field["name"])
        metadata = {**field["metadata"], _FIELD_ID: column.id}
        name = f"_lamella_{column.id}"
        fields.append({**field, "name": name, "type": _identified_type(field["type"], column), "metadata": metadata})
    return {**struct, "fields": fields}


def _identified_type(spark: Any, now: Column) -> Any:
    if isinstance(spark, str) or not now.fields:
        return spark
    if spark["type"] == "struct":
        return _identified(spark, now.fields)
    if spark["type"] == "array":
        return {**spark, "elementType": _identified_type(spark["elementType"], now.fields[0])}
    return {
        **spark,
        "keyType": _identified_type(spark["keyType"], now.fields[0]),
        "valueType": _identified_type(spark["valueType"], now.fields[1]),
    }


def _free(column_id: int, taken: set[str]) -> str:
    name = f"_lamella_absent_{column_id}"
    while name in taken:
        name += "_"
    return name


def _named(columns: Sequence[Column], name: str) -> Column:
    for column in columns:
        if column.name.lower() == name.lower():
            return column
    raise InvalidSchema(f"the table has no column {name!r}", column=name)


#: Properties that Spark shows in addition to the table's own; the kind of the cluster key can also be set.
SNAPSHOT_ID: Final = "lamella.snapshot_id"
CLUSTER_KEY: Final = "lamella.cluster_key"
CLUSTER_KIND: Final = "lamella.cluster_kind"

_log = logging.getLogger(__name__)
_NOTHING: Final[dict[str, Any]] = {"type": "false"}
#: Reasons for which the service refuses filter trees that Spark accepts.
ODD_TREE: Final = (InvalidFilter, FilterTypeMismatch, LimitExceeded, BodyTooLarge)


def plain_options(given: Mapping[str, Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """Return fsspec options by scheme as plain dictionaries."""
    return {scheme: dict(options) for scheme, options in (given or {}).items()}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an attached catalog.

    ``allow_fallback``: when the service refuses a filter or fails on it, read every block of the snapshot instead of
    failing the query; logged as a warning each time. ``max_join_keys``: of a join with more distinct keys, only the
    smallest and the largest key prune. ``page_index``: let Spark skip pages inside files by their column indexes. A
    wrong column index loses rows (parquet-java trusts ``null_pages`` without checks), so by default (None) this is done
    for reads whose blocks were all written by Lamella's own jobs; True: always, False: never. ``signed_urls``: read
    blocks by URLs that the service signs, in Python workers, without credentials for the store. ``storage_options``:
    with which the driver reads deletion vectors, and Python workers read blocks. ``aggregates``: answer counts, minima,
    maxima and sums without Spark where statistics and the rows of a few blocks, read by the driver, give them.
    """

    allow_fallback: bool = False
    max_join_keys: int = 100_000
    page_index: bool | None = None
    signed_urls: bool = False
    storage_options: dict[str, dict[str, Any]] = {}
    aggregates: bool = True


class BlockSelection(msgspec.Struct, frozen=True):
    """The blocks selected by a filter, in the snapshot's order, and the totals of the snapshot.

    ``sizes`` (of files, in bytes) and ``rows`` correspond to ``locations``. ``believed``: of the columns in question,
    those whose footer statistics are valid in all of these blocks. ``fell_back``: the service's message when pruning
    failed and all blocks are listed instead. ``verdicts``: one per block. ``residuals``: the residual filters as SQL;
    ``residual_numbers`` has for each block the number of its own. ``schema_ids``: the schemas that the blocks were
    written with, which determine their column names. ``constants``: by column id the values of columns that the blocks'
    files do not hold (None: the file holds all); empty if no block has any. ``deletes``: deleted rows of the blocks,
    likewise.
    """

    locations: list[str]
    sizes: list[int]
    rows: list[int]
    blocks_total: int
    believed: tuple[str, ...] = ()
    fell_back: str | None = None
    schema_ids: list[int] = []
    verdicts: list[Verdict] = []
    residuals: tuple[str, ...] = ()
    residual_numbers: list[int] = []
    constants: list[dict[int, Bound | None] | None] = []
    deletes: list[tuple[DeleteFile, ...] | None] = []

    @property
    def all_match(self) -> bool:
        """Whether every row of these blocks is proven to match, so that rows need no filter."""
        return self.fell_back is None and set(self.verdicts) <= {"ALL"}

    def files(self) -> list[tuple[str, int]]:
        """Return Hadoop path and size of each block; raises InvalidRequest for a path that Spark cannot represent."""
        paths = map(hadoop_path, self.locations)
        return list(zip(paths, self.sizes, strict=True))

    @property
    def row_count(self) -> int:
        """Number of rows in the blocks, matching or not."""
        return sum(self.rows)

    def part(self, numbers: Sequence[int]) -> BlockSelection:
        """Return some of the blocks, by their number in the selection."""
        members = (
            *("locations", "sizes", "rows", "schema_ids", "verdicts", "residual_numbers"),
            *("constants", "deletes"),
        )
        chosen = {name: getattr(self, name) for name in members}
        return msgspec.structs.replace(
            self, **{name: [each[number] for number in numbers] if each else each for name, each in chosen.items()}
        )

    def part_by_deletes(self, has_deletes: bool) -> BlockSelection:
        """Return only the blocks that have deleted rows, or only the others."""
        if not self.deletes:
            return self.part([]) if has_deletes else self
        chosen = self.part([at for at, deletes in enumerate(self.deletes) if bool(deletes) == has_deletes])
        return chosen if has_deletes else msgspec.structs.replace(chosen, deletes=[])

    def digest(self) -> str:
        """Return a digest of the files and their sizes, in order."""
        digest = hashlib.sha256("\n".join(self.locations).encode("utf-8", "surrogatepass"))
        # Sizes and the lengths of the locations are included, so that concatenation is unambiguous.
        digest.update(array("q", self.sizes).tobytes())
        digest.update(array("q", map(len, self.locations)).tobytes())
        if self.constants:
            digest.update(msgspec.json.encode(self.constants))
        if self.deletes:
            digest.update(msgspec.json.encode(self.deletes))
        return digest.hexdigest()


class LakeTable:
    """A table at a snapshot, for Spark's planner."""

    def __init__(
        self,
        lake: Lamella,
        name: str,
        *,
        table_id: str,
        location: str,
        snapshot_id: str,
        history: tuple[Schema, ...],
        schema_ids_in_use: tuple[int, ...],
        columns: SparkSchema,
        properties: Mapping[str, str],
        cluster_key: tuple[Sequence[str], str],
        totals: tuple[int, int, int],
        features: Sequence[str],
        settings: Settings,
        schema_update: SchemaUpdate | None = None,
    ) -> None:
        self.name = name
        self.table_id = table_id
        self.snapshot_id = snapshot_id
        self.schema = history[-1]
        #: Changes that the table is seen with, and that the snapshot does not have; the commit of a write makes them.
        self.schema_update = schema_update
        #: Every schema that blocks may have been written with.
        self.history = history
        self._schema_ids_in_use = schema_ids_in_use
        self._features = features
        self.columns = columns
        self.properties = dict(properties)
        self.cluster_key = cluster_key
        self.settings = settings
        self.block_count, self.row_count, self.size_bytes = totals
        self.lake = lake
        #: The table of the client.
        self.handle = lake.table(name)
        self.service_url = lake.url
        self._own_blocks = TableLayout(location).blocks + "/"

    def at(self, snapshot_id: str) -> LakeTable:
        """Return the table as the source of blocks of another snapshot; everything else stays as it is."""
        made = copy(self)
        made.snapshot_id = snapshot_id
        return made

    @property
    def key(self) -> str:
        """The name and the snapshot id."""
        return f"{self.name}@{self.snapshot_id}"

    @cached_property
    def block_numbers(self) -> BlockNumbers:
        """The numbers of the table's blocks in row ids."""
        return block_numbers(self.table_id)

    @cached_property
    def column_stats(self) -> Mapping[int, ColumnStats]:
        """Statistics of the snapshot's columns, by id; one request. Raises the service's errors."""
        return self.handle.snapshot(self.snapshot_id).summary.col_stats

    def shown_properties(self) -> dict[str, str]:
        """The table's properties, with additional ones for display."""
        columns, kind = self.cluster_key
        own = {CLUSTER_KEY: ", ".join(columns), CLUSTER_KIND: kind} if columns else {}
        return {**self.properties, **own, **self._shredding(), SNAPSHOT_ID: self.snapshot_id}

    def declared_properties(self) -> dict[str, str]:
        """The properties that a ``CREATE TABLE`` for this table sets."""
        columns, kind = self.cluster_key
        own = {CLUSTER_KIND: str(kind)} if columns and kind != "linear" else {}
        if not self.has_plain_key:
            own[CLUSTER_KEY] = ", ".join(columns)
        return {**self.properties, **own, **self._shredding()}

    @property
    def has_plain_key(self) -> bool:
        """Whether the cluster key has columns only, which CLUSTER BY can name."""
        columns, _ = self.cluster_key
        return all(isinstance(term, Leaf) for term in key_terms(self.schema, columns))

    def _shredding(self) -> dict[str, str]:
        text = shredding_text(self.schema.columns)
        return {SHREDDING: text} if text else {}

    @property
    def has_deletes(self) -> bool:
        """Whether blocks of the snapshot have deleted rows."""
        return DELETES in self._features

    def trusts_page_index(self, selection: BlockSelection) -> bool:
        """Whether Spark may skip pages inside these blocks (see :class:`Settings`)."""
        if self.settings.page_index is not None:
            return self.settings.page_index
        return self.all_written_by_lamella(selection)

    def is_plain(self, names: Sequence[str] | None = None) -> bool:
        """Whether every block has these columns (None: all) under their current names, or lacks them, and its file is
        all that a reader needs."""
        if self._features:
            return False
        chosen = None if names is None else {name.lower() for name in names}
        struct = json.loads(self.columns.readable)
        fields = [field for field in struct["fields"] if chosen is None or field["name"].lower() in chosen]
        wanted = {**struct, "fields": fields}
        return set(layouts(wanted, self.history, self._schema_ids_in_use)) <= {json.dumps(wanted)}

    def all_written_by_lamella(self, selection: BlockSelection) -> bool:
        """Whether Lamella's own writers made all of these blocks."""
        return all(location.startswith(self._own_blocks) for location in selection.locations)

    def signed(self, locations: Sequence[str]) -> list[BlockFacts]:
        """Return blocks of the snapshot with signed URLs, in their order.

        Raises:
            LamellaError: the service's error, such as NotSignable or LocationRefused.
        """
        found = self.handle.blocks(locations, snapshot_id=self.snapshot_id, sign_urls=True, reader_features=FEATURES)
        blocks = {block.location: block for block in found.blocks}
        return [blocks[location] for location in locations]

    def selection(
        self,
        filter: Mapping[str, Any] | str | None,
        keys: Sequence[JoinKeys] = (),
        *,
        time_zone: str = "UTC",
        reader_columns: Sequence[str] = (),
        limit: int | None = None,
        order_by: Sequence[OrderBy] = (),
        residuals: bool = False,
        spark_checks: bool = False,
    ) -> BlockSelection:
        """Return the blocks that may contain rows that match the filter (a tree, or SQL text) and the keys of joins.

        Spark checks the types in a filter: it has checked those of trees (and with ``spark_checks`` it checks a text).
        So a filter that the service refuses for its types, or for its size, keeps all blocks.

        ``reader_columns``: the columns by whose Parquet statistics Spark could skip inside blocks (see ``believed``).
        ``limit``: stop at this many matching rows, with ``order_by`` the first ones.

        Raises:
            LamellaError: the service failed and the settings allow no fallback, or the list of all blocks is
                unavailable too.
        """
        try:
            return self._selection(filter, keys, time_zone, reader_columns, None, limit, order_by, residuals)
        except LamellaError as error:
            odd = ODD_TREE if keys or isinstance(filter, Mapping) else FilterTypeMismatch if spark_checks else ()
            if (filter is None and not keys) or not (isinstance(error, odd) or self.settings.allow_fallback):
                raise
            _log.warning("reading all %d blocks of %s: pruning failed: %s", self.block_count, self.key, error.message)
            return self._selection(None, (), time_zone, reader_columns, error.message)

    def _selection(
        self,
        filter: Mapping[str, Any] | str | None,
        keys: Sequence[JoinKeys],
        time_zone: str,
        reader_columns: Sequence[str],
        fell_back: str | None,
        limit: int | None = None,
        order_by: Sequence[OrderBy] = (),
        residuals: bool = False,
    ) -> BlockSelection:
        answer = self.handle.prune(
            filter,
            snapshot_id=self.snapshot_id,
            time_zone=time_zone,
            shape="columns",
            reader_columns=reader_columns,
            limit=limit,
            order_by=order_by,
            join=keys,
            residuals=residuals,
            reader_features=FEATURES,
        )
        columns = answer.block_columns
        if answer.snapshot_id != self.snapshot_id or columns is None:
            raise LamellaError(f"the service answered for snapshot {answer.snapshot_id}, not {self.snapshot_id}")
        return BlockSelection(
            locations=columns.location,
            sizes=columns.file_size,
            rows=columns.row_count,
            blocks_total=answer.report.blocks_total,
            believed=answer.reader_columns or (),
            fell_back=fell_back,
            schema_ids=[
                self.schema.schema_id if each is None else each
                for each in columns.schema_id or [None] * len(columns.location)
            ],
            verdicts=columns.verdict,
            residuals=tuple(residual.sql for residual in answer.residuals or ()),
            residual_numbers=columns.residual or [],
            constants=columns.constants or [],
            deletes=columns.deletes or [],
        )


def load_table(
    lake: Lamella,
    name: str,
    settings: Settings,
    *,
    snapshot_id: str | None = None,
    timestamp_ms: int | None = None,
    time_type: bool = False,
    update: Callable[[TableInfo], SchemaUpdate | None] = lambda _: None,
) -> LakeTable:
    """Return the current state of the table, or its state at a snapshot or at a time (Unix milliseconds).

    ``update``: returns schema changes with which the current state is seen.

    Raises:
        TableNotFound: no such table (no such namespace: NamespaceNotFound).
        SnapshotNotFound: no such snapshot, or none that old.
    """
    handle = lake.table(name)
    info = handle.info()
    if snapshot_id is None and timestamp_ms is None:
        return table_of(lake, name, settings, info, time_type=time_type, changed=update(info))
    # A filter that never matches: the answer names the snapshot and lists no block.
    answer = handle.prune(
        _NOTHING, snapshot_id=snapshot_id, timestamp=timestamp_ms, shape="columns", reader_features=FEATURES
    )
    manifest = handle.snapshot(answer.snapshot_id)
    key = manifest.cluster_key
    history, changed = _evolved(manifest.history, update(info))
    return LakeTable(
        lake,
        name,
        table_id=_identity(info),
        location=info.location,
        snapshot_id=answer.snapshot_id,
        history=history,
        schema_ids_in_use=manifest.schema_ids_in_use,
        columns=spark_schema(history[-1], time_type=time_type),
        properties=manifest.properties,
        cluster_key=((), "linear") if key is None else (key.columns, key.kind),
        totals=(answer.report.blocks_total, answer.report.rows_total, answer.report.bytes_total),
        features=manifest.features,
        settings=settings,
        schema_update=changed,
    )


def _identity(info: TableInfo) -> str:
    """Return what tells a table from others for Spark: a statement may read a table and write one of its branches."""
    branch = info.name.partition("@")[2]
    return f"{info.table_id}@{branch}" if branch else info.table_id


def table_of(
    lake: Lamella,
    name: str,
    settings: Settings,
    info: TableInfo,
    *,
    time_type: bool = False,
    changed: SchemaUpdate | None = None,
) -> LakeTable:
    """Return a table in the state that the service told; ``changed``: schema changes with which it is seen."""
    history, changed = _evolved(info.history, changed)
    return LakeTable(
        lake,
        name,
        table_id=_identity(info),
        location=info.location,
        snapshot_id=info.snapshot_id,
        history=history,
        schema_ids_in_use=info.schema_ids_in_use,
        columns=spark_schema(history[-1], time_type=time_type),
        properties=info.properties,
        cluster_key=(info.cluster_key, info.cluster_kind),
        totals=(info.block_count, info.row_count, info.file_size_bytes),
        features=info.required_features,
        settings=settings,
        schema_update=changed,
    )


def _evolved(
    history: tuple[Schema, ...], changed: SchemaUpdate | None
) -> tuple[tuple[Schema, ...], SchemaUpdate | None]:
    if changed is not None and changed.changes:
        history = (*history, evolve(history[-1], changed.changes, history=history))
    return history, changed


def client_of(url_or_client: str | Lamella) -> Lamella:
    """Return a client; for a URL, one that uses the token of ``LAMELLA_TOKEN`` or ``LAMELLA_TOKEN_FILE``."""
    if isinstance(url_or_client, str):
        token, token_file = token_of(os.environ)
        return Lamella(url_or_client, token=token, token_file=token_file)
    if hasattr(url_or_client, "table"):
        return _served(url_or_client)
    raise InvalidRequest(f"neither a URL nor a Lamella client: {url_or_client!r}")


def _served(lake: Lamella) -> Lamella:
    """Return the client; raises InvalidRequest for an embedded lake, which the processes of Spark cannot ask."""
    if lake.url.startswith(FOLDER):
        raise InvalidRequest(
            "Spark needs the URL of a service, since its executors ask it too: run "
            f"`lamella serve --warehouse {folder_of(lake.url)}`, also while this program has the folder open, and give "
            "Spark http://127.0.0.1:8181",
            url=lake.url,
        )
    return lake


@contextmanager
def service(url: str | None, client: Lamella | None) -> Iterator[Lamella]:
    """Yield the client, or one for the URL that is closed afterwards; raises InvalidRequest unless one is given."""
    if (url is None) == (client is None):
        raise InvalidRequest("give either the service's url or a client")
    if client is not None:
        yield _served(client)
    else:
        with client_of(str(url)) as made:
            yield made


def unix_ms(timestamp: dt.datetime | int | None) -> int | None:
    """Return the Unix milliseconds of an aware datetime; raises InvalidRequest for one without a zone."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    if timestamp.tzinfo is None:
        raise InvalidRequest("a timestamp needs a time zone")
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (timestamp - epoch) // dt.timedelta(milliseconds=1)
