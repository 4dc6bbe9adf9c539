"""The registry of index kinds: Lamella's own and those of other packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.index.affix import AffixKind
from lamella.snapshot.index.bloom import BloomKind
from lamella.snapshot.index.keys import KeysKind
from lamella.snapshot.index.kind import GROUP, Kind
from lamella.snapshot.index.ngram import NgramKind
from lamella.snapshot.index.value_set import ValueSetKind
from lamella.snapshot.index.zone_map import MinMaxKind, NullsKind, RangesKind
from lamella.snapshot.near_names import did_you_mean

BUILTIN: Final[tuple[Kind, ...]] = (
    AffixKind(),
    BloomKind(),
    KeysKind(),
    MinMaxKind(),
    NgramKind(),
    NullsKind(),
    RangesKind(),
    ValueSetKind(),
)


@cache
def kinds() -> dict[str, Kind]:
    """Returns all index kinds by name: Lamella's own, and those of other packages.

    Raises InvalidRequest for duplicate names and for entry points that cannot be loaded.
    """
    found = {kind.name: kind for kind in BUILTIN}
    for point in entry_points(group=GROUP):
        try:
            kind = point.load()
        except (ImportError, AttributeError) as error:
            raise InvalidRequest(f"the index kind {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if kind.name in found:
            raise InvalidRequest(f"two index kinds have the name {kind.name!r}", kind=kind.name)
        found[kind.name] = kind
    return found


def kind_named(name: str) -> Kind:
    """Returns the kind with a name; raises InvalidRequest."""
    found = kinds().get(name)
    if found is None:
        known = sorted(kinds())
        raise InvalidRequest(
            f"there is no index kind {name!r}; there are {', '.join(known)}", kind=name, **did_you_mean(name, known)
        )
    return found
