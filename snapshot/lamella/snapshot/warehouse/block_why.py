"""What is said of one block and one filter, and the line in words that says which part of it decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from lamella.snapshot.stats.column import Nan

#: As a prune answers, and NONE: the block is not kept.
BlockVerdict = Literal["NONE", "SOME", "UNKNOWN", "ALL"]
LayerName = Literal["snapshot", "segment", "block"]
#: Who left a block out.
Decider = Literal["snapshot", "segment", "block", "index", "feedback", "request", "pages"]
#: What an index says of a block and a predicate.
Said = Literal["ruled_out", "may_match", "not_indexed", "unreadable"]


class ColumnBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a filter was compared with. ``min`` and ``max`` as SQL literals, None where not known; ``is_cut``: one is
    too long to show. ``nulls`` and ``nan``: whether rows are null or NaN; ``nan`` is None for types without NaN."""

    column: str
    min: str | None = None
    max: str | None = None
    is_cut: bool = False
    nulls: Nan = "maybe"
    nan: Nan | None = None


class LayerWhy(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer decides by itself; ``reasons``: what is not known that could have decided, when it is UNKNOWN."""

    layer: LayerName
    verdict: BlockVerdict
    reasons: tuple[str, ...] = ()
    bounds: tuple[ColumnBounds, ...] = ()


class IndexWhy(msgspec.Struct, frozen=True, kw_only=True):
    """What a skip index says of the block; ``reason``: the same in words."""

    index: str
    kind: str
    expression: str
    said: Said
    reason: str


class ConjunctWhy(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the filter that has to be true, each layer by itself; ``indexes`` that were asked about it.

    None are when bounds decide the block, or no index answers such a predicate.
    """

    predicate: str
    layers: tuple[LayerWhy, ...]
    indexes: tuple[IndexWhy, ...] = ()

    @property
    def block(self) -> LayerWhy:
        """What the block's own bounds say."""
        return self.layers[-1]


class PagesWhy(msgspec.Struct, frozen=True, kw_only=True):
    """What pages leave of a block: ``row_count`` rows in ``range_count`` ranges; all ``matching_rows`` of them match.

    ``is_whole``: nothing is known of its row groups. ``reason``: why pages are not known.
    """

    range_count: int
    row_count: int
    matching_rows: int
    is_whole: bool = False
    reason: str | None = None


class BlockWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why a block is kept, or not. ``verdict`` is the prune's; ``decided_by``: who left it out, None when it is kept.

    ``text``: the same in words. ``layers`` are of the whole ``filter``, each by itself. ``pages``: at level "page".
    """

    snapshot_id: str
    segment_id: str
    number: int
    location: str
    row_count: int
    filter: str
    verdict: BlockVerdict
    decided_by: Decider | None
    text: str
    layers: tuple[LayerWhy, ...]
    conjuncts: tuple[ConjunctWhy, ...]
    pages: PagesWhy | None = None


def kept_text(verdict: BlockVerdict, conjuncts: Sequence[ConjunctWhy], given_up: str | None) -> str:
    """Why a block is kept. ``given_up``: what is to be said of an index that could have ruled it out."""
    if verdict == "ALL":
        bounds = _lie(each.block for each in conjuncts)
        return "kept: every row matches" + (f", as {bounds}" if bounds else "")
    more = "" if given_up is None else f"; {given_up}"
    if verdict == "UNKNOWN":
        reasons = dict.fromkeys(reason for each in conjuncts for reason in each.block.reasons)
        return f"kept: {_listed(reasons) or 'what could rule it out is not known'}{more}"
    open_ = [each.block for each in conjuncts if each.block.verdict != "ALL"]
    bounds = _lie(open_)
    if not bounds:
        return f"kept: nothing rules it out{more}"
    verb = "overlap" if len({each.column for layer in open_ for each in layer.bounds}) > 1 else "overlaps"
    return f"kept: {bounds}, which {verb} the filter{more}"


def ruled_out_text(layer: LayerName, conjuncts: Sequence[ConjunctWhy]) -> str:
    """Why the bounds of a layer rule a block out."""
    who = {
        "snapshot": "skipped with the whole table: there ",
        "segment": "skipped with its segment: there ",
        "block": "skipped: ",
    }[layer]
    for conjunct in conjuncts:
        for each in conjunct.layers:
            if each.layer == layer and each.verdict == "NONE":
                bounds = _lie([each])
                so = f"{bounds}, so " if bounds else ""
                return f"{who}{so}{conjunct.predicate} is true for no row"
    return f"{who}the parts of the filter rule out every row together"


def index_text(indexes: Sequence[str], conjuncts: Sequence[ConjunctWhy]) -> str:
    """Which indexes ruled a block out."""
    if len(indexes) != 1:
        return f"skipped by indexes {_listed(map(repr, indexes))} together"
    for conjunct in conjuncts:
        if any(each.index == indexes[0] and each.said == "ruled_out" for each in conjunct.indexes):
            return f"skipped by index {indexes[0]!r}: {conjunct.predicate} is true for no row"
    return f"skipped by index {indexes[0]!r}"


def _lie(layers: Iterable[LayerWhy]) -> str:
    """Where the columns of some layers' entries lie."""
    return _listed(dict.fromkeys(_lies(bounds) for layer in layers for bounds in layer.bounds))


def _lies(bounds: ColumnBounds) -> str:
    name = bounds.column
    if bounds.nulls == "all":
        return f"{name} is NULL in every row"
    if bounds.nan == "all":
        return f"{name} is NaN in every row that has a value"
    if bounds.min is not None and bounds.max is not None:
        return f"{name} lies in [{bounds.min}, {bounds.max}]"
    if bounds.min is not None:
        return f"{name} is at least {bounds.min}"
    return f"{name} has no bounds" if bounds.max is None else f"{name} is at most {bounds.max}"


def _listed(parts: Iterable[str]) -> str:
    found = list(parts)
    return found[0] if len(found) == 1 else " and ".join([", ".join(found[:-1]), *found[-1:]]) if found else ""
