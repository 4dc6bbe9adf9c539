"""Tables that earlier releases wrote stay verifiable: nothing is wrong with them that was not wrong then."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Options, Verification
from support.golden import FOLDER, PARTS, ROOT, TABLE_ID


@pytest.mark.parametrize("folder", [*sorted(FOLDER.iterdir()), *sorted(PARTS.iterdir())], ids=lambda path: path.name)
def test_golden_tables_are_as_they_were(folder: Path) -> None:
    """Sidecars of older releases say less, and nothing else; one block's text bounds have always been crossed."""
    store = FsspecStore()
    for old in list(store.list(ROOT)):
        store.delete(old.location)
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "pointer.json":
            store.put(f"{ROOT}/{path.relative_to(folder)}", path.read_bytes())
    pointer = msgspec.convert(json.loads((folder / "pointer.json").read_bytes()), SnapshotPointer)
    answer = Verification(store, ROOT, TABLE_ID, pointer, Options(files=False)).run()
    wrong = [finding for finding in answer.findings if finding.severity != "info"]
    assert [(finding.code, finding.column, finding.message) for finding in wrong] == [
        ("stats_invalid", "name", "min is greater than max")
    ]
    assert set(answer.counts) <= {"stats_invalid", "sidecar_older"}
