"""Answers that a client may have already: entity tags, ``If-None-Match`` and 304 (RFC 9110, section 13.1.2).

A tag is made of what the answer is a function of, mostly the pointer to a snapshot; so a client that has the answer
costs no manifest. Tags are weak, since one answer can be sent in several codings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.answers import respond_json
from lamella.service.api import JSON
from lamella.service.catalog import TableRecord
from lamella.service.compression import LEAST_BYTES, compressed
from lamella.service.negotiation import coding
from lamella.service.release import release
from lamella.service.services import Services

#: Ask again each time; the answer is short when nothing changed.
REVALIDATE: Final = "no-cache"
#: For what never changes: keep it for a year, which is as long as HTTP counts, and do not ask again.
IMMUTABLE: Final = "max-age=31536000, immutable"

_TAG: Final = re.compile(r'(?:W/)?("[^"]*")')


def entity_tag(*parts: str) -> str:
    """The tag of an answer that is a function of these texts and of the release."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (release(), *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return f'W/"{digest.hexdigest()}"'


def snapshot_of(record: TableRecord) -> str:
    """The id of a table's current snapshot."""
    return record.pointer.snapshot_id


def content_tag(data: bytes) -> str:
    """The tag of an answer by its bytes."""
    return f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'


def has(request: Request, tag: str) -> bool:
    """True when the client says that it has the answer with this tag."""
    given = request.headers.get("if-none-match")
    return given is not None and tag.removeprefix("W/") in _TAG.findall(given)


async def respond(
    services: Services,
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
    if at_once and services.catalog.is_instant and "if-none-match" in request.headers:
        record = services.catalog.current(namespace, name)
        if record is not None and has(request, tag := tag_of(record)):
            return _not_modified(tag, cache)
    code = coding(request.headers.get("accept-encoding", ""))

    def work() -> tuple[str, bytes | None, bool]:
        record = services.table(namespace, name)
        tag = tag_of(record)
        if has(request, tag):
            return tag, None, False
        data = make(record)
        if code is None or len(data) < LEAST_BYTES:
            return tag, data, False
        return tag, compressed(data, code), True

    tag, data, is_compressed = await services.read(work)
    if data is None or request.headers.get("if-none-match", "").strip() == "*":
        return _not_modified(tag, cache)
    headers = {"ETag": tag, "Cache-Control": cache, "Vary": "Accept-Encoding"}
    if is_compressed and code is not None:
        headers["Content-Encoding"] = code
    return await respond_json(data, services.large_answers, request, headers)


def _not_modified(tag: str, cache: str) -> Response:
    return Response(None, 304, {"ETag": tag, "Cache-Control": cache, "Vary": "Accept-Encoding"})


def tagged_by_content(request: Request, data: bytes) -> Response:
    """JSON with a tag of its own bytes, or 304: for an answer that is a function of more than a pointer."""
    tag = content_tag(data)
    if has(request, tag) or request.headers.get("if-none-match", "").strip() == "*":
        return _not_modified(tag, REVALIDATE)
    return Response(data, headers={"ETag": tag, "Cache-Control": REVALIDATE}, media_type=JSON)
