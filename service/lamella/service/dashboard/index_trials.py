"""What an index would cost and what it would skip, before there is one.

By what the manifests say; where they cannot tell what an index would skip, a few blocks are read and indexed in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

import msgspec

from lamella.service.catalog import TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.job_facts import Fact, fact, shortened
from lamella.service.dashboard.previewing import Column, Listing, Preview
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, StoreError
from lamella.snapshot.index.definition import defined
from lamella.snapshot.wire import (
    AdviceRequest,
    Cost,
    CreateIndex,
    Forecast,
    IndexChange,
    IndexSize,
    WhatIfAnswer,
    WhatIfRequest,
)

_RECORDED: Final = 50
#: Blocks that are read when the manifests cannot tell.
SAMPLED: Final = 32
_LISTED: Final = 20
_COLUMNS: Final = (
    Column(name="Filter"),
    Column(name="Times", is_number=True),
    Column(name="Reads now", is_number=True),
    Column(name="With the index", is_number=True),
)


def size_of(services: Services, table: TableRecord, change: IndexChange) -> IndexSize | None:
    """How large an index would be over all blocks; None: that cannot be told beforehand.

    Raises as :meth:`lamella.service.advice.Advice.what_if`.
    """
    # any filter will do: it is not what is asked about
    asked = WhatIfRequest(index=change, filters=(f"({change.expression}) IS NOT NULL",), time_zone=change.time_zone)
    return services.advice.what_if(table, asked).size


def index_preview(services: Services, table: TableRecord, request: CreateIndex) -> Preview:
    """What comes of an index, by what the manifests and the recorded filters say; else by a sample of blocks.

    Raises:
        AlreadyExists: the name is taken, perhaps by a dropped index.
        InvalidRequest, InvalidFilter, UnknownColumn: the name, kind, options or expression.
    """
    taken = {index.name.lower() for index in services.indexes.list(table, dropped=True).indexes}
    if request.name.lower() in taken:
        raise AlreadyExists(
            f"the table has an index {request.name!r} already, perhaps a dropped one", name=request.name
        )
    with trusted_manifests():
        head = services.warehouse.head(table.pointer)
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
    facts = [fact("Over", f"{made.expression} ({made.dtype})"), fact("Blocks that are indexed", blocks)]
    if not blocks:
        return Preview(says="The table has no blocks yet. Commits index what they add.", facts=tuple(facts))
    filters = services.advice.recorded(table).filters
    answer: WhatIfAnswer | None = None
    if filters:
        try:
            answer = _foretold(services, table, change)
        except InvalidRequest:
            answer = None  # none of those that were recorded can be asked again
    size = size_of(services, table, change) if answer is None else answer.size
    facts += _size_facts(size)
    facts += _score_facts(services, table, change, {leaf.name for leaf in head.schema.leaves()})
    if answer is None:
        return Preview(
            says=f"{words.plural(blocks, 'block')} are indexed by a job.",
            facts=tuple(facts),
            notes=("No filter of users was recorded that could be asked again, so nobody knows what they would gain.",),
        )
    facts.append(fact("A recorded filter reads now", _cost(answer.now)))
    facts.append(fact("With the index", words.CANNOT_TELL if answer.then is None else _cost(answer.then)))
    filters_then = _by_filter(answer.filters)
    return Preview(
        says=_effect(answer, filters_then),
        tone="good" if any(each.is_helped for each in filters_then) else "warn",
        facts=tuple(facts),
        listing=Listing(
            caption="Recorded filters, those that gain most first",
            columns=_COLUMNS,
            rows=tuple(
                (shortened(each.filter, 300), words.count(each.times), _blocks(each.now), each.told)
                for each in filters_then[:_LISTED]
            ),
        ),
        notes=(
            f"Measured by an index in memory over {words.plural(answer.blocks_read, 'block')} that were read."
            if answer.measured
            else "Estimated from the manifests; no data was read.",
        ),
    )


def _foretold(services: Services, table: TableRecord, change: IndexChange) -> WhatIfAnswer:
    """What the recorded filters would read: by the manifests, or by a sample where these cannot tell of some filter."""
    asked = WhatIfRequest(index=change, recorded=_RECORDED)
    answer = services.advice.what_if(table, asked)
    if not answer.unknown:
        return answer
    try:
        return services.advice.what_if(table, msgspec.structs.replace(asked, sample_blocks=SAMPLED))
    except StoreError:  # the blocks cannot be read now: it stays unknown
        return answer


def _effect(answer: WhatIfAnswer, filters: Sequence[_Then]) -> str:
    """What is known of the filters, in a sentence or two."""
    helped, unknown = sum(each.is_helped for each in filters), sum(each.then is None for each in filters)
    many = words.plural(len(filters), "recorded filter")
    untold = f"What {unknown} of {many} would read cannot be told." if unknown else ""
    if unknown == len(filters):
        return f"Whether the index helps cannot be told beforehand: {answer.filters[0].reason}."
    if helped and answer.then is not None:
        gain = f"{max(answer.now.blocks - answer.then.blocks, 0):,.1f} blocks"
        return f"It helps {helped} of {many}: {gain} less on average. {untold}".rstrip()
    return f"The index helps none of the {words.plural(len(filters) - unknown, 'recorded filter')}. {untold}".rstrip()


class _Then(msgspec.Struct, frozen=True):
    """A filter, and how many blocks it reads now and with the index, on average of the constants tried.

    ``then`` None: that cannot be told, for the ``reason``.
    """

    filter: str
    times: int
    now: float
    then: float | None
    reason: str

    @property
    def is_helped(self) -> bool:
        """It would read less."""
        return self.then is not None and self.then < self.now

    @property
    def gain(self) -> float:
        """Blocks that are not read any more, of all times that it was asked."""
        return 0.0 if self.then is None else (self.now - self.then) * self.times

    @property
    def told(self) -> str:
        """What it would read, in words."""
        return f"{words.CANNOT_TELL}: {self.reason}" if self.then is None else _blocks(self.then)


def _by_filter(forecasts: Sequence[Forecast]) -> list[_Then]:
    """Those that gain most first. A filter whose constants are not kept was tried with several."""
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
        return [fact("Size", f"cannot be told beforehand{reason}")]
    most = "" if size.is_counted else "at most "
    share = "" if size.share is None else f", {words.percent(size.share)} of the data"
    return [
        fact("Size", f"{most}{words.size(size.size_bytes)}{share}"),
        fact("Bytes a block", f"{most}{words.size(size.bytes_per_block)}"),
        fact("Different values a block", f"{most}{words.count(round(size.distinct_per_block, 1))}"),
    ]


def _score_facts(services: Services, table: TableRecord, change: IndexChange, columns: set[str]) -> list[Fact]:
    """How much such an index skips beyond bounds; only known of plain columns."""
    if change.expression not in columns:
        return []
    asked = AdviceRequest(columns=(change.expression,), kinds=(change.kind,), options={change.kind: change.options})
    for score in services.advice.advise(table, asked).scores:
        if score.kind != change.kind or score.layer != "block":
            continue
        told = f"{score.least:.0f} to {score.most:.0f}" if score.score is None else f"{score.score:.0f}"
        if math.isclose(score.least, 0) and math.isclose(score.most, 100) and score.score is None:
            told = "manifests cannot tell"
        reason = f" ({score.reason})" if score.reason else ""
        return [fact("Score, of 100", told + reason)]
    return []


def _cost(cost: Cost) -> str:
    return f"{words.count(round(cost.blocks, 1))} blocks, {words.size(cost.bytes)}"
