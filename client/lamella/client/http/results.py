"""Answers of prunes and aggregates: the members of the wire's structs, with methods to read blocks and groups."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.html_tables import MAX_ROWS, html_table
from lamella.snapshot.stats import Bound
from lamella.snapshot.wire import AggregateAnswer, BatchAnswer, PruneAnswer, PrunedBlock
from lamella.snapshot.wire.prune import block_records

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa


class PruneBatchResult(BatchAnswer, frozen=True, kw_only=True):
    """A :class:`~lamella.snapshot.wire.BatchAnswer` whose answers are :class:`PruneResult`."""

    answers: tuple[PruneResult, ...]


class PruneResult(PruneAnswer, frozen=True, kw_only=True, dict=True, gc=True):
    """A :class:`~lamella.snapshot.wire.PruneAnswer` whose blocks can be read in any shape.

    ``for block in result``, ``len(result)``, ``result.blocks``, ``result.to_pandas()``. The client requests ``shape``
    "columns", so records are created only when they are read. With ``level`` "segment" there are segments instead of
    blocks, and members that need blocks raise InvalidRequest; so they do for ranges that are not resolved.
    """

    @cached_property  # type: ignore[misc]  # the answer's own member is None in other shapes
    def blocks(self) -> tuple[PrunedBlock, ...]:
        """The blocks to read, in the answer's order."""
        self._require_no_segments()
        return tuple(self.records())

    def __iter__(self) -> Iterator[PrunedBlock]:
        self._require_no_segments()
        return self.records()

    def __len__(self) -> int:
        self._require_no_segments()
        return self.block_count

    def __bool__(self) -> bool:
        return self.block_count > 0

    def records(self) -> Iterator[PrunedBlock]:
        """The blocks to read, in the answer's order; empty when ``level`` was "segment".

        Raises InvalidRequest for ranges that are not resolved, as do all members that need blocks.

        Example:
            >>> [block.row_count for block in table.prune("price > 99.5").records()]
            [4, 3]
        """
        self._require_blocks()
        return block_records(self) if self.block_columns is not None else iter(own_blocks(self) or ())

    @property
    def locations(self) -> list[str]:
        """The locations of the blocks to read.

        Example:
            >>> table.prune("price > 125").locations
            ['file:///...parquet']
        """
        self._require_blocks()
        if self.block_columns is not None:
            return list(self.block_columns.location)
        return [block.location for block in own_blocks(self) or ()]

    @property
    def block_count(self) -> int:
        """The number of blocks to read (with ``level`` "segment": the number of blocks in the segments).

        Example:
            >>> table.prune("price > 99.5").block_count
            2
        """
        if self.block_columns is not None:
            return len(self.block_columns.location)
        if self.block_ranges is not None:
            return sum(self.block_ranges.block_count)
        if self.segments is not None:
            return sum(segment.block_count for segment in self.segments)
        return len(own_blocks(self) or ())

    @property
    def size_bytes(self) -> int:
        """The total file size in bytes of the blocks (or segments) to read.

        Example:
            >>> table.prune("price > 99.5").size_bytes < table.info().file_size_bytes
            True
        """
        self._require_blocks()
        if self.block_columns is not None:
            return sum(self.block_columns.file_size)
        if self.segments is not None:
            return sum(segment.file_size_bytes for segment in self.segments)
        return sum(block.file_size for block in own_blocks(self) or ())

    def to_arrow(self) -> pa.Table:
        """The blocks as a table: location, row_count, live_row_count, file_size and verdict; with residuals the rest of
        the filter for each, and the size of the requested columns, if they were requested.

        Signed URLs are left out, because anyone who has one can read the block.

        Example:
            >>> table.prune("price > 99.5").to_arrow().column("verdict").to_pylist()
            ['SOME', 'ALL']
        """
        import pyarrow as pa

        blocks = self.blocks
        columns: dict[str, Any] = {
            "location": pa.array([block.location for block in blocks], pa.string()),
            "row_count": pa.array([block.row_count for block in blocks], pa.int64()),
            "live_row_count": pa.array([block.live_row_count for block in blocks], pa.int64()),
            "file_size": pa.array([block.file_size for block in blocks], pa.int64()),
            "verdict": pa.array([block.verdict for block in blocks], pa.string()),
        }
        if any(block.column_size_bytes is not None for block in blocks):
            columns["column_size_bytes"] = pa.array([block.column_size_bytes for block in blocks], pa.int64())
        if self.residuals is not None:
            texts = [residual.sql for residual in self.residuals]
            of_blocks = [None if block.residual is None else texts[block.residual] for block in blocks]
            columns["residual"] = pa.array(of_blocks, pa.string())
        return pa.table(columns)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """The table of :meth:`to_arrow` as a pandas frame; ``options``: those of ``pyarrow.Table.to_pandas``. Needs
        ``lamella[pandas]``.

        Example:
            >>> table.prune("price > 99.5").to_pandas()[["row_count", "verdict"]]
               row_count verdict
            0          4    SOME
            1          3     ALL
        """
        from lamella.client.scan.rows import library

        library("pandas", "to_pandas", "pandas")
        return self.to_arrow().to_pandas(**options)

    def __repr__(self) -> str:
        found = "" if self.complete else ", not complete"
        return (
            f"PruneResult({self.block_count:,} of {counted(self.report.blocks_total, 'block')},"
            f" snapshot_id={self.snapshot_id!r}{found})"
        )

    def _repr_html_(self) -> str:
        """The funnel and the first blocks as tables, for notebooks."""
        from rich.filesize import decimal

        stages = [
            (stage.stage, stage.considered, stage.kept, decimal(stage.bytes), f"{stage.ms:.2f}")
            for stage in self.report.stages
        ]
        caption = f"{self.block_count:,} of {counted(self.report.blocks_total, 'block')} of snapshot {self.snapshot_id}"
        if not self.complete:
            caption += ", not complete"
        parts = [html_table(caption, ("stage", "considered", "kept", "bytes", "ms"), stages)]
        if self.report.not_used:
            unused = [(use.predicate, use.reason) for use in self.report.not_used]
            parts.append(html_table("Not used", ("predicate", "reason"), unused))
        if self.segments is None and self.block_ranges is None:
            rows = [(b.verdict, b.row_count, decimal(b.file_size), b.location) for b in islice(self, MAX_ROWS)]
            shown = "" if len(self) <= MAX_ROWS else f", the first {MAX_ROWS:,}"
            parts.append(html_table(f"Blocks{shown}", ("verdict", "rows", "size", "location"), rows))
        return "".join(parts)

    def _require_blocks(self) -> None:
        if self.block_ranges is not None:
            raise InvalidRequest('the answer has ranges of blocks: pass it to the "resolve" method of the table first')

    def _require_no_segments(self) -> None:
        if self.segments is not None:
            raise InvalidRequest('the answer has segments instead of blocks, since level was "segment": see segments')


