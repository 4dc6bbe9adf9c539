"""The tenants of :mod:`support.tenants` in a service that is a process of its own."""

from __future__ import annotations

import itertools

import httpx2

from support.kept_connections import LIMITS
from support.tenants import ROOT_KEY, ROOT_SHA256, Asker, Tenants

#: Settings of such a service.
SETTINGS = {
    "auth": True,
    "root_key_sha256": ROOT_SHA256,
    "feedback": True,
    "auth_cache_s": 0,
    "auth_failures_per_minute": 1_000_000,
    "log_requests": False,
}


class ServedTenants(Tenants):
    """Those of the service at ``url``, whose warehouse is a folder of this machine, and its catalog."""

    def __init__(self, url: str, catalog_url: str) -> None:
        self.catalog_url = catalog_url
        self.app = httpx2.Client(base_url=url, timeout=120, limits=LIMITS)  # type: ignore[assignment]  # asked alike
        self.root = Asker(self.app, ROOT_KEY)
        self._numbers = itertools.count()
