"""An S3 folder for the few tests that read footers from there."""

from __future__ import annotations

import uuid

import pytest

from fixtures_s3 import S3Server, s3  # noqa: F401  # a fixture
from lamella.snapshot.storage import FsspecStore


@pytest.fixture
def s3_root(s3: S3Server) -> tuple[FsspecStore, str]:  # noqa: F811  # the fixture
    """A store and an empty folder."""
    return FsspecStore({"s3": s3.storage_options}), f"{s3.bucket('footers')}/{uuid.uuid4().hex}"
