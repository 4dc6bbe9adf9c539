"""What manifests say of the values of a term, and what a kind of index would make of them.

Both are arrays with one element for each entry of a layer: for each block, or for each segment.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.schema import DataType

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
