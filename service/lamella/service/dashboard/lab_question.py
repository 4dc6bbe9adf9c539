"""The prune lab's form, its errors, and the syntax of filters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import msgspec
from starlette.requests import Request

from lamella.service.dashboard import words
from lamella.service.dashboard.pages import At, text_of
from lamella.snapshot.errors import InvalidFilter, InvalidRequest, UnknownColumn
from lamella.snapshot.expression.spark_casts import zone
from lamella.snapshot.manifest import FEATURES, Snapshot
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.warehouse.block_view import stats_text
from lamella.snapshot.wire import PruneRequest

#: Most columns with buttons on a page, and most examples from the table's own columns.
MAX_COLUMNS: Final = 60
_MAX_EXAMPLES: Final = 5
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Form(msgspec.Struct, frozen=True):
    """A kind of predicate or term, with examples."""

    name: str
    examples: tuple[str, ...]


#: What can prune. Everything else is unknown: it rules out nothing, and the page says so.
FORMS: Final = (
    Form("Comparisons", ("a = 4", "a <> 4", "a >= 4", "a <=> NULL")),
    Form("Ranges and lists", ("a BETWEEN 1 AND 2", "a IN (1, 2, 3)", "a NOT IN (1, 2)")),
    Form("Null and NaN", ("a IS NULL", "a IS NOT NULL", "isnan(x)")),
    Form("Text", ("s LIKE 'ab%'", "startswith(s, 'ab')", "lower(s) = 'ab'", "left(s, 2) = 'ab'")),
    Form("Dates and times", ("day >= DATE '2024-01-31'", "t < TIMESTAMP '2024-01-31 12:00:00'", "year(day) = 2024")),
    Form("Arithmetic and casts", ("a * 2 > 98", "abs(a) < 5", "CAST(t AS DATE) = DATE '2024-01-31'")),
    Form("Two columns", ("a < b", "datediff(t, day) > 7")),
    Form("JSON in text", ("get_json_object(s, '$.user.id') = '7'",)),
    Form("Joined", ("a > 4 AND s = 'x'", "a > 4 OR b IS NULL", "NOT (a > 4)")),
)


def own_examples(head: Snapshot) -> tuple[str, ...]:
    """Return predicates over the table's own columns, with values that occur there: cluster keys first."""
    leaves = head.schema.leaves()
    key = () if head.cluster_key is None else head.cluster_key.columns
    ordered = [leaf for leaf in leaves if leaf.name in key] + [leaf for leaf in leaves if leaf.name not in key]
    found: list[str] = []
    kinds: set[str] = set()
    for leaf in ordered:
        if leaf.dtype.name in kinds or leaf.repeated:
            continue
        for example in _examples(head, leaf):
            kinds.add(leaf.dtype.name)
            found.append(example)
            if len(found) == _MAX_EXAMPLES:
                return tuple(found)
    return tuple(found)


def column_names(head: Snapshot) -> tuple[str, ...]:
    """Return the columns as written in a filter."""
    return tuple(_spelled(leaf) for leaf in head.schema.leaves()[:MAX_COLUMNS] if not leaf.repeated)


def _examples(head: Snapshot, leaf: Leaf) -> Iterator[str]:
    stats = head.summary.col_stats.get(leaf.id)
    if stats is None:
        return
    bounds = stats_text(leaf.dtype, stats)
    if bounds.min is not None and not bounds.is_cut:
        yield f"{_spelled(leaf)} {'=' if leaf.dtype.is_text else '<='} {bounds.min}"


def _spelled(leaf: Leaf) -> str:
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in leaf.path)


#: A page contains the filter several times, and in its address.
MAX_CHARACTERS: Final = 8_000
_LINE_CHARACTERS: Final = 100
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_SIMILARITY: Final = 0.6


class FieldError(msgspec.Struct, frozen=True):
    """An error of one field.

    ``excerpt``: the line of the filter and a line of carets below it; ``at``: the position in the filter in UTF-16
    units, as JavaScript counts. ``near``: similar names.
    """

    message: str
    excerpt: str = ""
    at: int | None = None
    near: tuple[str, ...] = ()


class Typed(msgspec.Struct, frozen=True):
    """The fields of the form as they were typed."""

    filter: str = ""
    at: At = At()
    columns: str = ""
    limit: str = ""
    zone: str = ""

    @property
    def is_filled(self) -> bool:
        """Return whether the form was filled in."""
        return bool(self.filter or self.limit)

    @property
    def time_zone(self) -> str:
        """Return the time zone, by default UTC."""
        return self.zone or "UTC"

    def state(self, **changes: object) -> dict[str, str]:
        """Return the fields for the address of a page, without empty ones."""
        values = {
            "filter": self.filter,
            "at": self.at.text,
            "columns": self.columns,
            "limit": self.limit,
            "zone": self.zone,
            **changes,
        }
        return {name: str(value) for name, value in values.items() if value not in (None, "", False)}


