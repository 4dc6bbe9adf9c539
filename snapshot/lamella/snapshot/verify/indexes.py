"""Skip indexes: checks directories and parts, and compares claims with the rows of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import numpy as np

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import HashMismatch, InvalidRequest, LamellaError, ManifestError, NotFound, StoreError
from lamella.snapshot.expression import Predicate, bind
from lamella.snapshot.expression import nodes as n
from lamella.snapshot.expression.bound import BoundTerm, Pair, leaves_of
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.building import ExpressionFails, own_footer, term_values
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.directory import Directory, find_entries
from lamella.snapshot.index.kind import Kind, PossibleOutcomes, Probe, whole
from lamella.snapshot.index.part import Part, PartRef
from lamella.snapshot.index.registry import kinds
from lamella.snapshot.index.widening import can_serve
from lamella.snapshot.manifest import Block, DirectoryRef, Snapshot, TableIndex
from lamella.snapshot.manifest.block_key import block_keys
from lamella.snapshot.parquet.file_values import Unreadable
from lamella.snapshot.row_filter import Truth, like_pattern, matched, truth_of
from lamella.snapshot.schema import Column, DataType, Schema, parse_type
from lamella.snapshot.storage import Store
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.false_skips import literal_of
from lamella.snapshot.verify.layers import Problem
from lamella.snapshot.verify.reading import Note, read_manifest
from lamella.snapshot.wire.maintenance import Finding

_OPERATORS: Final[tuple[n.Operator, ...]] = ("lt", "le", "gt", "ge", "eq", "ne")
_TERM: Final = n.Ref("c")


class IndexAudit:
    """The active indexes of a snapshot (None: there is none); their directories are read once."""

    def __init__(self, store: Store, snapshot: Snapshot | None) -> None:
        self._store = store
        self._table = snapshot
        self._indexes: list[tuple[TableIndex, BoundTerm]] = []
        for index in () if snapshot is None else snapshot.skip_indexes:
            usable = index.dropped_ms is None and index.kind in kinds()
            term = term_in(index, snapshot) if usable and snapshot is not None else None
            if term is not None:
                self._indexes.append((index, term))
        self._directories: dict[str, list[Directory]] = {}

    def check(self, block: Block, *, filters: int, rng: Random) -> tuple[list[Problem], int]:
        """Returns what is wrong with the claims of indexes on a block, and how many predicates were compared."""
        problems: list[Problem] = []
        compared = 0
        for index, term in self._indexes:
            try:
                found = self._wrong(index, term, block, filters, rng)
            except (ExpressionFails, Unreadable) as error:
                message = f"index {index.name!r} covers the block, whose values cannot be read: {error}"
                problems.append(Problem("values_unreadable", message, None, block.location))
            except (HashMismatch, ManifestError, NotFound):
                continue  # reported of the directory, of the part or of the file
            else:
                problems += [] if found is None else found
                compared += 0 if found is None else filters
        return problems, compared

    def _wrong(
        self, index: TableIndex, term: BoundTerm, block: Block, filters: int, rng: Random
    ) -> list[Problem] | None:
        """Returns what is wrong with the claims of an index on a block; None if it makes none."""
        probed = self._probe(index, term, block)
        if probed is None or self._table is None:
            return None
        footer = own_footer(self._store, block)
        vectors = list(term_values(self._store, self._table, term, block, footer))
        return [
            Problem("index_false_skip", f"index {index.name!r}: {text}", None, block.location)
            for text in _false_claims(*probed, term.dtype, vectors, index.options, filters, rng)
        ]

    def _probe(self, index: TableIndex, term: BoundTerm, block: Block) -> tuple[Kind, Probe, int] | None:
        """Returns the probe of a block, and its row; None if the index does not have the block, or cannot be probed."""
        if index.index_id not in self._directories:
            self._directories[index.index_id] = [
                Directory.read(self._store.read(ref.object.location), ref.object.location) for ref in index.directories
            ]
        found = find_entries(self._directories[index.index_id], block_keys([block]))
        if found.number[0] < 0:
            return None
        part = open_part(self._store, found.parts[int(found.number[0])])
        if not can_serve(parse_type(part.header.dtype), term.dtype) or found.row[0] >= part.header.block_count:
            return None
        kind = kinds()[index.kind]
        return kind, kind.probe(part), int(found.row[0])


def _false_claims(
    kind: Kind,
    probe: Probe,
    row: int,
    dtype: DataType,
    vectors: Sequence[Vector],
    options: Mapping[str, Any],
    filters: int,
    rng: Random,
) -> Iterator[str]:
    """Yields outcomes of rows that the entry excludes."""
    schema = Schema.assign([Column(name="c", type=str(dtype))])
    for _ in range(filters):
        predicate = _random_predicate(dtype, vectors, rng)
        try:
            tests = leaves_of(bind(predicate, schema))
        except InvalidRequest:
            continue  # a literal that the type does not have
        for test in tests:
            if isinstance(test, Pair) or test.term is None or kind.answers(test, options) is not None:
                continue
            possible_outcomes = probe.possible_outcomes(test, np.array([row]))
            if possible_outcomes is None:
                continue
            for vector in vectors:
                truth = _truth(predicate, test, vector)
                said = truth is not None and _denied(possible_outcomes, truth)
                if said:
                    yield f"{test.text} is {said} for a row, but the index rules it out"
                    break


def _truth(predicate: Predicate, test: Any, vector: Vector) -> Truth | None:
    if isinstance(predicate, n.Like):
        pattern = like_pattern(predicate.pattern, predicate.escape)
        return None if pattern is None else matched(pattern, vector)
    return truth_of(test, vector)


def _denied(possible_outcomes: PossibleOutcomes, truth: Truth) -> str:
    """Returns the outcome that a row has and that the claim excludes; empty if there is none."""
    masks: dict[str, tuple[Mask, Mask]] = {
        "true": (whole(possible_outcomes.true, 1), truth.true),
        "false": (whole(possible_outcomes.false, 1), truth.false),
        "null": (whole(possible_outcomes.null, 1), truth.null),
    }
    return next((name for name, (may, does) in masks.items() if does.any() and not may[0]), "")


def _random_predicate(dtype: DataType, vectors: Sequence[Vector], rng: Random) -> Predicate:
    """Returns a random predicate whose literals are values of rows, or neighbours of them."""
    chosen_values = [_literal(dtype, vectors, rng) for _ in range(rng.choice([1, 1, 3]))]
    literals = [literal for literal in chosen_values if literal is not None]
    forms = ["equal", "equal", "compare", "in", "null"]
    forms += ["nan"] if dtype.is_float else []
    forms += ["prefix", "like"] if dtype.is_text else []
    form = rng.choice(forms)
    if not literals or form == "null":
        return n.IsNull(_TERM)
    if form == "nan":
        return n.IsNan(_TERM)
    if form == "in":
        return n.In(_TERM, tuple(literals))
    if form in ("prefix", "like"):
        text = str(literals[0].value)
        first = rng.randint(0, len(text))
        piece = text[first : first + rng.randint(1, 12)]
        if form == "prefix":
            return n.StartsWith(_TERM, n.Literal("string", text[:first]))
        escaped = "".join("\\" + character if character in "%_\\" else character for character in piece)
        return n.Like(_TERM, f"%{escaped}%")
    return n.Compare("eq" if form == "equal" else rng.choice(_OPERATORS), _TERM, literals[0])


def _literal(dtype: DataType, vectors: Sequence[Vector], rng: Random) -> n.Literal | None:
    whole_vectors = [vector for vector in vectors if len(vector.valid)]
    if not whole_vectors:
        return None
    vector = rng.choice(whole_vectors)
    row = rng.randrange(len(vector.valid))
    if not vector.valid[row]:
        return None
    value = vector.values[row].as_py() if vector.is_bytes else vector.values[row]
    return literal_of(dtype, value, rng.choice([0, 0, 0, -1, 1]))


def check_definition(snapshot: Snapshot, index: TableIndex, at: str, note: Note) -> None:
    """Check whether an active index can be used; ``at``: the snapshot's manifest."""
    if index.dropped_ms is not None:
        return
    if index.kind not in kinds():
        note(found("index_not_usable", f"index {index.name!r}: the kind {index.kind!r} is not installed here", at=at))
    elif term_in(index, snapshot) is None:
        message = f"index {index.name!r}: a column of {index.expression} was dropped or has a different type"
        note(found("index_not_usable", message, at=at))


