"""From what a prune found to a response: form by ``Accept``, coding by ``Accept-Encoding``, in pieces when large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.principal import actor_of
from lamella.service.api import JSON, PreparedResponse
from lamella.service.compression import LEAST_BYTES, compressed, compressor
from lamella.service.negotiation import CODINGS, Coding, coding, media_type
from lamella.service.state import trusted_manifests
from lamella.service.streaming import PIECE_BYTES, WHOLE_BYTES, LargeAnswers, Pieces, StreamedResponse, Turn
from lamella.snapshot.prune.answer import answer_of
from lamella.snapshot.prune.encode import (
    SegmentTexts,
    arrow_chunks,
    has_arrow_form,
    json_chunks,
    msgpack_chunks,
)
from lamella.snapshot.prune.found import Found
from lamella.snapshot.prune.ranges import ranges_of
from lamella.snapshot.prune.runs import runs_of

ARROW: Final = "application/vnd.apache.arrow.stream"
MSGPACK: Final = "application/vnd.msgpack"
#: JSON, a value in each line.
NDJSON: Final = "application/x-ndjson"
#: The name that MessagePack had before it was registered.
PLAIN_MSGPACK: Final = "application/msgpack"

#: Answers of more blocks, or of more runs of blocks, are encoded in a thread unless their texts are kept.
_FEW_BLOCKS: Final = 500

_FORMS: Final = (JSON, ARROW, MSGPACK, PLAIN_MSGPACK)
_WITHOUT_ARROW: Final = (JSON, MSGPACK, PLAIN_MSGPACK)
_JSON: Final = msgspec.json.Encoder().encode
_MSGPACK: Final = msgspec.msgpack.Encoder().encode
_VARY: Final = (b"vary", b"Accept, Accept-Encoding")
#: For answers that let whoever has them read blocks.
_NO_STORE: Final = "no-store"
_CONTENT_TYPES: Final = {form: (b"content-type", form.encode()) for form in (*_FORMS, NDJSON)}
_CONTENT_ENCODINGS: Final = {each: (b"content-encoding", each.encode()) for each in CODINGS}

Data = bytes | memoryview


class Wanted(msgspec.Struct, frozen=True):
    """What the client said of the form of its answer."""

    accept: str
    coding: Coding | None

    @classmethod
    def of(cls, request: Request) -> Wanted:
        """Read the headers."""
        accept = accept_encoding = ""
        for name, value in request.scope["headers"]:
            if name == b"accept":
                accept = f"{accept},{value.decode('latin-1')}" if accept else value.decode("latin-1")
            elif name == b"accept-encoding":
                joined = f"{accept_encoding}," if accept_encoding else ""
                accept_encoding = joined + value.decode("latin-1")
        return cls(accept, coding(accept_encoding))

    def form(self, found: Found) -> str:
        """The media type of the answer."""
        return media_type(self.accept, _FORMS if has_arrow_form(found) else _WITHOUT_ARROW)


class Whole(msgspec.Struct, frozen=True):
    """An answer as bytes, not compressed. ``is_secret``: no cache may keep it."""

    form: str
    data: bytes
    is_secret: bool = False


class Begun(msgspec.Struct, frozen=True):
    """A large answer, of which the first ``WHOLE_BYTES`` are made; not compressed."""

    form: str
    chunks: Iterator[Data]
    is_secret: bool = False


def encoded_now(found: Found, wanted: Wanted, texts: SegmentTexts) -> Whole | None:
    """The answer, when encoding it takes no longer than a thread would; else None.

    Of answers of more than 500 blocks no companion is opened.
    """
    form = wanted.form(found)
    if form == ARROW:
        return None
    encode: Callable[[object], bytes] = _JSON if form == JSON else _MSGPACK
    if found.shape == "ranges" and found.parts is not None:
        runs = runs_of(found.parts)
        if len(runs) > _FEW_BLOCKS:
            return None
        return Whole(form, encode(msgspec.structs.replace(found.answer, block_ranges=ranges_of(found, runs))))
    data = texts.answer(found, opening=False) if form == JSON else None
    if data is None and found.block_count <= _FEW_BLOCKS:
        data = encode(answer_of(found))
    return None if data is None else Whole(form, data)


def encoded(found: Found, wanted: Wanted, texts: SegmentTexts) -> Whole | Begun:
    """Encode an answer as far as it goes into ``WHOLE_BYTES``."""
    answer = _encoded(found, wanted, texts)
    return answer if found.urls is None else msgspec.structs.replace(answer, is_secret=True)


def _encoded(found: Found, wanted: Wanted, texts: SegmentTexts) -> Whole | Begun:
    form = wanted.form(found)
    if form == ARROW:
        return begun(form, arrow_chunks(found))
    data = texts.answer(found, opening=True) if form == JSON else None
    if data is not None:
        return Whole(form, data)
    if found.block_count <= _FEW_BLOCKS:
        return Whole(form, (_JSON if form == JSON else _MSGPACK)(answer_of(found)))
    return begun(form, json_chunks(found) if form == JSON else msgpack_chunks(found))


def begun(form: str, chunks: Iterator[Data], *, is_secret: bool = False) -> Whole | Begun:
    """Make of an answer what goes into ``WHOLE_BYTES``."""
    begin: list[Data] = []
    size_bytes = 0
    for chunk in chunks:
        begin.append(chunk)
        size_bytes += len(chunk)
        if size_bytes > WHOLE_BYTES:
            return Begun(form, chain(begin, chunks), is_secret)
    return Whole(form, b"".join(begin), is_secret)


async def respond_large(
    found: Found, wanted: Wanted, large: LargeAnswers, texts: SegmentTexts, request: Request
) -> Response:
    """The response of a large answer, which is encoded once it has its turn; raises as :func:`respond`."""
    turn = await large.turn(actor_of(request))
    try:
        with trusted_manifests():
            answer = await large.run(lambda: encoded(found, wanted, texts))
        return await respond(answer, wanted, large, request, turn)
    except BaseException:
        turn.give_back()
        raise


async def respond(
    answer: Whole | Begun, wanted: Wanted, large: LargeAnswers, request: Request, turn: Turn | None = None
) -> Response:
    """The response; raises Overloaded, Unavailable when a large one does not get its turn.

    ``turn``: the one that it has already.
    """
    code, kind = wanted.coding, _CONTENT_TYPES[answer.form]
    if isinstance(answer, Whole):
        if turn is not None:
            turn.give_back()
        kinds = (kind, (b"cache-control", _NO_STORE.encode())) if answer.is_secret else (kind,)
        if len(answer.data) < LEAST_BYTES:
            return PreparedResponse(answer.data, kinds)
        if code is None:
            return PreparedResponse(answer.data, (_VARY, *kinds))
        data = await large.run(lambda: compressed(answer.data, code))
        return PreparedResponse(data, (_VARY, _CONTENT_ENCODINGS[code], *kinds))
    headers = {"Vary": "Accept, Accept-Encoding"}
    if answer.is_secret:
        headers["Cache-Control"] = _NO_STORE
    if code is not None:
        headers["Content-Encoding"] = code
    pieces = Pieces(answer.chunks, None if code is None else compressor(code))
    if turn is None:
        turn = await large.turn(actor_of(request))
    return StreamedResponse(pieces, large, turn, headers, answer.form)


async def respond_json(
    data: bytes, large: LargeAnswers, request: Request, headers: Mapping[str, str] | None = None
) -> Response:
    """The response of JSON that was made as a whole, and coded as ``headers`` say; raises as :func:`respond`.

    A large one has a turn, too, so that no more of them are held than that for clients that take them slowly.
    """
    if len(data) <= WHOLE_BYTES:
        return Response(data, headers=headers, media_type=JSON)
    parts = (memoryview(data)[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
    return StreamedResponse(Pieces(parts, None), large, await large.turn(actor_of(request)), headers or {}, JSON)
