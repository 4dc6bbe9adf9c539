"""Tables for recipients of Delta Sharing: read only, below ``/delta-sharing``."""

from __future__ import annotations

from typing import Protocol

from lamella.service.catalog import Catalog
from lamella.service.config.settings import Settings
from lamella.service.features import Feature
from lamella.service.history.history import History
from lamella.service.http.lanes import Lanes
from lamella.service.http.page_token import PageTokens
from lamella.service.http.problem import Envelope
from lamella.service.http.streaming import LargeAnswers
from lamella.service.process.threads import Threads
from lamella.service.prune.block_urls import BlockUrls
from lamella.service.sharing.routes import SharedTableRoutes, ShareRoutes
from lamella.service.sharing.sharing import Sharing
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.sharing.answers import SharingError
from lamella.snapshot.warehouse import Warehouse


class _Parts(Protocol):
    """What Delta Sharing takes of the core."""

    block_urls: BlockUrls
    catalog: Catalog
    history: History
    lanes: Lanes
    large_answers: LargeAnswers
    metrics: Metrics
    page_tokens: PageTokens
    readers: Threads
    settings: Settings
    token_secret: bytes
    warehouse: Warehouse


def register(core: _Parts) -> Feature:
    """The operations of Delta Sharing, with errors in its form."""
    sharing = Sharing(
        core.catalog, core.warehouse, core.history, core.block_urls, core.metrics, core.settings, core.token_secret
    )
    shares = ShareRoutes(catalog=core.catalog, readers=core.readers, page_tokens=core.page_tokens)
    tables = SharedTableRoutes(
        catalog=core.catalog,
        readers=core.readers,
        lanes=core.lanes,
        large_answers=core.large_answers,
        sharing=sharing,
    )
    return Feature(
        operations=(*shares.operations(), *tables.operations()),
        envelopes=(Envelope("/delta-sharing", SharingError, _error),),
    )


def _error(error: LamellaError, _status: int, _path: str) -> SharingError:
    return SharingError(error_code=error.code.upper(), message=error.message)
