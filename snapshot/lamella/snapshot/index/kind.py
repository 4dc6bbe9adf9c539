"""The kinds of skip indexes: what each of them can do, and how others are added.

A kind is known by its name alone; nothing else asks which kind it is. Packages add their own by an entry point of the
group ``lamella.index_kinds`` that gives a :class:`Kind`.

An index never says that a row matches what it does not: a :class:`Claim` is what the rows of a block *may* do with a
predicate. Claims may only be too large. All of them hold for a block as it was read by the table's own rules, so the
evaluation of a filter takes what a claim and the minima and maxima both allow, in SQL's three-valued logic; nobody
negates a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.masks import Mask, Truth
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.bound import BoundTest
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.index.options import Option
from lamella.snapshot.index.part import Part
from lamella.snapshot.index.profile import Expected, Profile
from lamella.snapshot.schema import DataType

if TYPE_CHECKING:
    from lamella.snapshot.layout.store import Store
    from lamella.snapshot.parquet.footer import Footer

GROUP: Final = "lamella.index_kinds"


class Claim(msgspec.Struct, frozen=True):
    """Per block: may a row of it be true, false, null. ``True`` for all blocks when nothing is known."""

    true: Truth
    false: Truth = True
    null: Truth = True


class Builder(Protocol):
    """Takes in the values of some blocks, one block after another."""

    def add(self, values: Vector) -> None:
        """Some rows of the block at hand; none of them has failed."""
        ...

    def end_block(self) -> None:
        """There are no more rows of that block."""
        ...

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """What is known of all blocks, entries in the order in which they were ended: sections and facts of a part."""
        ...


@runtime_checkable
class FileBuilder(Builder, Protocol):
    """A builder that can also take what a block's file says of a column, so that no row of it has to be read."""

    def add_file(self, store: Store, footer: Footer, leaf: int) -> str | None:
        """The next block, whole, from its file; why that cannot be, and then nothing was added.

        Only where the index's term is the column itself. ``leaf``: its place in the file's schema; the file is of the
        footer still. Raises ObjectNotFound and StoreError, as reading does.
        """
        ...


class Probe(Protocol):
    """Answers from one part."""

    def claim(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> Claim | None:
        """What rows of the blocks ``rows`` (places in the part, ascending) may do; None: the kind cannot tell.

        The test's term is the index's, and of the type that the part was built with or one that it was widened to:
        :mod:`.widening` has which. Of a type that it cannot serve, a probe tells nothing.
        """
        ...


class Kind(Protocol):
    """A kind of index. ``name`` is what users write; ``text`` says in one sentence what it is for.

    ``known_options``: its options, whatever the type.
    """

    name: str
    text: str
    known_options: Mapping[str, Option]

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of an index over terms of a type, complete and checked; raises InvalidRequest."""
        ...

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:
        """None when such an index may help with a predicate, and else why it cannot, in a few words."""
        ...

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """What builds a part."""
        ...

    def probe(self, part: Part) -> Probe:
        """What answers from a part."""
        ...

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """The sections and facts of one part that has these blocks of several, in that order; without their data.

        All parts were built with the same options and type.
        """
        ...

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:
        """What such an index would do for look-ups of single values, from what manifests say of the term.

        Nothing is read, and nothing invented: what cannot be told is None, with the reason.
        """
        ...


@cache
def kinds() -> dict[str, Kind]:
    """All kinds there are, by name: Lamella's own, and those of other packages.

    Raises InvalidRequest for two of one name, and for an entry point that leads to nothing.
    """
    from lamella.snapshot.index.builtin import BUILTIN  # it imports this module

    found = {kind.name: kind for kind in BUILTIN}
    for point in entry_points(group=GROUP):
        try:
            kind = point.load()
        except (ImportError, AttributeError) as error:
            raise InvalidRequest(f"the index kind {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if kind.name in found:
            raise InvalidRequest(f"two index kinds are called {kind.name!r}", kind=kind.name)
        found[kind.name] = kind
    return found


def kind_named(name: str) -> Kind:
    """The kind of that name; raises InvalidRequest."""
    found = kinds().get(name)
    if found is None:
        raise InvalidRequest(f"there is no index kind {name!r}; there are {', '.join(sorted(kinds()))}", kind=name)
    return found


def whole(mask: Truth, count: int) -> Mask:
    """A claim's mask as an array."""
    return np.full(count, mask) if isinstance(mask, bool) else mask
