"""Hostile prune requests, from the bytes of a body to the answer."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guard import survive
from fuzz.mutation import mutated_bytes, mutated_json
from fuzz.sql_grammar import CORPUS as SQL
from fuzz.tables import blocks, schema
from fuzz.test_json_filters import CORPUS as TREES
from lamella.service.http.admission import read_json
from lamella.snapshot.errors import InvalidRequest, LamellaError, SegmentNotFound
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

SEEDS = st.integers(0, 2**48)
_DECODER = msgspec.json.Decoder(PruneRequest)
_BLOOM = "A" * 43 + "="

REQUESTS: tuple[dict[str, Any], ...] = (
    {"filter": "n > 3 AND s LIKE 'a%'", "columns": ["n", "st.x"], "explain": True, "time_zone": "Europe/Berlin"},
    {"filter": {"type": "in", "term": "n", "values": [1, 2, 3]}, "level": "segment", "shape": "columns"},
    {"filter": "day >= '2020-01-01'", "limit": 10, "order_by": [{"column": "ts", "descending": True}]},
    {"filter": None, "limit": 3, "case_sensitive": True, "residuals": True},
    {"join": [{"column": "n", "values": [1, 2, 99]}], "page_size": 2},
    {"join": [{"column": "s", "ranges": [["a", "b"], ["x", "y"]]}, {"column": "n", "bloom": _BLOOM}]},
    {"order_by": [{"column": "d", "nulls_first": False}, {"column": "s"}], "limit": 1, "max_ms": 0.5},
    {"filter": "b", "reader_columns": ["d", "f"], "segments": [], "timestamp": "2020-01-01"},
)


@cache
def table() -> tuple[Warehouse, SnapshotPointer]:
    """A table of two segments, which no request changes."""
    warehouse = Warehouse(FsspecStore(), "memory://fuzz", segment_blocks=3)
    empty = warehouse.create("requests", schema(), now_ms=1)
    refs = warehouse.prepare("requests", schema(), blocks())
    return warehouse, warehouse.commit(empty, added=refs, now_ms=2).pointer


def hostile_body(seed: int) -> bytes:
    """A request, its filter exchanged for another, damaged as JSON or as bytes."""
    rng = Random(seed)
    request = dict(rng.choice(REQUESTS))
    if rng.random() < 0.3:
        request["filter"] = rng.choice((*SQL, *TREES))
    changed = mutated_json(rng, request, REQUESTS) if rng.random() < 0.8 else request
    body = json.dumps(changed, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return mutated_bytes(rng, body) if rng.random() < 0.2 else body


def swallow(body: bytes) -> bool:
    """Decode and carry out a request; True when it was answered."""
    warehouse, pointer = table()
    answer = survive(lambda: warehouse.prune(pointer, read_json(_DECODER, body)), body)
    if isinstance(answer, LamellaError):
        assert isinstance(answer, InvalidRequest | SegmentNotFound), f"{answer!r} for {body!r}"
        return False
    msgspec.json.encode(answer)
    return True


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_the_requests_are_answered(request_: dict[str, Any]) -> None:
    """What the mutations start from is answered."""
    assert swallow(json.dumps(request_).encode())


@settings(max_examples=400)
@given(SEEDS)
def test_damaged_requests(seed: int) -> None:
    """A damaged request is answered, or refused as a wrong request."""
    swallow(hostile_body(seed))


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes(body: bytes) -> None:
    """A body that is no request at all."""
    swallow(body)


@pytest.mark.parametrize("body", [b'{"filter":' * 100_000, b"[" * 100_000, b'{"filter":' + b"[" * 100_000])
def test_bodies_that_are_nested_without_end(body: bytes) -> None:
    """A hundred thousand levels are refused."""
    assert not swallow(body)


@pytest.mark.soak
def test_a_lot_of_damaged_requests() -> None:
    """As above, 40,000 times; a good part of them is answered."""
    assert sum(swallow(hostile_body(seed)) for seed in range(40_000)) > 5_000
