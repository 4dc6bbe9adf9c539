"""Damaged manifests, sidecars, page sidecars and page tokens: an error of ours, never a wrong read of memory.

Their bytes are checked against a content hash before they are read; here that check is left out, as if its hash had
been forged too.
"""

from __future__ import annotations

import json
import re
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guard import peak_bytes, survive
from fuzz.mutation import mutated_bytes, mutated_json
from lamella.snapshot.columnar import Sidecar, build_blocks, build_segments
from lamella.snapshot.columnar.keys import Keys
from lamella.snapshot.errors import InvalidPageToken, LamellaError, ManifestError
from lamella.snapshot.manifest import Segment, Snapshot, decode_segment, decode_snapshot
from lamella.snapshot.prune.paging import PageTokens, Position
from lamella.snapshot.schema import DataType
from lamella.snapshot.wire import PruneRequest
from support.golden import FOLDER, SCHEMA

SEEDS = st.integers(0, 2**48)
SECRET = b"a secret for the fuzz tests"


@cache
def objects(kind: str, suffix: str) -> tuple[bytes, ...]:
    """The golden files: ``_sg`` segments or ``_ss`` snapshots, ``json`` or ``arrow``."""
    return tuple(path.read_bytes() for path in sorted(FOLDER.glob(f"*/*/{kind}/*.{suffix}")))


# --- manifests ---


def _read_segment(data: bytes) -> Segment:
    segment = decode_segment(data)
    build_blocks(SCHEMA, segment.blocks)
    return segment


def _read_snapshot(data: bytes) -> Snapshot:
    snapshot = decode_snapshot(data)
    snapshot.schema.leaves()
    build_segments(snapshot.schema, snapshot.segments)
    return snapshot


