"""The interface of index kinds: options, builders and probes, and how other packages add kinds.

A kind is identified by its name; no code checks for a specific kind. Packages add kinds through an entry point of the
group ``lamella.index_kinds`` that returns a :class:`Kind`.

An index must never exclude a row that matches: a :class:`PossibleOutcomes` states what the rows of a block *may* do
with a predicate. A claim may be too broad, never too narrow. All claims apply to a block as the table's own rules read
it, so the evaluation of a filter intersects claims with the minima and maxima, in SQL's three-valued logic; claims are
never negated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import Mask, Truth
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.bound import BoundTest
from lamella.snapshot.function.base import Vector
from lamella.snapshot.index.part import Part
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.schema import DataType

if TYPE_CHECKING:
    from lamella.snapshot.parquet.footer import Footer
    from lamella.snapshot.storage.store import Store


class Option(msgspec.Struct, frozen=True):
    """One option. Its values have the type of ``default``; ``minimum`` and ``maximum`` limit numbers."""

    default: Any
    text: str
    minimum: float | None = None
    maximum: float | None = None


def checked(
    kind: str, known: Mapping[str, Option], given: Mapping[str, Any], dtype: DataType, *, fits: bool
) -> dict[str, Any]:
    """Returns all options with their values.

    Raises:
        InvalidRequest: the kind does not fit the type; an option is unknown, of another type, or out of range.
    """
    if not fits:
        raise InvalidRequest(f"an index of kind {kind} cannot be created on {dtype}", kind=kind, type=str(dtype))
    for name in given:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            text = f"the index kind {kind} has no option {name!r}; it has {there}"
            raise InvalidRequest(text, option=name, **did_you_mean(name, list(known)))
    return {name: _value(kind, name, option, given.get(name, option.default)) for name, option in known.items()}


def _value(kind: str, name: str, option: Option, value: Any) -> Any:
    wanted = type(option.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise InvalidRequest(f"option {name!r} of the index kind {kind} must be a {wanted.__name__}", option=name)
    too_small = option.minimum is not None and not value >= option.minimum
    too_large = option.maximum is not None and not value <= option.maximum
    if too_small or too_large:
        raise InvalidRequest(
            f"option {name!r} of the index kind {kind} must be between {option.minimum} and {option.maximum}",
            option=name,
        )
    return value


# Estimates: what manifests tell about the values of a term, and how an index of a kind would perform.
#
# Both are arrays with one element per entry of a layer: per block, or per segment.

Numbers = npt.NDArray[np.float64]
ProfileLayer = Literal["block", "segment"]

#: Typical number of blocks of a part; see :data:`lamella.snapshot.index.building.PART_BLOCKS`.
PART_ENTRIES: Final = 1_000


class Profile(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The values of a term of ``dtype`` in the entries of one layer that have rows.

    ``rows``: rows that may hold a value. ``distinct``: the approximate number of distinct values among them, or, unless
    ``is_counted``, its maximum. ``total``: the same for the whole table. ``value_bytes``: the approximate bytes of one
    value. ``is_bounded``: where minimum and maximum are known.
    """

    layer: ProfileLayer
    dtype: DataType
    rows: Any
    distinct: Any
    total: float
    is_counted: bool
    value_bytes: float
    is_bounded: Any

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fewest(self) -> Profile:
        """Returns the same entries with as few distinct values as possible: one in each entry that has any.

        If distinct values were not counted, the truth lies between this profile and the original one.
        """
        distinct = np.minimum(self.distinct, 1.0)
        return msgspec.structs.replace(self, distinct=distinct, total=max(float(distinct.max(initial=0.0)), 1.0))


