"""An Iceberg REST catalog over loopback: the tables of a catalog of pyiceberg's, by the documented protocol.

It is ours, and serves what an import asks for: the configuration, namespaces and tables in pages, and a table.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

#: Entries of a page.
PAGE = 2
_SEPARATOR = "\x1f"


class RestCatalog:
    """A running server. ``tokens``: those of the requests."""

    def __init__(self, catalog: Catalog) -> None:
        self.tokens: set[str | None] = set()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.tokens.add(self.headers.get("Authorization"))
                status, body = served.answer(catalog, self.path)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, catalog: Catalog, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and body for a request."""
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        steps = [unquote(step) for step in parts.path.strip("/").split("/")][1:]
        match steps:
            case ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                parent = tuple(query["parent"].split(_SEPARATOR)) if query.get("parent") else ()
                found = {each[: len(parent) + 1] for each in catalog.list_namespaces(parent)}
                return 200, _page("namespaces", [list(each) for each in sorted(found) if each != parent], query)
            case ["namespaces", namespace, "tables"]:
                of = namespace.split(_SEPARATOR)
                names = sorted(each[-1] for each in catalog.list_tables(tuple(of)))
                return 200, _page("identifiers", [{"namespace": of, "name": name} for name in names], query)
            case ["namespaces", namespace, "tables", name]:
                try:
                    location = catalog.load_table((*namespace.split(_SEPARATOR), name)).metadata_location
                except NoSuchTableError:
                    return _missing()
                metadata = json.loads(Path(location.removeprefix("file://")).read_bytes())
                return 200, {"metadata-location": location, "metadata": metadata, "config": {}}
        return _missing()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def _missing() -> tuple[int, dict[str, Any]]:
    return 404, {"error": {"message": "there is no such thing", "type": "NoSuchTableException", "code": 404}}


def _page(member: str, entries: list[Any], query: dict[str, str]) -> dict[str, Any]:
    if "pageToken" not in query:
        return {member: entries}
    start = int(query["pageToken"] or 0)
    following = str(start + PAGE) if start + PAGE < len(entries) else None
    return {member: entries[start : start + PAGE], "next-page-token": following}
