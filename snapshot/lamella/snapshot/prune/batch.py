"""Many filters in one request: each is pruned as if it came alone, over segments that are opened once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lamella.snapshot.errors import LimitExceeded
from lamella.snapshot.expression import check_together
from lamella.snapshot.wire import BatchRequest, PruneRequest

#: Filters of one request.
MAX_FILTERS: Final = 1_000


def single_requests(request: BatchRequest) -> Iterator[PruneRequest]:
    """The request of each filter; raises LimitExceeded."""
    if len(request.filters) > MAX_FILTERS:
        raise LimitExceeded(f"a batch may have {MAX_FILTERS} filters", limit="filters", most=MAX_FILTERS)
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
        )
