"""The one writer of prune answers: a :class:`~lamella.snapshot.prune.result.PruneResult` as JSON, MessagePack or Arrow.

Answers of few blocks are written from values: a Python object for each block. JSON of neighbouring blocks is cut out of
the texts of their segments (:mod:`~lamella.snapshot.prune.segment_text`). All other answers are written piece by piece
from arrays: one segment at a time, or some that have few blocks. So what is held does not grow with the answer, but for
17 bytes a block where numbers come behind the locations. An error on the way leaves what was given so far without its
end: JSON and MessagePack that do not end, an Arrow stream without its end mark.

An Arrow stream has a record batch for each segment, or for several of which few blocks are left:

======================  ==========================  =========================================================
column                  type                        there
======================  ==========================  =========================================================
``location``            large_string                always
``row_count``           int64                       always
``file_size``           int64                       always
``verdict``             dictionary<uint8, string>   always
``schema_id``           int64, null: the snapshot's always
``column_size_bytes``   int64                       when ``columns`` were asked for
``residual``            int64                       when ``residuals`` were asked for
``url``                 large_string                with ``sign_urls``
``constants``           large_string, null: none    when blocks of the snapshot have constants; JSON
``deletes``             large_string, null: none    when rows of blocks of the snapshot are deleted; JSON
======================  ==========================  =========================================================

The metadata ``lamella.answer`` of its schema is the answer as JSON, with none of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.sidecar import constants_of, deletes_of
from lamella.snapshot.deletes import with_vectors
from lamella.snapshot.manifest import CONSTANTS, DELETES, FEATURES, Snapshot
from lamella.snapshot.prune.result import VERDICTS, BlockSelection, Indexes, PruneResult, Runs
from lamella.snapshot.prune.segment_text import (
    BLOCKS_A_RUN,
    OWN_SCHEMA,
    VERDICT_TEXTS,
    Gathered,
    Numbers,
    SegmentTexts,
    Slab,
    joined,
    json_strings,
    record_texts,
    slabs,
)
from lamella.snapshot.wire import BlockColumns, BlockRanges, OrderBound, PruneAnswer, PrunedBlock

Encoding = Literal["json", "msgpack", "arrow"]
Data = bytes | memoryview

#: The metadata of an Arrow stream's schema that holds the answer.
ANSWER: Final = b"lamella.answer"
#: How a whole Arrow stream ends: a message of no length.
ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

#: Answers of more blocks, or of more runs of blocks, take long enough to be written in a thread.
_FEW_BLOCKS: Final = 1_000
#: Nor are more sidecars opened for blocks here and there.
_FEW_SIDECARS: Final = 128
#: So many names are looked up one by one faster than together.
_FEW_SEGMENTS: Final = 16
#: Numbers that are written at once.
_STEP: Final = 65_536

_JSON: Final = msgspec.json.Encoder().encode
_MSGPACK: Final = msgspec.msgpack.Encoder().encode
_VERDICTS: Final = pa.array(VERDICTS, pa.string())
_VERDICT_TYPE: Final = pa.dictionary(pa.uint8(), pa.string())
#: Decodes the JSON of members that few tables have.
_DECODE: Final[Mapping[str, Callable[[pa.Array], Sequence[object]]]] = {CONSTANTS: constants_of, DELETES: deletes_of}


def write_now(result: PruneResult, encoding: Encoding, texts: SegmentTexts) -> bytes | None:
    """The whole answer, when writing it takes no longer than handing it to a thread does; else None.

    Of answers of more than 1,000 blocks, or of blocks in more than 128 segments, no sidecar is opened.
    """
    if encoding == "arrow":
        return None
    if result.shape == "ranges" and result.selection is not None:
        runs = result.selection.runs()
        if len(runs) > _FEW_BLOCKS:
            return None
        return _of_values(msgspec.structs.replace(result.answer, block_ranges=_ranges(result, runs)), encoding)
    data = _of_texts(result, encoding, texts, opening=False)
    if data is None and is_written_now(result.selection):
        data = _of_values(answer_of(result), encoding)
    return data


def is_written_now(selection: BlockSelection | None) -> bool:
    """Whether single blocks are so few, and in so few segments, that writing them takes less than a millisecond."""
    if selection is None:
        return True
    return selection.block_count <= _FEW_BLOCKS and len(selection.segments) <= _FEW_SIDECARS


def write(result: PruneResult, encoding: Encoding, texts: SegmentTexts) -> bytes | Iterator[Data]:
    """The answer: as a whole where it has few blocks or is cut out of texts, else piece by piece.

    Arrow needs :func:`has_arrow_form`.
    """
    if encoding == "arrow":
        return arrow_chunks(result)
    data = _of_texts(result, encoding, texts, opening=True)
    if data is None and result.block_count <= _FEW_BLOCKS:
        data = _of_values(answer_of(result), encoding)
    if data is not None:
        return data
    return json_chunks(result) if encoding == "json" else msgpack_chunks(result)


def write_batch(head: Snapshot, results: Sequence[PruneResult], texts: SegmentTexts) -> bytes:
    """The answers of many prunes of one snapshot as JSON, as :class:`~lamella.snapshot.wire.BatchAnswer` is written."""
    written = [write(result, "json", texts) for result in results]
    answers = [msgspec.Raw(data if isinstance(data, bytes) else b"".join(data)) for data in written]
    return _JSON({"snapshot_id": head.snapshot_id, "timestamp_ms": head.timestamp_ms, "answers": answers})


def _of_values(answer: PruneAnswer, encoding: Encoding) -> bytes:
    return _JSON(answer) if encoding == "json" else _MSGPACK(answer)


def _of_texts(result: PruneResult, encoding: Encoding, texts: SegmentTexts, *, opening: bool) -> bytes | None:
    if encoding != "json" or result.block_count < BLOCKS_A_RUN:  # no texts are made for so few
        return None
    return texts.answer(result, opening=opening)


def answer_of(result: PruneResult) -> PruneAnswer:
    """The whole answer as a value, with a Python object for each member of each block."""
    if result.selection is None:
        return result.answer
    if result.shape == "ranges":
        return msgspec.structs.replace(result.answer, block_ranges=_ranges(result, result.selection.runs()))
    columns = _columns(result)
    if result.shape == "columns":
        return msgspec.structs.replace(result.answer, block_columns=columns)
    return msgspec.structs.replace(result.answer, blocks=_records(columns))


def entry_count(result: PruneResult) -> int:
    """How many blocks, runs or segments the whole answer lists."""
    if result.selection is None:
        return len(result.answer.segments or ())
    return len(result.selection.runs()) if result.shape == "ranges" else result.block_count


def _ranges(result: PruneResult, runs: Runs) -> BlockRanges:
    segments, ordinal = runs.segments, runs.ordinal
    if runs.segment_count < len(segments):
        used = list(dict.fromkeys(ordinal))  # ascending
        numbers = dict(zip(used, range(len(used)), strict=True))
        segments, ordinal = segments[used], tuple([numbers[each] for each in ordinal])
    if len(segments) <= _FEW_SEGMENTS:
        names = [result.segments.text_at("segment_id", row) for row in segments.tolist()]
    else:
        names = result.segments.texts("segment_id", segments)
    return BlockRanges(
        segment_id=names,
        schema_id=result.schema_id,
        segment=list(ordinal),
        first=list(runs.first),
        block_count=list(runs.count),
        verdict=[VERDICTS[code] for code in runs.code],
    )


def _columns(result: PruneResult) -> BlockColumns:
    """The blocks as columns, in the answer's sequence."""
    column_ids = result.column_ids
    columns = BlockColumns(
        location=[],
        row_count=[],
        file_size=[],
        verdict=[],
        column_size_bytes=None if column_ids is None else [],
        schema_id=[],
        pages=None if result.pages is None else list(result.pages),
        url=None if result.urls is None else list(result.urls),
        constants=[] if CONSTANTS in result.members else None,
        deletes=[] if DELETES in result.members else None,
    )
    for part in result.parts():
        sidecar, rows = part.sidecar, part.rows
        columns.location.extend(sidecar.texts("location", rows))
        columns.row_count.extend(sidecar.numbers("row_count")[rows].tolist())
        columns.file_size.extend(sidecar.numbers("file_size")[rows].tolist())
        columns.verdict.extend([VERDICTS[code] for code in part.codes.tolist()])
        if columns.schema_id is not None:
            columns.schema_id.extend(sidecar.older_schema_ids(rows, result.schema_id))
        if column_ids is not None and columns.column_size_bytes is not None:
            columns.column_size_bytes.extend(sidecar.column_size_bytes(column_ids)[rows].tolist())
        if columns.constants is not None:
            columns.constants.extend(sidecar.constants(rows))
        if columns.deletes is not None:
            columns.deletes.extend(with_vectors(entries, result.vectors) for entries in sidecar.deletes(rows))
    if not any(each is not None for each in columns.schema_id or ()):
        columns = msgspec.structs.replace(columns, schema_id=None)
    if not any(columns.constants or ()):
        columns = msgspec.structs.replace(columns, constants=None)
    if not any(columns.deletes or ()):
        columns = msgspec.structs.replace(columns, deletes=None)
    if result.order is None and result.bounds is None and result.residual is None:
        return columns
    return _arranged(columns, result.order, result.bounds, result.residual)