def swallow_manifest(seed: int) -> bool:
    """Read a damaged manifest and build its sidecar anew; True when nothing was wrong with it."""
    rng = Random(seed)
    kind = rng.choice(("_sg", "_ss"))
    texts = objects(kind, "json")
    data = rng.choice(texts)
    if rng.random() < 0.4:
        data = mutated_bytes(rng, data)
    else:
        values = [json.loads(text) for text in texts]
        # Halves of surrogate pairs cannot be written as UTF-8 text; as bytes they can, which is hostile enough.
        text = json.dumps(mutated_json(rng, json.loads(data), values), ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass")
    answer = survive(lambda: (_read_segment if kind == "_sg" else _read_snapshot)(data), data)
    return not isinstance(answer, LamellaError)


def test_the_manifests_are_read() -> None:
    """What the mutations start from is whole."""
    assert [_read_segment(data) for data in objects("_sg", "json")]
    assert [_read_snapshot(data) for data in objects("_ss", "json")]


@settings(max_examples=300)
@given(SEEDS)
def test_damaged_manifests(seed: int) -> None:
    """Damaged manifests are read, or refused by an error of ours."""
    swallow_manifest(seed)


@pytest.mark.parametrize("shape", [b"[", b'{"format_version":1,"x":[', b'{"a":'])
def test_manifests_that_are_nested_without_end(shape: bytes) -> None:
    """A hundred thousand levels are a manifest error, not a recursion error."""
    for decode in (decode_segment, decode_snapshot):
        answer = survive(lambda decode=decode: decode(shape * 100_000), shape)  # type: ignore[misc]  # bound at once
        assert isinstance(answer, ManifestError)


# --- sidecars ---


def _read_sidecar(data: bytes, names: tuple[str, ...], texts: tuple[str, ...]) -> None:
    sidecar = Sidecar(data)
    for leaf in SCHEMA.leaves():
        zones = sidecar.zones(leaf.id, leaf.dtype)
        for keys in (zones.low, zones.high):
            if keys is not None:
                _compare(keys, leaf.dtype)
        sidecar.null_counts(leaf.id, leaf.dtype)
    sidecar.column_size_bytes([leaf.id for leaf in SCHEMA.leaves()])
    for name in names:
        sidecar.numbers(name)
    for name in texts:
        sidecar.texts(name)
        sidecar.texts(name, np.arange(len(sidecar)))


@pytest.mark.parametrize("dtype", [pa.uint64(), pa.float64(), pa.int32()], ids=str)
@pytest.mark.parametrize(("kind", "name"), [("_sg", "1.size"), ("_sg", "row_count"), ("_ss", "1.nulls")])
def test_counts_of_another_type_are_refused(kind: str, name: str, dtype: pa.DataType) -> None:
    """Sums of such numbers failed with an error of NumPy, or were not exact."""
    batch = pa.ipc.open_file(objects(kind, "arrow")[0]).get_batch(0)
    at = batch.schema.get_field_index(name)
    schema = batch.schema.set(at, batch.schema.field(at).with_type(dtype))
    counts = pa.array([1] * len(batch), dtype)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        columns = [counts if number == at else column for number, column in enumerate(batch.columns)]
        writer.write_batch(pa.record_batch(columns, schema=schema))
    with pytest.raises(ManifestError, match=re.escape(repr(name))):
        Sidecar(sink.getvalue().to_pybytes()).numbers(name)


def _compare(keys: Keys, dtype: DataType) -> None:
    value = {"bytes": b"n", "float": 0.5}.get(dtype.order or "", 1)
    keys.less(value)
    keys.less_equal(value)
    keys.rank([value], right=True)


def swallow_sidecar(seed: int) -> bool:
    """Open a damaged sidecar and read all of it; True when nothing was wrong with it."""
    rng = Random(seed)
    kind = rng.choice(("_sg", "_ss"))
    data = mutated_bytes(rng, rng.choice(objects(kind, "arrow")))
    numbers = ("row_count", "file_size", "block_size")
    texts = ("location",) if kind == "_sg" else ("segment_id", "manifest.location", "sidecar.sha256")
    return not isinstance(survive(lambda: _read_sidecar(data, numbers, texts), f"seed {seed}"), LamellaError)


@settings(max_examples=300)
@given(SEEDS)
def test_damaged_sidecars(seed: int) -> None:
    """Damaged sidecars are read within their own bytes, or refused by an error of ours."""
    swallow_sidecar(seed)


# --- page tokens ---


def _request(rng: Random) -> PruneRequest:
    return PruneRequest(filter=rng.choice((None, "n = 1", "n = 2")), level=rng.choice(("block", "segment")))


def swallow_token(seed: int) -> bool:
    """Read an altered token, or one of another secret or request; True when it was taken."""
    rng = Random(seed)
    tokens, request = PageTokens(SECRET), _request(rng)
    token = tokens.write("s", request, Position(rng.randrange(9), rng.randrange(9)))
    match rng.randrange(4):
        case 0:
            given = mutated_bytes(rng, token.encode()).decode("latin-1")
        case 1:
            given = PageTokens(b"another secret, as long").write("s", request, Position(0, 0))
        case 2:
            given = rng.choice(("", "=", "AAAA", "a" * 10_000, "\ud800", "é", token + "=", token[:-1], token * 2))
        case _:
            given, request = token, _request(rng)
    resumed = PruneRequest(filter=request.filter, level=request.level, page_token=given)
    answer = survive(lambda: tokens.read(resumed), given)
    if isinstance(answer, LamellaError):
        assert isinstance(answer, InvalidPageToken)
        return False
    fresh = PageTokens(SECRET).write(answer[0], request, answer[1])
    assert fresh == token, "a token was taken that stands for another place or request"
    return True


@settings(max_examples=300)
@given(SEEDS)
def test_altered_page_tokens(seed: int) -> None:
    """A token is taken only if this secret wrote it, for this request; all others are one kind of error."""
    swallow_token(seed)


@pytest.mark.soak
@pytest.mark.parametrize("swallow", [swallow_manifest, swallow_sidecar, swallow_token])
def test_a_lot_of_damaged_objects(swallow: Any) -> None:
    """As above, 60,000 times each; some of them are not hurt by it."""
    assert sum(swallow(seed) for seed in range(60_000)) > 1_000


def test_a_schema_of_many_nested_columns_takes_memory_in_proportion() -> None:
    """A snapshot whose schema is a hundred levels deep is read, or refused, in little memory."""
    column: dict[str, Any] = {"id": 1, "name": "c", "type": "int64"}
    for level in range(2, 100):
        column = {"id": level, "name": "c", "type": "struct", "fields": [column]}
    snapshot = json.loads(objects("_ss", "json")[0])
    snapshot["schema"] = {**snapshot["schema"], "columns": [column]}
    snapshot["segments"] = []
    data = json.dumps(snapshot).encode()
    survive(lambda: _read_snapshot(data), "a deep schema")
    assert peak_bytes(lambda: survive(lambda: _read_snapshot(data), "a deep schema")) < 8 << 20
