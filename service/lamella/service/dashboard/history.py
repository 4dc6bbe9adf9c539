"""The history of a table: its snapshots, tags, differences between two snapshots, and rollback."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord, main_name
from lamella.service.dashboard import words
from lamella.service.dashboard.pages import ROOT, Page, Pages, at_of, link, table_of, text_of
from lamella.service.dashboard.preview import Question, fact
from lamella.service.dashboard.tables import committers
from lamella.service.history.branches import Branches
from lamella.service.history.changes import ChangesQuery, ChangeStream
from lamella.service.history.history import History, instant_ms
from lamella.service.history.rollback import Rollback
from lamella.service.history.tags import Tags
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import Audit
from lamella.snapshot.errors import InvalidRequest, TagNotFound
from lamella.snapshot.wire import RollbackRequest, SnapshotChanges, TagInfo, TagRequest
from lamella.snapshot.wire.operation import on_table

_HISTORY: Final = ROOT + "/tables/{namespace}/{table}/history"
#: Most snapshots on one page, and most blocks of one difference.
_PAGE: Final = 50
_MAX_BLOCKS: Final = 200


class HistoryPages:
    """Pages of the history."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        history: History,
        changes: ChangeStream,
        rollback: Rollback,
        tags: Tags,
        branches: Branches,
        audit: Audit,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._history = history
        self._changes = changes
        self._rollback = rollback
        self._tags = tags
        self._branches = branches
        self._audit = audit
        self._pages = pages

    async def show(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._show(request))
        return self._draw(request, "history.html", values, "History")

    async def difference(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._difference(request))
        return self._draw(request, "difference.html", values, "Difference in")

    async def confirm_rollback(self, request: Request) -> Response:
        values = await self._readers.run(lambda: self._confirm_rollback(request))
        return self._draw(request, "rollback.html", values, "Roll back")

    async def roll_back(self, request: Request) -> Response:
        form = await self._pages.form(request)
        rollback_request = RollbackRequest(
            snapshot_id=form.text("to") or None, base_snapshot_id=form.text("base") or None
        )

        def work(idempotency_key: Any) -> Any:
            return self._rollback.run(table_of(self._catalog, request), rollback_request, idempotency_key)

        await self._pages.change(request, form, work)
        return self._see(request, "rolled_back")

    async def put_tag(self, request: Request) -> Response:
        form = await self._pages.form(request)
        until = form.text("until")
        tag_request = TagRequest(
            name=form.text("name"),
            snapshot_id=form.text("snapshot") or None,
            expires_at_ms=instant_ms(until, "UTC") if until else None,
            move=form.text("move") == "yes",
        )

        def work(idempotency_key: Any) -> Any:
            return self._tags.put(self._record(request), tag_request, idempotency_key)

        await self._pages.change(request, form, work)
        return self._see(request, "tagged")

    async def confirm_untag(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        names = request.path_params

        def read() -> TagInfo:
            found = next((tag for tag in self._tags.list(self._record(request)).tags if tag.name == name), None)
            if found is None:
                raise TagNotFound(f"the table has no tag {name!r}", tag=name)
            return found

        tag = await self._readers.run(read)
        table = f"{names['namespace']}.{names['table']}"
        return self._pages.question(
            request,
            Question(
                asks=f"Remove the tag {tag.name} of {table}?",
                says="The snapshot stays as long as the retention allows; after that a vacuum may delete it for good.",
                act="Remove the tag",
                back=link("tables", names["namespace"], names["table"], "history"),
                facts=(fact("Snapshot", tag.snapshot_id), fact("Of", words.moment(tag.timestamp_ms))),
                carried=(("name", tag.name),),
            ),
        )

    async def drop_tag(self, request: Request) -> Response:
        form = await self._pages.form(request)
        name = form.text("name")

        def work(idempotency_key: Any) -> Any:
            return self._tags.drop(self._record(request), name, idempotency_key)

        await self._pages.change(request, form, work)
        return self._see(request, "untagged")

    def pages(self) -> tuple[Page, ...]:
        return (
            Page(_HISTORY, self.show, "ui_history", on_table("read")),
            Page(_HISTORY + "/difference", self.difference, "ui_difference", on_table("read")),
            Page(_HISTORY + "/rollback", self.confirm_rollback, "ui_ask_rollback", on_table("maintain")),
            Page(_HISTORY + "/rollback", self.roll_back, "ui_rollback", on_table("maintain"), "POST"),
            Page(_HISTORY + "/tag", self.put_tag, "ui_put_tag", on_table("write"), "POST"),
            Page(_HISTORY + "/untag", self.confirm_untag, "ui_ask_drop_tag", on_table("write")),
            Page(_HISTORY + "/untag", self.drop_tag, "ui_drop_tag", on_table("write"), "POST"),
        )

    def _draw(self, request: Request, template: str, values: dict[str, Any], what: str) -> Response:
        names = request.path_params
        frame = {"namespace": names["namespace"], "table": names["table"], "tab": "history"}
        title = f"{what} {names['namespace']}.{names['table']}"
        return self._pages.html(request, template, {**frame, **values}, title=title)

    def _see(self, request: Request, done: str) -> Response:
        names = request.path_params
        return self._pages.see(link("tables", names["namespace"], names["table"], "history", done=done))

    def _record(self, request: Request) -> TableRecord:
        return self._catalog.table(request.path_params["namespace"], request.path_params["table"])

    def _show(self, request: Request) -> dict[str, Any]:
        record = table_of(self._catalog, request)
        token = request.query_params.get("page") or None
        found = self._history.page(record, page_size=_PAGE, page_token=token)
        oldest_first = found.snapshots[::-1]
        steps = dict(zip((each.snapshot_id for each in oldest_first), [None, *oldest_first], strict=False))
        return {
            "current_id": record.pointer.snapshot_id,
            "snapshots": found.snapshots,
            "before": steps,
            "next_page": found.next_page_token,
            "is_first_page": token is None,
            "rows_points": [(each.timestamp_ms, each.row_count) for each in oldest_first],
            "blocks_points": [(each.timestamp_ms, each.block_count) for each in oldest_first],
            "tags": self._tags.list(record).tags,
            "branches": self._branches.list(record).branches,
            "main": main_name(record.name),
            "committed_by": committers(self._audit, request, record, found.snapshots),
        }

    def _difference(self, request: Request) -> dict[str, Any]:
        record = table_of(self._catalog, request)
        versions = [at_of(request, name) for name in ("since", "until")]
        if not versions[0].text:
            raise InvalidRequest("choose two snapshots", parameter="since")
        history = self._history
        ends = [history.entry(record, snapshot_id=each.snapshot_id, timestamp=each.timestamp) for each in versions]
        first, last = sorted(ends, key=lambda entry: entry.seq)
        text = text_of(request, "filter")
        changes = self._changes_between(record, first.pointer.snapshot_id, last.pointer.snapshot_id, text)
        return {"changes": changes, "filter": text, "max_blocks": _MAX_BLOCKS, "first": first, "last": last}

    def _changes_between(self, record: TableRecord, since: str, until: str, text: str = "") -> SnapshotChanges | None:
        query = ChangesQuery(
            since=since,
            since_timestamp=None,
            until=until,
            until_timestamp=None,
            net=True,
            append_only=False,
            filter=text or None,
            columns=None,
            time_zone="UTC",
            case_sensitive=False,
            page_size=_MAX_BLOCKS,
            page_token=None,
        )
        found = self._changes.page(record, query).changes
        return found[0] if found else None

    def _confirm_rollback(self, request: Request) -> dict[str, Any]:
        record = table_of(self._catalog, request)
        to = self._history.entry(record, snapshot_id=request.query_params.get("to") or None)
        now = self._history.entry(record)
        return {
            "to": to,
            "now": now,
            "changes": self._changes_between(record, to.pointer.snapshot_id, now.pointer.snapshot_id),
            "max_blocks": _MAX_BLOCKS,
        }
