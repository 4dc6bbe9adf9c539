"""The seven predicates, with literals that vary between queries in the same way for every engine.

== ===========================================================
P1 a range of 0.1 % of the sorted column
P2 one value of the random column, which every block may hold
P3 ten values of the sorted column
P4 a range of 1 % of the sorted column AND one country
P5 text that starts with one tenant's prefix
P6 one of two ranges of 0.05 % of the sorted column
P7 IS NULL on the column that has nulls in 1 % of the blocks
== ===========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from synthetic import COUNTRIES, SPAN_MS, START_MS, Model

NAMES: Final = ("P1", "P2", "P3", "P4", "P5", "P6", "P7")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One predicate with its literals; what a predicate does not have is empty.

    ``ranges`` (milliseconds, both ends belong to them) are alternatives of ``event_time``, ``points`` values of it.
    """

    name: str
    ranges: tuple[tuple[int, int], ...] = ()
    points: tuple[int, ...] = ()
    user: int | None = None
    country: str | None = None
    prefix: str | None = None


def question(name: str, number: int) -> Question:
    """Return predicate ``name`` with the literals of query ``number``; P7 has no literal and is constant."""
    random = np.random.default_rng((NAMES.index(name), number))
    share = float(random.random())
    if name == "P1":
        return Question(name=name, ranges=(_range(share * 0.999, 0.001),))
    if name == "P2":
        return Question(name=name, user=int(random.integers(10**7, 10**12 - 10**7)))
    if name == "P3":
        return Question(name=name, points=tuple(_at((share + step) / 10) for step in range(10)))
    if name == "P4":
        return Question(name=name, ranges=(_range(share * 0.99, 0.01),), country=str(random.choice(COUNTRIES)))
    if name == "P5":
        return Question(name=name, prefix=f"tenant-{random.integers(0, 1_000):05d}/")
    if name == "P6":
        return Question(name=name, ranges=(_range(share * 0.49, 0.0005), _range(0.5 + share * 0.49, 0.0005)))
    return Question(name=name)


def narrow(number: int, width: float) -> Question:
    """Return a range of this share of the sorted column, at another place for each ``number``."""
    share = float(np.random.default_rng((len(NAMES), number)).random())
    return Question(name="narrow", ranges=(_range(share * (1 - width), width),))


def truth(model: Model, query: Question) -> npt.NDArray[np.int64]:
    """Return the blocks whose statistics allow a matching row, ascending: what a sound and sharp engine keeps."""
    low, high = model.low["event_time"], model.high["event_time"]
    if query.user is not None:
        may = (model.low["user_id"] <= query.user) & (model.high["user_id"] >= query.user)
    elif query.prefix is not None:
        first = int(query.prefix[7:12]) * 10**6
        may = (model.high["path"] >= first) & (model.low["path"] < first + 10**6)
    elif query.ranges or query.points:
        may = np.zeros(model.count, bool)
        for start, stop in query.ranges or [(point, point) for point in query.points]:
            may |= (high >= start) & (low <= stop)
        if query.country is not None:
            code = COUNTRIES.index(query.country)
            may &= (model.low["country"] <= code) & (model.high["country"] >= code)
    else:
        may = model.nulls("error_code") > 0
    return np.flatnonzero(may)


def iso(ms: int, separator: str = "T") -> str:
    """A time in UTC, to the millisecond, without a zone."""
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime(f"%Y-%m-%d{separator}%H:%M:%S.") + f"{ms % 1_000:03d}"


def prefix_end(prefix: str) -> str:
    """Return the smallest text above all texts with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def sql(query: Question, time: Callable[[int], str], *, like: bool = True) -> str:
    """The predicate as SQL; ``time`` writes a literal. ``like`` False: a prefix as a range of text."""
    if query.user is not None:
        return f"user_id = {query.user}"
    if query.prefix is not None:
        if like:
            return f"path LIKE '{query.prefix}%'"
        return f"path >= '{query.prefix}' AND path < '{prefix_end(query.prefix)}'"
    if query.points:
        return f"event_time IN ({', '.join(time(point) for point in query.points)})"
    if not query.ranges:
        return "error_code IS NULL"
    ranges = [f"event_time >= {time(start)} AND event_time <= {time(stop)}" for start, stop in query.ranges]
    text = ranges[0] if len(ranges) == 1 else " OR ".join(f"({each})" for each in ranges)
    return text if query.country is None else f"{text} AND country = '{query.country}'"


def spark_time(ms: int) -> str:
    """A literal of an instant in the dialect that Lamella reads."""
    return f"TIMESTAMP '{iso(ms, ' ')}+00:00'"


def warm_up(count: int) -> list[str]:
    """Filters that open each of Lamella's segments for the columns of which a narrow question opens only a few.

    One time out of the middle of each thousand blocks, a thousand times a filter; and one country.
    """
    middles = [START_MS + int(SPAN_MS * (number + 0.5) * 1_000 / count) for number in range(max(1, count // 1_000))]
    parts = [middles[start : start + 1_000] for start in range(0, len(middles), 1_000)]
    return [*(sql(Question(name="", points=tuple(part)), spark_time) for part in parts), "country = 'DE'"]


def _at(share: float) -> int:
    return START_MS + int(SPAN_MS * share) + 5  # never exactly where a block begins


def _range(share: float, width: float) -> tuple[int, int]:
    return _at(share), _at(share + width)
