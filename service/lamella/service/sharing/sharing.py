"""Shares tables with recipients of Delta Sharing: versions, metadata, files, and URLs to read them.

A share is everything that the recipient may read: schemas are namespaces, versions the numbers of a table's snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from lamella.service.catalog import Catalog, HistoryEntry, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.history.history import History, instant_ms, instant_of, trusted_manifests
from lamella.service.prune.block_urls import BlockUrls
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    NotExpressible,
    NotFound,
    SnapshotExpired,
    SnapshotNotFound,
)
from lamella.snapshot.expression.nodes import MAX_SQL_CHARACTERS, MAX_SQL_TOKENS, TRUE, And, Predicate
from lamella.snapshot.expression.sql_parse import token_count
from lamella.snapshot.iceberg.metadata import require_named
from lamella.snapshot.manifest import CONSTANTS, DELETES, Snapshot, SnapshotPointer
from lamella.snapshot.prune.paging import MAX_PAGE_SIZE
from lamella.snapshot.prune.pipeline import NotNow
from lamella.snapshot.prune.result import PruneResult, SegmentSelection
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.sharing.answers import (
    Form,
    SharedFile,
    TableState,
    end_line,
    file_line,
    head_lines,
    partition_columns,
    partition_values,
    reader_features,
    stats_of,
    vector_of,
)
from lamella.snapshot.sharing.hints import read_json_hint, read_sql_hint
from lamella.snapshot.sharing.requests import Capabilities, ShareQuery, shared_schema
from lamella.snapshot.tokens import SignedTokens
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

#: The name of the only share.
SHARE_NAME: Final = "lamella"
_MAX_ROWS: Final = 1 << 31
_OF_ONE_SNAPSHOT: Final = "give at most one of version, timestamp, pageToken and refreshToken"


class SharedAnswer(msgspec.Struct, frozen=True):
    """Lines about a table at a version, in one of the response formats."""

    version: int
    form: Form
    lines: Iterator[bytes]


class _At(msgspec.Struct, frozen=True):
    """A snapshot of a table and its number."""

    version: int
    pointer: SnapshotPointer


class Sharing:
    """Answers recipients about tables that they may read; every method blocks on the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        history: History,
        block_urls: BlockUrls,
        metrics: Metrics,
        settings: Settings,
        secret: bytes,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._history = history
        self._block_urls = block_urls
        self._metrics = metrics
        self._max_files = min(settings.signed_urls_max, MAX_PAGE_SIZE)
        self._refresh_tokens = SignedTokens(secret, "lamella sharing refresh token")

    def version(self, record: TableRecord, starting: str | None) -> int:
        """Return the table's version: the current one, or the first at ``starting`` or later.

        Raises:
            InvalidRequest: an invalid time.
            SnapshotNotFound: the table has not changed since.
        """
        if starting is None:
            return record.version
        since_ms = instant_ms(instant_of(starting), "UTC")
        if since_ms > record.pointer.timestamp_ms:
            raise SnapshotNotFound(f"the table has no version of {starting} or later", timestamp=starting)
        return self._first_since(record, since_ms)

    def metadata(
        self, record: TableRecord, able: Capabilities, *, version: int | None = None, timestamp: str | None = None
    ) -> SharedAnswer:
        """Return a table's metadata.

        Raises:
            InvalidRequest: an invalid time, or both a version and a time.
            SnapshotNotFound: no such version (SnapshotExpired: not any more).
            NotExpressible: recipients would not find the table's rows in its files.
        """
        at = self._at(record, ShareQuery(version=version, timestamp=timestamp))
        with trusted_manifests():
            head = self._warehouse.head(at.pointer)
        state = _state(record, at, head)
        form = able.form_for(state.reader_features)
        return SharedAnswer(at.version, form, head_lines(form, state))

    def query(
        self, record: TableRecord, share_query: ShareQuery, able: Capabilities, max_tests: int | None = None
    ) -> SharedAnswer:
        """Return the files that may contain rows selected by the hints, with URLs.

        Raises:
            InvalidRequest, SnapshotNotFound, NotExpressible: as :meth:`metadata`.
            InvalidPageToken: a token of another request.
            LimitExceeded: more files than one answer may have, and no ``maxFiles``.
            LocationRefused, NotSignable: files that have no signed URL.
            NotNow: it takes more than ``max_tests``.
        """
        if share_query.starting_version is not None or share_query.ending_version is not None:
            raise no_changes()
        request = self._request(share_query)
        at = self._at(record, share_query, request)
        with trusted_manifests():
            head = self._warehouse.head(at.pointer)
            state = _state(record, at, head)
            form = able.form_for(state.reader_features)
            predicate = _predicate(share_query, head)
            try:
                found = self._warehouse.find_predicate(at.pointer, predicate, request, max_tests=max_tests)
            except NotNow as error:
                self._block_urls.require_few(error.cost.selected_blocks)  # refused before any work is done
                raise
            self._block_urls.require_few(found.block_count)
            self._metrics.pruned(found.answer)
            return SharedAnswer(at.version, form, self._lines(record, share_query, able, form, state, head, found))

    def _lines(
        self,
        record: TableRecord,
        share_query: ShareQuery,
        able: Capabilities,
        form: Form,
        state: TableState,
        head: Snapshot,
        found: PruneResult,
    ) -> Iterator[bytes]:
        """Return the lines. Signs URLs and reads deletion vectors now; each line is made when it is taken."""
        parts = tuple(found.parts())
        locations = [location for part in parts for location in part.sidecar.texts("location", part.rows)]
        signed = self._block_urls.of(record, locations) if locations else None
        expires_ms = 0 if signed is None else signed.expires_ms
        token = found.answer.next_page_token
        refresh = self._refresh_token(record, state.version) if share_query.include_refresh_token else None
        has_end = (
            able.ends or refresh is not None or share_query.max_files is not None or share_query.page_token is not None
        )

        columns = partition_columns(head)
        # Errors belong before the first line.
        partitions = [_partitions(part, head, columns) for part in parts]
        vectors = self._vectors(record, parts)

        def lines() -> Iterator[bytes]:
            yield from head_lines(form, state)
            urls = iter(() if signed is None else signed.urls)
            for part, values, part_vectors in zip(parts, partitions, vectors, strict=True):
                keys = part.sidecar.block_keys()
                sizes = part.numbers("file_size").tolist()
                part_locations = part.sidecar.texts("location", part.rows)
                part_stats = stats_of(part, head.schema, columns)
                for row, size, stats, location, partition, vector in zip(
                    part.rows.tolist(), sizes, part_stats, part_locations, values, part_vectors, strict=True
                ):
                    name = location if keys is None else "".join(f"{half:016x}" for half in keys[row].tolist())
                    file = SharedFile(
                        file_id=name,
                        url=next(urls),
                        size_bytes=size,
                        stats=stats,
                        partition_values=partition,
                        vector=vector,
                    )
                    yield file_line(form, state, file, expires_ms)
            if has_end:
                yield end_line(
                    next_page_token=token,
                    refresh_token=refresh,
                    expires_ms=None if signed is None else expires_ms,
                )

        return lines()

    def _vectors(self, record: TableRecord, parts: Sequence[SegmentSelection]) -> list[list[Mapping[str, Any] | None]]:
        """Return the deletion vector of each of the kept files."""
        deletes = [[each or () for each in part.sidecar.deletes(part.rows)] for part in parts]
        data = self._block_urls.vectors(record, [each for of in deletes for entries in of for each in entries])
        return [
            [
                vector_of(entries, data, row_count)
                for entries, row_count in zip(of, part.numbers("row_count").tolist(), strict=True)
            ]
            for of, part in zip(deletes, parts, strict=True)
        ]

    def _request(self, share_query: ShareQuery) -> PruneRequest:
        """Return the prune of a query. Its filter only identifies the hints that page tokens belong to."""
        limit = share_query.limit_hint
        # With a filter that the recipient applies, the rows that it drops would be missing from the limit.
        is_paged = share_query.max_files is not None or share_query.page_token is not None
        has_limit = limit is not None and 0 <= limit <= _MAX_ROWS and not share_query.has_hints
        return PruneRequest(
            filter=[list(share_query.predicate_hints), share_query.json_predicate_hints],
            limit=limit if has_limit else None,
            page_size=min(share_query.max_files or self._max_files, self._max_files) if is_paged else None,
            page_token=share_query.page_token,
            reader_features=(CONSTANTS, DELETES),
        )

    def _at(self, record: TableRecord, share_query: ShareQuery, request: PruneRequest | None = None) -> _At:
        """Return the requested version; for further pages that of the first one."""
        ways = (share_query.version, share_query.timestamp, share_query.refresh_token)
        if sum(way is not None for way in ways) > 1:
            raise InvalidRequest(_OF_ONE_SNAPSHOT)
        if request is not None and request.page_token is not None:
            # Requests for further pages repeat the version of the first one, but the token has the exact snapshot.
            snapshot_id, _ = self._warehouse.page_tokens.read(request)
            return self._of_entry(self._catalog.snapshot(record.table_id, snapshot_id))
        if share_query.refresh_token is not None:
            return self._by_number(record, self._refreshed(record, share_query.refresh_token))
        if share_query.version is not None:
            return self._by_number(record, share_query.version)
        if share_query.timestamp is not None:
            at_ms = instant_ms(instant_of(share_query.timestamp), "UTC")
            if at_ms < record.pointer.timestamp_ms:
                return self._of_entry(self._catalog.snapshot_at(record.table_id, at_ms))
        return _At(record.version, record.pointer)

    def _by_number(self, record: TableRecord, version: int) -> _At:
        if version == record.version:
            return _At(record.version, record.pointer)
        if not 1 <= version < record.version:
            raise SnapshotNotFound(
                f"the table has no version {version}; its versions are 1 to {record.version}", version=version
            )
        entries = self._catalog.history(record.table_id, before_seq=version + 1, limit=1)
        if not entries or entries[0].seq != version:
            raise SnapshotExpired(f"version {version} of the table has expired", version=version)
        return self._of_entry(entries[0])

    def _first_since(self, record: TableRecord, since_ms: int) -> int:
        """Return the first version of that time or later that has not expired; the current one has not."""
        low, high = 1, record.version  # times grow with versions
        while low < high:
            middle = (low + high) // 2
            entries = self._catalog.history(record.table_id, before_seq=middle + 1, limit=1)
            if entries and entries[0].pointer.timestamp_ms >= since_ms:
                high = entries[0].seq
            else:
                low = middle + 1
        return low

    def _refresh_token(self, record: TableRecord, version: int) -> str:
        return self._refresh_tokens.write(f"{record.table_id} {version}".encode())

    def _refreshed(self, record: TableRecord, token: str) -> int:
        table_id, _, version = self._refresh_tokens.read(token).decode().partition(" ")
        if table_id != record.table_id:
            raise InvalidPageToken("the refresh token belongs to another table")
        return int(version)

    @staticmethod
    def _of_entry(entry: HistoryEntry) -> _At:
        return _At(entry.seq, entry.pointer)


