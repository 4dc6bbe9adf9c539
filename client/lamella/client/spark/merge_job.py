"""Updating and merging rows: Spark computes the new rows, and only blocks that lose many rows are rewritten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.http import Lamella
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import scratch_space
from lamella.client.rewrite.source import Source, grouped, live_positions, source_rows
from lamella.client.rewrite.target import Target
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.lake import service
from lamella.client.spark.merge_filter import Candidates, named_columns
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.client.spark.writer import write_rows
from lamella.snapshot.delete_policy import delete_policy_of
from lamella.snapshot.deletes import Positions, Vectors, inline_entry
from lamella.snapshot.errors import CommitConflict, InvalidFilter, InvalidRequest
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.schema import Column as TableColumn
from lamella.snapshot.schema import Schema, quoted
from lamella.snapshot.schema.spark_types import spark_schema
from lamella.snapshot.wire import NoNewMatches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


#: Added columns: the index of the block in the list, and of the row in the block.
BLOCK: Final = "__lamella_block"
ROW: Final = "__lamella_row"
_TASK_BYTES: Final = 64 << 20


def block_frame(
    spark: SparkSession,
    state: TableState,
    target: Target,
    sources: Sequence[Source],
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return all rows of some blocks, with :data:`BLOCK` and :data:`ROW`; ``columns``: only these top-level columns.

    Raises:
        InvalidSchema: a column has a type that Spark does not have.
    """
    from pyspark.sql.types import LongType, StructType

    schema = state.snapshot.schema
    wanted = [column.name for column in schema.columns if columns is None or column.name in columns]
    shown = spark_schema(schema, time_type=True)
    shown.check(wanted)
    fields = [field for field in json.loads(shown.readable)["fields"] if field["name"] in wanted]
    struct = StructType.fromJson({"type": "struct", "fields": fields}).add(BLOCK, LongType()).add(ROW, LongType())
    arrow = spark_arrow_schema(json.dumps({"type": "struct", "fields": fields}))
    tasks = list(grouped(enumerate(sources), lambda numbered: numbered[1].file_size, _TASK_BYTES))
    schemas = {each.schema_id: each for each in target.history}

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = target.store()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for block_number, source in tasks[number]:
                    row = 0
                    if not wanted:  # the rows are only counted
                        yield _numbered([], [], block_number, range(source.live_row_count(store)))
                        continue
                    for rows in source_rows(store, source, schemas, schema, arrow):
                        yield _numbered(rows.columns, wanted, block_number, range(row, row + rows.num_rows))
                        row += rows.num_rows

    if not tasks:
        return spark.createDataFrame([], struct)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, struct)


def _numbered(columns: Sequence[pa.Array], names: Sequence[str], block: int, rows: range) -> pa.RecordBatch:
    extra = [pa.array([block] * len(rows), pa.int64()), pa.array(rows, pa.int64())]
    return pa.RecordBatch.from_arrays([*columns, *extra], names=[*names, BLOCK, ROW])


# Updating and merging rows. Spark first determines which of the candidate blocks have matching rows, reading only the
# columns of the condition, and then computes the rows of these blocks that change. As with deletes, a block that loses
# few rows gets a deletion vector, and the others are rewritten together with the new rows, sorted by the cluster key;
# all in one commit. The commit is refused when another writer changed the same rows or removed one of the blocks in the
# meantime, or added rows that may match; then everything is repeated on the newer snapshot.

