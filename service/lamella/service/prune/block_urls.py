"""Signed URLs of a table's blocks, for readers without credentials for the store.

They are made for one answer and kept nowhere. Nothing is signed but a block of the table's snapshot that lies where the
table may have files. Deletion vectors are small, so they come with the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from lamella.service.catalog import TableRecord
from lamella.service.config.settings import Settings
from lamella.service.tables.names import LocationRules
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.deletes import with_vectors
from lamella.snapshot.errors import LimitExceeded, NotSignable
from lamella.snapshot.manifest import DeleteFile
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.storage import SignedUrls, SigningStore, Store
from lamella.snapshot.wire import BlocksAnswer

#: Bytes of deletion vectors in one answer.
_MAX_VECTOR_BYTES: Final = 64 << 20
_READERS: Final = 8


class BlockUrls:
    """Signs what a request asks for; every method raises as :meth:`of` does."""

    def __init__(self, store: Store, rules: LocationRules, metrics: Metrics, settings: Settings) -> None:
        self._objects = store
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
        allowed = self._rules.of(table.namespace, table.main_id)
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
        deletes = [entries for part in found.parts() for entries in part.sidecar.deletes(part.rows)]
        vectors = self.vectors(table, [entry for entries in deletes for entry in entries or ()])
        return msgspec.structs.replace(found, answer=answer, urls=signed.urls, vectors=vectors)

    def in_blocks(self, table: TableRecord, answer: BlocksAnswer) -> BlocksAnswer:
        """Blocks that were looked up, each with a URL."""
        if not answer.blocks:
            return answer
        signed = self.of(table, [block.location for block in answer.blocks])
        vectors = self.vectors(table, [entry for block in answer.blocks for entry in block.deletes])
        return msgspec.structs.replace(
            answer,
            blocks=tuple(
                msgspec.structs.replace(block, url=url, deletes=with_vectors(block.deletes, vectors) or ())
                for block, url in zip(answer.blocks, signed.urls, strict=True)
            ),
            url_expires_ms=signed.expires_ms,
        )

    def vectors(self, table: TableRecord, entries: Sequence[DeleteFile]) -> dict[tuple[str, int], bytes]:
        """The deletion vectors of entries, by location and offset.

        Raises:
            LimitExceeded: they are too large for one answer.
            LocationRefused: one lies where the table may have no files.
            ObjectNotFound, StoreError: one cannot be read.
        """
        if not entries:
            return {}
        size_bytes = sum(entry.length for entry in entries)
        if size_bytes > _MAX_VECTOR_BYTES:
            raise LimitExceeded(
                f"the lists of deleted rows of these blocks have {size_bytes} bytes, and an answer with signed URLs "
                f"has at most {_MAX_VECTOR_BYTES}: ask for pages of fewer blocks",
                limit="vector_bytes",
                maximum=_MAX_VECTOR_BYTES,
            )
        allowed = self._rules.of(table.namespace, table.main_id)
        for location in {entry.location for entry in entries}:
            allowed.require(location)
        with ContextThreadPool(min(_READERS, len(entries)), thread_name_prefix="vectors") as pool:
            data = pool.map(lambda entry: self._objects.read_range(entry.location, entry.offset, entry.length), entries)
            return {(entry.location, entry.offset): each for entry, each in zip(entries, data, strict=True)}

    def require_few(self, count: int) -> None:
        """Raises LimitExceeded for more blocks than one answer may have URLs for."""
        if count > self._max_urls:
            raise LimitExceeded(
                f"an answer has signed URLs for at most {self._max_urls} blocks, not {count}: ask for pages of so many",
                limit="signed_urls",
                maximum=self._max_urls,
            )
