"""What could be done for a table, the best first: what it would change, its cost, its command, and the way to do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.health import Action
from lamella.service.dashboard.job_fields import texts_of
from lamella.service.dashboard.pages import ROOT, Page, Pages, link, number_of, table_of
from lamella.service.dashboard.preview import (
    FRESH_S,
    MAX_READY,
    WAIT_S,
    BackgroundFigures,
    Fact,
    WhenClosing,
    fact,
    shortened,
)
from lamella.service.features import Advisor
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.job_kinds import job_kind_named
from lamella.snapshot.wire import Candidate, CandidateGain, CandidatesAnswer, CandidatesRequest
from lamella.snapshot.wire.operation import on_table

_TOP: Final = 10
#: Blocks that are read for each index and key, on request; then more, if that was not enough.
SAMPLES: Final = (8, 32)
_MAX_SAMPLED: Final = 200
#: How a reason ends that a sample of blocks may remove, in the words of the API.
_SAMPLE_HELPS: Final = "sample_blocks"
_API_WORDS: Final = ("; repeat the request with sample_blocks", " (repeat the request with sample_blocks)")
_NAMES: Final = {
    "recluster": "Recluster",
    "cluster_key": "Another cluster key",
    "compact": "Compact",
    "index": "A new index",
    "index_refresh": "Refresh an index",
    "drop_index": "Drop an index",
    "purge": "Purge deleted rows",
    "vacuum": "Vacuum",
}


class Bars(msgspec.Struct, frozen=True):
    """What a filter reads before and after, in blocks; the shares are of the larger one."""

    before: float
    after: float
    before_share: float
    after_share: float


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate for the page. ``action`` leads to the form that does it. ``missing``: why it cannot be predicted."""

    name: str
    text: str
    command: str
    action: Action | None
    bars: Bars | None = None
    facts: tuple[Fact, ...] = ()
    rests_on: tuple[str, ...] = ()
    missing: str = ""


class AdvicePages:
    """The page of a table's candidates."""

    def __init__(
        self, *, catalog: Catalog, advice: Advisor | None, readers: Threads, when_closing: WhenClosing, pages: Pages
    ) -> None:
        self._catalog = catalog
        self._advice = advice
        self._readers = readers
        self._pages = pages
        self._found: BackgroundFigures[CandidatesAnswer] = BackgroundFigures(
            when_closing, MAX_READY, name="ui-candidates", fresh_s=FRESH_S
        )

    async def show(self, request: Request) -> Response:
        found = await self._readers.run(lambda: self._show(request))
        return self._pages.html(
            request, "advice.html", found, title=f"Advice for {found['namespace']}.{found['table']}"
        )

    def pages(self) -> tuple[Page, ...]:
        # what filters were recorded is for those who maintain the table
        return (Page(ROOT + "/tables/{namespace}/{table}/advice", self.show, "ui_advice", on_table("maintain")),)

    def _show(self, request: Request) -> Mapping[str, Any]:
        record = table_of(self._catalog, request)
        sample = number_of(request, "sample", 0, _MAX_SAMPLED)
        values: dict[str, Any] = {
            "namespace": record.namespace,
            "table": record.name,
            "tab": "advice",
            "has_advice": self._advice is not None,
            "sample": sample,
            "waits": False,
            "problem": "",
            "answer": None,
        }
        advice = self._advice
        if advice is None:
            return values
        wanted = CandidatesRequest(top=_TOP, sample_blocks=sample)
        try:
            answer = self._found.peek(
                (record.table_id, record.pointer.snapshot_id, sample),
                lambda: advice.candidates(record, wanted),
                wait_s=WAIT_S,
            )
        except LamellaError as error:
            return {**values, "problem": words.sentence(error.message)}
        if answer is None:
            return {**values, "waits": True}
        unpredicted = [suggestion_of(record, each) for each in answer.unpredicted]
        can_sample = any(_SAMPLE_HELPS in each.missing for each in answer.unpredicted)
        return {
            **values,
            "answer": answer,
            "found": [suggestion_of(record, each) for each in answer.candidates],
            "unpredicted": unpredicted,
            "next_sample": next((each for each in SAMPLES if each > sample), None) if can_sample else None,
        }