def _arranged(
    columns: BlockColumns, order: Indexes | None, bounds: Sequence[OrderBound] | None, residual: Indexes | None
) -> BlockColumns:
    """``columns`` (in the snapshot's order) in the answer's ``order``, with residuals and bounds beside them.

    ``residual`` is in the snapshot's order as well, ``bounds`` are in the answer's.
    """
    found = columns
    if residual is not None:
        found = msgspec.structs.replace(found, residual=residual.tolist())
    if order is not None:
        positions = order.tolist()
        given: dict[str, Any] = msgspec.structs.asdict(found)
        moved = {name: [values[at] for at in positions] for name, values in given.items() if isinstance(values, list)}
        found = msgspec.structs.replace(found, **moved)
    if bounds is not None:
        found = msgspec.structs.replace(found, order_bound=list(bounds))
    return found


def _records(columns: BlockColumns) -> tuple[PrunedBlock, ...]:
    nothing = [None] * len(columns.location)
    rows = zip(
        columns.location,
        columns.row_count,
        columns.file_size,
        columns.verdict,
        columns.column_size_bytes or nothing,
        columns.schema_id or nothing,
        columns.residual or nothing,
        columns.order_bound or nothing,
        columns.pages or nothing,
        columns.url or nothing,
        columns.constants or nothing,
        columns.deletes or nothing,
        strict=True,
    )
    return tuple(
        PrunedBlock(
            location=location,
            row_count=count,
            file_size=size,
            verdict=verdict,
            column_size_bytes=of_columns,
            schema_id=schema_id,
            residual=residual,
            order_bound=order_bound,
            pages=pages,
            url=url,
            constants=constants,
            deletes=deletes,
        )
        for (
            location,
            count,
            size,
            verdict,
            of_columns,
            schema_id,
            residual,
            order_bound,
            pages,
            url,
            constants,
            deletes,
        ) in rows
    )


