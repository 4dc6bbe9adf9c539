"""Signed URLs of a table's blocks, for readers without credentials for the store.

They are made for one answer and kept nowhere. Nothing is signed but a block of the table's snapshot that lies where the
table may have files.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamella.service.catalog import TableRecord
from lamella.service.config.settings import Settings
from lamella.service.tables.names import LocationRules
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LimitExceeded, NotSignable
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.storage import SignedUrls, SigningStore, Store
from lamella.snapshot.wire import BlocksAnswer


class BlockUrls:
    """Signs what a request asks for; every method raises as :meth:`of` does."""

    def __init__(self, store: Store, rules: LocationRules, metrics: Metrics, settings: Settings) -> None:
        self._store = store if isinstance(store, SigningStore) else None
        self._rules = rules
        self._metrics = metrics
        self._expires_s = settings.signed_url_s
        self._max_urls = settings.signed_urls_max

    def of(self, table: TableRecord, locations: Sequence[str]) -> SignedUrls:
        """URLs of blocks that are known to be the table's, in their order.

        Raises:
            LimitExceeded: more blocks than one answer may have URLs for.
            LocationRefused: a block that lies where the table may have no files.
            NotSignable: a block that lies where none can be signed.
            StoreError: the service's own credentials cannot be had.
        """
        self.require_few(len(locations))
        allowed = self._rules.of(table.namespace, table.table_id)
        for location in locations:
            allowed.require(location)
        if self._store is None:
            raise NotSignable("this service's store signs no URLs")
        signed = self._store.sign(locations, self._expires_s)
        self._metrics.urls_signed.inc(len(locations))
        return signed

    def in_answer(self, table: TableRecord, found: PruneResult) -> PruneResult:
        """What a prune found, with a URL for each block."""
        self.require_few(found.block_count)
        locations = [location for part in found.parts() for location in part.sidecar.texts("location", part.rows)]
        if not locations:
            return msgspec.structs.replace(found, urls=())
        signed = self.of(table, locations)
        answer = msgspec.structs.replace(found.answer, url_expires_ms=signed.expires_ms)
        return msgspec.structs.replace(found, answer=answer, urls=signed.urls)

    def in_blocks(self, table: TableRecord, answer: BlocksAnswer) -> BlocksAnswer:
        """Blocks that were looked up, each with a URL."""
        if not answer.blocks:
            return answer
        signed = self.of(table, [block.location for block in answer.blocks])
        blocks = zip(answer.blocks, signed.urls, strict=True)
        return msgspec.structs.replace(
            answer,
            blocks=tuple(msgspec.structs.replace(block, url=url) for block, url in blocks),
            url_expires_ms=signed.expires_ms,
        )

    def require_few(self, count: int) -> None:
        """Raises LimitExceeded for more blocks than one answer may have URLs for."""
        if count > self._max_urls:
            raise LimitExceeded(
                f"an answer has signed URLs for at most {self._max_urls} blocks, not {count}: ask for pages of so many",
                limit="signed_urls",
                maximum=self._max_urls,
            )
