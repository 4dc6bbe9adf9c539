"""A planner whose answers come with the URLs of the blocks that are read first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lamella.client.http import call as calls
from lamella.client.http.call import TableName
from lamella.client.http.running import Runs
from lamella.client.http.stages import Stages, merged
from lamella.client.presigned.urls import AT_ONCE, BlockUrls
from lamella.snapshot import wire

if TYPE_CHECKING:
    from lamella.client.scan.plan import Planner
    from lamella.snapshot.manifest import Snapshot

#: The most blocks of a page: those behind the first page need no URLs yet.
_REST: Final = 1_000_000


class SignedPlanner:
    """Plans as the table does, and tells ``urls`` what will be read.

    The URLs of the first blocks come with the plan; the others are asked for when it is their turn, so that none of
    them has expired by then.
    """

    def __init__(self, table: Planner, lake: Runs, name: TableName, urls: BlockUrls) -> None:
        self._table = table
        self._lake = lake
        self._name = name
        self._urls = urls

    def prune(
        self,
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        level: wire.Level,
        limit: int | None,
        order_by: Sequence[wire.OrderBy],
    ) -> wire.PruneAnswer:
        """The blocks that may hold matching rows."""
        behind = Stages(limit=limit, order_by=tuple(order_by), page_size=AT_ONCE, sign_urls=True)
        call = calls.prune(
            self._name,
            filter,
            None,
            snapshot_id,
            timestamp,
            time_zone,
            case_sensitive,
            level,
            "columns",
            False,
            (),
            behind,
        )
        request = msgspec.json.decode(call.body, type=wire.PruneRequest)
        request = msgspec.structs.replace(request, page_size=_REST, sign_urls=False)
        pages = [self._lake.run(call)]
        while (token := pages[-1].next_page_token) is not None:
            body = msgspec.json.encode(msgspec.structs.replace(request, page_token=token))
            pages.append(self._lake.run(msgspec.structs.replace(call, body=body)))
        first = pages[0].block_columns
        if first is not None and first.url is not None:
            self._urls.learn(first.location, first.file_size, first.url)
            bare = msgspec.structs.replace(first, url=None)
            pages[0] = msgspec.structs.replace(pages[0], block_columns=bare, url_expires_ms=None)
        answer = merged(pages)
        self._urls.begin(answer.snapshot_id, answer.locations)
        return answer

    def aggregate(
        self,
        aggregates: Sequence[str],
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
    ) -> wire.AggregateAnswer:
        """As the table says."""
        return self._table.aggregate(
            aggregates,
            filter,
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
        )

    def info(self) -> wire.TableInfo:
        """As the table says."""
        return self._table.info()

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """As the table says."""
        return self._table.snapshot(snapshot_id)
