"""Answers of prunes and aggregates: the members of the wire's structs, with methods to read blocks and groups."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.stats import Bound
from lamella.snapshot.wire import AggregateAnswer, BatchAnswer, PruneAnswer, PrunedBlock
from lamella.snapshot.wire.prune import block_records


class PruneBatchResult(BatchAnswer, frozen=True, kw_only=True):
    """A :class:`~lamella.snapshot.wire.BatchAnswer` whose answers are :class:`PruneResult`."""

    answers: tuple[PruneResult, ...]


class PruneResult(PruneAnswer, frozen=True, kw_only=True):
    """A :class:`~lamella.snapshot.wire.PruneAnswer` whose blocks can be read in either shape.

    The client requests ``shape`` "columns", so ``block_columns`` is set and ``blocks`` is None; records are created
    only when they are read.
    """

    def records(self) -> Iterator[PrunedBlock]:
        """The blocks to read, in the answer's order; empty when ``level`` was "segment".

        Raises InvalidRequest for ranges that are not resolved, as do all members that need blocks.
        """
        self._require_blocks()
        yield from block_records(self)

    @property
    def locations(self) -> list[str]:
        """The locations of the blocks to read."""
        self._require_blocks()
        if self.block_columns is not None:
            return list(self.block_columns.location)
        return [block.location for block in self.blocks or ()]

    @property
    def block_count(self) -> int:
        """The number of blocks to read (with ``level`` "segment": the number of blocks in the segments)."""
        if self.block_columns is not None:
            return len(self.block_columns.location)
        if self.block_ranges is not None:
            return sum(self.block_ranges.block_count)
        if self.segments is not None:
            return sum(segment.block_count for segment in self.segments)
        return len(self.blocks or ())

    @property
    def size_bytes(self) -> int:
        """The total file size in bytes of the blocks (or segments) to read."""
        self._require_blocks()
        if self.block_columns is not None:
            return sum(self.block_columns.file_size)
        if self.segments is not None:
            return sum(segment.file_size_bytes for segment in self.segments)
        return sum(block.file_size for block in self.blocks or ())

    def _require_blocks(self) -> None:
        if self.block_ranges is not None:
            raise InvalidRequest('the answer has ranges of blocks: pass it to the "resolve" method of the table first')


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # the zone is added where the type has one
_MICROS_PER = {"millis": 1_000, "micros": 1}


class AggregateResult(AggregateAnswer, frozen=True, kw_only=True):
    """An :class:`~lamella.snapshot.wire.AggregateAnswer` that can be read as Python values."""

    def records(self) -> list[dict[str, Any]]:
        """One dictionary for each group, by the requested names; a value that Python cannot represent stays a tagged
        bound.

        Raises:
            InvalidRequest: there are blocks left to scan, or only bounds are known; ``groups`` has what is known.
        """
        exact = all(value.exact for group in self.groups for value in group.values)
        if self.scan or self.other_groups or not exact or not all(group.certain for group in self.groups):
            raise InvalidRequest(
                f"statistics do not give the complete result: {len(self.scan)} blocks must be scanned, which "
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
