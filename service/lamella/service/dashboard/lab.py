"""The prune lab: what a filter keeps of a table, step by step, and why; the same prune as a command, Python or SQL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import principal_of
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.lab_answer import (
    MAX_LISTED,
    Answer,
    Parts,
    answer_of,
    listed,
    parts_of,
    picture_of,
    readable,
)
from lamella.service.dashboard.lab_compare import LabComparison
from lamella.service.dashboard.lab_question import (
    FORMS,
    FieldError,
    Question,
    Typed,
    column_names,
    filter_error,
    own_examples,
    question_of,
    typed_of,
)
from lamella.service.dashboard.lab_suggestions import Suggestions, suggestions_of
from lamella.service.dashboard.names import with_lists
from lamella.service.dashboard.pages import ROOT, At, Page, Pages, number_of, one_of, table_of
from lamella.service.dashboard.preview import FRESH_S, MAX_READY, WAIT_S, BackgroundFigures, WhenClosing
from lamella.service.features import Advisor
from lamella.service.history.history import History, instant_ms, trusted_manifests
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import (
    InvalidRequest,
    LamellaError,
    ManifestError,
    SegmentNotFound,
    SnapshotNotFound,
    StoreError,
)
from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.expression.bound import leaves_of
from lamella.snapshot.manifest import FEATURES, Snapshot, SnapshotPointer
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.block_reasons import PagesWhy
from lamella.snapshot.warehouse.layer_map import LayerMaps
from lamella.snapshot.wire import PruneRequest, WhyNotAnswer, WhyNotRequest
from lamella.snapshot.wire.operation import on_table

#: The name of the service in Spark's catalogs, for the client's `attach`.
CATALOG: Final = "lake"
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Copies(msgspec.Struct, frozen=True):
    """A prune as code. ``curl``: for a POSIX shell. ``python``: a program. ``sql``: one statement of Spark SQL."""

    curl: str
    python: str
    sql: str


def copies_of(url: str, table: TableRecord, schema: Schema, request: PruneRequest, at: At) -> Copies:
    """Return all three; ``url`` is the service's own, ``request`` has no snapshot: ``at`` has it.

    Raises:
        InvalidRequest: ``at`` is not a valid time.
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


#: A filter that reads fewer blocks needs no help.
_MIN_SUGGESTED: Final = 2
#: Explaining looks at every block that segments keep, one segment after another; above this only on request.
MAX_EXPLAINED: Final = 100_000
#: Most predicates that are checked against each index.
_MAX_PREDICATES: Final = 24
_BLOCK_NUMBERS: Final = re.compile(r"(\d{1,9})\.(\d{1,9})")


