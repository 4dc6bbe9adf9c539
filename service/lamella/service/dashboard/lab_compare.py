"""Compares two prunes: of two snapshots or tables, or of a table now and after a possible change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request

from lamella.service.access import Principal, check, principal_of
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.dashboard import words
from lamella.service.dashboard.indexes import SAMPLED
from lamella.service.dashboard.lab_answer import Figures, StageLine, answer_of
from lamella.service.dashboard.lab_question import FieldError, Typed, filter_error, question_of, typed_of
from lamella.service.dashboard.pages import At, one_of, table_of, text_of
from lamella.service.dashboard.preview import (
    CHEAP_S,
    MAX_READY,
    WAIT_S,
    BackgroundFigures,
    WhenClosing,
    cheap_sample,
    within,
)
from lamella.service.features import Advisor
from lamella.service.history.history import History, trusted_manifests
from lamella.snapshot.errors import InvalidRequest, LamellaError, NotFound, StoreError, Unavailable
from lamella.snapshot.index import kinds
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.schema.column import split_key
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.layer_map import LayerMaps
from lamella.snapshot.wire import Cost, IndexChange, WhatIfAnswer, WhatIfRequest

_WITH: Final = ("snapshot", "index", "key", "rows")
#: Most blocks that a page reads for a sample.
MAX_SAMPLED: Final = 200
_FIELDS: Final = ("other_table", "other_at", "kind", "expression", "key", "rows", "sample")


class Side(msgspec.Struct, frozen=True):
    """One prune."""

    table: str
    at: str
    pointer: SnapshotPointer
    figures: Figures
    stages: tuple[StageLine, ...]


class Wrong(Exception):
    """An error of a field of the form. Never leaves this module."""

    def __init__(self, field: str, trouble: FieldError | str) -> None:
        super().__init__(field)
        self.field = field
        self.trouble = FieldError(words.sentence(trouble)) if isinstance(trouble, str) else trouble


class LabComparison:
    """Makes the comparison."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        advice: Advisor | None,
        history: History,
        warehouse: Warehouse,
        when_closing: WhenClosing,
    ) -> None:
        self._catalog = catalog
        self._advice = advice
        self._history = history
        self._warehouse = warehouse
        self._predicted: BackgroundFigures[WhatIfAnswer] = BackgroundFigures(
            when_closing, MAX_READY, name="ui-foretold"
        )

    def show(self, request: Request) -> Mapping[str, Any]:
        """What the page shows; raises what reading a table raises."""
        table, typed = table_of(self._catalog, request), typed_of(request)
        given = {name: text_of(request, name) for name in _FIELDS}
        chosen = one_of(request, "with", ("", *_WITH) if self._advice is not None else ("", "snapshot"))
        values: dict[str, Any] = {
            "namespace": table.namespace,
            "table": table.name,
            "tab": "lab",
            "typed": typed,
            "given": given,
            "chosen": chosen,
            "can_foretell": self._advice is not None,
            "kinds": sorted(kinds()),
            "max_sampled": MAX_SAMPLED,
            "troubles": {},
            "sides": (),
            "what_if": None,
            "waits": False,
            "sentences": (),
        }
        if not chosen:
            return values
        try:
            if not typed.filter:
                raise Wrong("filter", "Give a filter")
            if chosen == "snapshot" or self._advice is None:
                return {**values, **self._sides(principal_of(request), table, typed, given)}
            return {**values, **self._what_if(self._advice, table, typed, given, chosen)}
        except Wrong as error:
            return {**values, "troubles": {error.field: error.trouble}}

    def _sides(self, by: Principal, table: TableRecord, typed: Typed, given: Mapping[str, str]) -> dict[str, Any]:
        other = table
        if given["other_table"]:
            namespace, _, name = given["other_table"].rpartition(".")
            try:
                check(by, "read", namespace, name)
                other = current_table(self._catalog, namespace, name)
            except (NotFound, InvalidRequest) as error:
                raise Wrong("other_table", error.message) from error
        left = self._side(table, typed, typed.at, "at")
        right = self._side(other, typed, At(given["other_at"]), "other_at")
        return {"sides": (left, right), "sentences": differences(left.figures, right.figures)}

    def _side(self, table: TableRecord, typed: Typed, at: At, field: str) -> Side:
        pointer = self._pointer(table, at, typed, field)
        warehouse = self._warehouse
        with trusted_manifests():
            schema = warehouse.head(pointer).schema
            question = question_of(msgspec.structs.replace(typed, columns="", limit=""), schema)
            if question.request is None:
                raise Wrong(*next(iter(question.troubles.items())))
            try:
                found = warehouse.find(pointer, question.request)
            except InvalidRequest as error:
                trouble = filter_error(error, typed.filter, schema)
                message = f"{trouble.message} (in {table.namespace}.{table.name})"
                raise Wrong("filter", msgspec.structs.replace(trouble, message=message)) from error
            layer_map = warehouse.layer_maps.of(pointer)
            answer = answer_of(found, layer_map, LayerMaps.verdicts(found, layer_map))
        return Side(f"{table.namespace}.{table.name}", at.text, pointer, answer.figures, answer.stages)

    def _what_if(
        self, advice: Advisor, table: TableRecord, typed: Typed, given: Mapping[str, str], chosen: str
    ) -> dict[str, Any]:
        pointer = self._pointer(table, typed.at, typed, "at")
        # the filter is parsed first, so that its errors are shown next to it
        self._side(table, typed, typed.at, "at")
        request = WhatIfRequest(
            filters=(typed.filter,),
            snapshot_id=pointer.snapshot_id,
            time_zone=typed.time_zone,
            sample_blocks=_number(given, "sample", "0", 0, MAX_SAMPLED),
        )
        reads_itself = not given["sample"]
        field = {"index": "expression", "key": "key", "rows": "rows"}[chosen]
        if not given[field]:
            raise Wrong(field, "This field is required")
        if chosen == "index":
            change = IndexChange(kind=given["kind"], expression=given["expression"], time_zone=typed.time_zone)
            request = msgspec.structs.replace(request, index=change)
        elif chosen == "key":
            columns = split_key(given["key"])
            request = msgspec.structs.replace(request, cluster_key=columns)
        else:
            request = msgspec.structs.replace(request, rows_per_block=_number(given, "rows", "", 1, 1 << 40))
        try:
            answer = self._predicted.peek(
                (table.table_id, msgspec.json.encode(request), reads_itself),
                lambda: _forecast(advice, table, request, reads_itself=reads_itself),
                wait_s=WAIT_S,
            )
        except InvalidRequest as error:
            raise Wrong(field, error.message) from error
        if answer is None:
            return {"waits": True}
        can_sample = not answer.measured and "sample_blocks" in answer.filters[0].reason
        return {
            "what_if": answer,
            "sentences": forecast(answer),
            "forecast": answer.filters[0],
            "sampled": SAMPLED if can_sample else None,
        }

    def _pointer(self, table: TableRecord, at: At, typed: Typed, field: str) -> SnapshotPointer:
        try:
            return self._history.pointer(
                table, snapshot_id=at.snapshot_id, timestamp=at.timestamp, time_zone=typed.time_zone
            )
        except (InvalidRequest, NotFound) as error:
            raise _in_field(error, field) from error


