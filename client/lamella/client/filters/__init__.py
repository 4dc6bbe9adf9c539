"""Filters written in Python, and expressions of pyarrow and Polars, as JSON filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lamella.snapshot.errors import InvalidFilter, LimitExceeded

_PLAIN: Final = (str, bool, dict)


def plain_filter(given: Any, time_zone: str = "UTC") -> str | bool | Mapping[str, Any] | None:
    """Return a filter as SQL text or a JSON filter: these as they are, and expressions translated.

    ``time_zone``: that of the request. Expressions of pyarrow and Polars mean UTC, so no other is accepted with them.

    Raises:
        InvalidFilter: a part of an expression cannot be translated exactly; the error names it.
        LimitExceeded: an expression is nested too deep.
    """
    if given is None or isinstance(given, _PLAIN):
        return given
    try:
        return _translated(given, time_zone)
    except RecursionError as error:
        raise LimitExceeded("the expression is nested too deep", limit="filter_depth") from error


def _translated(given: Any, time_zone: str) -> Mapping[str, Any]:
    library = type(given).__module__.partition(".")[0]
    if library == "pyarrow" and type(given).__name__ == "Expression":
        _require_utc(time_zone, "pyarrow")
        from lamella.client.filters.arrow import tree_of_arrow

        return tree_of_arrow(given)
    if library == "polars" and hasattr(given, "meta"):
        _require_utc(time_zone, "Polars")
        from lamella.client.filters.polars import tree_of_polars

        return tree_of_polars(given)
    if isinstance(given, Mapping):
        return given
    from lamella.client.filters.columns import condition

    return condition(given)


def _require_utc(time_zone: str, library: str) -> None:
    if time_zone != "UTC":
        raise InvalidFilter(
            f"an expression of {library} compares dates with times in UTC, not in {time_zone!r}: use col() or SQL"
        )
