"""Every store that ships, so that one suite of behaviours runs over all of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures_s3 import s3  # noqa: F401  # a fixture
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.storage.observed import ObservedStore
from support.call_log import CallLog

#: A store, and the location of a folder in it that nothing else uses.
StoreRoot = tuple[Store, str]


STORE_KINDS = (
    "memory",
    "file",
    pytest.param("s3", marks=pytest.mark.s3),
    "observed memory",
    "observed file",
    pytest.param("observed s3", marks=pytest.mark.s3),
    pytest.param("real_s3", marks=[pytest.mark.s3, pytest.mark.soak]),
)


@pytest.fixture(params=STORE_KINDS)
def store_root(request: pytest.FixtureRequest, tmp_path: Path) -> StoreRoot:
    """A store of each scheme with an empty folder."""
    name = f"t{uuid.uuid4().hex}"
    make: dict[str, Callable[[], StoreRoot]] = {
        "memory": lambda: (FsspecStore(), f"memory://{name}"),
        "file": lambda: (FsspecStore(), f"file://{tmp_path}/{name}"),
        "s3": lambda: _s3(request.getfixturevalue("s3"), name),
        "real_s3": lambda: _s3(request.getfixturevalue("real_s3"), name),
    }
    kind = str(request.param)
    store, root = make[kind.removeprefix("observed ")]()
    return (ObservedStore(store, CallLog()) if kind.startswith("observed ") else store), root


def _s3(server: Any, name: str) -> StoreRoot:
    return FsspecStore({"s3": server.storage_options}), f"{server.bucket('layout')}/{name}"
