"""Responses: media type by ``Accept``, coding by ``Accept-Encoding``, streaming if large; entity tags and 304.

A tag is made from what determines the answer, mostly the pointer to a snapshot, so that a 304 reads no manifest. Tags
are weak, since an answer can be sent in several codings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service import release
from lamella.service.access.principal import actor_of
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.history.history import trusted_manifests
from lamella.service.http.negotiation import CODINGS, MIN_BYTES, Coding, coding, compressed, compressor, media_type
from lamella.service.http.routing import PreparedResponse
from lamella.service.http.streaming import PIECE_BYTES, WHOLE_BYTES, LargeAnswers, Pieces, StreamedResponse, Turn
from lamella.service.process.threads import Threads
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.prune.segment_text import SegmentTexts
from lamella.snapshot.prune.writer import Encoding, has_arrow_form, write, write_now
from lamella.snapshot.wire.operation import ARROW, JSON, MSGPACK, NDJSON

#: The name that MessagePack had before it was registered.
PLAIN_MSGPACK: Final = "application/msgpack"

_FORMS: Final = (JSON, ARROW, MSGPACK, PLAIN_MSGPACK)
_WITHOUT_ARROW: Final = (JSON, MSGPACK, PLAIN_MSGPACK)
_ENCODINGS: Final[dict[str, Encoding]] = {
    JSON: "json",
    ARROW: "arrow",
    MSGPACK: "msgpack",
    PLAIN_MSGPACK: "msgpack",
}
_VARY: Final = (b"vary", b"Accept, Accept-Encoding")
#: For answers that let anyone who has them read blocks.
#: For answers with secrets.
NO_STORE: Final = "no-store"
_CONTENT_TYPES: Final = {form: (b"content-type", form.encode()) for form in (*_FORMS, NDJSON)}
_CONTENT_ENCODINGS: Final = {each: (b"content-encoding", each.encode()) for each in CODINGS}

Data = bytes | memoryview


class ResponseFormat(msgspec.Struct, frozen=True):
    """What the request headers say about the form of the answer."""

    accept: str
    coding: Coding | None

    @classmethod
    def of(cls, request: Request) -> ResponseFormat:
        """Read the headers."""
        accept = accept_encoding = ""
        for name, value in request.scope["headers"]:
            if name == b"accept":
                accept = f"{accept},{value.decode('latin-1')}" if accept else value.decode("latin-1")
            elif name == b"accept-encoding":
                joined = f"{accept_encoding}," if accept_encoding else ""
                accept_encoding = joined + value.decode("latin-1")
        return cls(accept, coding(accept_encoding))

    def form(self, found: PruneResult) -> str:
        """The media type of the answer."""
        return media_type(self.accept, _FORMS if has_arrow_form(found) else _WITHOUT_ARROW)


class BufferedResponse(msgspec.Struct, frozen=True):
    """A complete answer, not compressed. ``is_secret``: no cache may store it."""

    form: str
    data: bytes
    is_secret: bool = False


class StreamingResponse(msgspec.Struct, frozen=True):
    """A large answer, not compressed, of which the first ``WHOLE_BYTES`` are ready."""

    form: str
    chunks: Iterator[Data]
    is_secret: bool = False


def encode_now(found: PruneResult, response_format: ResponseFormat, texts: SegmentTexts) -> BufferedResponse | None:
    """The answer, when encoding it takes no longer than a thread would; else None."""
    form = response_format.form(found)
    data = write_now(found, _ENCODINGS[form], texts)
    return None if data is None else BufferedResponse(form, data)


def encode_response(
    found: PruneResult, response_format: ResponseFormat, texts: SegmentTexts
) -> BufferedResponse | StreamingResponse:
    """Encode an answer as far as it goes into ``WHOLE_BYTES``."""
    form, is_secret = response_format.form(found), found.urls is not None
    data = write(found, _ENCODINGS[form], texts)
    if isinstance(data, bytes):
        return BufferedResponse(form, data, is_secret)
    return begin_streaming(form, data, is_secret=is_secret)


def begin_streaming(
    form: str, chunks: Iterator[Data], *, is_secret: bool = False
) -> BufferedResponse | StreamingResponse:
    """Read up to ``WHOLE_BYTES`` of an answer; return it complete, or with the iterator for the rest."""
    begin: list[Data] = []
    size_bytes = 0
    for chunk in chunks:
        begin.append(chunk)
        size_bytes += len(chunk)
        if size_bytes > WHOLE_BYTES:
            return StreamingResponse(form, chain(begin, chunks), is_secret)
    return BufferedResponse(form, b"".join(begin), is_secret)


async def respond_large(
    found: PruneResult, response_format: ResponseFormat, large: LargeAnswers, texts: SegmentTexts, request: Request
) -> Response:
    """Return the response of a large answer, which is encoded once it has its turn. Raises as :func:`respond`."""
    turn = await large.turn(actor_of(request))
    try:
        with trusted_manifests():
            answer = await large.run(lambda: encode_response(found, response_format, texts))
        return await respond(answer, response_format, large, request, turn)
    except BaseException:
        turn.give_back()
        raise


async def respond(
    answer: BufferedResponse | StreamingResponse,
    response_format: ResponseFormat,
    large: LargeAnswers,
    request: Request,
    turn: Turn | None = None,
) -> Response:
    """Return the response. Raises Overloaded, Unavailable if a large one does not get its turn.

    ``turn``: the turn that it already has.
    """
    code, kind = response_format.coding, _CONTENT_TYPES[answer.form]
    if isinstance(answer, BufferedResponse):
        if turn is not None:
            turn.give_back()
        kinds = (kind, (b"cache-control", NO_STORE.encode())) if answer.is_secret else (kind,)
        if len(answer.data) < MIN_BYTES:
            return PreparedResponse(answer.data, kinds)
        if code is None:
            return PreparedResponse(answer.data, (_VARY, *kinds))
        data = await large.run(lambda: compressed(answer.data, code))
        return PreparedResponse(data, (_VARY, _CONTENT_ENCODINGS[code], *kinds))
    headers = {"Vary": "Accept, Accept-Encoding"}
    if answer.is_secret:
        headers["Cache-Control"] = NO_STORE
    if code is not None:
        headers["Content-Encoding"] = code
    pieces = Pieces(answer.chunks, None if code is None else compressor(code))
    if turn is None:
        turn = await large.turn(actor_of(request))
    return StreamedResponse(pieces, large, turn, headers, answer.form)


async def respond_json(
    data: bytes, large: LargeAnswers, request: Request, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response of buffered JSON in the coding of ``headers``. Raises as :func:`respond`.

    A large one needs a turn too, so that slow clients cannot make the service hold more of them.
    """
    if len(data) <= WHOLE_BYTES:
        return Response(data, headers=headers, media_type=JSON)
    parts = (memoryview(data)[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
    return StreamedResponse(Pieces(parts, None), large, await large.turn(actor_of(request)), headers or {}, JSON)


#: Revalidate each time; the answer is short if nothing changed.
REVALIDATE: Final = "no-cache"
#: For what never changes: store it for a year, the maximum in HTTP, and do not revalidate.
IMMUTABLE: Final = "max-age=31536000, immutable"

_TAG: Final = re.compile(r'(?:W/)?("[^"]*")')


def entity_tag(*parts: str) -> str:
    """Return the tag of an answer that is determined by these texts and the release."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (release(), *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return f'W/"{digest.hexdigest()}"'


def snapshot_of(record: TableRecord) -> str:
    """Return the id of a table's current snapshot."""
    return record.pointer.snapshot_id


def content_tag(data: bytes) -> str:
    """Return the tag of an answer from its bytes."""
    return f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'


def matches_tag(request: Request, tag: str) -> bool:
    """Return True if the request says that the client has the answer with this tag."""
    given = request.headers.get("if-none-match")
    return given is not None and tag.removeprefix("W/") in _TAG.findall(given)


class ConditionalResponses:
    """JSON about a table, sent only to those who do not have it yet."""

    def __init__(self, *, catalog: Catalog, readers: Threads, large_answers: LargeAnswers) -> None:
        self._catalog = catalog
        self._readers = readers
        self._large_answers = large_answers

    async def respond(
        self,
        request: Request,
        tag_of: Callable[[TableRecord], str],
        make: Callable[[TableRecord], bytes],
        *,
        cache: str = REVALIDATE,
        at_once: bool = False,
    ) -> Response:
        """The JSON that ``make`` gives for the table that is asked for, or 304.

        ``tag_of`` comes first; ``at_once`` says that it reads nothing, so that it may run on the event loop.
        """
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        if at_once and self._catalog.is_instant and "if-none-match" in request.headers:
            record = self._catalog.current(namespace, name)
            if record is not None and matches_tag(request, tag := tag_of(record)):
                return _not_modified(tag, cache)
        code = coding(request.headers.get("accept-encoding", ""))

        def work() -> tuple[str, bytes | None, bool]:
            record = current_table(self._catalog, namespace, name)
            tag = tag_of(record)
            if matches_tag(request, tag):
                return tag, None, False
            data = make(record)
            if code is None or len(data) < MIN_BYTES:
                return tag, data, False
            return tag, compressed(data, code), True

        tag, data, is_compressed = await self._readers.run(work)
        if data is None or request.headers.get("if-none-match", "").strip() == "*":
            return _not_modified(tag, cache)
        headers = {"ETag": tag, "Cache-Control": cache, "Vary": "Accept-Encoding"}
        if is_compressed and code is not None:
            headers["Content-Encoding"] = code
        return await respond_json(data, self._large_answers, request, headers)


def _not_modified(tag: str, cache: str) -> Response:
    return Response(None, 304, {"ETag": tag, "Cache-Control": cache, "Vary": "Accept-Encoding"})


def has_tag(request: Request, tag: str) -> bool:
    """Return True if a request with this tag for its answer is answered with 304."""
    return matches_tag(request, tag) or request.headers.get("if-none-match", "").strip() == "*"


def tagged(request: Request, tag: str, data: bytes, cache: str = REVALIDATE) -> Response:
    """Return JSON with a tag, or 304."""
    if has_tag(request, tag):
        return _not_modified(tag, cache)
    return Response(data, headers={"ETag": tag, "Cache-Control": cache}, media_type=JSON)


def tagged_by_content(request: Request, data: bytes, cache: str = REVALIDATE) -> Response:
    """Return JSON with a tag made from its bytes, or 304, for an answer that depends on more than a pointer."""
    return tagged(request, content_tag(data), data, cache)
