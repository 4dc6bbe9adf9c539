"""The Python reader: the rows of a table that match a filter, read by the pages that may contain them.

``lake.table("db.t").scan(filter, columns).to_arrow()`` asks the service which rows of which blocks may match, fetches
only the pages that contain them, and decides every row by Spark SQL's rules. Filters are never passed to pyarrow.
"""

from lamella.client.scan.async_scan import AsyncRows, AsyncScan
from lamella.client.scan.plan import Request
from lamella.client.scan.row_changes import ChangesRequest, RowChanges
from lamella.client.scan.scan import Fragment, Scan, open_store

__all__ = ["AsyncRows", "AsyncScan", "ChangesRequest", "Fragment", "Request", "RowChanges", "Scan", "open_store"]
