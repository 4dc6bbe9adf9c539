# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/arrivals.py: change that file.
"""The method of a table for files that arrived."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.client.http.arrivals import register_arrivals_call
from lamella.client.http.call import TableName
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import ArrivalsAnswer


class TableArrivals:
    """Files that arrived; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def register_arrivals(
        self,
        files: Sequence[str],
        *,
        removed: Sequence[str] = (),
        prefix: str | None = None,
        suffix: str | None = None,
    ) -> ArrivalsAnswer:
        """Register those of the files that the table does not have and never had, in one snapshot.

        ``files``: URLs of single files, never of folders or globs. Files that are in the table, or were, are counted in
        the answer and not added again, so the call may be repeated at any time, by several programs at once. Files that
        cannot be registered are in ``refused``, and are no error: ``block_replaced`` is one that was overwritten after
        it was registered. An external table is refreshed if one of ``files`` or of ``removed`` (deleted files) is below
        its location.

        ``prefix``: only files whose URL begins with it. ``suffix``: only files whose name ends with it, by default
        ``.parquet``. Hidden files and folders (``_temporary``) are ignored.

        Raises TableNotFound, InvalidRequest, NotProven (the table has constraints), QuotaExceeded, StoreError.

        Example:
            >>> found = table.register_arrivals([f"{incoming}/july.parquet"])
            >>> found.registered
            1
        """
        return self._lake.run(register_arrivals_call(self._name, files, removed, prefix, suffix))
