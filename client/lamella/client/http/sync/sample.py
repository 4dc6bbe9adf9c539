# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/sample.py: change that file.
"""The method of a table for samples of rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from lamella.client.http.call import Filter, TableName
from lamella.client.http.sample import sample_call
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import SampleAnswer


class TableSample:
    """Some rows of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def sample(
        self,
        filter: Filter = None,
        columns: Sequence[str] | None = None,
        *,
        rows: int = 100,
        snapshot_id: str | None = None,
        timestamp: int | str | dt.datetime | None = None,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
        max_blocks: int = 16,
        max_bytes: int | None = None,
        max_ms: float | None = None,
    ) -> SampleAnswer:
        """Some rows for which ``filter`` is true, read by the service: any of them, not drawn at random.

        At most ``rows`` (up to 1,000) rows, from at most ``max_blocks`` blocks, ``max_bytes`` bytes of files and
        ``max_ms`` milliseconds. ``complete`` in the answer says whether it has every row that matches; otherwise
        ``stopped`` says which bound ended the reading. Values are those of JSON: a decimal, a date and a time are text,
        and bytes hexadecimal digits. To read all rows, and as Arrow, use :meth:`scan`.

        Raises InvalidFilter, FilterTypeMismatch, UnknownColumn, FilterNotEvaluable, EvaluationFailed, TableNotFound,
        SnapshotNotFound; BlockReplaced and NotParquet for files that are not as registered; PermissionDenied if the
        service shows no rows.

        Example:
            >>> table.sample("price > 125", ["id", "price"], rows=2).rows
            [[13, 130.0], [14, 140.0]]
        """
        return self._lake.run(
            sample_call(
                self._name,
                filter,
                columns,
                rows,
                snapshot_id,
                timestamp,
                time_zone,
                case_sensitive,
                max_blocks,
                max_bytes,
                max_ms,
            )
        )
