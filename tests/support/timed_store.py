"""A store in memory whose times come from the test, and which lets something happen before each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lamella.snapshot.errors import AlreadyExists, ObjectNotFound
from lamella.snapshot.storage import ListedObject, ObjectStat

#: Called with the step (``put``, ``list``, ``delete``) and its location, before it is done.
Hook = Callable[[str, str], None]


class TimedStore:
    """Objects by location; ``clock`` gives Unix milliseconds, ``hook`` may be set at any time.

    ``read_hook`` is called with the location before an object is read.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}
        self.hook: Hook | None = None
        self.read_hook: Callable[[str], None] | None = None
        self.deleted: list[str] = []
        self.refusing: set[str] = set()

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        if self.read_hook is not None:
            self.read_hook(location)
        return self._found(location)[0]

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        return self.read(location)[start : start + length]

    def stat(self, location: str) -> ObjectStat:
        """Size and content id of an object."""
        data, modified_ms = self._found(location)
        return ObjectStat(location=location, size_bytes=len(data), content_id=f"{len(data)}-{modified_ms}")

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object."""
        self._before("put", location)
        if location in self._objects:
            raise AlreadyExists(f"already there: {location}", location=location)
        self._objects[location] = (data, self._clock())
        return self.stat(location)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:  # noqa: ARG002  # it has no folders
        """The object itself."""
        return [self.stat(url).location]

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Every object below a folder."""
        folder = prefix.rstrip("/") + "/"
        for location in sorted(self._objects):
            if location.startswith(folder) and (start_after is None or location > start_after):
                self._before("list", location)
                if location in self._objects:
                    stat, modified_ms = self.stat(location), self._objects[location][1]
                    yield ListedObject(
                        location=location,
                        size_bytes=stat.size_bytes,
                        content_id=stat.content_id,
                        modified_ms=modified_ms,
                    )

    def delete(self, location: str) -> None:
        """Remove an object."""
        self._before("delete", location)
        if self._objects.pop(location, None) is not None:
            self.deleted.append(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects, except those in ``refusing``."""
        failed = {}
        for location in [*locations]:
            if location in self.refusing:
                failed[location] = "the test refuses"
            else:
                self.delete(location)
        return failed

    def locations(self) -> set[str]:
        """Everything that is there."""
        return set(self._objects)

    def _found(self, location: str) -> tuple[bytes, int]:
        if location not in self._objects:
            raise ObjectNotFound(f"no such object: {location}", location=location)
        return self._objects[location]

    def _before(self, step: str, location: str) -> None:
        hook = self.hook
        if hook is not None:
            hook(step, location)
