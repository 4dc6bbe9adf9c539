"""One service for all tests with the real client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures_s3 import S3Server
from support.shared_lake import SharedLake, shared_lake


@pytest.fixture(scope="session")
def lake(pytestconfig: pytest.Config, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLake]:
    """A lake with ``sales.orders``, which the recipient may read, and ``other.secret``, which it may not."""
    with shared_lake(pytestconfig, s3, tmp_path_factory.mktemp("sharing")) as made:
        yield made