class Question(msgspec.Struct, frozen=True):
    """The parsed form. ``request`` is None if a field is wrong; ``troubles`` by the fields' names."""

    request: PruneRequest | None
    troubles: Mapping[str, FieldError]


def typed_of(request: Request) -> Typed:
    """Read the fields of a request."""
    return Typed(
        filter=text_of(request, "filter"),
        at=At(text_of(request, "at")),
        columns=text_of(request, "columns"),
        limit=text_of(request, "limit"),
        zone=text_of(request, "zone"),
    )


def question_of(typed: Typed, schema: Schema) -> Question:
    """Return the requested prune; errors of the filter are found by the prune itself."""
    troubles: dict[str, FieldError] = {}
    limit, columns = None, None
    if len(typed.filter) > MAX_CHARACTERS:
        troubles["filter"] = FieldError(
            f"The filter has {len(typed.filter):,} characters; the lab takes {MAX_CHARACTERS:,}, the REST API more"
        )
    if typed.limit:
        if typed.limit.isascii() and typed.limit.isdigit() and len(typed.limit) <= 15:
            limit = int(typed.limit)
        else:
            troubles["limit"] = FieldError("A number of rows")
    if zone(typed.time_zone) is None:
        troubles["zone"] = FieldError(f"There is no time zone {typed.zone!r}; write UTC, Europe/Paris or +02:00")
    if typed.columns:
        columns = tuple(dict.fromkeys(filter(None, (name.strip() for name in typed.columns.split(",")))))
        for name in columns:
            try:
                schema.select([name])
            except UnknownColumn as error:
                troubles["columns"] = FieldError(words.sentence(error.message), near=_similar(name, schema))
                break
    if troubles:
        return Question(None, troubles)
    request = PruneRequest(
        filter=typed.filter or None,
        columns=columns,
        limit=limit,
        time_zone=typed.time_zone,
        reader_features=FEATURES,
    )
    return Question(request, {})


def filter_error(error: InvalidRequest, text: str, schema: Schema) -> FieldError:
    """Return what is wrong with a filter."""
    near: tuple[str, ...] = ()
    column, literal = error.details.get("column"), error.details.get("literal")
    start, length = None, 1
    if isinstance(error, InvalidFilter):
        position = error.details.get("position")
        start = position if isinstance(position, int) else None
        length = max(len(str(error.details.get("near") or "")), 1)
    elif isinstance(error, UnknownColumn) and column is not None:
        near = _similar(str(column), schema)
        start, length = _position_of(str(column), text)
    else:
        for part in (literal, column):
            if part is not None and start is None:
                start, length = _position_of(str(part), text)
    if start is None:
        return FieldError(words.sentence(error.message), near=near)
    start = max(min(start, len(text)), 0)
    at = len(text[:start].encode("utf-16-le", "surrogatepass")) // 2
    return FieldError(words.sentence(error.message), _excerpt(text, start, length), at, near)


def _similar(name: str, schema: Schema) -> tuple[str, ...]:
    by_lowered = {leaf.name.lower(): leaf.name for leaf in schema.leaves()}
    return tuple(by_lowered[each] for each in get_close_matches(name.lower(), by_lowered, n=3, cutoff=_SIMILARITY))


def _position_of(part: str, text: str) -> tuple[int | None, int]:
    """Return the position of a name or constant in a filter, and its length there."""
    if part.startswith("'"):
        found = text.find(part)
        return (None, 1) if found < 0 else (found, len(part))
    bare = _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), text)
    spelled = r"\.".join(f"`?{re.escape(each)}`?" for each in part.split("."))
    match = re.search(rf"(?<![\w`.]){spelled}(?![\w`])", bare, re.IGNORECASE)
    return (None, 1) if match is None else (match.start(), len(match[0]))


def _excerpt(text: str, start: int, length: int) -> str:
    """Return the line of the position, cut if it is long, and carets below the position."""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line, column = text[begin : len(text) if end < 0 else end], start - begin
    left = max(column - _LINE_CHARACTERS // 2, 0)
    shown = line[left : left + _LINE_CHARACTERS]
    before, after = "…" if left else "", "…" if left + _LINE_CHARACTERS < len(line) else ""
    shown_before = shown[: column - left]
    marked = shown[column - left : column - left + length]
    carets = "^" * max(sum(map(_width, marked)), 1)
    padding = "".join("\t" if each == "\t" else " " * _width(each) for each in before + shown_before)
    return f"{before}{shown}{after}\n{padding}{carets}"


def _width(character: str) -> int:
    """Return how many columns a character takes in a monospaced font."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
