"""Sources whose files cannot be reached: a refresh fails after a few tries, not after thousands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.errors import ObjectNotFound, StoreError
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.source.evolution import Evolution
from lamella.snapshot.source.read import take
from lamella.snapshot.source.state import SourceFile, SourceState
from lamella.snapshot.storage.fail_fast import MAX_FAILURES, FailFastStore
from lamella.snapshot.storage.store import ObjectStat

FILES, WORKERS = 5_000, 4


class Unreachable:
    """A store of which each call fails, and is counted. ``reads_ends`` asks nothing of the storage, so it answers."""

    def __init__(self, error: type[Exception] = StoreError, *, reads_ends: bool = True) -> None:
        self.calls = 0
        self._error = error
        self._reads_ends = reads_ends

    def reads_ends(self, _: str) -> bool:
        """Whether files are read by one request."""
        return self._reads_ends

    def __getattr__(self, name: str) -> Any:
        def call(location: str, *_: Any, **__: Any) -> ObjectStat:
            self.calls += 1
            raise self._error(f"{location} cannot be reached")

        return call


@pytest.mark.parametrize("reads_ends", [False, True])
@pytest.mark.parametrize("by_number", [False, True])
def test_a_store_that_fails_is_not_tried_for_every_file(by_number: bool, reads_ends: bool) -> None:
    """Each file is refused all the same, with the reason of those that were tried, however files are read."""
    store: Any = Unreachable(reads_ends=reads_ends)
    files = tuple(SourceFile(location=f"s3://bucket/{number}.parquet", size_bytes=1) for number in range(FILES))
    state = SourceState(files=files)
    evolution = Evolution(
        history=(Schema.assign([Column(name="a", type="int64")]),), schema_of={0: 0} if by_number else {}
    )
    taken = take(store, files, state, evolution, workers=WORKERS, vectors=VectorFile("memory://v"))
    assert taken.blocks == []
    assert [refused.path for refused in taken.refused] == [file.location for file in files]
    assert {refused.code for refused in taken.refused} == {StoreError.code}
    assert taken.refused[-1].reason.startswith("not tried: the store failed 8 times, last: s3://bucket/")
    assert store.calls <= MAX_FAILURES + WORKERS


def test_missing_objects_are_no_failures(tmp_path: Path) -> None:
    """Each is looked for."""
    missing: Any = Unreachable(ObjectNotFound)
    store = FailFastStore(missing)
    for number in range(3 * MAX_FAILURES):
        with pytest.raises(ObjectNotFound):
            store.stat(f"file://{tmp_path}/{number}")
    assert missing.calls == 3 * MAX_FAILURES
