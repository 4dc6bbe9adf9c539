"""The kinds that Lamella brings."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.index.affix import AffixKind
from lamella.snapshot.index.bloom import BloomKind
from lamella.snapshot.index.keys import KeysKind
from lamella.snapshot.index.kind import Kind
from lamella.snapshot.index.ngram import NgramKind
from lamella.snapshot.index.value_set import ValueSetKind
from lamella.snapshot.index.zonal import MinMaxKind, NullsKind, RangesKind

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
