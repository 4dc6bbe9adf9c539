"""Judging what a listing shows: needed, too young to say, nobody's, or to be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from lamella.snapshot.layout import ListedObject
from lamella.snapshot.vacuum.mark import LiveSet
from lamella.snapshot.vacuum.names import Kind, ObjectName, object_name

Verdict = Literal["garbage", "live", "young", "unknown"]


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """A number of objects, and their bytes."""

    objects: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> Tally:
        """With one object more."""
        return Tally(objects=self.objects + 1, size_bytes=self.size_bytes + size_bytes)

    def __add__(self, other: Tally) -> Tally:
        return Tally(objects=self.objects + other.objects, size_bytes=self.size_bytes + other.size_bytes)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An object and what it is to the table; ``name`` is None for ``unknown``."""

    verdict: Verdict
    location: str
    size_bytes: int
    name: ObjectName | None

    @property
    def kind(self) -> Kind | None:
        """What the name says it is."""
        return None if self.name is None else self.name.kind


def judged(listing: Iterable[ListedObject], root: str, live: LiveSet, *, before_ms: int) -> Iterator[Found]:
    """Each object of a table's folder with its verdict, in the order of the listing.

    Garbage is only what was made before ``before_ms`` both by the time in its name and by the store's own time of its
    last change: a commit or job that is under way has objects that no snapshot needs yet. What a name does not
    explain is never garbage. Raises as :meth:`LiveSet.add`.
    """
    for found in listing:
        name = object_name(root, found.location)
        verdict: Verdict
        if name is None:
            verdict = "unknown"
        elif max(name.made_ms, found.modified_ms) >= before_ms:
            verdict = "young"
        else:
            verdict = "live" if live.holds(name, found.location) else "garbage"
        yield Found(verdict=verdict, location=found.location, size_bytes=found.size_bytes, name=name)