def check_directory(store: Store, index: TableIndex, ref: DirectoryRef, note: Note, *, workers: int) -> int:
    """Check one directory of an index and all of its parts; returns how many parts were checked."""
    at = ref.object.location
    directory = read_manifest(store, ref.object, lambda data: Directory.read(data, at), note)
    if directory is None:
        return 0
    recorded = (ref.part_count, ref.block_count, ref.parts_bytes)
    own = (len(directory.parts), len(directory), sum(part.size_bytes for part in directory.parts))
    if recorded != own:
        note(found("index_counts", f"parts, blocks and bytes are {own}, but {recorded} is recorded", at=at))
    if not _is_sorted(directory):
        note(found("index_entries", "its keys are not in order, so blocks cannot be found", at=at))
    last_row = np.full(len(directory.parts), -1, dtype=np.int64)
    np.maximum.at(last_row, directory.part, directory.row)
    with ContextThreadPool(max_workers=workers, thread_name_prefix="verify") as pool:
        for findings in pool.map(
            lambda number: _part(store, index, directory.parts[number], int(last_row[number])),
            range(len(directory.parts)),
        ):
            for finding in findings:
                note(finding)
    return len(directory.parts)


def open_part(store: Store, ref: PartRef) -> Part:
    """Returns a part, read from the store itself; raises as :class:`Part`."""
    return Part(ref, lambda ranges: [store.read_range(ref.location, *each) for each in ranges])


def _part(store: Store, index: TableIndex, ref: PartRef, last_row: int) -> list[Finding]:
    def wrong(code: str, message: str) -> list[Finding]:
        return [found(code, f"index {index.name!r}: {message}", at=ref.location)]

    try:
        size_bytes = store.stat(ref.location).size_bytes
        if size_bytes != ref.size_bytes:
            return wrong("index_part_damaged", f"it has {size_bytes} bytes, not {ref.size_bytes}")
        header = open_part(store, ref).header
    except StoreError as error:
        return wrong("unreachable", error.message)
    except (HashMismatch, ManifestError) as error:
        return wrong("index_part_damaged", error.message)
    except NotFound as error:
        return wrong("index_part_missing", error.message)
    except LamellaError as error:  # an invalid location
        return wrong("index_part_damaged", error.message)
    if header.kind != index.kind or header.options != index.options:
        return wrong("index_part_differs", "it was built with a different definition")
    if header.block_count != ref.block_count:
        return wrong("index_part_differs", f"it covers {header.block_count} blocks, not {ref.block_count}")
    if last_row >= header.block_count:
        return wrong("index_entries", f"an entry refers to row {last_row} of {header.block_count}")
    return []


def _is_sorted(directory: Directory) -> bool:
    high, low = directory.keys[:, 0], directory.keys[:, 1]
    return bool(((high[:-1] < high[1:]) | ((high[:-1] == high[1:]) & (low[:-1] < low[1:]))).all())
