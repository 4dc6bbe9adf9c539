"""S3 through s3fs, with the requests spelled out: no listing cache, no guess whether a key is a folder.

Which precondition failed is read from the service's error code, since s3fs maps it to a class only if the answer
names the condition. A conditional write carries an id of its own: when its answer is lost, a retry meets the first
attempt's object, and reading the id back tells our object from another writer's.
"""

from __future__ import annotations

import asyncio
import builtins
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any, Final
from weakref import WeakSet

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, ClientError
from fsspec.asyn import sync

from lamella.snapshot.errors import AlreadyExists, ObjectNotFound, StoreError
from lamella.snapshot.layout.s3_urls import S3Urls
from lamella.snapshot.layout.store import ListedObject, ObjectStat, SignedUrls

_WRITE_ID: Final = "lamella-write-id"
_ABSENT: Final = frozenset({"NoSuchKey", "NoSuchBucket", "404", "NotFound"})
_CONFLICT: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "409", "412"})
_PUT_TRIES: Final = 4
_READ_TRIES: Final = 3
_DELETE_BATCH: Final = 1_000  # what one DeleteObjects request takes
#: Characters that XML 1.0 cannot hold, or whose place an XML reader may change.
_NOT_XML: Final = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")
_FAILURES: Final = (OSError, BotoCoreError, ClientError, aiohttp.ClientError)
#: What sends the body of a request, as a task of its own.
_BODY_WRITER: Final = aiohttp.ClientRequest.write_bytes.__qualname__
#: Event loops whose reports go through :func:`_without_uploads`.
_HEARD: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


class S3Objects:
    """The store of scheme ``s3``; paths are ``bucket/key``. ``options`` go to :class:`s3fs.S3FileSystem`.

    But for ``signed_endpoint_url``: the endpoint that stands in signed URLs, where readers do not reach the other one.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        options = dict(options)
        signed_endpoint_url = options.pop("signed_endpoint_url", None)
        self._make_urls = cache(lambda: S3Urls(options, signed_endpoint_url))
        self._files = s3fs.S3FileSystem(**{"skip_instance_cache": True, "use_listings_cache": False, **options})
        _without_uploads(self._files.loop)

    def read(self, path: str) -> bytes:
        """All bytes of an object."""
        return self._get(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        if length <= 0:
            return b""
        try:
            return self._get(path, Range=f"bytes={start}-{start + length - 1}")
        except StoreError as error:
            if error.details.get("s3_code") in ("InvalidRange", "416"):
                return b""
            raise

    def stat(self, path: str) -> ObjectStat:
        """Size, and the etag as the content id."""
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
                    continue  # two conditional writes met (409) and neither may have stayed: ours is free to try again
                raise _store_error(path, error) from error
        raise StoreError(f"s3://{path}: conditional writes kept colliding", location=f"s3://{path}")

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace an object."""
        with _errors(path):
            self._call("put_object", path, Body=data)

    def exists(self, path: str) -> bool:
        """True for an object."""
        if not path.partition("/")[2]:
            return False
        try:
            self.stat(path)
        except ObjectNotFound:
            return False
        return True

    def list(self, folder: str, start_after: str | None = None) -> Iterator[ListedObject]:
        """Every object below a folder, page by page."""
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
        """Remove objects, a thousand in one request where their keys can stand in XML."""
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
        """URLs of objects."""
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

    def _get(self, path: str, **arguments: Any) -> bytes:
        """One object's bytes; an answer that breaks off is asked for again."""
        tries = _READ_TRIES
        while True:
            tries -= 1
            with _errors(path):
                answer = self._call("get_object", path, **arguments)
                try:
                    data: bytes = sync(self._files.loop, answer["Body"].read)
                    if len(data) == answer["ContentLength"]:
                        return data
                except _FAILURES:
                    if not tries:
                        raise
                finally:
                    answer["Body"].close()
            if not tries:
                raise StoreError(f"s3://{path}: the answer broke off", location=f"s3://{path}")

    def _read_back(self, path: str, error: BaseException) -> dict[str, Any] | None:
        """What is at ``path`` after a failed put; None: nothing. A read-back that fails itself proves nothing."""
        try:
            return self._call("head_object", path)
        except _FAILURES as second:
            if _code(second) in _ABSENT:
                return None
            raise _store_error(path, error) from second


def _without_uploads(loop: asyncio.AbstractEventLoop) -> None:
    """Have an event loop not report the task that sent the body of an upload which was aborted.

    aiohttp waits for the answer alone: an error of that task which it did not hand on is one of a request that has
    failed already, as its caller knows. The loop would log it as an exception that nobody has looked at.
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
    """The service's own error code, from the exception or from the one it stands for."""
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
