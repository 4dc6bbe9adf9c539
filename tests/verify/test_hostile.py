"""Manifests, sidecars, indexes and sketches that anybody may have written: findings, never a crash."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.mutation import mutated_bytes, mutated_json
from lamella.snapshot.manifest import ObjectRef, content_hash
from lamella.snapshot.verify import Deep, Options
from support.lying_writer import LyingWriter


def rewritten(table: LyingWriter, rng: Random) -> None:
    """Change one object, and record its new hash in all that is above it."""
    kind = rng.choice(["segment", "segment", "snapshot", "group", "sidecar", "index", "pages", "sketch", "file"])
    ref = rng.choice(table.refs)
    snapshot = table.snapshot
    if kind == "file":
        location = rng.choice(table.segment(0).blocks).location
        table.replace(location, mutated_bytes(rng, table.store.read(location)))
    elif kind in ("pages", "sketch"):
        ends = ".pages" if kind == "pages" else ".hll"
        locations = [stat.location for stat in table.store.list(table.root) if stat.location.endswith(ends)]
        location = rng.choice(locations)
        table.replace(location, mutated_bytes(rng, table.store.read(location)))
    else:
        changed = {
            "segment": ref.manifest,
            "sidecar": ref.sidecar,
            "snapshot": table.pointer.manifest,
            "group": snapshot.groups[0].manifest,
            "index": snapshot.groups[0].locations,
        }[kind]
        forge(table, changed, rng)


def forge(table: LyingWriter, changed: ObjectRef, rng: Random) -> None:
    """Other bytes for an object, and their hash wherever the old one stood."""
    data = table.store.read(changed.location)
    if changed.location.endswith(".json"):
        value = json.loads(data)
        made = mutated_json(rng, value, [value, json.loads(table.store.read(table.refs[1].manifest.location))])
        new = json.dumps(made, ensure_ascii=False).encode("utf-8", "surrogatepass")
    else:
        new = mutated_bytes(rng, data)
    before, after = changed.sha256, table.write(changed.location, new)
    while before != after.sha256:
        if changed.location == table.pointer.manifest.location:
            table.pointer = type(table.pointer)(
                snapshot_id=table.pointer.snapshot_id,
                timestamp_ms=table.pointer.timestamp_ms,
                manifest=after,
                sidecar=table.pointer.sidecar,
            )
            return
        holder = next(
            stat.location
            for stat in table.store.list(table.root)
            if stat.location.endswith(".json")
            and before.encode() in table.store.read(stat.location)
            and ("_sl/" in stat.location or stat.location == table.pointer.manifest.location)
        )
        text = table.store.read(holder).replace(before.encode(), after.sha256.encode())
        changed = ObjectRef(location=holder, size_bytes=0, sha256=_hash(table, holder))
        before, after = changed.sha256, table.write(holder, text)


def _hash(table: LyingWriter, location: str) -> str:
    return content_hash(table.store.read(location))


def survive(seed: int) -> None:
    """Damage once or twice, then verify with repair and values."""
    rng = Random(seed)
    table = LyingWriter(scanned=True, grouped=True, pages=True)
    rewritten(table, rng)
    options = Options(pages=True, deep=Deep(sample=1.0, filters=2), repair=rng.random() < 0.3, workers=2)
    answer = table.verify(options)
    assert answer.steps_done == answer.steps
    for finding in answer.findings:
        assert len(finding.message) < 20_000


@given(seed=st.integers(0, 1 << 48))
@example(seed=1_484)
@settings(max_examples=40)
def test_whatever_is_stored_verification_ends_with_findings(seed: int) -> None:
    """No exception leaves a step, whatever stands in the objects."""
    survive(seed)


@pytest.mark.soak
def test_much_that_is_hostile() -> None:
    """The same for many seeds."""
    for seed in range(500):
        survive(seed)
