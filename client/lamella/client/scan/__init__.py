"""The Python reader: the rows of a table that match a filter, read by the pages that may hold them.

``lake.table("db.t").scan(filter, columns).to_arrow()`` asks the service which rows of which blocks may match, fetches
just the pages that hold them, and decides every row by Spark SQL's rules. Filters are never handed to pyarrow.
"""

from lamella.client.scan.plan import Request
from lamella.client.scan.scan import Fragment, Scan, open_store

__all__ = ["Fragment", "Request", "Scan", "open_store"]
