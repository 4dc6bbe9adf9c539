"""Blocks that other processes read by signed URLs, without credentials for the store: workers of Spark, Dask, Ray.

Whoever plans has them signed, so a worker needs nothing but its part. URLs end after a while; a worker that meets such
a one asks the service for others, and shows it what ``LAMELLA_TOKEN`` or ``LAMELLA_TOKEN_FILE`` names in its own
environment if that names the same service. Keys of the process that plans never leave it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from lamella.client.http import Lamella
from lamella.client.http.address import parse_address
from lamella.client.http.credential import token_of
from lamella.client.presigned.store import UrlStore
from lamella.client.presigned.urls import BlockUrls
from lamella.snapshot.errors import LamellaError, PermissionDenied, TableNotFound, Unauthenticated
from lamella.snapshot.wire import BlocksAnswer


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """URLs of some blocks and what they lead to, and whom to ask for others."""

    service_url: str
    table: str
    snapshot_id: str
    urls: tuple[str, ...]
    sizes: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Signed({len(self.urls)} urls, table={self.table!r})"

    def part(self, start: int, count: int) -> Signed:
        """Some of them."""
        end = start + count
        return msgspec.structs.replace(self, urls=self.urls[start:end], sizes=self.sizes[start:end])

    def store(self, locations: Sequence[str]) -> UrlStore:
        """What reads them, in the worker."""
        urls = BlockUrls(self._ask)
        urls.begin(self.snapshot_id, locations)
        urls.learn(locations, self.sizes, self.urls)
        return UrlStore(urls)

    def _ask(self, locations: Sequence[str], snapshot_id: str | None) -> BlocksAnswer:
        own = os.environ.get("LAMELLA_URL")
        is_own = own is not None and str(parse_address(own)) == self.service_url
        token, token_file = token_of(os.environ) if is_own else (None, None)
        try:
            with Lamella(self.service_url, token=token, token_file=token_file) as lake:
                return lake.table(self.table).blocks(locations, snapshot_id=snapshot_id, sign_urls=True)
        except (Unauthenticated, PermissionDenied, TableNotFound) as error:
            raise LamellaError(
                f"signed URLs have expired, and this worker may not ask {self.service_url} for others"
                f" ({error.message}): plan anew, let URLs hold longer (signed_url_s of the service), or set"
                " LAMELLA_URL and LAMELLA_TOKEN_FILE in the environment of the workers"
            ) from error
