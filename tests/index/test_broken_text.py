"""Blocks with text that is not UTF-8: no index knows them, and every query reads them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.index import kinds
from lamella.snapshot.index.building import build_part
from lamella.snapshot.schema import parse_type
from lamella.snapshot.wire import PruneRequest
from support.broken_text import text_of
from support.real_tables import RealTable

TEXTS = ("s", "lower(s)", "left(s, 2)", "length(s)", "get_json_object(s, '$.a')")


def fitting(dtype: str) -> list[str]:
    """The kinds that have indexes over a type."""
    found = []
    for name, kind in sorted(kinds().items()):
        try:
            kind.options(parse_type(dtype), {})
        except InvalidRequest:
            continue
        found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("expression", TEXTS)
def test_a_block_with_text_that_is_none_is_left_out_of_every_index(expression: str, tmp_path: Path) -> None:
    """It ends no build: its neighbours are indexed, the reason is told, and queries keep it."""
    broken = text_of([b'{"a": 1}', b"\xff\xfe", None])
    table = RealTable(tmp_path, [pa.table({"s": pa.array(["x"])}), pa.table({"s": broken}), pa.table({"s": ["y"]})])
    for kind in fitting("int32" if expression == "length(s)" else "string"):
        table.add_index(kind, kind, expression, left_out=1)
        snapshot = table.warehouse.snapshot(table.pointer)
        index = next(each for each in snapshot.skip_indexes if each.name == kind)
        for workers in (1, 3):
            blocks = [
                block
                for ref in table.warehouse.segments(table.pointer)
                for block in table.warehouse.segment(ref).blocks
            ]
            built = build_part(table.store, index, snapshot, blocks, workers=workers)
            assert [left.reason for left in built.left_out] == ["s has text that is not UTF-8"]
            assert built.left_out[0].location == blocks[1].location
            assert built.part is not None
            assert len(built.part.keys) == 2
    for filter in ("s = '{\"a\": 1}'", "s LIKE '%a%'", "lower(s) = 'q' OR length(s) > 7", "left(s, 2) = '{\"'"):
        answer = table.warehouse.prune(table.pointer, PruneRequest(filter=filter))
        assert any("00001.parquet" in block.location for block in answer.blocks or ()), filter


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_no_row_is_lost_among_texts_of_any_bytes(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever bytes texts have, indexes of all kinds keep each block with a row that a filter is true for."""
    rng = Random(seed)
    pool = [
        rng.choice([b"abc", b"abcd", b"\xc3\xa9t\xc3\xa9", b"\xff", b"ab\xc3", b"", b"\xed\xa0\x80"]) for _ in range(4)
    ]
    blocks: list[list[bytes | None]] = [
        [rng.choice([*pool, b"abc%d" % rng.randint(0, 3), None]) for _ in range(rng.randint(1, 5))] for _ in range(5)
    ]
    blocks.append([b"plain"])
    arrays = [pa.table({"s": text_of(block)}) for block in blocks]
    table = RealTable(tmp_path_factory.mktemp("broken"), arrays, verify=rng.random() < 0.5)
    whole = [block for block in blocks if all(cell is None or is_text(cell) for cell in block)]
    for kind in rng.sample(fitting("string"), 3):
        table.add_index(kind, kind, "s", left_out=len(blocks) - len(whole))
    for wanted in {cell for block in blocks for cell in block if cell is not None and is_text(cell)}:
        text = wanted.decode()
        answer = table.warehouse.prune(table.pointer, PruneRequest(filter=f"s = '{text}' OR s LIKE '%{text}_'"))
        selected = {int(block.location[-13:-8]) for block in answer.blocks or ()}
        assert selected >= {at for at, block in enumerate(blocks) if wanted in block}, text


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