def suggestion_of(
    table: TableRecord, candidate: Candidate, *, has_workload: bool = True, can_maintain: bool = True
) -> Suggestion:
    """Return a candidate as it is shown. ``has_workload``: it was predicted for recorded filters, not for one that is
    on the page. ``can_maintain``: with the way to the form that does it."""
    missing = candidate.missing
    for text in _API_WORDS:
        missing = missing.replace(text, "")
    return Suggestion(
        name=_NAMES.get(candidate.kind, candidate.kind),
        text=candidate.text,
        command=candidate.command,
        action=action_of(table, candidate) if can_maintain else None,
        bars=None if candidate.gain is None else bars_of(candidate.gain),
        facts=(*_cost_facts(candidate), *(_gain_facts(candidate) if has_workload else ())),
        rests_on=tuple(dict.fromkeys(candidate.rests_on)),
        missing=missing,
    )


def bars_of(gain: CandidateGain) -> Bars:
    """Return the blocks that one use of a filter reads on average, as bars."""
    before, after = gain.before.blocks, gain.after.blocks
    longest = max(before, after) or 1.0
    return Bars(before, after, before / longest, after / longest)


def action_of(table: TableRecord, candidate: Candidate) -> Action | None:
    """Return the way to the form that does it, filled in; None if there is none."""
    of = (table.namespace, table.name)
    name = f"{table.namespace}.{table.name}"
    index = candidate.index
    if candidate.kind == "index" and index is not None:
        zone = None if index.time_zone == "UTC" else index.time_zone
        fields = {"kind": index.kind, "name": candidate.index_name, "expression": index.expression, "time_zone": zone}
        href = link("tables", *of, "indexes", "new", **fields, preview="1")
        return Action("Create the index …", href, index.expression)
    if candidate.kind == "drop_index" and candidate.index_name is not None:
        return Action(
            "Drop the index …", link("tables", *of, "indexes", candidate.index_name, "drop"), candidate.index_name
        )
    if candidate.kind == "cluster_key":
        if not candidate.cluster_key:
            return None
        columns = ", ".join(candidate.cluster_key)
        return Action("Set the key …", f"{link('tables', *of, key=columns)}#key-heading", columns)
    if candidate.job is None:
        return None
    given = texts_of(job_kind_named(candidate.job), candidate.arguments)
    href = link("jobs", "new", kind=candidate.job, table=name, **given, preview="1")
    return Action(f"{_NAMES.get(candidate.kind, candidate.kind)} …", href, name)


def _cost_facts(candidate: Candidate) -> list[Fact]:
    cost = candidate.cost
    found = []
    if cost.rewritten_bytes:
        found.append(
            fact("Rewrites", f"{words.plural(cost.blocks, 'block')}, {words.size(cost.rewritten_bytes)}"),
        )
    if cost.read_bytes:
        found.append(fact("Reads", words.size(cost.read_bytes)))
    if cost.index_bytes is None:
        found.append(fact("Size of the index", "cannot be predicted"))
    elif cost.index_bytes:
        found.append(fact("Size of the index", words.size(cost.index_bytes)))
    if candidate.freed_bytes:
        found.append(fact("Frees", words.size(candidate.freed_bytes)))
    return found


def _gain_facts(candidate: Candidate) -> list[Fact]:
    gain, found = candidate.gain, []
    if gain is not None:
        uses = words.plural(gain.times, "use")
        found.append(fact("Predicted for", f"{words.plural(gain.filters, 'recorded filter')}, {uses}"))
        if gain.unknown:
            reason = shortened(gain.reason, 300)
            found.append(
                fact("Not predicted", f"{words.plural(gain.unknown, 'filter')}{f': {reason}' if reason else ''}")
            )
    return found
