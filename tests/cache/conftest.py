"""Caches of both kinds, and an ear for what the one on disk does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lamella.snapshot.cache import BoundedCache, DerivedCache, DiskCache, MemoryCache
from support.cache_folder import Heard

#: Makes a cache that holds at most so many bytes.
MakeCache = Callable[[int], DerivedCache]


@pytest.fixture(params=["memory", "disk"])
def make_cache(request: pytest.FixtureRequest, tmp_path: Path) -> MakeCache:
    """Caches of each kind."""
    makers: dict[str, MakeCache] = {
        "memory": lambda limit_bytes: MemoryCache(BoundedCache(limit_bytes)),
        "disk": lambda limit_bytes: DiskCache(tmp_path / "cache", limit_bytes),
    }
    return makers[request.param]


@pytest.fixture
def cache(make_cache: MakeCache) -> DerivedCache:
    """A cache with room for what tests put into it."""
    return make_cache(16 << 20)


@pytest.fixture
def heard() -> Heard:
    """Nothing was heard yet."""
    return Heard()
