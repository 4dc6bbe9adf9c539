"""The kinds of skip indexes: their options, what each can do, and how others are added.

A kind is known by its name alone; nothing else asks which kind it is. Packages add their own by an entry point of the
group ``lamella.index_kinds`` that gives a :class:`Kind`.

An index never says that a row matches what it does not: a :class:`IdempotencyKey` is what the rows of a block *may* do
with a predicate. Claims may only be too large. All of them hold for a block as it was read by the table's own rules, so
the evaluation of a filter takes what a claim and the minima and maxima both allow, in SQL's three-valued logic; nobody
negates a claim.
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
from lamella.snapshot.schema import DataType

if TYPE_CHECKING:
    from lamella.snapshot.parquet.footer import Footer
    from lamella.snapshot.storage.store import Store


class Option(msgspec.Struct, frozen=True):
    """One option. Its values are of the type of ``default``; ``least`` and ``most`` bound numbers."""

    default: Any
    text: str
    least: float | None = None
    most: float | None = None


def checked(
    kind: str, known: Mapping[str, Option], given: Mapping[str, Any], dtype: DataType, *, fits: bool
) -> dict[str, Any]:
    """All options with their values.

    Raises:
        InvalidRequest: the kind does not fit the type; an option that there is not, of another type, or out of bounds.
    """
    if not fits:
        raise InvalidRequest(f"an index of the kind {kind} cannot be made over {dtype}", kind=kind, type=str(dtype))
    for name in given:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(f"the index kind {kind} has no option {name!r}; it has {there}", option=name)
    return {name: _value(kind, name, option, given.get(name, option.default)) for name, option in known.items()}


def _value(kind: str, name: str, option: Option, value: Any) -> Any:
    wanted = type(option.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise InvalidRequest(f"option {name!r} of the index kind {kind} is a {wanted.__name__}", option=name)
    too_small = option.least is not None and not value >= option.least
    too_large = option.most is not None and not value <= option.most
    if too_small or too_large:
        raise InvalidRequest(
            f"option {name!r} of the index kind {kind} lies between {option.least} and {option.most}", option=name
        )
    return value


# What manifests say of the values of a term, and what a kind of index would make of them.
#
# Both are arrays with one element for each entry of a layer: for each block, or for each segment.

Numbers = npt.NDArray[np.float64]
ProfileLayer = Literal["block", "segment"]

#: Blocks of a part, mostly; see :data:`lamella.snapshot.index.building.PART_BLOCKS`.
PART_ENTRIES: Final = 1_000


class Profile(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The values of a term of ``dtype`` in the entries of one layer that have rows.

    ``rows``: rows that may hold a value. ``distinct``: about how many different values those have, or, unless
    ``is_counted``, the most that there can be. ``total``: the same of the whole table. ``value_bytes``: about the bytes
    of one value. ``is_bounded``: where the least and the greatest value are known.
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
        """The same entries with as few different values as there can be: one in each entry that has any.

        Where nobody counted, the truth lies between this profile and the one itself.
        """
        least = np.minimum(self.distinct, 1.0)
        return msgspec.structs.replace(self, distinct=least, total=max(float(least.max(initial=0.0)), 1.0))


class Expected(msgspec.Struct, frozen=True, eq=False):
    """What an index would do for a look-up of one value (``=``, or one value of a list).

    ``kept``: for each entry that lacks the value, but has lesser and greater ones, how likely it is read all the same:
    0 where the index always knows, 1 where it never does. None: manifests cannot tell. ``kept_absent``: the same for a
    value that the whole table lacks; None: just as likely. ``size_bytes``: of the index over all entries, None when
    that cannot be told. ``reason``: what cannot be told, and why.
    """

    kept: Any = None
    size_bytes: float | None = None
    reason: str = ""
    kept_absent: Any = None

    @property
    def keeps_all(self) -> bool:
        """The index is expected to rule out nothing in a look-up."""
        kept = [each for each in (self.kept, self.kept_absent) if each is not None]
        return bool(kept) and all(bool((each >= 1.0).all()) for each in kept)


def same(profile: Profile, kept: float, size_bytes: float | None, reason: str = "") -> Expected:
    """The same in every entry."""
    return Expected(np.full(len(profile), kept), size_bytes, reason)


def dictionary_bytes(profile: Profile, pairs: float, code_bytes: float) -> float:
    """About what the dictionaries of parts take, and the codes of ``pairs`` values of blocks into them."""
    parts = max(1.0, np.ceil(len(profile) / PART_ENTRIES))
    return float(pairs * code_bytes + min(pairs, profile.total * parts) * profile.value_bytes)


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


def whole(mask: Truth, count: int) -> Mask:
    """A claim's mask as an array."""
    return np.full(count, mask) if isinstance(mask, bool) else mask
