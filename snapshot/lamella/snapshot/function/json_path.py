"""``get_json_object``: what stands at a path in a JSON document, as Spark gives it."""

from __future__ import annotations

import re
from functools import reduce
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.zones import MAY_NUMBER, Zones
from lamella.snapshot.function.base import failing, fails_of, strict_flags
from lamella.snapshot.function.json_document import NoJson, Uncertain, read_document, result_text
from lamella.snapshot.function.text import NOT_UTF8
from lamella.snapshot.function.vector import Vector, strict, text_of
from lamella.snapshot.schema import parse_type

_TEXT: Final = parse_type("string")
#: A member's name, or a place in an array.
Step = str | int

# Spark drops blanks before names, and versions of it read ? in several ways; the name * stands for all.
_STEP: Final = re.compile(r"\.([\w-]+)|\['((?![\s*])[^'?\\\x00-\x1f]*[^'?\\\s\x00-\x1f])'\]|\[(0|[1-9][0-9]{0,3})\]")
_WORD: Final = re.compile(r"[\w-]+")
_MISSING: Final = object()


def steps_of(path: str) -> tuple[Step, ...] | None:
    """The steps of a path of names and places; None for any other, and for text that is no path.

    A name is ``.word`` of letters, digits, ``_`` and ``-``, or anything in ``['…']`` that has no quote, backslash or
    question mark and neither begins nor ends with a blank.
    """
    if not path.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        word, name, place = found.groups()
        steps.append(int(place) if place is not None else word if name is None else name)
        at = found.end()
    return tuple(steps) or None


def path_of(steps: tuple[Step, ...]) -> str:
    """The path of these steps, always spelled the same."""
    return "$" + "".join(map(_spelled, steps))


class JsonPath(msgspec.Struct, frozen=True, gc=False):
    """``get_json_object(text, path)``: null where nothing stands there, a JSON null, or no JSON.

    Of several members of one name, the first counts in which the rest of the path is found and is not null.
    """

    steps: tuple[Step, ...]

    def zones(self, *arguments: Zones) -> Zones:
        """Zone maps of the results: nothing is known of them but that null gives null."""
        (zones,) = arguments
        flags = failing(strict_flags([zones]), zones.has(MAY_NUMBER), _TEXT)
        return Zones(None, None, flags, fails_of(arguments))

    def rows(self, *arguments: Vector) -> Vector:
        """The results; a document has failed where it is not certain what Spark makes of it."""
        (vector,) = arguments
        text, failed = text_of(vector)
        reason = NOT_UTF8 if failed.any() else ""
        found: list[str | None] = [None] * len(vector)
        rows = np.flatnonzero(self._possible(text) & vector.valid & ~failed)
        for row, document in zip(rows.tolist(), text.take(pa.array(rows)).to_pylist(), strict=True):
            try:
                found[row] = self._value(document)
            except Uncertain as doubt:
                failed[row], reason = True, reason or str(doubt)
        made = pa.array(found, pa.large_string())
        valid = made.is_valid().to_numpy(zero_copy_only=False) | failed
        if vector.failed is not None:
            valid = valid | vector.failed
        values = pc.fill_null(made, "").cast(pa.large_binary())
        return strict(values, arguments, failed=failed, reason=reason, valid=np.asarray(valid))

    def _possible(self, text: Any) -> Mask:
        """Where the path may lead somewhere: all its names are there, or escapes that may spell them."""
        names = {step for step in self.steps if isinstance(step, str)}
        if not names:
            return np.ones(len(text), dtype=bool)
        there = reduce(pc.and_, (pc.match_substring(text, name) for name in names))
        return np.asarray(pc.or_(there, pc.match_substring(text, "\\")).to_numpy(zero_copy_only=False))

    def _value(self, document: str) -> str | None:
        """The result for a document; raises Uncertain."""
        try:
            value = _at(read_document(document), self.steps)
        except NoJson:
            return None
        return None if value is _MISSING else result_text(value)


def _at(value: Any, steps: tuple[Step, ...]) -> Any:
    """What stands at the end of a path."""
    for at, step in enumerate(steps):
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return _MISSING
            value = value[step]
            continue
        if not isinstance(value, tuple):
            return _MISSING
        members = [member for name, member in value if name == step and member is not None]
        if len(members) > 1:
            ends = (_at(member, steps[at + 1 :]) for member in members)
            return next((end for end in ends if end is not _MISSING), _MISSING)
        if not members:
            return _MISSING
        value = members[0]
    return value


def _spelled(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _WORD.fullmatch(step) else f"['{step}']"
