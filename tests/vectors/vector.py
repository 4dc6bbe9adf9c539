"""Test vectors: read from JSON, run through a warehouse, checked (docs/vectors.md describes the form)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.stats import Bound, from_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from support.oracle import Oracle

FOLDER = Path(__file__).resolve().parent
VERDICTS = frozenset({"NONE", "SOME", "UNKNOWN", "ALL"})


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ansi`` None: the verdicts must hold with and without ANSI mode."""

    time_zone: str
    ansi: bool | None


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The filter in one form or in both, which then mean the same."""

    sql: str | None = None
    json: Any = None


class VectorBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statistics as in a manifest; ``rows``: by column path, values that these statistics describe."""

    row_count: int
    col_stats: dict[str, Any]
    rows: dict[str, list[Any]] | None = None


class Vector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One filter over a few blocks."""

    id: str
    title: str
    classes: list[str]
    source: list[str]
    schema: list[Column]
    blocks: list[VectorBlock]
    filter: Filter
    session: Session
    expected: list[str]
    sound: list[list[str]]


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file."""

    format: int
    family: str
    description: str
    vectors: list[Vector]


class BugClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of published wrong results; ``elsewhere``: the test that holds it when statistics cannot show it."""

    id: str
    title: str
    sources: list[str]
    elsewhere: str | None = None


def families() -> list[Family]:
    """Every file of vectors."""
    paths = sorted(path for path in FOLDER.glob("*.json") if path.name != "classes.json")
    return [msgspec.json.decode(path.read_bytes(), type=Family) for path in paths]


def classes() -> list[BugClass]:
    """The classes that vectors name."""
    return msgspec.json.decode((FOLDER / "classes.json").read_bytes(), type=list[BugClass])


def check(vector: Vector, *, segment_blocks: int = 1000) -> list[str]:
    """What is wrong: with Lamella's verdicts, or with the vector itself. Empty when all is well."""
    schema = Schema.assign(vector.schema)
    problems = _own_problems(vector, schema)
    if problems:
        return problems
    for form in (vector.filter.sql, vector.filter.json):
        if form is not None:
            found = verdicts(vector, schema, form, segment_blocks)
            if found != vector.expected:
                problems.append(f"{vector.id}: {form!r} gives {found}, expected {vector.expected}")
            for at, (verdict, sound) in enumerate(zip(found, vector.sound, strict=True)):
                if verdict not in sound:
                    problems.append(f"{vector.id}: block {at}: {verdict} is not sound for {form!r}")
    return problems


def verdicts(vector: Vector, schema: Schema, form: Any, segment_blocks: int) -> list[str]:
    """Lamella's verdict for each block; NONE when it is not in the answer."""
    warehouse = Warehouse(FsspecStore(), f"memory://vectors-{segment_blocks}", segment_blocks=segment_blocks)
    pointer = warehouse.create(vector.id, schema, now_ms=1)
    blocks = [_block(at, block) for at, block in enumerate(vector.blocks)]
    pointer = warehouse.commit(pointer, added=warehouse.prepare(vector.id, schema, blocks), now_ms=2).pointer
    answer = warehouse.prune(pointer, PruneRequest(filter=form, time_zone=vector.session.time_zone))
    assert answer.blocks is not None
    selected = {block.location: block.verdict for block in answer.blocks}
    return [selected.get(block.location, "NONE") for block in blocks]


def _block(at: int, block: VectorBlock) -> Block:
    given = {"row_count": block.row_count, "col_stats": block.col_stats, "file_size": 100}
    return msgspec.json.decode(msgspec.json.encode({**given, "location": f"memory://vectors/{at}.parquet"}), type=Block)


def _own_problems(vector: Vector, schema: Schema) -> list[str]:
    """Where a vector contradicts itself: its form, its statistics against its rows, its verdicts against its rows."""
    problems = []
    if len(vector.expected) != len(vector.blocks) or len(vector.sound) != len(vector.blocks):
        return [f"{vector.id}: not one verdict for each block"]
    if vector.filter.sql is None and vector.filter.json is None:
        return [f"{vector.id}: no filter"]
    for at, (block, expected, sound) in enumerate(zip(vector.blocks, vector.expected, vector.sound, strict=True)):
        if not {expected, "SOME", "UNKNOWN"} <= set(sound) <= VERDICTS:
            problems.append(f"{vector.id}: block {at}: {expected} expected, {sound} sound")
        if block.rows is not None:
            problems += [f"{vector.id}: block {at}: {problem}" for problem in _row_problems(vector, schema, at)]
    return problems


def _row_problems(vector: Vector, schema: Schema, at: int) -> list[str]:
    block, sound = vector.blocks[at], vector.sound[at]
    values = {leaf.name: _values(leaf.dtype, (block.rows or {})[leaf.name]) for leaf in schema.leaves()}
    problems = []
    stats = _block(at, block).col_stats
    for leaf in schema.leaves():
        cells = values[leaf.name]
        if len(cells) != block.row_count:
            return [f"{leaf.name} has {len(cells)} rows, not {block.row_count}"]
        given = stats.get(leaf.id)
        if given is None:
            continue
        numbers = [cell for cell in cells if cell is not None and cell == cell]
        if given.null_count is not None and given.null_count != cells.count(None):
            problems.append(f"{leaf.name}: the null count is not that of the rows")
        if given.min is not None and any(cell < from_bound(leaf.dtype, given.min) for cell in numbers):
            problems.append(f"{leaf.name}: a row is below the minimum")
        if given.max is not None and any(cell > from_bound(leaf.dtype, given.max) for cell in numbers):
            problems.append(f"{leaf.name}: a row is above the maximum")
        has_nan = any(cell != cell for cell in cells)
        if (given.nan == "none" and has_nan) or (given.nan == "all" and numbers):
            problems.append(f"{leaf.name}: nan is not {given.nan}")
    for form in (vector.filter.sql, vector.filter.json):
        if form is not None and vector.session.time_zone == "UTC":  # the only one that the oracle knows
            problems += _unsound(vector, schema, form, values, sound)
    return problems


def _unsound(
    vector: Vector, schema: Schema, form: Any, values: Mapping[str, list[Any]], sound: Sequence[str]
) -> list[str]:
    """Verdicts that are called sound and that the rows disprove."""
    predicate = read_filter(form, time_zone=vector.session.time_zone)
    oracle = Oracle(schema)
    rows = [dict(zip(values, cells, strict=True)) for cells in zip(*values.values(), strict=True)]
    try:
        results = [oracle.decide(predicate, row) for row in rows]
    except AssertionError:
        return []  # functions that the oracle does not know; the vector stands on its own
    problems = []
    if "NONE" in sound and True in results:
        problems.append(f"a row matches {form!r}, so NONE is not sound")
    if "ALL" in sound and any(result is not True for result in results):
        problems.append(f"a row does not match {form!r}, so ALL is not sound")
    return problems


def _values(dtype: DataType, cells: Sequence[Any]) -> list[Any]:
    return [None if cell is None else _value(dtype, cell) for cell in cells]


def _value(dtype: DataType, cell: Any) -> Any:
    if cell == {"Float64": "NaN"}:  # which is no bound
        return math.nan
    return from_bound(dtype, msgspec.convert(cell, Bound))


def copy_of(vector: Vector, **changes: Any) -> Vector:
    """The vector with other members, as JSON has them."""
    raw = json.loads(msgspec.json.encode(vector))
    return msgspec.convert({**raw, **changes}, Vector)