def _forecast(advice: Advisor, table: TableRecord, request: WhatIfRequest, *, reads_itself: bool) -> WhatIfAnswer:
    """Return what a change would do; with ``reads_itself`` from a sample of blocks, if these are small and manifests
    cannot tell."""
    answer = advice.what_if(table, request)
    sampled = cheap_sample(answer.blocks_total, answer.bytes_total)
    if not (reads_itself and answer.unknown and sampled):
        return answer
    try:
        with within(CHEAP_S):
            return advice.what_if(table, msgspec.structs.replace(request, sample_blocks=sampled))
    except (StoreError, Unavailable):
        return answer  # the page offers to read it


def differences(left: Figures, right: Figures) -> tuple[str, ...]:
    """Return the differences of the right side, in words."""
    return (
        f"{_more(left.blocks, right.blocks, words.plural(abs(right.blocks - left.blocks), 'block'), 'fewer')}: "
        f"{words.percent(right.block_share)} of its blocks instead of {words.percent(left.block_share)}.",
        f"{_more(left.bytes, right.bytes, words.size(abs(right.bytes - left.bytes)), 'less')}: "
        f"{words.percent(right.byte_share)} of its bytes instead of {words.percent(left.byte_share)}.",
    )


def forecast(answer: WhatIfAnswer) -> tuple[str, ...]:
    """Return the effect of a change, in words."""
    now, then = answer.now, answer.then
    if then is None:
        return (f"What the filter would read cannot be predicted: {answer.filters[0].reason}.",)
    how = f"Measured on {words.plural(answer.blocks_read, 'block')}" if answer.measured else "Estimated from statistics"
    return (
        f"{_effect(now, then)} {how}.",
        f"It would skip {words.percent(then.skip)} of the blocks instead of {words.percent(now.skip)}.",
    )


def _effect(now: Cost, then: Cost) -> str:
    saved = now.bytes - then.bytes
    if abs(saved) < 1:
        return "The filter would read as many bytes as now."
    verb = "fewer" if saved > 0 else "more"
    share = f" ({words.percent(abs(saved) / now.bytes)})" if now.bytes else ""
    return f"The filter would read {words.size(abs(saved))} {verb}{share}."


def _more(left: float, right: float, text: str, fewer: str) -> str:
    if left == right:
        return "The right one reads as much"
    share = f" ({words.percent(abs(right - left) / left)})" if left else ""
    return f"The right one reads {text} {'more' if right > left else fewer}{share}"


def _number(given: Mapping[str, str], name: str, default: str, minimum: int, maximum: int) -> int:
    text = given[name] or default
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and minimum <= int(text) <= maximum):
        raise Wrong(name, f"Enter a number from {minimum:,} to {maximum:,}")
    return int(text)


def _in_field(error: LamellaError, field: str) -> Wrong:
    if "time_zone" in error.details and "timestamp" not in error.details:
        field = "zone"
    return Wrong(field, error.message)