_TRIES: Final = 10
#: Whether a row of the table exists, whether one of the source exists (for an update: whether it is to be changed), and
#: which clause applies.
_HERE: Final = "__lamella_here"
_PRESENT: Final = "__lamella_there"
_MARK: Final = "__lamella_mark"
_ACTION: Final = "__lamella_action"
_GOES: Final = "__lamella_goes"
_WHERE: Final = (BLOCK, ROW)
_PAGE_BLOCKS: Final = 10_000
When = Literal["matched", "not matched", "not matched by source"]


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a merge. ``rows_copied``: rows that were rewritten unchanged. ``blocks_removed``: blocks that were
    rewritten, or of which no row is left; ``blocks_with_vectors``: blocks that stay without some of their rows.

    ``snapshot_id``: the snapshot with the changes; when nothing changed, the one that was read.
    """

    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_copied: int = 0
    blocks_read: int = 0
    blocks_removed: int = 0
    blocks_added: int = 0
    blocks_with_vectors: int = 0
    tries: int = 1
    snapshot_id: str


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of blocks that lose rows. ``removed``: locations of blocks that leave the table, of which those in
    ``rewritten`` have other rows, read without the lost ones. ``vectors``: the lost rows of blocks that stay, as
    positions in the file by location."""

    removed: list[str]
    rewritten: list[Source]
    vectors: dict[str, Positions]
    rows_copied: int = 0

    @classmethod
    def of(cls, target: Target, state: TableState, touched: Sequence[Source], gone: Mapping[int, Positions]) -> Removal:
        """Decide by the table's policy. ``gone``: lost rows by the block's number, counted among its live rows."""
        policy, store = delete_policy_of(state.snapshot.properties), target.store()
        before = Vectors(store, (entry for number in gone for entry in touched[number].deletes))
        found = cls(removed=[], rewritten=[], vectors={})
        copied = 0
        for number, rows in gone.items():
            source = touched[number]
            live = live_positions(before, source)
            lost = source.row_count - len(live) + len(rows)
            if lost < source.row_count and policy.keeps_file(lost, source.row_count):
                found.vectors[source.location] = live[rows]
                continue
            found.removed.append(source.location)
            if lost < source.row_count:
                copied += source.row_count - lost
                entry = inline_entry(source.location, live[rows])
                found.rewritten.append(msgspec.structs.replace(source, deletes=(*source.deletes, entry)))
        return msgspec.structs.replace(found, rows_copied=copied)


