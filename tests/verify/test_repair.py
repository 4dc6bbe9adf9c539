"""Repair puts derived objects back as they were, byte for byte, or writes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lamella.snapshot.manifest import ObjectRef, SnapshotPointer, decode_group
from lamella.snapshot.pages import SegmentPages
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Options
from lamella.snapshot.verify.sidecars import group_sidecar, segment_sidecar, snapshot_sidecar
from lamella.snapshot.warehouse import Warehouse
from support.lying_writer import LyingWriter
from verify.damage import without_exact_bits

Derived = Callable[[LyingWriter], ObjectRef]

DERIVED = {
    "segment": lambda table: table.refs[1].sidecar,
    "group": lambda table: table.snapshot.groups[0].sidecar,
    "locations": lambda table: table.snapshot.groups[0].locations,
    "snapshot": lambda table: table.pointer.sidecar,
}


def remove(table: LyingWriter, ref: ObjectRef) -> None:
    """Delete an object."""
    table.store.delete(ref.location)


def cut(table: LyingWriter, ref: ObjectRef) -> None:
    """Leave half of an object."""
    table.replace(ref.location, table.store.read(ref.location)[: ref.size_bytes // 2])


@pytest.mark.parametrize("damage", [remove, cut])
@pytest.mark.parametrize("of", DERIVED)
def test_what_is_derived_is_put_back_byte_for_byte(of: str, damage: Callable[[LyingWriter, ObjectRef], None]) -> None:
    """After repair the object has the recorded hash, the table is clean, and nothing else was written."""
    table = LyingWriter(grouped=True)
    ref = DERIVED[of](table)
    before = table.store.read(ref.location)
    damage(table, ref)
    others = {stat.location: stat for stat in table.store.list(table.root) if stat.location != ref.location}
    answer = table.verify(Options(repair=True))
    (finding,) = answer.findings
    assert finding.repaired
    assert answer.is_clean
    assert table.store.read(ref.location) == before
    assert table.verify().findings == ()
    assert {s.location: s for s in table.store.list(table.root) if s.location != ref.location} == others


def test_without_repair_nothing_is_written() -> None:
    """Looking changes nothing."""
    table = LyingWriter(pages=True)
    remove(table, table.refs[0].sidecar)
    before = list(table.store.list(table.root))
    assert not table.verify(Options(pages=True)).is_clean
    assert list(table.store.list(table.root)) == before


def test_a_sidecar_of_another_release_is_not_put_back() -> None:
    """Where the bytes cannot be made equal nothing is written, and the finding says so."""
    table = LyingWriter(scanned=True)
    table.lie(sidecar=without_exact_bits)
    ref = table.refs[0].sidecar
    remove(table, ref)
    answer = table.verify(Options(repair=True))
    (finding,) = answer.findings
    assert finding.code == "sidecar_missing"
    assert not finding.repaired
    assert finding.not_repaired is not None
    assert "nothing was written" in finding.not_repaired
    assert not answer.is_clean
    assert ref.location not in {stat.location for stat in table.store.list(table.root)}


@pytest.mark.parametrize("damage", ["missing", "damaged", "cut"])
def test_page_sidecars_are_built_again(damage: str) -> None:
    """A page sidecar that is gone or damaged is built from the files."""
    table = LyingWriter(pages=True)
    ref = table.refs[0]
    location = SegmentPages(ref.segment_id, ref.manifest).location
    before = table.store.read(location)
    if damage == "missing":
        table.store.delete(location)
    elif damage == "damaged":
        table.flip(location, len(before) - 3)
    else:
        table.replace(location, before[:100])
    answer = table.verify(Options(pages=True, repair=True))
    assert answer.findings
    assert answer.is_clean
    assert table.store.read(location) == before
    assert table.verify(Options(pages=True)).findings == ()


def test_manifests_and_blocks_are_never_written() -> None:
    """Damage to what is not derived stays, and is not called repaired."""
    table = LyingWriter(grouped=True)
    table.flip(table.refs[0].manifest.location, 40)
    table.store.delete(f"{table.root}/data/5.parquet")
    before = {stat.location: stat for stat in table.store.list(table.root)}
    answer = table.verify(Options(repair=True))
    assert {finding.code for finding in answer.findings} == {"manifest_hash", "block_missing"}
    assert not any(finding.repaired for finding in answer.findings)
    assert {stat.location: stat for stat in table.store.list(table.root)} == before


_WRITER = """
import sys
from lamella.snapshot.manifest import encode
sys.path.insert(0, sys.argv[2])
from support.lying_writer import LyingWriter
import msgspec
table = LyingWriter(scanned=True, grouped=True, root=sys.argv[1])
sys.stdout.write(msgspec.json.encode(table.pointer).decode())
"""


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_sidecars_are_the_same_bytes_in_every_process(tmp_path: Path, hash_seed: str) -> None:
    """What one process wrote another builds again from the manifests, byte for byte."""
    root = f"file://{tmp_path}/warehouse"
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _WRITER, root, tests],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
    )
    pointer = msgspec.json.decode(done.stdout, type=SnapshotPointer)
    store = FsspecStore()
    warehouse = Warehouse(store, root)
    snapshot = warehouse.snapshot(pointer)
    assert snapshot.groups
    assert snapshot_sidecar(snapshot) == store.read(pointer.sidecar.location)
    for group in snapshot.groups:
        made = group_sidecar(snapshot, decode_group(store.read(group.manifest.location)))
        assert made == store.read(group.sidecar.location)
    for ref in warehouse.segments(pointer):
        assert segment_sidecar(snapshot, warehouse.segment(ref)) == store.read(ref.sidecar.location)