class LabPages:
    """The lab, one block of it, and a comparison of two prunes."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        advice: Advisor | None,
        readers: Threads,
        history: History,
        warehouse: Warehouse,
        when_closing: WhenClosing,
        comparison: LabComparison,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._advice = advice
        self._readers = readers
        self._history = history
        self._warehouse = warehouse
        self._pages = pages
        self._comparison = comparison
        self._suggested: BackgroundFigures[Suggestions] = BackgroundFigures(
            when_closing, MAX_READY, name="ui-suggested", fresh_s=FRESH_S
        )
        self._explained: BackgroundFigures[tuple[Parts, WhyNotAnswer | None]] = BackgroundFigures(
            when_closing, MAX_READY, name="ui-explained"
        )

    async def show(self, request: Request) -> Response:
        found = await self._readers.run(lambda: self._show(request))
        return self._pages.html(request, "lab.html", found, title=f"Prune lab of {found['namespace']}.{found['table']}")

    async def block(self, request: Request) -> Response:
        found = await self._readers.run(lambda: self._block(request))
        title = f"A block of {found['namespace']}.{found['table']} and a filter"
        return self._pages.html(request, "lab_block.html", found, title=title)

    async def compare(self, request: Request) -> Response:
        rights = principal_of(request).rights

        def read() -> Mapping[str, Any]:
            record = table_of(self._catalog, request)
            with trusted_manifests():
                head = self._warehouse.head(record.pointer)
            names = self._pages.names
            lists = {**names.of_table(record, head), "tables": names.tables(rights)}
            return with_lists(self._comparison.show(request), lists)

        found = await self._readers.run(read)
        title = f"Two prunes of {found['namespace']}.{found['table']}"
        return self._pages.html(request, "lab_compare.html", found, title=title)

    def pages(self) -> tuple[Page, ...]:
        lab = ROOT + "/tables/{namespace}/{table}/lab"
        return (
            Page(lab, self.show, "ui_lab", on_table("read")),
            Page(lab + "/block", self.block, "ui_lab_block", on_table("read")),
            Page(lab + "/compare", self.compare, "ui_lab_compare", on_table("read")),
        )

    def _show(self, request: Request) -> Mapping[str, Any]:
        table, typed = table_of(self._catalog, request), typed_of(request)
        pointer, troubles = self._pointer(table, typed)
        with trusted_manifests():
            head = self._warehouse.head(pointer)
            question = question_of(typed, head.schema)
            troubles = {**troubles, **question.troubles}
            values: dict[str, Any] = {
                "namespace": table.namespace,
                "table": table.name,
                "tab": "lab",
                "typed": typed,
                "troubles": troubles,
                "snapshot_id": pointer.snapshot_id,
                "timestamp_ms": pointer.timestamp_ms,
                "forms": FORMS,
                "columns": column_names(head),
                "examples": own_examples(head),
                "answer": None,
                "lists": self._pages.names.of_table(table, head),
            }
            if not typed.is_filled or troubles or question.request is None:
                return values
            try:
                answered = self._answered(request, table, pointer, head, question.request)
            except InvalidRequest as error:
                return {**values, "troubles": {"filter": filter_error(error, typed.filter, head.schema)}}
            url = str(request.base_url).rstrip("/")
            copies = copies_of(url, table, head.schema, question.request, typed.at)
            # links from here stay with the same snapshot
            state = typed.state(at=pointer.snapshot_id)
            return {**values, **answered, "copies": copies, "state": state}

    def _answered(
        self,
        request: Request,
        table: TableRecord,
        pointer: SnapshotPointer,
        head: Snapshot,
        prune_request: PruneRequest,
    ) -> dict[str, Any]:
        warehouse = self._warehouse
        found = warehouse.find(pointer, prune_request)
        layer_map = warehouse.layer_maps.of(pointer)
        verdicts = LayerMaps.verdicts(found, layer_map)
        answer = answer_of(found, layer_map, verdicts)
        which = one_of(request, "list", ("kept", "skipped"))
        explained, waits = None, False
        if request.query_params.get("explain") or _is_small(answer):
            key = (pointer.snapshot_id, msgspec.json.encode(prune_request))
            explained = self._explained.peek(
                key,
                lambda: (self._parts(pointer, prune_request), self._why_not(table, pointer, head, prune_request)),
                wait_s=WAIT_S,
            )
            waits = explained is None
        return {
            **self._suggestions(request, table, pointer, prune_request, answer),
            "answer": answer,
            "parts": None if explained is None else explained[0],
            "why_not": None if explained is None else explained[1],
            "waits": waits,
            "has_indexes": any(index.dropped_ms is None for index in head.skip_indexes),
            "picture": picture_of(layer_map, verdicts),
            "listing": listed(warehouse, pointer, layer_map, verdicts, which, number_of(request, "row")),
            "readable": readable,
        }

    def _suggestions(
        self,
        request: Request,
        table: TableRecord,
        pointer: SnapshotPointer,
        prune_request: PruneRequest,
        answer: Answer,
    ) -> dict[str, Any]:
        """Return what would help the filter: ``suggestions`` None if that is not asked, or not computed yet."""
        advice, text, zone = self._advice, prune_request.filter, prune_request.time_zone
        is_current = pointer.snapshot_id == table.pointer.snapshot_id
        values: dict[str, Any] = {"suggestions": None, "suggests": False, "suggestion_problem": ""}
        if advice is None or text is None or not is_current or answer.figures.blocks < _MIN_SUGGESTED:
            return values
        can_maintain = principal_of(request).rights.may("maintain", table.namespace, table.name)
        try:
            found = self._suggested.peek(
                (table.table_id, pointer.snapshot_id, text, zone, can_maintain),
                lambda: suggestions_of(advice, self._warehouse, table, text, zone, can_maintain=can_maintain),
            )
        except LamellaError as error:
            return {**values, "suggests": True, "suggestion_problem": words.sentence(error.message)}
        return {**values, "suggests": True, "suggestions": found}

    def _parts(self, pointer: SnapshotPointer, prune_request: PruneRequest) -> Parts:
        explaining = PruneRequest(
            filter=prune_request.filter,
            limit=prune_request.limit,
            time_zone=prune_request.time_zone,
            explain=True,
            reader_features=FEATURES,
        )
        return parts_of(self._warehouse.find(pointer, explaining).answer.report)

    def _why_not(
        self, table: TableRecord, pointer: SnapshotPointer, head: Snapshot, prune_request: PruneRequest
    ) -> WhyNotAnswer | None:
        """What indexes say; None: there are none, too much to ask, or nobody to say it."""
        if self._advice is None or not head.skip_indexes or prune_request.filter is None:
            return None
        if len(head.skip_indexes) * _predicate_count(prune_request, head) > _MAX_PREDICATES:
            return None
        wanted = WhyNotRequest(
            filter=prune_request.filter, snapshot_id=pointer.snapshot_id, time_zone=prune_request.time_zone
        )
        return self._advice.why_not(table, wanted)

    def _block(self, request: Request) -> Mapping[str, Any]:
        table, typed = table_of(self._catalog, request), typed_of(request)
        pointer = self._exact_pointer(table, typed)
        warehouse = self._warehouse
        with trusted_manifests():
            head = warehouse.head(pointer)
            layer_map = warehouse.layer_maps.of(pointer)
            numbers = _BLOCK_NUMBERS.fullmatch(request.query_params.get("block", ""))
            if numbers is not None:
                if int(numbers[1]) >= len(layer_map.segment_id):
                    count = len(layer_map.segment_id)
                    raise SegmentNotFound(
                        f"the snapshot has {count} segments, numbered from 0; there is no segment {numbers[1]}"
                    )
                segment_id, number = layer_map.segment_id[int(numbers[1])], int(numbers[2])
            else:
                segment_id, number = request.query_params.get("segment", ""), number_of(request, "number")
            segment = layer_map.number_of(segment_id)
            values: dict[str, Any] = {
                "namespace": table.namespace,
                "table": table.name,
                "tab": "lab",
                "typed": typed,
                "segment": segment,
                "number": number,
                "segment_id": segment_id,
                "block_count": layer_map.blocks(segment).stop - layer_map.blocks(segment).start,
                "state": typed.state(at=pointer.snapshot_id),
                "zoom": f"{segment}.{number}",
                "snapshot_id": pointer.snapshot_id,
                "timestamp_ms": pointer.timestamp_ms,
                "why": None,
                "readable": readable,
                "max_listed": MAX_LISTED,
            }
            question = question_of(typed, head.schema)
            if question.request is None:
                return {**values, "troubles": question.troubles}
            try:
                why = warehouse.block_reasons.why(pointer, question.request, segment_id, number)
            except InvalidRequest as error:
                return {**values, "troubles": {"filter": filter_error(error, typed.filter, head.schema)}}
            pages, unread = None, None
            if why.verdict in ("SOME", "UNKNOWN"):
                pages, unread = self._pages_left(pointer, question, segment_id, number)
            return {**values, "troubles": {}, "why": why, "pages_left": pages, "unread": unread}

    def _pages_left(
        self, pointer: SnapshotPointer, question: Question, segment_id: str, number: int
    ) -> tuple[PagesWhy | None, str | None]:
        """Return what pages of a kept block remain, or why that is unknown."""
        if question.request is None or question.request.filter is None:
            return None, None
        prune_request = PruneRequest(
            filter=question.request.filter,
            time_zone=question.request.time_zone,
            level="page",
            reader_features=FEATURES,
        )
        try:
            return self._warehouse.block_reasons.why(pointer, prune_request, segment_id, number).pages, None
        except (StoreError, ManifestError) as error:
            return None, error.message

    def _pointer(self, table: TableRecord, typed: Typed) -> tuple[SnapshotPointer, dict[str, FieldError]]:
        """Return the requested snapshot; or the current one, and what is wrong with the request."""
        try:
            return self._exact_pointer(table, typed), {}
        except (InvalidRequest, SnapshotNotFound) as error:
            if "time_zone" in error.details and "timestamp" not in error.details:
                return table.pointer, {}  # reported at its own field
            return table.pointer, {"at": FieldError(error.message)}

    def _exact_pointer(self, table: TableRecord, typed: Typed) -> SnapshotPointer:
        at = typed.at
        return self._history.pointer(
            table, snapshot_id=at.snapshot_id, timestamp=at.timestamp, time_zone=typed.time_zone
        )


def _is_small(answer: Answer) -> bool:
    return sum(stage.considered for stage in answer.report.stages if stage.stage == "block") <= MAX_EXPLAINED


def _predicate_count(prune_request: PruneRequest, head: Snapshot) -> int:
    bound = bind(
        read_filter(prune_request.filter, time_zone=prune_request.time_zone),
        head.schema,
        time_zone=prune_request.time_zone,
    )
    return len(set(leaves_of(bound)))
