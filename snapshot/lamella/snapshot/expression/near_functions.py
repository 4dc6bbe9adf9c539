"""Functions that are spelled nearly like one that is not known, for the reasons why a predicate is not used."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.expression.nodes import FUNCTIONS
from lamella.snapshot.near_names import near_name

#: Names in trees of filters that are operators in SQL.
_OPERATORS: Final = frozenset({"add", "subtract", "multiply", "divide", "add_interval"})
#: Functions of Spark that are no misspellings, though they are spelled nearly like another.
_OTHERS: Final = frozenset(
    (
        *("make_dt_interval", "map_concat", "to_variant_object", "try_to_date", "try_variant_insert"),
        *("try_variant_set", "variant_delete", "variant_insert", "variant_set", "btrim", "nullifzero", "zeroifnull"),
    )
)
_KNOWN: Final = sorted({*FUNCTIONS, "isnan", "isnull", "isnotnull", "ifnull", "nullif", "startswith"} - _OPERATORS)
_SIMILARITY: Final = 0.75
#: Hints in one filter: a comparison with all names takes a millisecond.
_MAX_HINTS: Final = 16


class NearFunctions:
    """Makes the hints of one filter."""

    def __init__(self) -> None:
        self._left = _MAX_HINTS

    def hint(self, name: str) -> str:
        """Returns "; did you mean upper?" for a function that does not exist; empty if none is near."""
        name = name.lower()
        if not self._left or name in _KNOWN or name in FUNCTIONS or name in _OTHERS:
            return ""
        self._left -= 1
        near = near_name(name, _KNOWN, similarity=_SIMILARITY)
        return "" if near is None else f"; did you mean {near}?"
