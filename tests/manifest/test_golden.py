"""Tables written by every released format version stay readable, and today's release writes what it says it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lamella.snapshot.manifest import FORMAT_VERSION, SnapshotPointer
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support import golden

Build = Callable[[], tuple[FsspecStore, SnapshotPointer]]
VERSIONS = sorted(path.name for path in golden.FOLDER.iterdir() if path.is_dir())
PARTS_VERSIONS = sorted(path.name for path in golden.PARTS.iterdir() if path.is_dir())
TABLES = [*((golden.FOLDER, version) for version in VERSIONS), *((golden.PARTS, version) for version in PARTS_VERSIONS)]
FEATURE_VERSIONS = sorted(path.name for path in golden.FEATURES.iterdir() if path.is_dir())


def _load(folder: Path) -> tuple[Warehouse, SnapshotPointer]:
    """The golden files of a version, laid out as the warehouse they came from."""
    store = FsspecStore()
    for old in list(store.list(golden.ROOT)):
        store.delete(old.location)
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".arrow", ".loc") and path.name != "pointer.json":
            store.put(f"{golden.ROOT}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    pointer = msgspec.json.decode((folder / "pointer.json").read_bytes(), type=SnapshotPointer)
    return Warehouse(store, golden.ROOT), pointer


def test_every_version_that_is_read_has_golden_files() -> None:
    """The one that is written and the two before it; a new format version comes with its golden table."""
    read = range(max(1, FORMAT_VERSION - 2), FORMAT_VERSION + 1)
    assert {f"v{version}" for version in read} <= set(VERSIONS)
    assert {f"v{version}" for version in read if version >= 3} <= set(FEATURE_VERSIONS)
    assert {f"v{version}" for version in read if version >= 3} <= set(PARTS_VERSIONS)


@pytest.mark.parametrize(("root", "version"), TABLES, ids=lambda each: getattr(each, "name", each))
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("n < -9000000000000000000", [0]),
        ("n BETWEEN 15 AND 22", [1, 2]),
        ("u > 18446744073709551614", [4]),
        ("x > 1e300", [2, 4]),  # infinity; and a block that may hold NaN
        ("x = 0.0", [0, 1]),
        ("price >= 400000000000000000000.0000000001", [4]),
        ("name LIKE 'name-3%'", [3]),
        ("day IS NOT NULL AND n > 25", [2, 3]),
        ("raw = X'0401'", [4]),
        ("flag AND n < 20", [1]),
        ("`inner`.leaf = -4", [4]),
        ("at >= TIMESTAMP '2033-05-18 03:33:20.000001'", [2, 3, 4]),
    ],
)
def test_a_table_of_an_older_release_prunes_as_ever(
    root: Path, version: str, text: str | None, expected: list[int]
) -> None:
    """Manifests and sidecars as they were written answer the same questions the same way."""
    warehouse, pointer = _load(root / version)
    answer = warehouse.prune(pointer, PruneRequest(filter=text))
    assert answer.blocks is not None
    assert [int(b.location.removesuffix(".parquet")[-1]) for b in answer.blocks] == expected


@pytest.mark.parametrize("version", FEATURE_VERSIONS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {0: "ALL", 1: "ALL", 2: "ALL", 3: "ALL", 4: "ALL"}),
        ("year = 2024", {0: "ALL", 1: "ALL", 3: "UNKNOWN"}),
        ("year IS NULL", {2: "ALL", 3: "UNKNOWN"}),
        ("region = 'nord/süd'", {0: "ALL", 3: "UNKNOWN", 4: "UNKNOWN"}),
        ("region IS NULL AND n < 20", {1: "ALL"}),
        ("price > 1.49 AND year < 2025", {0: "ALL", 1: "UNKNOWN", 3: "UNKNOWN"}),
        ("n >= 35", {3: "SOME", 4: "ALL"}),
    ],
)
def test_constants_and_deletes_of_an_older_release_mean_the_same(
    version: str, text: str | None, expected: dict[int, str]
) -> None:
    """Verdicts, constants and deletes of blocks, and their number in the summary."""
    warehouse, pointer = _load(golden.FEATURES / version)
    answer = warehouse.prune(pointer, PruneRequest(filter=text, reader_features=("constants", "deletes")))
    assert answer.blocks is not None
    found = {int(block.location.removesuffix(".parquet")[-1]): block for block in answer.blocks}
    assert {number: block.verdict for number, block in found.items()} == expected
    made = golden.feature_blocks()
    for number, block in found.items():
        assert (block.constants or {}) == made[number].constants
        assert (block.deletes or ()) == made[number].deletes
    summary = warehouse.head(pointer).summary
    assert (summary.constants_count, summary.deletes_count, summary.live_row_count) == (4, 3, None)


@pytest.mark.parametrize(
    ("build", "root", "count"),
    [
        (golden.build, golden.FOLDER, 6),
        (golden.build_features, golden.FEATURES, 6),
        (golden.build_parts, golden.PARTS, 6),
    ],
)
def test_the_writer_still_writes_the_golden_json(build: Build, root: Path, count: int) -> None:
    """The same table gives the same manifests: a change of the format is a new version, never an accident."""
    store, _ = build()
    folder = root / f"v{FORMAT_VERSION}"
    written = {stat.location: store.read(stat.location) for stat in store.list(golden.ROOT)}
    manifests = {location: data for location, data in written.items() if location.endswith(".json")}
    assert len(manifests) == count
    for location, data in manifests.items():
        stored = Path(folder / location.removeprefix(f"{golden.ROOT}/")).read_bytes()
        # sidecars' hashes move with the Arrow library, and with them those of manifests that hold such a hash
        assert _without_hashes(data) == _without_hashes(stored), location


def _without_hashes(data: bytes) -> object:
    def strip(node: object) -> object:
        if isinstance(node, dict):
            moving = {"sidecar", "prev_manifest", *(["manifest"] if "group_id" in node else [])}
            return {key: strip(value) for key, value in node.items() if key not in moving}
        return [strip(item) for item in node] if isinstance(node, list) else node

    return strip(msgspec.json.decode(data))