def require_share(name: str) -> None:
    """Raise NotFound unless it is the existing share."""
    if name != SHARE_NAME:
        raise NotFound(f"there is no share {name!r}", share=name)


def no_changes() -> NotExpressible:
    """Return the error for a query of changes between versions."""
    return NotExpressible("changes between versions are not shared; query a version, or use the service's own API")


def _predicate(share_query: ShareQuery, head: Snapshot) -> Predicate:
    """Return all hints as one predicate over the columns of a snapshot."""
    parts: list[Predicate] = []
    left, tokens_left = MAX_SQL_CHARACTERS, MAX_SQL_TOKENS
    for text in share_query.predicate_hints:
        left -= len(text)
        tokens_left -= token_count(text, max(tokens_left, 0)) if left >= 0 else 0
        if left < 0 or tokens_left < 0:  # hints are optional, and together limited like one filter
            break
        parts.append(read_sql_hint(text, head.schema))
    if share_query.json_predicate_hints is not None:
        parts.append(read_json_hint(share_query.json_predicate_hints, head.schema))
    return And(tuple(parts)) if parts else TRUE


def _partitions(part: SegmentSelection, head: Snapshot, columns: Collection[int]) -> list[Mapping[str, str | None]]:
    """Return the partition values of each of the kept files."""
    if not columns:
        return [{}] * len(part.rows)
    own = head.schema.schema_id
    constants = part.sidecar.constants(part.rows)
    older = part.sidecar.older_schema_ids(part.rows, own)
    return [
        partition_values(each or {}, head.schema if schema_id is None else schema_at(head, schema_id), head, columns)
        for each, schema_id in zip(constants, older, strict=True)
    ]


def _state(record: TableRecord, at: _At, head: Snapshot) -> TableState:
    """Return a table at a version. Raises NotExpressible."""
    require_named(head)
    columns = partition_columns(head)
    own = head.schema.schema_id
    earlier = [schema_at(head, number) for number in head.schema_ids_in_use if number != own]
    return TableState(
        table_id=record.table_id,
        name=record.name,
        version=at.version,
        timestamp_ms=at.pointer.timestamp_ms,
        created_ms=record.created_at_ms,
        schema=shared_schema(head.schema, earlier),
        reader_features=reader_features(head),
        size_bytes=head.summary.compressed_byte_size,
        file_count=head.summary.block_count,
        partition_columns=tuple(column.name for column in head.schema.columns if column.id in columns),
    )
