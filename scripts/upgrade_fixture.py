"""Write what a release leaves behind, so that every later one can be tested to take it over.

    python scripts/upgrade_fixture.py tests/upgrade/1.2.0.zip

Run it once for each release, by the release itself: its catalog, every object of its warehouse, and what it answered
go into one file, which is never written again. For an older state of the sources:

    git archive COMMIT snapshot service client | tar -x -C OLD
    PYTHONPATH=OLD/snapshot:OLD/service:OLD/client python scripts/upgrade_fixture.py --old tests/upgrade/NAME.zip

With `--old` a step that the state does not know yet is left out; `made.json` lists them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import sqlite3
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from starlette.testclient import TestClient

from lamella.service.app import create_app
from lamella.service.config.settings import Settings

#: The location of everything. Manifests contain absolute locations, so every reader must use the same path.
ROOT: Final = "memory://lamella-upgrade"
WAREHOUSE: Final = f"{ROOT}/warehouse"
TABLE: Final = "/v1/namespaces/db/tables/numbers"
GONE: Final = "/v1/namespaces/db/tables/gone"
#: Queries on the current snapshot and on earlier ones; the answers are part of the file.
FILTERS: Final = (
    None,
    "a < 60",
    "a >= 60 AND a < 140",
    "a IN (5, 205, 999)",
    "s = 's00123'",
    "s LIKE 's001%'",
    "x IS NULL",
    "x > 1000",
    "d < DATE '2024-02-01'",
    "a = -1",
)
_ROWS: Final = 50


class Maker:
    """Creates some of every kind of state. ``missing``: steps that this release does not support."""

    def __init__(self, client: TestClient, *, is_old: bool) -> None:
        self._client = client
        self._is_old = is_old
        self.missing: list[str] = []

    def make(self) -> dict[str, Any]:
        """Run all steps; returns what the tests must find."""
        files = [_put(number) for number in range(6)]
        self.call("POST", "/v1/namespaces", {"name": "db", "properties": {"owner": "upgrade"}}, key="ns")
        body: dict[str, Any]
        for name, cluster_key in (("numbers", ["a"]), ("gone", [])):
            body = {"name": name, "schema_from": files[0], "cluster_key": cluster_key}
            self.call("POST", "/v1/namespaces/db/tables", body)
        first = self.call("POST", f"{TABLE}/register", {"paths": files[:3]}, key="first")
        self.call("POST", f"{GONE}/register", {"paths": [files[5]]})
        self.optional("tag", "POST", f"{TABLE}/tags", {"name": "v1"})
        self.call("POST", f"{TABLE}/register", {"paths": files[3:5]})
        self.optional("properties", "POST", f"{TABLE}/commits", {"properties": {"lamella.feedback.enabled": "true"}})
        body = {"changes": [{"change": "add", "name": "later", "type": "int32"}]}
        self.optional("schema", "POST", f"{TABLE}/schema", body)
        body = {"removed": [files[1]], "base_snapshot_id": self.current()}
        self.call("POST", f"{TABLE}/commits", body)
        self._index(files)
        self._upkeep()
        self._access()
        self.call("DELETE", GONE)
        return {
            "first_snapshot_id": first["snapshot_id"],
            "first_request": {"paths": files[:3]},
            "answers": [
                {"snapshot_id": snapshot_id, "filter": filter, "blocks": self.blocks(filter, snapshot_id)}
                for snapshot_id in (self.current(), first["snapshot_id"])
                for filter in FILTERS
            ],
            "info": self.call("GET", TABLE),
            "snapshots": [each["snapshot_id"] for each in self.call("GET", f"{TABLE}/snapshots")["snapshots"]],
        }

    def _index(self, files: list[str]) -> None:
        body: dict[str, Any] = {"name": "by_s", "kind": "bloom", "expression": "s"}
        if self.optional("index", "POST", f"{TABLE}/indexes", body) is not None:
            self.call("POST", f"{TABLE}/indexes/by_s/refresh", {})
        body = {"snapshot_id": self.current(), "filter": "x > 1000", "empty": [files[0]]}
        self.optional("feedback", "POST", f"{TABLE}/feedback", body)

    def _upkeep(self) -> None:
        self.optional("lease", "POST", f"{TABLE}/leases", {"ttl_s": 600, "owner": "upgrade"})
        self.optional("job", "POST", "/v1/jobs", {"kind": "verify", "table": "db.numbers"})
        body = {"kind": "vacuum", "arguments": {}, "cron": "30 3 * * *"}
        self.optional("schedule", "PUT", f"{TABLE}/schedules/nightly", body)
        self.optional("policy", "PUT", f"{TABLE}/policy", {"compact": {"small_blocks": 200}})

    def _access(self) -> None:
        body = {"name": "reader", "grants": [{"role": "read", "namespace": "db"}]}
        self.optional("keys", "POST", "/v1/keys", body)
        self.optional("grants", "PUT", "/v1/grants", {"principal": "user:ann", "role": "admin"})

    def blocks(self, filter: str | None, snapshot_id: str) -> list[list[Any]]:
        """Return the blocks selected by a prune, each with its verdict."""
        body = {"filter": filter, "snapshot_id": snapshot_id}
        found = self.call("POST", f"{TABLE}/prune", body)["blocks"]
        return sorted([block["location"], block["row_count"], block["verdict"]] for block in found)

    def current(self) -> str:
        """Return the id of the table's current snapshot."""
        return str(self.call("GET", TABLE)["snapshot_id"])

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """Return the answer to a request that must succeed."""
        headers = {} if key is None else {"Idempotency-Key": key}
        response = self._client.request(method, path, json=body, headers=headers)
        if response.status_code >= 300:
            raise SystemExit(f"{method} {path}: {response.status_code} {response.text}")
        return response.json() if response.content else None

    def optional(self, step: str, method: str, path: str, body: Any) -> Any:
        """Same as :meth:`call`; None for requests that an old release does not support."""
        response = self._client.request(method, path, json=body)
        if response.status_code < 300:
            return response.json() if response.content else None
        if not self._is_old:
            raise SystemExit(f"{step}: {response.status_code} {response.text}")
        self.missing.append(step)
        return None


