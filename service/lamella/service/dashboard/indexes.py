"""Forms to create an index, with its cost and benefit, to drop one, and to restore a dropped one.

The preview uses manifests. If they cannot tell what an index would skip, a few blocks are read and indexed in memory,
if they are small enough; otherwise a button does that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from statistics import fmean
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.forms import KEY, Form
from lamella.service.dashboard.job_fields import Field, filled, option_field, with_problem
from lamella.service.dashboard.pages import ROOT, Page, Pages, link, table_of
from lamella.service.dashboard.preview import (
    CHEAP_S,
    FRESH_S,
    MAX_READY,
    MEASURE,
    WAIT_S,
    BackgroundFigures,
    Column,
    Fact,
    Listing,
    Preview,
    WhenClosing,
    cheap_sample,
    fact,
    shortened,
    within,
)
from lamella.service.features import Advisor
from lamella.service.history.history import trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.http.problem import status_of
from lamella.service.indexes.indexes import Indexes
from lamella.service.jobs.queue import JobQueue
from lamella.service.process.threads import Threads
from lamella.snapshot.concurrency import is_deadline_exceeded
from lamella.snapshot.errors import (
    AlreadyExists,
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    StoreError,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.index.definition import defined
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    AdviceRequest,
    Cost,
    CreateIndex,
    Forecast,
    IndexChange,
    IndexKind,
    IndexSize,
    JobInfo,
    SubmitJob,
    WhatIfAnswer,
    WhatIfRequest,
)
from lamella.snapshot.wire.operation import on_table

_RECORDED: Final = 50
#: Blocks that are read on request.
SAMPLED: Final = 32
_LISTED: Final = 20
_COLUMNS: Final = (
    Column(name="Filter"),
    Column(name="Times", is_number=True),
    Column(name="Reads now", is_number=True),
    Column(name="With the index", is_number=True),
)


def size_of(advice: Advisor, table: TableRecord, change: IndexChange) -> IndexSize | None:
    """How large an index would be over all blocks; None: that cannot be told beforehand.

    Raises LamellaError.
    """
    # any filter will do: its result is not used
    question = WhatIfRequest(index=change, filters=(f"({change.expression}) IS NOT NULL",), time_zone=change.time_zone)
    return advice.what_if(table, question).size


def index_preview(
    indexes: Indexes,
    warehouse: Warehouse,
    advice: Advisor | None,
    table: TableRecord,
    request: CreateIndex,
    *,
    measures: bool = False,
) -> Preview:
    """What comes of an index, by what the manifests and the recorded filters say; else by a sample of blocks, if these
    are small, or if ``measures`` says to read them anyway.

    Raises:
        AlreadyExists: the name is taken, perhaps by a dropped index.
        InvalidRequest, InvalidFilter, UnknownColumn: the name, kind, options or expression.
    """
    taken = {index.name.lower() for index in indexes.list(table, dropped=True).indexes}
    if request.name.lower() in taken:
        raise AlreadyExists(
            f"the table has an index {request.name!r} already, perhaps a dropped one", name=request.name
        )
    with trusted_manifests():
        head = warehouse.head(table.pointer)
    made = defined(
        index_id="",
        name=request.name,
        kind=request.kind,
        expression=request.expression,
        options=request.options,
        schema=head.schema,
        time_zone=request.time_zone,
        now_ms=0,
    )
    change = IndexChange(kind=made.kind, expression=made.expression, options=made.options, time_zone=request.time_zone)
    blocks = head.summary.block_count
    facts = [fact("Over", f"{made.expression} ({made.dtype})"), fact("Blocks to index", blocks)]
    if not blocks:
        return Preview(says="The table has no blocks yet. Commits index what they add.", facts=tuple(facts))
    if advice is None:
        return Preview(
            says=f"{words.plural(blocks, 'block')} are indexed by a job.",
            facts=tuple(facts),
            notes=("This service gives no advice, so what filters would gain is not known.",),
        )
    filters = advice.recorded(table).filters
    answer: WhatIfAnswer | None = None
    unread = ""
    if filters:
        sampled = SAMPLED if measures else cheap_sample(blocks, head.summary.compressed_byte_size)
        try:
            answer, unread = _predicted(advice, table, change, sampled, within_s=None if measures else CHEAP_S)
        except InvalidRequest:
            answer = None  # none of those that were recorded can be asked again
    size = size_of(advice, table, change) if answer is None else answer.size
    facts += _size_facts(size)
    facts += _score_facts(advice, table, change, {leaf.name for leaf in head.schema.leaves()})
    if answer is None:
        return Preview(
            says=f"A job will index {words.plural(blocks, 'block')}.",
            facts=tuple(facts),
            notes=("There is no recorded filter that can be replayed, so the benefit is unknown.",),
        )
    facts.append(fact("A recorded filter reads now", _cost(answer.now)))
    facts.append(fact("With the index", words.UNKNOWN_VALUE if answer.then is None else _cost(answer.then)))
    filters_then = _by_filter(answer.filters)
    return Preview(
        says=_effect(answer, filters_then),
        tone="good" if any(each.is_helped for each in filters_then) else "warn",
        facts=tuple(facts),
        listing=Listing(
            caption="Recorded filters, those with the largest gain first",
            columns=_COLUMNS,
            rows=tuple(
                (shortened(each.filter, 300), words.count(each.times), _blocks(each.now), each.text)
                for each in filters_then[:_LISTED]
            ),
        ),
        notes=(
            f"Measured with an index in memory over {words.plural(answer.blocks_read, 'block')} that were read."
            if answer.measured
            else "Estimated from the manifests; no data was read.",
            *((unread,) if unread else ()),
        ),
        measure="" if answer.measured or not answer.unknown else _measure_text(blocks, head),
    )


def _measure_text(blocks: int, head: Snapshot) -> str:
    count = min(SAMPLED, blocks)
    size_bytes = head.summary.compressed_byte_size / blocks * count
    return f"Read {words.plural(count, 'block')} (about {words.size(size_bytes)}) and measure"


def _predicted(
    advice: Advisor, table: TableRecord, change: IndexChange, sampled: int, *, within_s: float | None
) -> tuple[WhatIfAnswer, str]:
    """What the recorded filters would read: by the manifests, or by a sample of ``sampled`` blocks where these cannot
    tell of some filter; and why no sample was read although it was to be."""
    question = WhatIfRequest(index=change, recorded=_RECORDED)
    answer = advice.what_if(table, question)
    if not answer.unknown or not sampled:
        return answer, ""
    try:
        with nullcontext() if within_s is None else within(within_s):
            return advice.what_if(table, msgspec.structs.replace(question, sample_blocks=sampled)), ""
    except StoreError as error:  # it stays unknown
        return answer, f"A sample of blocks cannot be read now: {error.message}"
    except Unavailable as error:
        if not is_deadline_exceeded(error):
            raise
        return answer, "Reading a sample of blocks took too long."


def _effect(answer: WhatIfAnswer, filters: Sequence[_Then]) -> str:
    """Return the effect on the filters in a sentence or two."""
    helped, unknown = sum(each.is_helped for each in filters), sum(each.then is None for each in filters)
    many = words.plural(len(filters), "recorded filter")
    untold = f"The effect on {unknown} of {many} is unknown." if unknown else ""
    if unknown == len(filters):
        return f"The benefit of the index cannot be predicted: {answer.filters[0].reason}."
    if helped and answer.then is not None:
        gain = f"{max(answer.now.blocks - answer.then.blocks, 0):,.1f} blocks"
        return f"It helps {helped} of {many}: {gain} less on average. {untold}".rstrip()
    return f"The index helps none of the {words.plural(len(filters) - unknown, 'recorded filter')}. {untold}".rstrip()


class _Then(msgspec.Struct, frozen=True):
    """A filter, and how many blocks it reads now and with the index, averaged over the sampled constants.

    ``then`` None: unknown, for the ``reason``.
    """

    filter: str
    times: int
    now: float
    then: float | None
    reason: str

    @property
    def is_helped(self) -> bool:
        """Return whether it would read less."""
        return self.then is not None and self.then < self.now

    @property
    def gain(self) -> float:
        """Return the number of blocks that all its uses would no longer read."""
        return 0.0 if self.then is None else (self.now - self.then) * self.times

    @property
    def text(self) -> str:
        """Return what it would read, in words."""
        return f"{words.UNKNOWN_VALUE}: {self.reason}" if self.then is None else _blocks(self.then)


def _by_filter(forecasts: Sequence[Forecast]) -> list[_Then]:
    """Return the filters, those with the largest gain first. A filter without constants was tried with several."""
    by_text: dict[str, list[Forecast]] = {}
    for each in forecasts:
        by_text.setdefault(each.filter, []).append(each)
    found = []
    for text, same in by_text.items():
        known = [(each.now.blocks, each.then.blocks) for each in same if each.then is not None]
        found.append(
            _Then(
                filter=text,
                times=max(each.times for each in same),
                now=fmean(now for now, _ in known) if known else fmean(each.now.blocks for each in same),
                then=fmean(then for _, then in known) if known else None,
                reason=next((each.reason for each in same if each.reason), ""),
            )
        )
    return sorted(found, key=lambda each: -each.gain)


def _blocks(count: float) -> str:
    return f"{words.count(round(count, 1))} blocks"


def _size_facts(size: IndexSize | None) -> list[Fact]:
    if size is None or size.size_bytes is None:
        reason = "" if size is None or not size.reason else f": {size.reason}"
        return [fact("Size", f"cannot be predicted{reason}")]
    prefix = "" if size.is_counted else "at most "
    share = "" if size.share is None else f", {words.percent(size.share)} of the data"
    return [
        fact("Size", f"{prefix}{words.size(size.size_bytes)}{share}"),
        fact("Bytes per block", f"{prefix}{words.size(size.bytes_per_block)}"),
        fact("Distinct values per block", f"{prefix}{words.count(round(size.distinct_per_block, 1))}"),
    ]


def _score_facts(advice: Advisor, table: TableRecord, change: IndexChange, columns: set[str]) -> list[Fact]:
    """How much such an index skips beyond bounds; only known of plain columns."""
    if change.expression not in columns:
        return []
    question = AdviceRequest(columns=(change.expression,), kinds=(change.kind,), options={change.kind: change.options})
    for score in advice.advise(table, question).scores:
        if score.kind != change.kind or score.layer != "block":
            continue
        score_text = f"{score.min_score:.0f} to {score.max_score:.0f}" if score.score is None else f"{score.score:.0f}"
        if math.isclose(score.min_score, 0) and math.isclose(score.max_score, 100) and score.score is None:
            score_text = "unknown from manifests"
        reason = f" ({score.reason})" if score.reason else ""
        return [fact("Score, of 100", score_text + reason)]
    return []


def _cost(cost: Cost) -> str:
    return f"{words.count(round(cost.blocks, 1))} blocks, {words.size(cost.bytes)}"


INDEXES: Final = ROOT + "/tables/{namespace}/{table}/indexes"
_NEW: Final = INDEXES + "/new"
_ONE: Final = INDEXES + "/{index}"
_MAX_COLUMNS: Final = 500
_JOB: Final = msgspec.json.Decoder(JobInfo)
_OF_EXPRESSION: Final = (InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded)


class IndexForm(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an index in a form or an address, valid or not."""

    kind: IndexKind
    fields: tuple[Field, ...]
    values: dict[str, Any]
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Return whether no error was found."""
        return not self.problem and not any(each.problem for each in self.fields)

    @property
    def request(self) -> CreateIndex:
        """Return the request for the service; the fields must be valid."""
        options = {name: value for name, value in self.values.items() if name not in _PLAIN_NAMES}
        return CreateIndex(
            name=self.values["name"],
            kind=self.kind.name,
            expression=self.values["expression"],
            options=options,
            time_zone=self.values.get("time_zone", "UTC"),
        )

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """Return all fields, for a form that sends them again."""
        return (("kind", self.kind.name), *((each.parameter, each.text) for each in self.fields if each.text))


_PLAIN: Final = (
    Field(
        name="name",
        parameter="name",
        label="Name",
        help="A word of letters, digits and _.",
        type=str,
        required=True,
    ),
    Field(
        name="expression",
        parameter="expression",
        label="Over",
        help="A column, or an expression of the filter language such as lower(name).",
        type=str,
        required=True,
    ),
    Field(
        name="time_zone",
        parameter="time_zone",
        label="Time zone",
        help="Time zone of functions in the expression that need one. Default: UTC.",
        type=str,
        advanced=True,
    ),
)
_PLAIN_NAMES: Final = frozenset(field.name for field in _PLAIN)


class IndexChangePages:
    """Pages of the forms, and their actions."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        advice: Advisor | None,
        readers: Threads,
        warehouse: Warehouse,
        indexes: Indexes,
        jobs: JobQueue,
        when_closing: WhenClosing,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._advice = advice
        self._readers = readers
        self._warehouse = warehouse
        self._indexes = indexes
        self._jobs = jobs
        self._pages = pages
        self._ready: BackgroundFigures[Preview] = BackgroundFigures(
            when_closing, MAX_READY, name="ui-index-previews", fresh_s=FRESH_S
        )

    async def show_new(self, request: Request) -> Response:
        kind = self._kind(request.query_params.get("kind", ""))
        if kind is None:
            record = await self._readers.run(lambda: table_of(self._catalog, request))
            values = {"namespace": record.namespace, "table": record.name, "tab": "indexes"}
            kinds = self._indexes.kinds().kinds
            return self._pages.html(request, "index_kinds.html", {**values, "kinds": kinds}, title="New index")
        index_form, preview, waits = _read_form(kind, request.query_params), None, False
        if "preview" in request.query_params and index_form.is_right:
            try:
                preview = await self._readers.run(lambda: self._preview(request, index_form.request))
                waits = preview is None
            except (InvalidRequest, AlreadyExists) as error:
                index_form = _with_error(index_form, error)
        return await self._render(request, index_form, preview, waits=waits)

    async def create(self, request: Request) -> Response:
        form = await self._pages.form(request)
        kind = self._kind(form.text("kind"))
        if kind is None:
            raise InvalidRequest(f"there is no index kind {form.text('kind')!r}", parameter="kind")
        index_form = _read_form(kind, form.fields)
        if not index_form.is_right:
            return await self._render(request, index_form, None, status=400)

        def work(idempotency_key: IdempotencyKey) -> Pending:
            return self._indexes.create(table_of(self._catalog, request), index_form.request, idempotency_key)

        try:
            await self._pages.change(request, form, work)
        except (InvalidRequest, AlreadyExists) as error:
            return await self._render(request, _with_error(index_form, error), None, status=status_of(type(error)))
        names = request.path_params
        job = SubmitJob(
            kind="index_refresh",
            table=f"{names['namespace']}.{names['table']}",
            arguments={"index": index_form.request.name},
            unique=True,
        )
        # the same form, and another action that runs once for it
        job_form = form if form.key is None else Form({**form.fields, KEY: f"{form.key}.fill"}, form.body)
        done = await self._pages.change(
            request, job_form, lambda idempotency_key: self._jobs.submit(job, idempotency_key)
        )
        return self._pages.see(link("jobs", _JOB.decode(done).job_id, done="index_made"))

    async def show_drop(self, request: Request) -> Response:
        return await self._confirm(request, "index_drop.html", "Drop index")

    async def show_restore(self, request: Request) -> Response:
        return await self._confirm(request, "index_restore.html", "Restore index")

    async def drop(self, request: Request) -> Response:
        return await self._changed(request, self._indexes.drop, "index_dropped")

    async def restore(self, request: Request) -> Response:
        return await self._changed(request, self._indexes.restore, "index_restored")

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(_NEW, self.show_new, "ui_new_index", on_table("maintain")),
            Page(_NEW, self.create, "ui_create_index", on_table("maintain"), "POST"),
            Page(_ONE + "/drop", self.show_drop, "ui_index_to_drop", on_table("maintain")),
            Page(_ONE + "/drop", self.drop, "ui_drop_index", on_table("maintain"), "POST"),
            Page(_ONE + "/restore", self.show_restore, "ui_index_to_restore", on_table("maintain")),
            Page(_ONE + "/restore", self.restore, "ui_restore_index", on_table("maintain"), "POST"),
        )

    def _preview(self, request: Request, wanted: CreateIndex) -> Preview | None:
        """What comes of an index; None: that is being worked out, and takes longer than a page may."""
        record = table_of(self._catalog, request)
        measures = bool(request.query_params.get(MEASURE))
        key = (record.table_id, record.pointer.snapshot_id, msgspec.json.encode(wanted, order="sorted"), measures)
        return self._ready.peek(
            key,
            lambda: index_preview(self._indexes, self._warehouse, self._advice, record, wanted, measures=measures),
            wait_s=WAIT_S,
        )

    def _kind(self, name: str) -> IndexKind | None:
        return next((each for each in self._indexes.kinds().kinds if each.name == name), None)

    async def _render(
        self,
        request: Request,
        index_form: IndexForm,
        preview: Preview | None,
        *,
        status: int | None = None,
        waits: bool = False,
    ) -> Response:
        def read() -> dict[str, Any]:
            record = table_of(self._catalog, request)
            with trusted_manifests():
                leaves = self._warehouse.head(record.pointer).schema.leaves()
            columns = tuple(leaf.name for leaf in leaves[:_MAX_COLUMNS])
            return {
                "namespace": record.namespace,
                "table": record.name,
                "tab": "indexes",
                "index_form": index_form,
                "plain": [_suggested(each, columns) for each in index_form.fields if not each.advanced],
                "advanced": [each for each in index_form.fields if each.advanced],
                "preview": preview,
                "waits": waits,
            }

        values = await self._readers.run(read)
        wrong = "preview" in request.query_params and preview is None and not waits
        return self._pages.html(
            request, "index_new.html", values, status=status or (400 if wrong else 200), title="New index"
        )

    async def _confirm(self, request: Request, template: str, title: str) -> Response:
        def read() -> dict[str, Any]:
            record = table_of(self._catalog, request)
            info = self._indexes.show(record, request.path_params["index"])
            return {"namespace": record.namespace, "table": record.name, "tab": "indexes", "index": info}

        values = await self._readers.run(read)
        return self._pages.html(request, template, values, title=f"{title} {values['index'].name}")

    async def _changed(self, request: Request, change: Any, done: str) -> Response:
        form = await self._pages.form(request)
        names = request.path_params

        def work(idempotency_key: IdempotencyKey) -> Pending:
            pending: Pending = change(table_of(self._catalog, request), names["index"], idempotency_key)
            return pending

        await self._pages.change(request, form, work)
        return self._pages.see(link("tables", names["namespace"], names["table"], "indexes", done=done))


def _read_form(kind: IndexKind, texts: Mapping[str, str]) -> IndexForm:
    """Read the fields of a form or an address. Missing fields are reported only for a submitted form."""
    fields, values = filled((*_PLAIN, *(option_field(option) for option in kind.options)), texts)
    if "preview" not in texts and KEY not in texts:
        fields = tuple(msgspec.structs.replace(each, problem=each.problem if each.text else "") for each in fields)
    return IndexForm(kind=kind, fields=fields, values=values)


def _with_error(index_form: IndexForm, error: LamellaError) -> IndexForm:
    """Return the fields with an error next to the field that it is about, or above all of them."""
    names = [name for name in error.details if name in {field.name for field in index_form.fields}]
    if isinstance(error, _OF_EXPRESSION):
        names = ["expression"]
    at = error.details.get("position") if names == ["expression"] else None
    fields = with_problem(index_form.fields, names[0], error.message, at) if names else None
    if fields is None:
        return msgspec.structs.replace(index_form, problem=error.message)
    return msgspec.structs.replace(index_form, fields=fields)


def _suggested(field: Field, columns: tuple[str, ...]) -> Field:
    return msgspec.structs.replace(field, suggestions=columns) if field.name == "expression" else field
