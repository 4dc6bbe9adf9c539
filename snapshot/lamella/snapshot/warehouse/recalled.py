"""Recorded filters, asked again: whole ones as they were, others with constants drawn from the table."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from lamella.snapshot.advice.draws import Draws, is_drawn
from lamella.snapshot.advice.recording import Recorded
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import Predicate, bind, read_filter
from lamella.snapshot.prune.verdict import NONE
from lamella.snapshot.warehouse.scene import Scene

#: Constants that are tried for a filter, and the tries that are taken: those that keep as many blocks as were kept.
_TRIES: Final = 10
_TAKEN: Final = 2


class Asked(msgspec.Struct, frozen=True, eq=False):
    """A filter, and how often it was asked. ``is_whole``: False when some of its constants could not be drawn."""

    predicate: Predicate
    times: int = 1
    text: str = ""
    time_zone: str = "UTC"
    is_whole: bool = True


class Recalled(msgspec.Struct, frozen=True, eq=False):
    """Filters to ask, and those that cannot be, with the reason."""

    asked: Sequence[Asked]
    left_out: dict[str, str]


def recalled(scene: Scene, recorded: Sequence[Recorded], *, case_sensitive: bool, seed: int) -> Recalled:
    """The filters to ask of a snapshot."""
    schema = scene.head.schema
    rng = Random(seed)  # noqa: S311  # no secret is made of it
    draws = Draws(lambda path: schema.leaf(path, case_sensitive=case_sensitive), scene.blocks_outlook, rng)
    asked: list[Asked] = []
    left_out: dict[str, str] = {}
    for each in recorded:
        try:
            masked = read_filter(msgspec.json.decode(each.tree), time_zone=each.time_zone)
            if each.is_full:
                bind(masked, schema, time_zone=each.time_zone, case_sensitive=case_sensitive)
                asked.append(Asked(masked, each.times, each.text, each.time_zone))
                continue
            wanted = each.kept / max(each.considered, 1)
            tries = []
            for number in range(_TRIES):
                predicate = draws.filled(masked, wanted)
                node = bind(predicate, schema, time_zone=each.time_zone, case_sensitive=case_sensitive)
                part = float((scene.tested(node) != NONE).mean()) if len(scene) else 0.0
                tries.append((abs(part - wanted), number, predicate))
        except InvalidRequest as error:  # a column that is gone, or of another type
            left_out[each.text] = error.message
            continue
        for _, _, predicate in sorted(tries, key=lambda one: one[:2])[:_TAKEN]:
            asked.append(Asked(predicate, each.times, each.text, each.time_zone, is_drawn(predicate)))
    return Recalled(asked, left_out)
