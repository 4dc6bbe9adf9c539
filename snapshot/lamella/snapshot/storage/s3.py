"""S3 through s3fs, and signed URLs."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any, Final
from urllib.parse import parse_qs, quote
from weakref import WeakSet

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from fsspec.asyn import sync

from lamella.snapshot.errors import AlreadyExists, NotSignable, ObjectNotFound, StoreError
from lamella.snapshot.storage.store import ListedObject, ObjectStat, SignedUrls

# S3 through s3fs, with explicit requests: no listing cache, no guess whether a key is a folder.
#
# The service's error code tells which precondition failed, since s3fs maps it to a class only if the answer names the
# condition. A conditional write carries its own id: if its answer is lost, a retry meets the first attempt's object,
# and reading the id back distinguishes it from another writer's object.

_WRITE_ID: Final = "lamella-write-id"
_ABSENT: Final = frozenset({"NoSuchKey", "NoSuchBucket", "404", "NotFound"})
_CONFLICT: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "409", "412"})
_NO_SUCH_RANGE: Final = frozenset({"InvalidRange", "416"})
#: Requests at once. botocore has 10, which its callers here would wait for.
_CONNECTIONS: Final = 64
_PUT_TRIES: Final = 4
_READ_TRIES: Final = 3
_DELETE_BATCH: Final = 1_000  # limit of one DeleteObjects request
#: Characters that XML 1.0 cannot contain, or that an XML reader may change.
_NOT_XML: Final = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")
_FAILURES: Final = (OSError, BotoCoreError, ClientError, aiohttp.ClientError)
#: Sends the body of a request, as a separate task.
_BODY_WRITER: Final = aiohttp.ClientRequest.write_bytes.__qualname__
#: Event loops whose reports go through :func:`_without_uploads`.
_HEARD: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


class S3Objects:
    """The store of scheme ``s3``; paths are ``bucket/key``. ``options`` are passed to :class:`s3fs.S3FileSystem`.

    An exception is ``signed_endpoint_url``: the endpoint in signed URLs, if readers cannot reach the other one.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        options = dict(options)
        signed_endpoint_url = options.pop("signed_endpoint_url", None)
        self._make_urls = cache(lambda: S3Urls(options, signed_endpoint_url))
        config = {"max_pool_connections": _CONNECTIONS, **options.get("config_kwargs", {})}
        self._files = s3fs.S3FileSystem(
            **{"skip_instance_cache": True, "use_listings_cache": False, **options, "config_kwargs": config}
        )
        _without_uploads(self._files.loop)

    def read(self, path: str) -> bytes:
        """Returns all bytes of an object."""
        return self._get(path)[1]

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        if length <= 0:
            return b""
        try:
            return self._get(path, Range=f"bytes={start}-{start + length - 1}")[1]
        except StoreError as error:
            if error.details.get("s3_code") in _NO_SUCH_RANGE:
                return b""
            raise

    def read_end(self, path: str, length: int) -> tuple[ObjectStat, bytes]:
        """Returns the last bytes of an object, and the stat of the same answer."""
        try:
            answer, data = self._get(path, Range=f"bytes=-{length}")
        except StoreError as error:
            if error.details.get("s3_code") in _NO_SUCH_RANGE:  # an empty object has no last byte
                return self.stat(path), b""
            raise
        # A server may ignore the range, and answer with all of it.
        size_bytes = int(answer["ContentRange"].rpartition("/")[2]) if "ContentRange" in answer else len(data)
        stat = ObjectStat(location=f"s3://{path}", size_bytes=size_bytes, content_id=_etag(answer))
        return stat, data[-length:]

    def stat(self, path: str) -> ObjectStat:
        """Returns the size, and the etag as the content id."""
        with _errors(path):
            return _stat(path, self._call("head_object", path))

    def put(self, path: str, data: bytes) -> ObjectStat:
        """Create an object with ``If-None-Match: *``."""
        write_id = uuid.uuid4().hex
        for attempt in range(1, _PUT_TRIES + 1):
            try:
                answer = self._call("put_object", path, Body=data, IfNoneMatch="*", Metadata={_WRITE_ID: write_id})
                return ObjectStat(location=f"s3://{path}", size_bytes=len(data), content_id=_etag(answer))
            except _FAILURES as error:
                found = self._read_back(path, error)
                if found is not None:
                    if found.get("Metadata", {}).get(_WRITE_ID) == write_id:
                        return _stat(path, found)
                    if _code(error) in _CONFLICT:
                        raise AlreadyExists(f"already there: s3://{path}", location=f"s3://{path}") from error
                elif _code(error) in _CONFLICT and attempt < _PUT_TRIES:
                    continue  # two conditional writes collided (409) and neither may have succeeded: retry
                raise _store_error(path, error) from error
        raise StoreError(f"s3://{path}: conditional writes conflicted repeatedly", location=f"s3://{path}")

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace an object."""
        with _errors(path):
            self._call("put_object", path, Body=data)

    def exists(self, path: str) -> bool:
        """Returns whether the object exists."""
        if not path.partition("/")[2]:
            return False
        try:
            self.stat(path)
        except ObjectNotFound:
            return False
        return True

    def list(self, folder: str, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder, page by page."""
        bucket, _, key = folder.partition("/")
        prefix = key.rstrip("/") + "/" if key.strip("/") else ""
        more: dict[str, str] = {}
        if start_after is not None:
            if start_after.partition("/")[0] > bucket:
                return
            if start_after.partition("/")[0] == bucket:
                more = {"StartAfter": start_after.partition("/")[2]}
        while True:
            try:
                with _errors(folder):
                    page = self._files.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
            except ObjectNotFound:
                return
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):  # a marker that some tools write for an empty folder
                    yield ListedObject(
                        location=f"s3://{bucket}/{item['Key']}",
                        size_bytes=item["Size"],
                        content_id=_etag(item),
                        modified_ms=int(item["LastModified"].timestamp() * 1000),
                    )
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, path: str) -> None:
        """Remove an object."""
        try:
            with _errors(path):
                self._call("delete_object", path)
        except ObjectNotFound:
            return

    def delete_many(self, paths: Iterable[str]) -> dict[str, str]:
        """Remove objects, a thousand per request if XML can contain their keys."""
        failed: dict[str, str] = {}
        by_bucket: dict[str, builtins.list[str]] = {}
        for path in paths:
            bucket, _, key = path.partition("/")
            if not key or _NOT_XML.search(key):
                failed.update(self._delete_alone(path))
            else:
                by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            waiting = iter(keys)
            while batch := list(islice(waiting, _DELETE_BATCH)):
                failed.update(self._delete_batch(bucket, batch))
        return failed

    def sign(self, paths: Sequence[str], expires_s: int) -> SignedUrls:
        """Returns URLs of objects."""
        return self._make_urls().sign(paths, expires_s)

    def _delete_alone(self, path: str) -> dict[str, str]:
        try:
            self.delete(path)
        except StoreError as error:
            return {path: error.message}
        return {}

    def _delete_batch(self, bucket: str, keys: Sequence[str]) -> dict[str, str]:
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            with _errors(bucket):
                answer = self._files.call_s3("delete_objects", Bucket=bucket, Delete=wanted)
        except ObjectNotFound:  # no such bucket
            return {}
        except StoreError as error:
            return {f"{bucket}/{key}": error.message for key in keys}
        refused = {item["Key"]: item for item in answer.get("Errors", ())}
        return {
            f"{bucket}/{key}": f"{item.get('Code')}: {item.get('Message')}"
            for key, item in refused.items()
            if item.get("Code") not in _ABSENT
        }

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        bucket, _, key = path.partition("/")
        if not key:
            raise ObjectNotFound(f"not an object: s3://{path}", location=f"s3://{path}")
        answer: dict[str, Any] = self._files.call_s3(method, Bucket=bucket, Key=key, **arguments)
        return answer

    def _get(self, path: str, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        """Returns the answer to the request for one object, and its bytes; an interrupted answer is requested again."""
        tries = _READ_TRIES
        while True:
            tries -= 1
            with _errors(path):
                answer = self._call("get_object", path, **arguments)
                try:
                    data: bytes = sync(self._files.loop, answer["Body"].read)
                    if len(data) == answer["ContentLength"]:
                        return answer, data
                except _FAILURES:
                    if not tries:
                        raise
                finally:
                    answer["Body"].close()
            if not tries:
                raise StoreError(f"s3://{path}: the response was incomplete", location=f"s3://{path}")

    def _read_back(self, path: str, error: BaseException) -> dict[str, Any] | None:
        """Returns what is at ``path`` after a failed put; None: nothing. A failed read-back proves nothing."""
        try:
            return self._call("head_object", path)
        except _FAILURES as second:
            if _code(second) in _ABSENT:
                return None
            raise _store_error(path, error) from second


def _without_uploads(loop: asyncio.AbstractEventLoop) -> None:
    """Keep an event loop from reporting the task that sent the body of an aborted upload.

    aiohttp only waits for the answer: an error of that task which it did not raise belongs to a request that has
    already failed, as its caller knows. The loop would log it as an exception that was never retrieved.
    """
    if loop in _HEARD:
        return
    _HEARD.add(loop)
    before = loop.get_exception_handler()

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        task, error = context.get("future"), context.get("exception")
        writes = isinstance(task, asyncio.Task) and getattr(task.get_coro(), "__qualname__", "") == _BODY_WRITER
        if writes and isinstance(error, (ConnectionError, aiohttp.ClientError)):
            return
        if before is None:
            loop.default_exception_handler(context)
        else:
            before(loop, context)

    loop.set_exception_handler(report)


def _etag(answer: dict[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')


def _stat(path: str, head: dict[str, Any]) -> ObjectStat:
    return ObjectStat(location=f"s3://{path}", size_bytes=head["ContentLength"], content_id=_etag(head))


def _code(error: BaseException) -> str | None:
    """Returns the service's own error code, from the exception or from its cause."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, ClientError):
            return str(candidate.response.get("Error", {}).get("Code"))
    return None


def _store_error(path: str, error: BaseException) -> StoreError:
    return StoreError(f"s3://{path}: {error or type(error).__name__}", location=f"s3://{path}", s3_code=_code(error))


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        if _code(error) in _ABSENT:
            raise ObjectNotFound(f"no such object: s3://{path}", location=f"s3://{path}") from error
        raise _store_error(path, error) from error


# Signed URLs of S3 objects: AWS Signature Version 4 in the query string.
#
# botocore signs one URL for each bucket of a request; it knows the endpoint, the region, how the bucket is addressed,
# the credentials and their session token. The others differ from it in the key alone, so their signatures are computed
# here, in a fraction of botocore's time. This is checked each time: the result for the first URL must equal botocore's
# own signature, otherwise botocore signs all of them.
#
# https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html

#: The key of the URL that botocore signs; none of its characters is escaped in a URL.
_SAMPLE: Final = "lamella-sample-key"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_URL: Final = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[^/?#]+))(?P<folder>/[^?#]*)"
    + _SAMPLE
    + r"\?(?P<query>[^#]*)&X-Amz-Signature=(?P<signature>[0-9a-f]{64})"
)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
#: Credentials may change between signing the sample and reading them.
_TRIES: Final = 2


class S3Urls:
    """Signs URLs for the store of scheme ``s3``. ``options`` are those of :class:`s3fs.S3FileSystem`.

    ``endpoint_url``: the endpoint that readers use, if it differs from the service's own.
    """

    def __init__(self, options: dict[str, Any], endpoint_url: str | None = None) -> None:
        given = {**options, **({} if endpoint_url is None else {"endpoint_url": endpoint_url})}
        config = {"signature_version": "s3v4", **given.get("config_kwargs", {})}
        if not given.get("endpoint_url") and not given.get("client_kwargs", {}).get("endpoint_url"):
            # botocore would use the global endpoint, which may redirect, and a redirect is not signed.
            config["s3"] = {"addressing_style": "virtual", **config.get("s3", {})}
        self._files = s3fs.S3FileSystem(
            **{"skip_instance_cache": True, "use_listings_cache": False, **given, "config_kwargs": config}
        )

    def sign(self, paths: Sequence[str], expires_s: int) -> SignedUrls:
        """Returns URLs that answer a GET of each of these ``bucket/key`` paths, in order.

        Raises:
            NotSignable: there are no credentials, or HTTP clients would change a path.
            StoreError: the credentials are unavailable.
        """
        keys: dict[str, dict[str, None]] = {}
        for path in paths:
            bucket, _, key = path.partition("/")
            if not key or any(part in (".", "..") for part in key.split("/")):
                raise NotSignable(
                    f"cannot sign a URL for s3://{path}: HTTP clients change such a path", location=f"s3://{path}"
                )
            keys.setdefault(bucket, {})[key] = None
        signed = {bucket: self._signed(bucket, list(of_bucket), expires_s) for bucket, of_bucket in keys.items()}
        urls = {f"{bucket}/{key}": url for bucket, (found, _) in signed.items() for key, url in found.items()}
        until = [ends_ms for _, ends_ms in signed.values()]
        return SignedUrls(urls=tuple(urls[path] for path in paths), expires_ms=min(until, default=_now_ms()))

    def _signed(self, bucket: str, keys: Sequence[str], expires_s: int) -> tuple[dict[str, str], int]:
        """Returns the URLs of a bucket's keys, and their expiry time (Unix milliseconds)."""
        ends_ms = _now_ms() + expires_s * 1000
        try:
            for _ in range(_TRIES):
                (sample,), credentials = self._by_botocore(bucket, [_SAMPLE], expires_s)
                if "Signature=" not in sample:
                    raise _no_credentials(bucket)
                expiry = getattr(credentials, "_expiry_time", None)
                if expiry is not None:
                    ends_ms = min(ends_ms, int(expiry.timestamp() * 1000))
                frame = _Frame.of(sample, self._secret(credentials))
                if frame is not None:
                    return {key: frame.url(key) for key in keys}, ends_ms
            urls, _ = self._by_botocore(bucket, keys, expires_s)
        except NoCredentialsError as error:
            raise _no_credentials(bucket) from error
        except _FAILURES as error:
            raise StoreError(f"s3://{bucket}: cannot sign a URL: {error}", location=f"s3://{bucket}") from error
        return dict(zip(keys, urls, strict=True)), ends_ms

    def _by_botocore(self, bucket: str, keys: Sequence[str], expires_s: int) -> tuple[list[str], Any]:
        """Returns URLs signed by botocore, and the credentials that it used."""

        async def sign() -> tuple[list[str], Any]:
            await self._files.set_session()
            client = await self._files.get_s3(bucket)
            urls = [
                await client.generate_presigned_url(
                    "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=expires_s
                )
                for key in keys
            ]
            return urls, client._request_signer._credentials  # botocore has no public access to them

        found: tuple[list[str], Any] = sync(self._files.loop, sign)
        return found

    def _secret(self, credentials: Any) -> str:
        frozen = sync(self._files.loop, credentials.get_frozen_credentials)
        return str(frozen.secret_key)


class _Frame:
    """The common parts of URLs of one bucket that are signed at one time."""

    def __init__(self, match: re.Match[str], secret: str) -> None:
        query = match["query"]
        self._origin, self._folder, self._query = match["origin"], match["folder"], query
        given = {name: values[0] for name, values in parse_qs(query).items()}
        _, day, region, service, terminator = given["X-Amz-Credential"].rsplit("/", 4)
        host = match["host"].removesuffix(_DEFAULT_PORTS[match["scheme"]])
        sorted_query = "&".join(sorted(query.split("&")))
        self._behind_path = f"\n{sorted_query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD".encode()
        scope = f"{day}/{region}/{service}/{terminator}"
        self._before_hash = f"{_ALGORITHM}\n{given['X-Amz-Date']}\n{scope}\n"
        key = f"AWS4{secret}".encode()
        for part in (day, region, service, terminator):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key

    @classmethod
    def of(cls, sample: str, secret: str) -> _Frame | None:
        """Returns the frame of a URL that botocore signed; None if its signature cannot be computed here."""
        match = _URL.fullmatch(sample)
        if match is None:
            return None
        try:
            frame = cls(match, secret)
        except (KeyError, ValueError):  # signed in another way
            return None
        return frame if frame._signature(match["folder"] + _SAMPLE) == match["signature"] else None

    def url(self, key: str) -> str:
        """Returns the URL of one key."""
        path = self._folder + quote(key, safe="/~")
        return f"{self._origin}{path}?{self._query}&X-Amz-Signature={self._signature(path)}"

    def _signature(self, path: str) -> str:
        request = hashlib.sha256(b"GET\n" + path.encode("ascii") + self._behind_path).hexdigest()
        return hmac.digest(self._key, (self._before_hash + request).encode(), "sha256").hex()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _no_credentials(bucket: str) -> NotSignable:
    return NotSignable(f"s3://{bucket}: the service has no credentials for signing URLs", location=f"s3://{bucket}")