class Expected(msgspec.Struct, frozen=True, eq=False):
    """The expected effect of an index on a look-up of one value (``=``, or one value of IN).

    ``read_chance``: for each entry that lacks the value but has smaller and greater ones, the probability that it is
    read nevertheless: 0 if the index always excludes it, 1 if it never does. None: cannot be estimated from manifests.
    ``read_if_absent``: the same for a value that the whole table lacks; None: the same probability. ``size_bytes``:
    size of the index over all entries, None if it cannot be estimated. ``reason``: what cannot be estimated, and why.
    """

    read_chance: Any = None
    size_bytes: float | None = None
    reason: str = ""
    read_if_absent: Any = None

    @property
    def keeps_all(self) -> bool:
        """Returns whether the index is expected to exclude nothing in a look-up."""
        chances = [each for each in (self.read_chance, self.read_if_absent) if each is not None]
        return bool(chances) and all(bool((each >= 1.0).all()) for each in chances)


def same(profile: Profile, read_chance: float, size_bytes: float | None, reason: str = "") -> Expected:
    """Returns the same expectation for every entry."""
    return Expected(np.full(len(profile), read_chance), size_bytes, reason)


def dictionary_bytes(profile: Profile, pairs: float, code_bytes: float) -> float:
    """Returns the approximate size of the dictionaries of parts, and of the codes of ``pairs`` block values into
    them."""
    parts = max(1.0, np.ceil(len(profile) / PART_ENTRIES))
    return float(pairs * code_bytes + min(pairs, profile.total * parts) * profile.value_bytes)


GROUP: Final = "lamella.index_kinds"


class PossibleOutcomes(msgspec.Struct, frozen=True):
    """Per block: whether a row of it may be true, false, null. ``True`` for all blocks if nothing is known."""

    true: Truth
    false: Truth = True
    null: Truth = True


class Builder(Protocol):
    """Receives the values of some blocks, one block after another."""

    def add(self, values: Vector) -> None:
        """Add rows of the current block; none of them has failed."""
        ...

    def end_block(self) -> None:
        """End the current block."""
        ...

    def sections(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the sections and facts of a part for all blocks, in the order in which they were ended."""
        ...


@runtime_checkable
class FileBuilder(Builder, Protocol):
    """A builder that can also use the metadata of a block's file, so that its rows need not be read."""

    def add_file(self, store: Store, footer: Footer, leaf: int) -> str | None:
        """Add the next block completely from its file; returns the reason if that is impossible, and then nothing was
        added.

        Only for an index whose term is the column itself. ``leaf``: its index in the file's schema; the file still has
        this footer. Raises ObjectNotFound and StoreError, as for reading.
        """
        ...


class Probe(Protocol):
    """Answers from one part."""

    def possible_outcomes(self, test: BoundTest, rows: npt.NDArray[np.int64]) -> PossibleOutcomes | None:
        """Returns what rows of the blocks ``rows`` (indexes in the part, ascending) may do; None if the kind cannot
        tell.

        The test's term is that of the index, and has the type that the part was built with or a type that it was
        widened to; :mod:`.widening` lists these. For a type that it cannot serve, a probe returns None.
        """
        ...


class Kind(Protocol):
    """An index kind. ``name`` is what users write; ``text`` describes its purpose in one sentence.

    ``known_options``: its options, independent of the type.
    """

    name: str
    text: str
    known_options: Mapping[str, Option]

    def options(self, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the complete, checked options of an index over terms of a type; raises InvalidRequest."""
        ...

    def answers(self, test: BoundTest, options: Mapping[str, Any]) -> str | None:
        """Returns None if such an index may help with a predicate, otherwise the reason in a few words."""
        ...

    def builder(self, dtype: DataType, options: Mapping[str, Any]) -> Builder:
        """Returns a builder of parts."""
        ...

    def probe(self, part: Part) -> Probe:
        """Returns a probe of a part."""
        ...

    def taken(
        self, parts: list[tuple[Part, npt.NDArray[np.int64]]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Returns the sections and facts of one part with these blocks of several parts, in order, without reading
        their rows.

        All parts were built with the same options and type.
        """
        ...

    def expected(self, profile: Profile, options: Mapping[str, Any]) -> Expected:
        """Estimates how such an index would perform for look-ups of single values, from what manifests tell about the
        term.

        Reads nothing and assumes nothing: what cannot be estimated is None, with the reason.
        """
        ...


def whole(mask: Truth, count: int) -> Mask:
    """Returns a claim's mask as an array."""
    return np.full(count, mask) if isinstance(mask, bool) else mask