def _put(number: int) -> str:
    """Write a Parquet file to the store."""
    values = range(number * _ROWS, (number + 1) * _ROWS)
    day = dt.date(2024, 1, 1)
    table = pa.table(
        {
            "a": pa.array(values, pa.int64()),
            "s": [f"s{value:05}" for value in values],
            "x": [None if value % 7 == 0 else value / 4 for value in values],
            "d": [day + dt.timedelta(days=value) for value in values],
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, write_page_index=True, data_page_size=512)
    location = f"{ROOT}/data/{number}.parquet"
    fsspec.filesystem("memory").pipe_file(location.removeprefix("memory:/"), buffer.getvalue())
    return location


def _objects() -> list[tuple[str, bytes, float]]:
    """Return everything in the store: path below ROOT, bytes, modification time."""
    store = fsspec.filesystem("memory")
    top = ROOT.removeprefix("memory:/") + "/"
    found = []
    for path, file in sorted(store.store.items()):
        if path.startswith(top):
            found.append((path.removeprefix(top), file.getvalue(), file.modified.timestamp()))
    return found


def _dump(path: Path) -> str:
    """Return a SQLite database as the statements that create it."""
    with sqlite3.connect(path) as connection:
        statements = "\n".join(connection.iterdump())
    connection.close()
    return statements


def main(arguments: list[str]) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--old", action="store_true", help="leave out steps that this state does not know")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        catalog = Path(folder) / "catalog.db"
        settings: dict[str, Any] = {"warehouse": WAREHOUSE, "catalog": str(catalog), "log_level": "error"}
        if "feedback" in Settings.model_fields:
            settings["feedback"] = True
        with TestClient(create_app(Settings(**settings)), client=("127.0.0.1", 1)) as client:
            maker = Maker(client, is_old=given.old)
            maker.call("GET", "/health/ready")
            expected = maker.make()
        statements = _dump(catalog)
    objects = _objects()
    made = {
        "release": version("lamella"),
        "made": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "missing": maker.missing,
        "modified_s": {path: modified_s for path, _, modified_s in objects},
        **expected,
    }
    with zipfile.ZipFile(given.file, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        out.writestr("made.json", json.dumps(made, indent=1))
        out.writestr("catalog.sql", statements)
        for path, data, _ in objects:
            out.writestr(f"objects/{path}", data)
    print(f"{given.file}: {given.file.stat().st_size:,} bytes, {len(objects)} objects; left out: {maker.missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
