"""Some rows of a table, as the service reads them from its files, with or without a filter."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.lab_question import FieldError, Typed, column_names, filter_error, question_of, typed_of
from lamella.service.dashboard.pages import ROOT, Page, Pages, number_of, table_of
from lamella.service.history.history import History, trusted_manifests
from lamella.service.process.threads import Threads
from lamella.service.samples.samples import Samples
from lamella.snapshot.errors import (
    CorruptDeletes,
    InvalidRequest,
    LocationRefused,
    ManifestError,
    NotParquet,
    ReaderFeatureMissing,
    SchemaMismatch,
    SnapshotNotFound,
    StoreError,
)
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    MAX_SAMPLE_BLOCKS,
    MAX_SAMPLE_ROWS,
    SampleAnswer,
    SampleBound,
    SampleColumn,
    SampleRequest,
)
from lamella.snapshot.wire.operation import on_table

_ROWS: Final = 20
_MORE_ROWS: Final = (100, MAX_SAMPLE_ROWS)
_BLOCKS: Final = 16
#: Columns that are shown if none are named.
MAX_COLUMNS: Final = 40
_MAX_MS: Final = 4_000.0
#: Longer values take several lines; or are expanded; or are cut.
_LINE_CHARACTERS: Final = 48
_SHORT_CHARACTERS: Final = 160
_MAX_CHARACTERS: Final = 10_000
#: Characters of all values on a page.
_MAX_PAGE_CHARACTERS: Final = 2_000_000
_NUMBERS: Final = ("int", "uint", "float", "decimal")
#: Errors of the table's files, not of the request.
_OF_FILES: Final = (
    NotParquet,
    CorruptDeletes,
    SchemaMismatch,
    LocationRefused,
    ManifestError,
    ReaderFeatureMissing,
    StoreError,
)
_STOPPED: Final[dict[SampleBound, str]] = {
    "rows": "There are more rows than are shown.",
    "blocks": "The other blocks were not read, and may have further rows.",
    "bytes": "Further rows need more bytes of files than one sample may read; fewer columns need fewer.",
    "time": "The time for one sample was over; what is not shown was not read.",
    "answer_bytes": "Further rows do not fit into one answer; fewer columns leave room for more rows.",
}


class Cell(msgspec.Struct, frozen=True):
    """A value as text. ``kind``: "null", "empty" (a text without characters), "number" or "". ``expanded``: the whole
    text of a long value; ``cut``: how many characters are missing even there."""

    text: str
    kind: str = ""
    expanded: str = ""
    cut: int = 0

    @property
    def is_long(self) -> bool:
        """Return whether its text takes more than one line."""
        return len(self.text) > _LINE_CHARACTERS or "\n" in self.text


class RowPages:
    """The page; ``sampling`` are the threads that read samples."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        sampling: Threads,
        samples: Samples,
        history: History,
        warehouse: Warehouse,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._sampling = sampling
        self._samples = samples
        self._history = history
        self._warehouse = warehouse
        self._pages = pages

    async def show(self, request: Request) -> Response:
        found = await self._sampling.run(lambda: self._show(request))
        return self._pages.html(request, "rows.html", found, title=f"Rows of {found['namespace']}.{found['table']}")

    def pages(self) -> tuple[Page, ...]:
        return (Page(ROOT + "/tables/{namespace}/{table}/rows", self.show, "ui_rows", on_table("read")),)

    def _show(self, request: Request) -> Mapping[str, Any]:
        table, typed = table_of(self._catalog, request), typed_of(request)
        rows = number_of(request, "rows", _ROWS, MAX_SAMPLE_ROWS) or _ROWS
        blocks = number_of(request, "blocks", _BLOCKS, MAX_SAMPLE_BLOCKS) or _BLOCKS
        values: dict[str, Any] = {
            "namespace": table.namespace,
            "table": table.name,
            "tab": "rows",
            "typed": typed,
            "rows": rows,
            "blocks": blocks,
            "troubles": {},
            "columns": (),
            "is_on": self._samples.is_on,
            "problem": "",
            "sample": None,
        }
        if not self._samples.is_on:
            return values
        try:
            pointer = self._history.pointer(
                table, snapshot_id=typed.at.snapshot_id, timestamp=typed.at.timestamp, time_zone=typed.time_zone
            )
        except (InvalidRequest, SnapshotNotFound) as error:
            return {**values, "troubles": {"at": FieldError(error.message)}}
        with trusted_manifests():
            head = self._warehouse.head(pointer)
        values["columns"] = column_names(head)
        values["lists"] = self._pages.names.of_table(table, head)
        question = question_of(msgspec.structs.replace(typed, limit=""), head.schema)
        if question.request is None:
            return {**values, "troubles": question.troubles}
        names = [column.name for column in head.schema.columns]
        wanted = question.request.columns
        if wanted is None and len(names) > MAX_COLUMNS:
            wanted = tuple(names[:MAX_COLUMNS])
        sample_request = SampleRequest(
            filter=question.request.filter,
            columns=wanted,
            rows=rows,
            snapshot_id=pointer.snapshot_id,
            time_zone=typed.time_zone,
            max_blocks=blocks,
            max_ms=_MAX_MS,
        )
        try:
            answer = self._samples.read(table, sample_request)
        except _OF_FILES as error:
            return {**values, "problem": words.sentence(error.message)}
        except InvalidRequest as error:
            return {**values, "troubles": _trouble(error, typed, head.schema)}
        return {
            **values,
            "sample": answer,
            "numbers": _NUMBERS,
            "lines": cells(answer),
            "says": said(answer, has_filter=bool(typed.filter)),
            "more_rows": [each for each in _MORE_ROWS if each > rows] if answer.stopped == "rows" else [],
            "more_blocks": min(blocks * 8, MAX_SAMPLE_BLOCKS) if answer.stopped == "blocks" else None,
            "hidden_columns": len(names) - MAX_COLUMNS if question.request.columns is None else 0,
            "command": command_of(table, typed, sample_request),
        }


