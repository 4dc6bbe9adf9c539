"""The same prune for elsewhere: as a command for a shell, as Python, as a query for Spark. Quoted for each of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from lamella.service.catalog import TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.asked import At
from lamella.service.state import instant_ms
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import PruneRequest

#: What `attach` of the client is told to call the service in Spark.
CATALOG: Final = "lake"
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Copies(msgspec.Struct, frozen=True):
    """``curl``: for a POSIX shell. ``python``: a program. ``sql``: one statement of Spark SQL."""

    curl: str
    python: str
    sql: str


def copies_of(url: str, table: TableRecord, schema: Schema, request: PruneRequest, at: At) -> Copies:
    """All three; ``url`` is the service's own, ``request`` names no snapshot: ``at`` does.

    Raises:
        InvalidRequest: ``at`` is no time that there is.
    """
    request = msgspec.structs.replace(request, snapshot_id=at.snapshot_id, timestamp=at.timestamp)
    return Copies(_curl(url, table, request), _python(url, table, request), _sql(table, schema, request))


def _curl(url: str, table: TableRecord, request: PruneRequest) -> str:
    path = f"/v1/namespaces/{quote(table.namespace, safe='')}/tables/{quote(table.name, safe='')}/prune"
    body = msgspec.json.encode(request).decode()
    return (
        f"curl -sS -X POST {shlex.quote(url + path)} \\\n"
        f"  -H 'Content-Type: application/json' \\\n"
        f"  --data-raw {shlex.quote(body)}"
    )


def _python(url: str, table: TableRecord, request: PruneRequest) -> str:
    arguments = [repr(request.filter)] if request.filter is not None else []
    if request.columns is not None:
        arguments.append(f"columns={list(request.columns)!r}")
    for name, value in (
        ("snapshot_id", request.snapshot_id),
        ("timestamp", request.timestamp),
        ("time_zone", None if request.time_zone == "UTC" else request.time_zone),
        ("limit", request.limit),
    ):
        if value is not None:
            arguments.append(f"{name}={value!r}")
    inner = "".join(f"        {argument},\n" for argument in arguments)
    return (
        "from lamella.client import Lamella\n\n"
        f"with Lamella({url!r}) as lake:\n"
        f"    answer = lake.table({f'{table.namespace}.{table.name}'!r}).prune(\n{inner}    )\n"
        "    print(answer.block_count, 'of', answer.report.blocks_total, 'blocks')\n"
        "    for location in answer.locations:\n"
        "        print(location)\n"
    )


def _sql(table: TableRecord, schema: Schema, request: PruneRequest) -> str:
    columns = "*" if request.columns is None else ", ".join(_column(name, schema) for name in request.columns)
    name = _path([CATALOG, *table.namespace.split("."), table.name])
    version = ""
    if request.snapshot_id is not None:
        version = f" VERSION AS OF {_text(request.snapshot_id)}"
    elif request.timestamp is not None:
        # with its offset, so that the session's time zone does not matter
        at_ms = instant_ms(request.timestamp, request.time_zone)
        moment = words.iso(at_ms).replace("T", " ")
        version = f" TIMESTAMP AS OF {_text(moment)}"
    lines = [f"SELECT {columns}", f"FROM {name}{version}"]
    if request.filter is not None:
        lines.append(f"WHERE {request.filter}")
    if request.limit is not None:
        lines.append(f"LIMIT {request.limit}")
    return "\n".join(lines)


def _column(name: str, schema: Schema) -> str:
    is_whole = any(column.name.lower() == name.lower() for column in schema.columns)
    return _path([name] if is_whole else name.split("."))


def _path(parts: Sequence[str]) -> str:
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in parts)


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