def json_chunks(result: PruneResult) -> Iterator[Data]:
    """The answer as JSON, piece by piece."""
    if not result.is_plain or result.shape == "ranges":
        yield _JSON(answer_of(result))
        return
    is_records = result.shape == "records"
    before, after = _around(result.answer, "blocks" if is_records else "block_columns")
    yield before
    yield from _record_chunks(result) if is_records else _column_chunks(result)
    yield after


def _around(answer: PruneAnswer, streamed: str) -> tuple[bytes, bytes]:
    """The document in front of the value of one of its members, and behind it."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    side = sides[0]
    for name in answer.__struct_fields__:
        if name == streamed:
            side = sides[1]
        else:
            side.append(b'"%b":%b' % (name.encode(), _JSON(getattr(answer, name))))
    before, after = (b",".join(side) for side in sides)
    return b'{%b,"%b":' % (before, streamed.encode()), b",%b}" % after


def _column_chunks(result: PruneResult) -> Iterator[Data]:
    gathered = Gathered()
    yield b'{"location":['
    for number, slab in enumerate(slabs(result)):
        yield b',"' if number else b'"'
        yield joined(json_strings(slab.location), '","')
        yield b'"'
        gathered.add(slab)
    yield b"]"
    for name, values in gathered.columns():
        yield b',"%b":[' % name.encode()
        for begin in range(0, len(values), _STEP):
            part = values[begin : begin + _STEP]
            yield b"," if begin else b""
            if name == "verdict":
                yield joined(VERDICT_TEXTS.take(pa.array(part)), ",")
            elif name == "schema_id":
                yield _JSON([None if each == OWN_SCHEMA else each for each in part.tolist()])[1:-1]
            else:
                # Through Python's integers, which msgspec writes faster than Arrow casts numbers to text.
                yield _JSON(part.tolist())[1:-1]
        yield b"]"
    for name in result.members:
        parts = gathered.member(name)
        if parts is not None:
            yield b',"%b":[' % name.encode()
            for number, texts in enumerate(parts):
                yield b"," if number else b""
                yield joined(texts, ",")
            yield b"]"
    yield b"}"


def _record_chunks(result: PruneResult) -> Iterator[Data]:
    yield b"["
    for number, slab in enumerate(slabs(result)):
        yield b"," if number else b""
        yield joined(record_texts(slab.location, slab.numbers, slab.members), ",")
    yield b"]"


def msgpack_chunks(result: PruneResult) -> Iterator[Data]:
    """The answer as MessagePack, piece by piece; shape "records" in one piece."""
    if not result.is_plain or result.shape != "columns":
        yield _MSGPACK(answer_of(result))
        return
    names = result.answer.__struct_fields__
    yield _map_head(len(names))
    for name in names:
        yield _MSGPACK(name)
        if name == "block_columns":
            yield from _msgpack_columns(result)
        else:
            yield _MSGPACK(getattr(result.answer, name))


def _msgpack_columns(result: PruneResult) -> Iterator[Data]:
    count = result.block_count
    given = {"column_size_bytes": result.column_ids is not None, "residual": result.residual is not None}
    optional = [name for name, there in given.items() if there]
    # A map says first how many members it has, so the last ones, which may turn out to say nothing, are always there.
    names = ["location", "row_count", "file_size", "verdict", *optional, "schema_id", *result.members]
    yield _map_head(len(names))
    yield _MSGPACK("location")
    yield _array_head(count)
    gathered = Gathered()
    for slab in slabs(result):
        yield _inside(slab.location.to_pylist())
        gathered.add(slab)
    columns = dict(gathered.columns())
    for name in names[1:]:
        yield _MSGPACK(name)
        if name in result.members:
            yield from _msgpack_member(gathered, name, count)
            continue
        if name not in columns:
            yield _MSGPACK(None)
            continue
        yield _array_head(count)
        for begin in range(0, count, _STEP):
            values = columns[name][begin : begin + _STEP].tolist()
            if name == "verdict":
                values = [VERDICTS[code] for code in values]
            elif name == "schema_id":
                values = [None if each == OWN_SCHEMA else each for each in values]
            yield _inside(values)


def _msgpack_member(gathered: Gathered, name: str, count: int) -> Iterator[Data]:
    parts = gathered.member(name)
    if parts is None:
        yield _MSGPACK(None)
        return
    yield _array_head(count)
    for texts in parts:
        yield _inside(_DECODE[name](texts))


def _inside(values: Sequence[object]) -> memoryview:
    """The values one after another, without the head of the array that they would be."""
    count = len(values)
    return memoryview(_MSGPACK(values))[1 if count < 1 << 4 else 3 if count < 1 << 16 else 5 :]


def _array_head(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def _map_head(count: int) -> bytes:
    return b"\xde" + count.to_bytes(2, "big")


def has_arrow_form(result: PruneResult) -> bool:
    """True when the answer is blocks without pages and without the bounds of an order, which have no columns."""
    return result.selection is not None and result.bounds is None and result.pages is None and result.shape != "ranges"


def arrow_chunks(result: PruneResult) -> Iterator[Data]:
    """The stream, piece by piece; :func:`has_arrow_form` must hold."""
    schema = _schema(result)
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        yield from sink.taken()
        for arrays in _batches(result):
            writer.write_batch(pa.record_batch([arrays[name] for name in schema.names], schema=schema))
            yield from sink.taken()
    yield from sink.taken()


class _Sink:
    """What a writer wrote since it was last taken."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: pa.Buffer | bytes) -> int:
        """Keep a copy: the writer uses its memory again."""
        self._written.append(bytes(data))
        return len(data)

    def taken(self) -> list[bytes]:
        """All that was written since."""
        written, self._written = self._written, []
        return written

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """What was written can still be taken."""