def _trouble(error: InvalidRequest, typed: Typed, schema: Schema) -> dict[str, FieldError]:
    """Return an error beside the field that it is about; a column may be named in the filter, too."""
    column = error.details.get("column")
    if typed.columns and (not typed.filter or (column is not None and str(column) not in typed.filter)):
        return {"columns": FieldError(words.sentence(error.message))}
    return {"filter": filter_error(error, typed.filter, schema)}


def said(answer: SampleAnswer, *, has_filter: bool) -> str:
    """Return what was read, and whether the rows are all, in words."""
    rows = words.plural(len(answer.rows), "row")
    of = " that may match" if has_filter else ""
    blocks = f"{words.count(answer.blocks_read)} of {words.plural(answer.blocks_selected, 'block')}{of}"
    read = f"Read: {blocks}, {words.size(answer.bytes_read)}."
    if answer.stopped is not None:
        return f"{rows}. {read} {_STOPPED[answer.stopped]}"
    return f"{rows}, {'all that match' if has_filter else 'all of the table'}. {read}"


def command_of(table: TableRecord, typed: Typed, request: SampleRequest) -> str:
    """Return the same sample as a command."""
    parts = ["lamella", "sample", f"{table.namespace}.{table.name}", "--rows", str(request.rows)]
    if typed.filter:
        parts += ["--where", typed.filter]
    if request.columns is not None:
        parts += ["--columns", ",".join(request.columns)]
    if typed.at.timestamp is not None:
        parts += ["--timestamp", typed.at.timestamp]
    elif typed.at.snapshot_id is not None:
        parts += ["--snapshot", typed.at.snapshot_id]
    if typed.zone:
        parts += ["--time-zone", typed.zone]
    if request.max_blocks != _BLOCKS:
        parts += ["--max-blocks", str(request.max_blocks)]
    return shlex.join(parts)


def cells(answer: SampleAnswer) -> list[list[Cell]]:
    """Return the rows as cells; those that do not fit on a page are left out of the end."""
    left = _MAX_PAGE_CHARACTERS
    found: list[list[Cell]] = []
    forms = [_form_of(column) for column in answer.columns]
    for row in answer.rows:
        line = [form(value) for form, value in zip(forms, row, strict=True)]
        left -= sum(len(each.text) + len(each.expanded) for each in line)
        if left < 0 and found:
            break
        found.append(line)
    return found


def _form_of(column: SampleColumn) -> Callable[[Any], Cell]:
    is_number = column.type.startswith(_NUMBERS)
    return lambda value: _cell(value, is_number=is_number)


def _cell(value: Any, *, is_number: bool) -> Cell:
    if value is None:
        return Cell("null", "null")
    if value == "":
        return Cell("empty", "empty")
    if is_number:
        return Cell(str(value), "number")
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) <= _SHORT_CHARACTERS:
        return Cell(text)
    return Cell(text[:_SHORT_CHARACTERS], "", text[:_MAX_CHARACTERS], max(len(text) - _MAX_CHARACTERS, 0))