class _Clause(msgspec.Struct, frozen=True):
    """``values``: SQL by column of the table; None: delete. ``copies``: copy all columns of the source by name."""

    when: When
    condition: str | None
    values: Mapping[str, str] | None
    copies: bool = False

    @property
    def verb(self) -> str:
        """What is counted for this clause."""
        if self.values is None and not self.copies:
            return "deleted"
        return "inserted" if self.when == "not matched" else "updated"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How new blocks are written; see :func:`lamella.client.spark.write`."""

    target_block_rows: int | None = None
    target_block_bytes: int | None = None
    compression: str = "zstd"
    storage_options: Mapping[str, Mapping[str, Any]] = {}
    scratch: str | None = None


class Merge:
    """A merge that is being built; nothing happens before :meth:`execute`.

    For each row the first clause of its kind whose condition is true applies. A table row to which none applies is
    unchanged; a source row is then not inserted.
    """

    def __init__(
        self,
        source: DataFrame,
        name: str,
        on: str,
        *,
        url: str | None = None,
        client: Lamella | None = None,
        target_alias: str = "t",
        source_alias: str = "s",
        options: Options = Options(),  # noqa: B008  # a frozen value
    ) -> None:
        self._source = source
        self._name = name
        self._on = on
        self._url = url
        self._client = client
        self._aliases = (target_alias, source_alias)
        self._options = options
        self._clauses: tuple[_Clause, ...] = ()

    def when_matched_update(self, values: Mapping[str, str] | None = None, *, condition: str | None = None) -> Self:
        """Update matching rows: SQL by column; None: every column that the source has, by name."""
        return self._with("matched", condition, values, copies=values is None)

    def when_matched_delete(self, *, condition: str | None = None) -> Self:
        """Delete matching rows."""
        return self._with("matched", condition, None)

    def when_not_matched_insert(self, values: Mapping[str, str] | None = None, *, condition: str | None = None) -> Self:
        """Insert source rows that match no row of the table; a column that is not named is null or has its default."""
        return self._with("not matched", condition, values, copies=values is None)

    def when_not_matched_by_source_update(self, values: Mapping[str, str], *, condition: str | None = None) -> Self:
        """Update rows of the table that no source row matches. Reads every block of the table."""
        return self._with("not matched by source", condition, values)

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> Self:
        """Delete rows of the table that no source row matches. Reads every block of the table."""
        return self._with("not matched by source", condition, None)

    def execute(self) -> MergeResult:
        """Run the merge in one commit.

        Raises:
            InvalidRequest: no clause, an unknown column, several source rows match one row that would be changed, or
                ANSI mode is off (casts would change values silently).
            SchemaMismatch: a value does not fit.
            InvalidSchema: the table has columns that Spark cannot read or that cannot be written.
            CommitConflict: other writers committed first on every attempt; nothing was done.
            OutcomeUnknown: the commit may have happened.
        """
        if not self._clauses:
            raise InvalidRequest("a merge has at least one clause")
        with service(self._url, self._client) as lake:
            # The source must be deterministic: other rows the second time would lose or duplicate rows.
            source = self._source.localCheckpoint(eager=True)
            work = _Work(lake, self._name, source, self._on, self._aliases, self._clauses, self._options)
            return work.run()

    def _with(
        self, when: When, condition: str | None, values: Mapping[str, str] | None, *, copies: bool = False
    ) -> Self:
        self._clauses = (*self._clauses, _Clause(when, condition, values, copies))
        return self


def merge(source: DataFrame, name: str, on: str, **more: Any) -> Merge:
    """Return a merge of a frame into ``namespace.table``; ``on``: a condition over ``t.`` and ``s.`` columns.

    ::

        merge(changes, "db.users", "t.id = s.id", url=url) \\
        .when_matched_delete(condition="s.gone") \\
        .when_matched_update({"name": "s.name", "seen": "t.seen + 1"}) \\
        .when_not_matched_insert() \\
        .execute()

    See :class:`Merge` for the arguments. Equalities in ``on`` (``t.a = s.b``) and conditions on ``t.`` alone determine
    which blocks are read at all.
    """
    return Merge(source, name, on, **more)


def update(
    spark: SparkSession,
    name: str,
    values: Mapping[str, str],
    where: str | None = None,
    *,
    url: str | None = None,
    client: Lamella | None = None,
    options: Options = Options(),  # noqa: B008  # a frozen value
) -> MergeResult:
    """Update the rows of ``namespace.table`` for which ``where`` is true, or every row: SQL by column.

    Raises: as :meth:`Merge.execute`.
    """
    with service(url, client) as lake:
        clause = _Clause("matched", None, dict(values))
        condition = "true" if where is None else where
        work = _Work(lake, name, None, condition, ("t", "s"), (clause,), options, spark=spark)
        return work.run()


class _Work:
    """One merge, repeated when other writers commit first."""

    def __init__(
        self,
        lake: Lamella,
        name: str,
        source: DataFrame | None,
        on: str,
        aliases: tuple[str, str],
        clauses: Sequence[_Clause],
        options: Options,
        *,
        spark: SparkSession | None = None,
    ) -> None:
        self._lake = lake
        self._name = name
        self._source = source
        self._on = on
        self._target_alias, self._source_alias = aliases
        self._clauses = tuple(clauses)
        self._options = options
        session = source.sparkSession if source is not None else spark
        assert session is not None  # noqa: S101  # one of them is given
        self._spark = session
        self._time_zone = str(session.conf.get("spark.sql.session.timeZone", "UTC"))
        if not on.strip():
            raise InvalidFilter("the condition is empty")
        if str(session.conf.get("spark.sql.ansi.enabled", "true")).lower() != "true":
            raise InvalidRequest("spark.sql.ansi.enabled is off: values that do not fit would be changed silently")

    def run(self) -> MergeResult:
        for attempt in range(1, _TRIES + 1):
            try:
                done = self._once()
            except CommitConflict:
                if attempt == _TRIES:
                    raise
            else:
                return msgspec.structs.replace(done, tries=attempt)
        raise AssertionError("unreachable")

    def _once(self) -> MergeResult:
        state = TableState.read(self._lake, self._name)
        options = self._options
        target = state.target(
            block_rows=options.target_block_rows,
            block_bytes=options.target_block_bytes,
            compression=options.compression,
            storage_options=options.storage_options,
        )
        target.check()
        self._check_columns(state)
        candidates = Candidates.of(
            state.snapshot.schema,
            self._on,
            self._target_alias,
            self._source_alias,
            self._source,
            whole=any(each.when == "not matched by source" for each in self._clauses),
        )
        sources = self._sources(state, candidates)
        touched = self._touched(state, target, sources)
        engine = SparkEngine(self._spark)
        with scratch_space(target, is_near=engine.is_near, folder=options.scratch) as space:
            changed = self._changed_rows(state, target, sources, touched)
            gone, updated = self._gone(changed, touched)
            removal = Removal.of(target, state, touched, gone)
            result = MergeResult(
                rows_inserted=changed.where(f"{BLOCK} IS NULL").count(),
                rows_updated=updated,
                rows_deleted=sum(map(len, gone.values())) - updated,
                rows_copied=removal.rows_copied,
                blocks_read=len(sources),
                blocks_removed=len(removal.removed),
                blocks_with_vectors=len(removal.vectors),
                snapshot_id=state.snapshot.snapshot_id,
            )
            if not (result.rows_inserted or result.rows_updated or result.rows_deleted):
                return result
            written = write_rows(self._new_rows(state, target, changed, removal), engine, target, space)
            answer = commit_result(
                self._lake,
                state,
                target,
                written,
                operation="merge" if self._source is not None else "update",
                removed=removal.removed,
                deletes=removal.vectors,
                row_change=None if result.rows_inserted or result.rows_updated else "delete",
                no_new_matches=NoNewMatches(filter=candidates.filter, time_zone=self._time_zone),
            )
        return msgspec.structs.replace(
            result,
            blocks_added=sum(len(each.blocks) for each in written),
            snapshot_id=answer.snapshot_id,
        )

    def _check_columns(self, state: TableState) -> None:
        names = {column.name.lower() for column in state.snapshot.schema.columns}
        for clause in self._clauses:
            for name in clause.values or ():
                if name.lower() not in names:
                    raise InvalidRequest(f"the table has no column {name!r}", column=name)

    def _sources(self, state: TableState, candidates: Candidates) -> list[Source]:
        """Return the blocks that may contain matching rows."""
        handle = self._lake.table(self._name)
        locations: list[str] = []
        for page in handle.prune_pages(
            candidates.filter,
            page_size=_PAGE_BLOCKS,
            snapshot_id=state.snapshot.snapshot_id,
            time_zone=self._time_zone,
            reader_features=FEATURES,
        ):
            locations += page.locations
        facts = handle.blocks(locations, snapshot_id=state.snapshot.snapshot_id, reader_features=FEATURES)
        if facts.missing:
            raise InvalidRequest(f"{facts.missing[0]} is not in snapshot {facts.snapshot_id}")
        return [Source.of(block) for block in facts.blocks]

    def _touched(self, state: TableState, target: Target, sources: list[Source]) -> list[Source]:
        """Return the blocks of which a row matches; all blocks when rows without a match are changed too."""

        if not sources or self._only_inserts:
            return []
        found = self._matched(state, target, sources)
        self._refuse_multiple_matches(max((max_matches for _, max_matches in found), default=1))
        if any(each.when == "not matched by source" for each in self._clauses):
            return sources
        return [sources[block] for block, _ in sorted(found)]

    @property
    def _only_inserts(self) -> bool:
        """Whether no row of the table can change."""
        return all(each.when == "not matched" for each in self._clauses)

    def _matched(self, state: TableState, target: Target, sources: list[Source]) -> list[tuple[int, int]]:
        """Return the blocks with matching rows, and the maximum number of source rows that match a row of each."""
        from pyspark.sql import functions as F

        rows = self._keys_of(state, target, sources)
        if self._source is None:
            found = rows.where(self._on).groupBy(BLOCK).agg(F.lit(1))
        else:
            pairs = rows.join(self._source.alias(self._source_alias), F.expr(self._on), "inner")
            found = pairs.groupBy(BLOCK, ROW).count().groupBy(BLOCK).agg(F.max("count"))
        return [(row[0], row[1]) for row in found.collect()]

    def _keys_of(self, state: TableState, target: Target, sources: list[Source]) -> DataFrame:
        """Return the columns of the blocks' rows that the condition needs."""
        columns = named_columns(self._on, state.snapshot.schema)
        return block_frame(self._spark, state, target, sources, columns).alias(self._target_alias)

    def _refuse_multiple_matches(self, max_matches: int) -> None:
        changing = [each for each in self._clauses if each.when == "matched"]
        only_deletes = all(each.verb == "deleted" and each.condition is None for each in changing)
        if max_matches > 1 and not only_deletes:
            raise InvalidRequest(
                f"{max_matches} rows of the source match one row of the table, which can take the values of only one"
            )

    def _changed_rows(
        self, state: TableState, target: Target, sources: list[Source], touched: list[Source]
    ) -> DataFrame:
        """Return the rows that change, with their new values and where they are in the touched blocks. They are
        computed once, since values may be random."""
        from pyspark.sql import functions as F

        joined = self._joined(state, target, sources, touched)
        here, there = F.col(_HERE), F.col(_PRESENT)
        states = {"matched": here & there, "not matched": ~here & there, "not matched by source": here & ~there}
        action = F.lit(None).cast("int")
        for number, clause in reversed(list(enumerate(self._clauses))):
            applies = states[clause.when]
            if clause.condition is not None:
                applies = applies & F.coalesce(F.expr(clause.condition), F.lit(False))
            action = F.when(applies, F.lit(number)).otherwise(action)
        decided = joined.withColumn(_ACTION, action).where(F.col(_ACTION).isNotNull())
        columns = [self._value(column) for column in state.snapshot.schema.columns]
        where = [F.col(name) if name in joined.columns else F.lit(None).cast("bigint").alias(name) for name in _WHERE]
        return decided.select(*columns, self._is("deleted").alias(_GOES), *where).localCheckpoint(eager=True)

    def _gone(self, changed: DataFrame, touched: Sequence[Source]) -> tuple[dict[int, Positions], int]:
        """Return which rows of touched blocks (by number) are updated or deleted, numbered among those that are not
        deleted yet, and how many are updated."""
        if not touched:
            return {}, 0
        found = changed.where(f"{BLOCK} IS NOT NULL").select(BLOCK, ROW, _GOES).toArrow()
        blocks, rows, goes = (found.column(name).to_numpy() for name in (BLOCK, ROW, _GOES))
        order = np.lexsort((rows, blocks))
        numbers, first = np.unique(blocks[order], return_index=True)
        parts = np.split(rows[order], first[1:])
        # A row that several rows of the source match is there several times.
        gone = {int(number): np.unique(part) for number, part in zip(numbers, parts, strict=False)}
        return gone, len(goes) - int(np.count_nonzero(goes))

    def _new_rows(self, state: TableState, target: Target, changed: DataFrame, removal: Removal) -> DataFrame:
        """Return the rows to write: new and updated ones, and those of blocks that are rewritten."""
        names = [quoted(column.name) for column in state.snapshot.schema.columns]
        rows = changed.where(f"NOT {_GOES}").select(*names)
        if not removal.rewritten:
            return rows
        return rows.unionAll(block_frame(self._spark, state, target, removal.rewritten).select(*names))

    def _joined(self, state: TableState, target: Target, sources: list[Source], touched: list[Source]) -> DataFrame:
        """Return the rows of the touched blocks joined with those of the source, with :data:`_HERE` and
        :data:`_PRESENT`."""
        from pyspark.sql import functions as F

        if self._source is not None and self._only_inserts:
            new = self._source.alias(self._source_alias).join(
                self._keys_of(state, target, sources), F.expr(self._on), "left_anti"
            )
            return new.withColumns({_HERE: F.lit(False), _PRESENT: F.lit(True)})
        rows = block_frame(self._spark, state, target, touched).alias(self._target_alias)
        if self._source is None:
            return rows.withColumns({_HERE: F.lit(True), _PRESENT: F.expr(f"({self._on}) IS TRUE")})
        source = self._source.withColumn(_MARK, F.lit(True)).alias(self._source_alias)
        joined = rows.join(source, F.expr(self._on), "full_outer")
        return joined.withColumns({_HERE: F.col(ROW).isNotNull(), _PRESENT: F.col(_MARK).isNotNull()})

    def _is(self, verb: str) -> Column:
        from pyspark.sql import functions as F

        numbers = [number for number, each in enumerate(self._clauses) if each.verb == verb]
        return F.coalesce(F.col(_ACTION).isin(numbers), F.lit(False)) if numbers else F.lit(False)

    def _value(self, column: TableColumn) -> Column:
        """Return the new value of a column of the table."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField

        shown = spark_schema(Schema.assign([column]), time_type=True)
        field = StructField.fromJson(json.loads(shown.readable)["fields"][0])
        shown_name = quoted(column.name)
        value = F.lit(None).cast(field.dataType) if self._only_inserts else F.col(f"{self._target_alias}.{shown_name}")
        for number, clause in enumerate(self._clauses):
            text = self._assigned(clause, column.name, shown_name)
            if text is None and clause.when != "not matched":
                continue
            default = field.metadata.get("CURRENT_DEFAULT")
            made = F.expr(text) if text is not None else F.expr(default) if default else F.lit(None)
            value = F.when(F.col(_ACTION) == number, made.cast(field.dataType)).otherwise(value)
        return value.alias(column.name)

    def _assigned(self, clause: _Clause, name: str, shown_name: str) -> str | None:
        """Return the SQL that a clause assigns to a column; None: it does not change it."""
        if clause.copies and self._source is not None:
            has = {column.lower() for column in self._source.columns}
            return f"{self._source_alias}.{shown_name}" if name.lower() in has else None
        given = {column.lower(): text for column, text in (clause.values or {}).items()}
        return given.get(name.lower())