def _schema(result: PruneResult) -> pa.Schema:
    fields = [
        pa.field("location", pa.large_string(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("verdict", _VERDICT_TYPE, nullable=False),
        pa.field("schema_id", pa.int64()),
    ]
    if result.column_ids is not None:
        fields.append(pa.field("column_size_bytes", pa.int64(), nullable=False))
    if result.residual is not None:
        fields.append(pa.field("residual", pa.int64(), nullable=False))
    if result.urls is not None:
        fields.append(pa.field("url", pa.large_string(), nullable=False))
    fields += [pa.field(name, pa.large_string()) for name in result.members]
    return pa.schema(fields, metadata={ANSWER: _JSON(result.answer)})


def _batches(result: PruneResult) -> Iterator[dict[str, pa.Array]]:
    if result.order is None and result.urls is None:
        yield from (_of_slab(slab) for slab in slabs(result))
    elif result.selection is not None and len(result.selection.segments):
        yield _of_columns(_columns(result))


def _of_slab(slab: Slab) -> dict[str, pa.Array]:
    numbers = slab.numbers
    return {
        "location": slab.location,
        "row_count": pa.array(numbers.row_count),
        "file_size": pa.array(numbers.file_size),
        "verdict": pa.DictionaryArray.from_arrays(pa.array(numbers.codes), _VERDICTS),
        "schema_id": _schema_ids(numbers),
        "column_size_bytes": _optional(numbers.column_size_bytes),
        "residual": _optional(numbers.residual),
        **{name: _text_or_null(slab.members.get(name), len(numbers.codes)) for name in FEATURES},
    }


def _text_or_null(texts: pa.Array | None, count: int) -> pa.Array:
    if texts is None:
        return pa.nulls(count, pa.large_string())
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _optional(values: Indexes | None) -> pa.Array | None:
    return None if values is None else pa.array(values, pa.int64())


def _schema_ids(numbers: Numbers) -> pa.Array:
    if numbers.schema_id is None:
        return pa.nulls(len(numbers.codes), pa.int64())
    return pa.array(numbers.schema_id, mask=np.asarray(numbers.schema_id == OWN_SCHEMA))


def _of_columns(columns: BlockColumns) -> dict[str, pa.Array]:
    codes = pa.array([VERDICTS.index(verdict) for verdict in columns.verdict], pa.uint8())
    count = len(columns.location)
    return {
        "location": pa.array(columns.location, pa.large_string()),
        "row_count": pa.array(columns.row_count, pa.int64()),
        "file_size": pa.array(columns.file_size, pa.int64()),
        "verdict": pa.DictionaryArray.from_arrays(codes, _VERDICTS),
        "schema_id": pa.array(columns.schema_id or [None] * count, pa.int64()),
        "column_size_bytes": pa.array(columns.column_size_bytes or [0] * count, pa.int64()),
        "residual": pa.array(columns.residual or [0] * count, pa.int64()),
        "url": None if columns.url is None else pa.array(columns.url, pa.large_string()),
        CONSTANTS: _json_array(columns.constants or [None] * count),
        DELETES: _json_array(columns.deletes or [None] * count),
    }


def _json_array(values: Sequence[object]) -> pa.Array:
    return pa.array([None if each is None else _JSON(each).decode() for each in values], pa.large_string())