#: The member of an answer as the service sent it.
_BLOCKS: Final[Any] = PruneAnswer.__dict__["blocks"]


def own_blocks(answer: PruneAnswer) -> tuple[PrunedBlock, ...] | None:
    """The records of an answer as they came; None: it has another shape."""
    found: tuple[PrunedBlock, ...] | None = _BLOCKS.__get__(answer)
    return found


class Names(tuple[str, ...]):
    """Names of tables; a tuple that notebooks show as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return html_table("Tables", ("name",), [(name,) for name in self])


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the zone is added where the type has one
_MICROS_PER = {"millis": 1_000, "micros": 1}


class AggregateResult(AggregateAnswer, frozen=True, kw_only=True):
    """An :class:`~lamella.snapshot.wire.AggregateAnswer` that can be read as Python values."""

    def __repr__(self) -> str:
        names = [*(c.name for c in self.group_columns), *(c.name for c in self.columns)]
        if self.complete:
            found = "complete"
        elif self.scan_blocks:
            found = f"not complete: {counted(self.scan_blocks, 'block')} must be scanned"
        else:
            found = "bounds"
        return f"AggregateResult({', '.join(names)}; {counted(len(self.groups), 'group')}, {found})"

    def records(self) -> list[dict[str, Any]]:
        """One dictionary for each group, by the requested names; a value that Python cannot represent stays a tagged
        bound.

        Raises:
            InvalidRequest: there are blocks left to scan, or only bounds are known; ``groups`` has what is known.

        Example:
            >>> table.aggregate(["count(*)", "max(price)"], "day >= '2024-06-01'").records()
            [{'count(*)': 3, 'max(price)': 150.0}]
        """
        exact = all(value.exact for group in self.groups for value in group.values)
        if self.scan or self.other_groups or not exact or not all(group.certain for group in self.groups):
            raise InvalidRequest(
                f"statistics do not give the complete result: {counted(len(self.scan), 'block')} must be "
                "scanned, which "
                "table.scan(filter).aggregate(...) does"
            )
        names = [*(c.name for c in self.group_columns), *(c.name for c in self.columns)]
        types = [*(c.type for c in self.group_columns), *(c.type for c in self.columns)]
        rows = [[*group.key, *(value.value for value in group.values)] for group in self.groups]
        return [
            {name: python_value(kind, bound) for name, kind, bound in zip(names, types, row, strict=True)}
            for row in rows
        ]


def python_value(type_text: str, bound: Bound | None) -> Any:
    """A tagged value as a Python value: int, float, Decimal, bool, str, bytes, date, time or datetime.

    A value that Python cannot represent (nanoseconds, years beyond 9999, text that is not UTF-8) is returned as it is.
    """
    if bound is None:
        return None
    ((member, value),) = ((m, v) for m, v in msgspec.structs.asdict(bound).items() if v is not None)
    kind, _, unit = member.rpartition("_")
    if member == "float64":
        return float(value)
    if member == "decimal":
        digits, _, scale = value
        return Decimal((int(digits) < 0, tuple(int(d) for d in digits.lstrip("-")), -scale))
    try:
        if member == "date":
            return dt.date(1970, 1, 1) + dt.timedelta(days=value)
        if unit in _MICROS_PER:
            at = _EPOCH + dt.timedelta(microseconds=value * _MICROS_PER[unit])
            if kind == "time":
                return at.time()
            return at if type_text.startswith("timestamp_ntz") else at.replace(tzinfo=dt.UTC)
    except OverflowError:
        return bound
    if member == "bytes":
        return bound if type_text in ("string", "enum", "json") else bytes.fromhex(value)
    return bound if unit == "nanos" else value
