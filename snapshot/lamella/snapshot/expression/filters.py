"""Reads and binds the filters of requests, and caches them because filters are often repeated."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.expression.bind import bind
from lamella.snapshot.expression.bound import BoundPredicate
from lamella.snapshot.expression.json_filters import read_tree
from lamella.snapshot.expression.nodes import TRUE, Predicate
from lamella.snapshot.expression.shapes import Shape, ShapeKey, shape_of, split_literals
from lamella.snapshot.expression.sql import read_sql
from lamella.snapshot.schema import Schema


def read_filter(given: Any, *, time_zone: str = "UTC", now_us: int | None = None) -> Predicate:
    """Reads a filter of a request: None (every row), SQL text, or a JSON tree.

    ``now_us``: the time of ``now()`` and similar functions in SQL text; see
    :func:`~lamella.snapshot.expression.sql.read_sql`.

    Raises:
        InvalidFilter: cannot be read; LimitExceeded: too large.
    """
    if given is None:
        return TRUE
    if isinstance(given, str):
        return read_sql(given, time_zone=time_zone, now_us=now_us)
    if isinstance(given, dict | bool):
        return read_tree(given)
    raise InvalidFilter("a filter must be SQL text or a JSON expression", position="$")


#: Number of schemas for which the bound form of one filter is cached.
_SCHEMAS: Final = 4
#: Size of an entry besides its text, in characters.
_ENTRY: Final = 256

#: Names that depend on the clock, wherever they occur.
_CLOCK: Final = re.compile(r"now|current|curdate|localtimestamp", re.IGNORECASE)

_Key = tuple[str | bytes, str]
#: Number of shapes that are cached: of every table the program asks, its own.
_SHAPES: Final = 1_024


class _Bound(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A filter bound to the columns of a schema, and the arguments of its binding."""

    schema: Schema
    time_zone: str
    case_sensitive: bool
    predicate: BoundPredicate


class _Entry(msgspec.Struct, eq=False, gc=False):
    """A filter that was read, and its most recent bound forms."""

    predicate: Predicate
    weight: int
    bounds: tuple[_Bound, ...] = ()


class _BoundShape(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A shape over the columns of a schema; None: the filter has none."""

    schema: Schema
    shape: Shape | None


class Filters:
    """Reads and binds filters, and caches the most recent ones and their shapes. Thread-safe.

    A filter is cached if its text (or its JSON, as MessagePack) has at most ``each_characters``; all cached ones
    together have at most ``characters``, with about 50 bytes of memory for each. Errors are not cached.
    """

    def __init__(self, *, characters: int = 1 << 18, each_characters: int = 4_096) -> None:
        self._free = characters
        self._each = each_characters
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._by_predicate: dict[int, _Entry] = {}
        #: By the shape's text, the time zone, whether names are case-sensitive, and the schema's identity.
        self._shapes: dict[tuple[ShapeKey, str, bool, int], _BoundShape] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, given: Any, *, time_zone: str = "UTC", now_us: int | None = None) -> Predicate:
        """Reads a filter, as :func:`~lamella.snapshot.expression.read_filter`. Filters that may depend on the clock are
        not cached."""
        if given is None:
            return TRUE
        if now_us is not None and isinstance(given, str) and _CLOCK.search(given):
            return read_filter(given, time_zone=time_zone, now_us=now_us)
        key = self._key(given, time_zone)
        if key is None:
            return read_filter(given, time_zone=time_zone)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry.predicate
        predicate = read_filter(given, time_zone=time_zone)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = _Entry(predicate, len(key[0]) + _ENTRY)
                self._entries[key] = self._by_predicate[id(predicate)] = entry
                self._free -= entry.weight
                while self._free < 0:
                    _, oldest = self._entries.popitem(last=False)
                    self._by_predicate.pop(id(oldest.predicate), None)
                    self._free += oldest.weight
            return entry.predicate

    def bound(
        self, predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
    ) -> BoundPredicate:
        """Binds a filter, as :func:`~lamella.snapshot.expression.bind`; the bound form of a result of :meth:`read` is
        cached."""
        with self._lock:
            entry = self._by_predicate.get(id(predicate))
        if entry is None or entry.predicate is not predicate:
            return bind(predicate, schema, time_zone=time_zone, case_sensitive=case_sensitive)
        for cached in entry.bounds:
            # The head of a new snapshot is another object, usually with an equal schema.
            is_same_binding = cached.time_zone == time_zone and cached.case_sensitive == case_sensitive
            if is_same_binding and (cached.schema is schema or cached.schema == schema):
                return cached.predicate
        bound = bind(predicate, schema, time_zone=time_zone, case_sensitive=case_sensitive)
        with self._lock:
            entry.bounds = (_Bound(schema, time_zone, case_sensitive, bound), *entry.bounds[: _SCHEMAS - 1])
        return bound

    def bound_text(
        self,
        text: str,
        schema: Schema,
        read: Callable[[], Predicate],
        *,
        time_zone: str = "UTC",
        case_sensitive: bool = False,
    ) -> BoundPredicate:
        """Binds SQL text; ``read`` reads it, if no filter of this shape was bound before. Raises as these two."""
        split = split_literals(text)
        if split is None:
            return self.bound(read(), schema, time_zone=time_zone, case_sensitive=case_sensitive)
        # By identity: comparing schemas takes longer. The entry holds the schema, so no other one has its id.
        name = (split[0], time_zone, case_sensitive, id(schema))
        known = self._shapes.get(name)
        found = None if known is None or known.shape is None else known.shape.bound(split[1])
        if found is not None:
            return found
        bound = self.bound(read(), schema, time_zone=time_zone, case_sensitive=case_sensitive)
        if known is None:
            shape = shape_of(text, bound, schema, time_zone=time_zone, case_sensitive=case_sensitive)
            with self._lock:
                while len(self._shapes) >= _SHAPES:
                    self._shapes.pop(next(iter(self._shapes)))
                self._shapes[name] = _BoundShape(schema, shape)
        return bound

    def _key(self, given: Any, time_zone: str) -> _Key | None:
        """Returns the cache key of a filter; None for one that is not cached."""
        name: str | bytes
        if isinstance(given, str):
            name = given
        elif isinstance(given, dict):
            try:  # MessagePack distinguishes NaN from null, which JSON does not
                name = msgspec.msgpack.encode(given)
            except (TypeError, ValueError, OverflowError, RecursionError):  # not JSON, or not serializable
                return None
        else:
            return None
        return (name, time_zone) if len(name) + len(time_zone) <= self._each else None
