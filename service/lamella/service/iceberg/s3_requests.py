"""Which requests to S3 the service signs for Iceberg clients, and the signature.

A signature is as good as the service's own credentials for that request, so everything about the request is on a list
of what is known: host, path, method, query parameters, and all headers that S3 obeys. What a store could read in two
ways is refused: the path must be spelled as S3 spells it, and the body of a deletion must be plain XML. S3 accepts a
signed request for 15 minutes, with other headers and bodies only as far as they are not part of the signature; the
body of a deletion is part of it.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

import msgspec

from lamella.service.iceberg.granted import GrantedFolders
from lamella.service.iceberg.s3_sessions import Keys
from lamella.snapshot.errors import InvalidRequest, LocationRefused, PermissionDenied
from lamella.snapshot.iceberg.wire import RequestToSign, SignedRequest
from lamella.snapshot.storage import is_below


class _Action(msgspec.Struct, frozen=True):
    """A request of S3: its method, its query parameters (all of ``needed``, any of ``optional``), and what it does."""

    method: str
    of_bucket: bool = False
    needed: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    writes: bool = True


_LIST: Final = _Action(
    "GET",
    of_bucket=True,
    needed=frozenset({"list-type", "prefix"}),
    optional=frozenset(
        {"delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "fetch-owner", "x-id"}
    ),
    writes=False,
)
_DELETE_OBJECTS: Final = _Action("POST", of_bucket=True, needed=frozenset({"delete"}))
_ACTIONS: Final = (
    _Action("GET", optional=frozenset({"x-id"}), writes=False),
    _Action("HEAD", writes=False),
    _LIST,
    _Action("PUT", optional=frozenset({"x-id"})),
    _Action("PUT", needed=frozenset({"partNumber", "uploadId"}), optional=frozenset({"x-id"})),
    _Action("POST", needed=frozenset({"uploads"})),
    _Action("POST", needed=frozenset({"uploadId"})),
    _Action("DELETE", optional=frozenset({"x-id"})),
    _Action("DELETE", needed=frozenset({"uploadId"}), optional=frozenset({"x-id"})),
    _DELETE_OBJECTS,
)
#: Headers of S3 that a client may send. Others copy objects, give rights to others, or change retention.
_KNOWN: Final = re.compile(
    r"x-amz-(?:content-sha256|checksum-[a-z0-9-]+|sdk-checksum-algorithm|decoded-content-length|trailer|te"
    r"|mp-object-size|request-payer|storage-class|meta-[!-~]+|server-side-encryption(?:-[a-z0-9-]+)?)"
)
#: The service sets these itself.
_OWN: Final = frozenset({"x-amz-date", "x-amz-security-token", "authorization"})
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_PAYLOAD: Final = re.compile(r"UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER|[0-9a-f]{64}")
_HASH: Final = "x-amz-content-sha256"
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
#: Objects of one DeleteObjects, by S3.
_MAX_OBJECTS: Final = 1_000
_DECLARATION: Final = re.compile(r'\A<\?xml version="1\.0"(?: encoding="(?i:utf-8)")?(?: standalone="\w+")?\s*\?>')
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


class S3Requests:
    """Signs requests. ``endpoints``: URLs of the store, as clients know it; none: AWS."""

    def __init__(self, endpoints: Iterable[str]) -> None:
        self._hosts = tuple(dict.fromkeys(_host_of(each) for each in endpoints))

    def signed(
        self, request: RequestToSign, folders: GrantedFolders, keys: Keys, *, may_write: bool, now_ms: int
    ) -> SignedRequest:
        """Return the headers that make a request valid; those that the client sent already are not repeated.

        Raises:
            InvalidRequest: a request of a kind that is not signed.
            LocationRefused: it is not in these folders.
            PermissionDenied: it writes, and the client may only read.
        """
        if request.provider not in (None, "s3"):
            raise InvalidRequest(f"requests to {request.provider!r} are not signed, only those to s3")
        if not _REGION.fullmatch(request.region):
            raise InvalidRequest(f"not a region: {request.region!r}")
        host, path, query = _parts(request.uri)
        bucket, key = self._object(host, path, request.region, folders)
        action = _action(request.method, is_of_bucket=not key, names=query.keys())
        if action.writes and not may_write:
            raise PermissionDenied(f"{request.method} needs the role 'write' on the table", role="write")
        headers = _headers(request.headers, host)
        if action is _LIST:
            if query["list-type"] != "2":
                raise InvalidRequest("only version 2 of listings is signed")
            _require(bucket, query["prefix"], folders.read, is_folder=True)
        elif action is _DELETE_OBJECTS:
            body = request.body or ""
            for each in _keys_of(body):
                _require(bucket, each, folders.written)
            digest = hashlib.sha256(body.encode()).hexdigest()
            if headers.setdefault(_HASH, digest) != digest:
                raise InvalidRequest(f"{_HASH} is not the hash of the body")
        else:
            _require(bucket, key, folders.written if action.writes else folders.read)
        if not _PAYLOAD.fullmatch(headers.setdefault(_HASH, _UNSIGNED)):
            raise InvalidRequest(f"{_HASH} is neither a hash nor {_UNSIGNED}")
        made = _signature(request, path, query, headers, keys, now_ms)
        given = {name.lower() for name in request.headers} - _OWN
        answer: dict[str, tuple[str, ...]]
        answer = {name: (value,) for name, value in made.items() if name.lower() not in given}
        return SignedRequest(uri=request.uri, headers=answer)

    def _object(self, host: str, path: str, region: str, folders: GrantedFolders) -> tuple[str, str]:
        """Return the bucket and the key of a request; the key is empty for a request about the bucket."""
        key = unquote(path[1:], errors="strict")
        for root in self._hosts or _aws_hosts(region):
            for bucket in folders.buckets:
                if host == f"{bucket}.{root}":
                    return bucket, key
                if host == root and (key == bucket or key.startswith(f"{bucket}/")):
                    return bucket, key[len(bucket) + 1 :]
        raise LocationRefused("the request is not to the table's bucket", location=f"//{host}{path}")


def _parts(uri: str) -> tuple[str, str, dict[str, str]]:
    """Return the host, the path as it is written, and the query parameters of a URI. Raises InvalidRequest."""
    try:
        parts = urlsplit(uri)
        port = parts.port
        path = unquote(parts.path, errors="strict")
        query = [
            (unquote(name, errors="strict"), unquote(value, errors="strict"))
            for name, _, value in (each.partition("=") for each in parts.query.split("&") if each)
        ]
    except ValueError as error:
        raise InvalidRequest("the URI cannot be read") from error
    is_plain = uri.isascii() and not _CONTROL.search(uri) and " " not in uri and "\\" not in uri
    if not is_plain or parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc or "#" in uri or not parts.hostname:
        raise InvalidRequest("the URI must be an HTTP address of an object or a bucket")
    if not parts.path.startswith("/") or _quoted(path) != parts.path:
        raise InvalidRequest("the path must be encoded as S3 does it", uri=uri)
    if "+" in parts.query or len(dict(query)) != len(query):
        raise InvalidRequest("the query repeats a parameter, or has a plus sign", uri=uri)
    host = parts.hostname.lower()
    return host if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}", parts.path, dict(query)


def _action(method: str, *, is_of_bucket: bool, names: Iterable[str]) -> _Action:
    given = frozenset(names)
    for each in _ACTIONS:
        is_meant = each.method == method and each.of_bucket == is_of_bucket
        if is_meant and each.needed <= given <= each.needed | each.optional:
            return each
    what = "bucket" if is_of_bucket else "object"
    raise InvalidRequest(f"{method} of a {what} with the query parameters {sorted(given)} is not signed")


def _headers(given: Mapping[str, tuple[str, ...]], host: str) -> dict[str, str]:
    """Return the headers that are signed, in lower case. Raises InvalidRequest for one that is not known."""
    found = {"host": host}
    for name, values in given.items():
        lower = name.lower()
        value = ",".join(" ".join(each.split()) for each in values)
        if lower == "host":
            if value.lower() != host:
                raise InvalidRequest("the header host is not that of the URI")
        elif lower in _OWN:
            continue
        elif lower.startswith("x-amz-") or lower == "content-md5":
            if lower != "content-md5" and not _KNOWN.fullmatch(lower):
                raise InvalidRequest(f"requests with the header {lower} are not signed", header=lower)
            if lower in found or not value.isprintable():
                raise InvalidRequest(f"the header {lower} is repeated, or cannot be sent", header=lower)
            found[lower] = value
    return found


def _require(bucket: str, key: str, folders: Iterable[str], *, is_folder: bool = False) -> None:
    """Raise LocationRefused unless an object is in one of the folders; ``is_folder``: or is one of them."""
    location = f"s3://{bucket}/{key}"
    is_plain = not _CONTROL.search(key) and key == key.strip()
    if is_plain and any(is_below(each, location) or (is_folder and location == each) for each in folders):
        return
    raise LocationRefused(f"{location} is not in a folder that the client may use with this table", location=location)


def _keys_of(body: str) -> list[str]:
    """Return the keys that a DeleteObjects deletes. Raises InvalidRequest for anything else than plain XML of keys."""
    text = _DECLARATION.sub("", body, count=1)
    if "<!" in text or "<?" in text:
        raise InvalidRequest("the body of a deletion must be plain XML")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  # without declarations, so there are no entities
    except ElementTree.ParseError as error:
        raise InvalidRequest("a deletion needs its body, as XML") from error
    keys = []
    for each in root:
        if _name(each) == "Object" and not each.attrib and [_name(part) for part in each] == ["Key"]:
            part = each[0]
            if len(part) or part.attrib or not part.text:
                raise InvalidRequest("the body of a deletion has something else than keys")
            keys.append(part.text)
        elif _name(each) != "Quiet" or len(each) or each.attrib:
            raise InvalidRequest("the body of a deletion has something else than keys")
    if _name(root) != "Delete" or not 0 < len(keys) <= _MAX_OBJECTS:
        raise InvalidRequest(f"a deletion names 1 to {_MAX_OBJECTS} keys")
    return keys


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _signature(
    request: RequestToSign,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    keys: Keys,
    now_ms: int,
) -> dict[str, str]:
    """Return the headers that the client adds: the signature, and what it signs beyond the client's own headers."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    made = {_HASH: headers[_HASH], "x-amz-date": now}
    if keys.token is not None:
        made["x-amz-security-token"] = keys.token
    signed = dict(sorted({**headers, **made}.items()))
    names = ";".join(signed)
    parameters = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items()))
    lines = (f"{name}:{value}\n" for name, value in signed.items())
    canonical = f"{request.method}\n{path}\n{parameters}\n{''.join(lines)}\n{names}\n{signed[_HASH]}"
    scope = f"{now[:8]}/{request.region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"{_ALGORITHM} Credential={keys.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**made, "Authorization": authorization}


def _quoted(path: str) -> str:
    return quote(path, safe="/")


def _host_of(url: str) -> str:
    """Return the host of an endpoint, with the port unless it is the usual one."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return host if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def _aws_hosts(region: str) -> tuple[str, ...]:
    """Return the hosts of S3 in AWS."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"s3.{region}.{suffix}", f"s3.dualstack.{region}.{suffix}", f"s3.{suffix}"
