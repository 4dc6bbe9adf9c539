"""What a request asks of the stages behind the filter, and many filters in one request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, LimitExceeded
from lamella.snapshot.expression import check_together
from lamella.snapshot.prune.join import Join, read_join
from lamella.snapshot.prune.paging import MAX_PAGE_SIZE, Position
from lamella.snapshot.prune.top_k import SortKey
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import BatchRequest, NotUsed, OrderBy, PruneRequest

#: Columns of an order, and join keys, of one request.
MAX_PARTS: Final = 32
_MAX_LIMIT: Final = (1 << 63) - 1


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A request's options, read against a schema.

    ``key``: the order, None when there is none (then ``ordered`` is False) or when it cannot be used. ``not_used``:
    what of the options cannot prune, and why.
    """

    joins: tuple[Join, ...] = ()
    key: SortKey | None = None
    ordered: bool = False
    limit: int | None = None
    segments: tuple[str, ...] | None = None
    max_ms: float | None = None
    page_size: int | None = None
    start: Position | None = None
    not_used: tuple[NotUsed, ...] = ()

    @property
    def ranked(self) -> bool:
        """True when the answer has an order of its own, so that all of it must be known before its first page."""
        return self.key is not None or (self.limit is not None and not self.ordered)

    @property
    def plain(self) -> bool:
        """True when every block that the filter leaves is in the answer, in the snapshot's order."""
        return not (
            self.joins
            or self.key is not None
            or self.limit is not None
            or self.segments is not None
            or self.max_ms is not None
            or self.page_size is not None
            or self.start is not None
        )


NO_OPTIONS: Final = Options()


def read_options(request: PruneRequest, schema: Schema, start: Position | None = None) -> Options:
    """The options of a request; ``start``: where its page begins.

    Raises:
        InvalidRequest: options out of range, or that exclude each other; UnknownColumn and the errors of
            :func:`~lamella.snapshot.prune.join.read_join`: the request is wrong.
    """
    _check(request)
    if _is_plain(request):
        return NO_OPTIONS
    joins = tuple(
        read_join(keys, schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        for keys in request.join
    )
    not_used = [reason for join in joins for reason in join.not_used]
    key = None
    if request.order_by:
        for part in request.order_by:
            schema.find(part.column, case_sensitive=request.case_sensitive)
        found = _sort_key(request.order_by, schema, case_sensitive=request.case_sensitive)
        if isinstance(found, SortKey):
            key = found
        else:
            not_used.append(found)
    return Options(
        joins=joins,
        key=key,
        ordered=bool(request.order_by),
        limit=request.limit,
        segments=request.segments,
        max_ms=request.max_ms,
        page_size=request.page_size,
        start=start,
        not_used=tuple(not_used),
    )


def _sort_key(order: tuple[OrderBy, ...], schema: Schema, *, case_sensitive: bool) -> SortKey | NotUsed:
    first = order[0]
    leaf = schema.find(first.column, case_sensitive=case_sensitive)
    if leaf is None or leaf.repeated or leaf.dtype.order is None:
        kind = "a nested column" if leaf is None or leaf.repeated else f"a column of type {leaf.dtype}"
        return NotUsed(predicate=f"order by {first.column}", reason=f"{kind} has no bounds to order by")
    nulls_first = not first.descending if first.nulls_first is None else first.nulls_first
    return SortKey(leaf=leaf, descending=first.descending, nulls_first=nulls_first, alone=len(order) == 1)


def _is_plain(request: PruneRequest) -> bool:
    """True when a request asks for nothing that :class:`Options` has."""
    return not (
        request.join
        or request.order_by
        or request.limit is not None
        or request.segments is not None
        or request.max_ms is not None
        or request.page_size is not None
    )


def _check(request: PruneRequest) -> None:
    if request.limit is not None and not 0 <= request.limit <= _MAX_LIMIT:
        raise InvalidRequest(f"limit must be a number of rows, not {request.limit}", limit=request.limit)
    if request.max_ms is not None and not request.max_ms >= 0:
        raise InvalidRequest(f"max_ms must be a time in milliseconds, not {request.max_ms}", max_ms=request.max_ms)
    if request.page_size is not None and not 1 <= request.page_size <= MAX_PAGE_SIZE:
        raise InvalidRequest(
            f"page_size must be from 1 to {MAX_PAGE_SIZE}, not {request.page_size}", page_size=request.page_size
        )
    if request.page_token is not None and request.page_size is None:
        raise InvalidRequest("page_token requires a page_size")
    if request.page_size is not None and request.max_ms is not None:
        raise InvalidRequest("page_size and max_ms cannot be used together: a page is small already")
    if request.level == "segment" and (request.page_size is not None or request.max_ms is not None):
        raise InvalidRequest("page_size and max_ms require level block")
    if request.shape == "ranges" and (
        request.level == "page"
        or request.columns is not None
        or request.order_by
        or request.residuals
        or request.page_size is not None
    ):
        raise InvalidRequest("ranges have no data for single blocks and no pages: use the shape columns")
    if request.sign_urls and (request.shape == "ranges" or request.level == "segment"):
        raise InvalidRequest("signed URLs are for single blocks: use the shape columns and the level block")
    for name, parts in (("order_by", request.order_by), ("join", request.join)):
        if len(parts) > MAX_PARTS:
            raise LimitExceeded(f"{name} may have {MAX_PARTS} parts", limit=name, maximum=MAX_PARTS)


#: Filters of one request.
MAX_FILTERS: Final = 1_000


def single_requests(request: BatchRequest) -> Iterator[PruneRequest]:
    """The request of each filter; raises LimitExceeded."""
    if len(request.filters) > MAX_FILTERS:
        raise LimitExceeded(f"a batch may have {MAX_FILTERS} filters", limit="filters", maximum=MAX_FILTERS)
    check_together(request.filters)
    for each in request.filters:
        yield PruneRequest(
            filter=each,
            columns=request.columns,
            time_zone=request.time_zone,
            case_sensitive=request.case_sensitive,
            level=request.level,
            shape=request.shape,
            explain=request.explain,
            residuals=request.residuals,
            reader_features=request.reader_features,
        )


class Allowance:
    """``max_blocks`` blocks, or entries that stand for them (None: any number), of which parts are taken one by one."""

    def __init__(self, max_blocks: int | None) -> None:
        self._max_blocks = max_blocks
        self._taken = 0

    def take(self, count: int) -> None:
        """Have so many more; raises LimitExceeded when there are too many together."""
        self._taken += count
        self.check(0)

    def check(self, count: int) -> None:
        """Raises LimitExceeded where so many more would be too many together."""
        if self._max_blocks is not None and self._taken + count > self._max_blocks:
            text = f"the answer would have more than {self._max_blocks} blocks; use a narrower filter, or pages"
            raise LimitExceeded(text, limit="answer_blocks", maximum=self._max_blocks)
