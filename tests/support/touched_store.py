"""A store that remembers what was asked of it, for tests of what must not be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lamella.snapshot.storage import FsspecStore, ListedObject, ObjectStat, SignedUrls


class TouchedStore(FsspecStore):
    """``touched`` has every location and folder that was asked for, in order. ``stuck``: nothing can be deleted."""

    def __init__(self, options: dict[str, dict[str, object]] | None = None) -> None:
        super().__init__(options)
        self.touched: list[str] = []
        self.stuck = False

    def read(self, location: str) -> bytes:
        """As the store does."""
        self.touched.append(location)
        return super().read(location)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        self.touched.append(location)
        return super().read_range(location, start, length)

    def read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        """As the store does."""
        self.touched.append(location)
        return super().read_end(location, length)

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        self.touched.append(location)
        return super().stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does."""
        self.touched.append(location)
        return super().put(location, data)

    def local_path(self, location: str) -> str | None:
        """As the store does; a file that is mapped is looked at."""
        self.touched.append(location)
        return super().local_path(location)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """As the store does."""
        self.touched.append(url)
        return super().expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """As the store does."""
        self.touched.append(prefix)
        return super().list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """As the store does."""
        self.touched.append(location)
        super().delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """As the store does."""
        found = [*locations]
        self.touched += found
        return dict.fromkeys(found, "stuck") if self.stuck else super().delete_many(found)

    def sign(self, locations: Sequence[str], expires_s: int) -> SignedUrls:
        """As the store does."""
        self.touched += locations
        return super().sign(locations, expires_s)
