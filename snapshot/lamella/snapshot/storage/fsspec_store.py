"""The default store: local files, memory and S3 behind one interface, selected by the scheme of each location."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Protocol, runtime_checkable

from lamella.snapshot.errors import InvalidRequest, NotSignable, ObjectNotFound, StoreError
from lamella.snapshot.storage.local import LocalFiles, MemoryFiles
from lamella.snapshot.storage.location import (
    Glob,
    Location,
    glob_root,
    has_magic,
    is_data_file,
    parse,
    refuse_other_formats,
)
from lamella.snapshot.storage.store import ListedObject, ObjectStat, SignedUrls


class _Files(Protocol):
    """The operations on the files of one scheme, by path."""

    def read(self, path: str) -> bytes: ...
    def read_range(self, path: str, start: int, length: int) -> bytes: ...
    def stat(self, path: str) -> ObjectStat: ...
    def put(self, path: str, data: bytes) -> ObjectStat: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def exists(self, path: str) -> bool: ...
    def list(self, folder: str, start_after: str | None = None) -> Iterator[ListedObject]: ...
    def delete(self, path: str) -> None: ...
    def delete_many(self, paths: Iterable[str]) -> dict[str, str]: ...


@runtime_checkable
class _SigningFiles(Protocol):
    """Files that can be read by URL."""

    def sign(self, paths: Sequence[str], expires_s: int) -> SignedUrls: ...


@runtime_checkable
class _EndReadingFiles(Protocol):
    """Files whose end is one request."""

    def read_end(self, path: str, length: int) -> tuple[ObjectStat, bytes]: ...


#: What the locations on S3 begin with.
_S3: Final = "s3://"
_LOCAL: Final = "file:///"


def _is_local(location: str) -> bool:
    """Returns whether a location is the URL of a local path that :func:`parse` accepts."""
    return location.startswith(_LOCAL) and "\0" not in location


class FsspecStore:
    """A :class:`~lamella.snapshot.storage.store.Store` over ``file``, ``memory`` and ``s3``.

    ``options`` are fsspec storage options by scheme, for example ``{"s3": {"endpoint_url": "http://127.0.0.1:9000"}}``.
    S3 needs the extra ``lamella[s3]``. One instance serves any number of threads; create it after a fork, not before.
    """

    def __init__(self, options: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._options = {scheme: dict(of_scheme) for scheme, of_scheme in (options or {}).items()}
        self._local = LocalFiles()
        self._files: dict[str, _Files] = {"file": self._local}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[FsspecStore], tuple[dict[str, dict[str, Any]]]]:
        """A store is pickled as its options, and opens its connections in the other process."""
        return FsspecStore, (self._options,)

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object."""
        at = parse(location)
        return self._of(at).read(at.path)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        if start < 0 or length < 0:
            raise InvalidRequest(f"not a range: {start}, {length}", location=location)
        at = parse(location)
        return self._of(at).read_range(at.path, start, length)

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object."""
        at = parse(location)
        return self._of(at).stat(at.path)

    def stat_many(self, locations: Sequence[str]) -> dict[str, ObjectStat]:
        """Returns the stats of local files, see :class:`~lamella.snapshot.storage.store.BatchStatStore`."""
        paths = {location: parse(location).path for location in locations if _is_local(location)}
        found = self._local.stat_many(list(paths.values())) if paths else {}
        return {location: found[path] for location, path in paths.items() if path in found}

    def read_cached_ends(self, locations: Sequence[str], length: int) -> dict[str, tuple[ObjectStat, bytes]]:
        """Returns the ends of local files, see :class:`~lamella.snapshot.storage.store.CachedEndStore`."""
        paths = [parse(location).path for location in takewhile(_is_local, locations)]
        return dict(zip(locations, self._local.read_cached_ends(paths, length), strict=False))

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object."""
        at = parse(location)
        return self._of(at).put(at.path, data)

    def replace(self, location: str, data: bytes) -> None:
        """Create or replace an object, see :class:`~lamella.snapshot.storage.store.ReplacingStore`."""
        at = parse(location)
        self._of(at).replace(at.path, data)

    def local_path(self, location: str) -> str | None:
        """Returns the path of an object that can be mapped, see
        :class:`~lamella.snapshot.storage.store.MappableStore`."""
        at = parse(location)
        return self._local.local_path(at.path) if at.scheme == "file" else None

    def reads_ends(self, location: str) -> bool:
        """Returns whether the end of an object is one request, see
        :class:`~lamella.snapshot.storage.store.EndReadingStore`."""
        return location.startswith(_S3)

    def read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        """Returns the last bytes of an object, and its stat."""
        at = parse(location)
        files = self._of(at)
        if not isinstance(files, _EndReadingFiles):
            raise InvalidRequest(f"the end of {at} cannot be read in one request", location=str(at))
        return files.read_end(at.path, length)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Returns the data files that a URL names."""
        at = parse(url)
        files = self._of(at)
        if not at.path.endswith("/") and files.exists(at.path):
            return [str(at)]
        folder = at.path.rstrip("/") + "/"
        listed = self._locations(files, folder)
        if files is self._local:
            start = len(f"file://{folder}")
            found = [each for each in listed if is_data_file(each[start:])]
        else:
            found = [each for each in listed if is_data_file(parse(each).path[len(folder) :])]
        if not found and has_magic(at.path):
            glob = Glob(at.path)
            below = glob_root(at.path)
            if at.scheme == "s3" and "/" not in below:
                raise InvalidRequest(f"a bucket name cannot be a glob: {url!r}", location=url)
            listed = self._locations(files, below)
            found = [each for each in listed if glob.selects(parse(each).path)]
        if not found:
            raise ObjectNotFound(f"no Parquet file at {url}", location=url)
        if plain:
            refuse_other_formats(
                listed,
                found,
                "; other_formats = 'ignore' (--ignore-other-formats) registers every Parquet file",
            )
        return sorted(found)

    def _locations(self, files: _Files, folder: str) -> Sequence[str]:
        return self._local.locations(folder) if files is self._local else [each.location for each in files.list(folder)]

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder."""
        at = parse(prefix)
        behind = None if start_after is None else parse(start_after)
        if behind is not None and behind.scheme != at.scheme:
            raise InvalidRequest(f"{start_after!r} is not in the store of {prefix!r}", location=start_after)
        return self._of(at).list(at.path, None if behind is None else behind.path)

    def delete(self, location: str) -> None:
        """Remove an object."""
        at = parse(location)
        self._of(at).delete(at.path)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects."""
        by_scheme: dict[str, dict[str, str]] = {}
        for location in locations:
            at = parse(location)
            by_scheme.setdefault(at.scheme, {})[at.path] = location
        failed = {}
        for of_scheme in by_scheme.values():
            files = self._of(parse(next(iter(of_scheme.values()))))
            failed.update({of_scheme[path]: why for path, why in files.delete_many(of_scheme).items()})
        return failed

    def sign(self, locations: Sequence[str], expires_s: int) -> SignedUrls:
        """Returns URLs of objects, see :class:`~lamella.snapshot.storage.store.SigningStore`."""
        parsed = [parse(location) for location in locations]
        signing: _SigningFiles | None = None
        for at in {at.scheme: at for at in reversed(parsed)}.values():
            files = self._of(at)
            if not isinstance(files, _SigningFiles):
                raise NotSignable(
                    f"cannot sign a URL for {at}: only objects on S3 can have signed URLs", location=str(at)
                )
            signing = files  # only one scheme has such URLs
        if signing is None:
            return SignedUrls(urls=(), expires_ms=0)
        return signing.sign([at.path for at in parsed], expires_s)

    def _of(self, location: Location) -> _Files:
        files = self._files.get(location.scheme)
        if files is None:
            with self._lock:
                files = self._files.get(location.scheme)
                if files is None:
                    files = self._files[location.scheme] = _open(location.scheme, self._options)
        return files


def _open(scheme: str, options: Mapping[str, dict[str, Any]]) -> _Files:
    if scheme == "memory":
        return MemoryFiles(options.get("memory", {}))
    try:
        from lamella.snapshot.storage.s3 import S3Objects
    except ImportError as error:
        raise StoreError("S3 requires the extra lamella[s3]") from error
    return S3Objects(options.get("s3", {}))
