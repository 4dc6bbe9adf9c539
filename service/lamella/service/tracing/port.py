"""What the service asks of traces.

Names of spans and attributes are few, and written in the code. Values are numbers, ids, words of our own and the names
of tables: never a filter, a location, a message of an error, or anything else that may hold what is in a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NewType, Protocol

Value = str | int | float | bool

#: Where in a trace something happens, to be told to those who go on with it elsewhere.
Place = NewType("Place", object)


class Span(Protocol):
    """A part of a request that is under way."""

    def note(self, attributes: Mapping[str, Value]) -> None:
        """Say more of it."""

    def event(self, name: str, at_s: float, attributes: Mapping[str, Value]) -> None:
        """Something that happened in it, so many seconds after it began."""

    def fail(self, code: str) -> None:
        """It did not succeed; ``code`` says why, in a word."""


class Traces(Protocol):
    """Safe to share between threads. What happens is a part of what the caller's context is in.

    ``is_on``: whether there ever is a trace.
    """

    is_on: bool

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> AbstractContextManager[Span | None]:
        """A part that begins now and ends with the block; None: nobody wants to know."""
        ...

    def done(self, name: str, took_s: float, attributes: Mapping[str, Value], *, error: str | None = None) -> None:
        """Tell of a part that has just ended, ``error``: and failed."""

    def here(self) -> Place | None:
        """Where the caller is; None: in no trace that anybody wants to know of."""

    def for_all(
        self, places: Sequence[Place | None], name: str, attributes: Mapping[str, Value]
    ) -> AbstractContextManager[Span | None]:
        """A part of several requests at once: of the first one that is traced, and linked to the others."""
        ...

    def waited(self, place: Place | None, name: str, took_s: float) -> None:
        """Tell of a wait elsewhere that has just ended."""

    def request(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Request | None:
        """Begin with a request, in the trace that its headers name if they do; None: traces are off."""

    def close(self) -> None:
        """Send what is left."""


class Request(Protocol):
    """A request that is being served. ``trace_id``: in hex, None where nobody could find anything by it."""

    trace_id: str | None
    is_recorded: bool

    def enter(self) -> None:
        """From now on the caller's context is in this request."""

    def leave(self) -> None:
        """No longer."""

    def end(self, name: str, attributes: Mapping[str, Value], *, error: str | None) -> None:
        """It is over; ``error``: and the service failed to do what it should."""


_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Untraced:
    """Traces that are off."""

    is_on = False

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> AbstractContextManager[Span | None]:  # noqa: ARG002
        """Nothing."""
        return _NOTHING

    def done(self, name: str, took_s: float, attributes: Mapping[str, Value], *, error: str | None = None) -> None:
        """Nothing."""

    def here(self) -> Place | None:
        """Nowhere."""
        return None

    def for_all(
        self,
        places: Sequence[Place | None],  # noqa: ARG002
        name: str,  # noqa: ARG002
        attributes: Mapping[str, Value],  # noqa: ARG002
    ) -> AbstractContextManager[Span | None]:
        """Nothing."""
        return _NOTHING

    def waited(self, place: Place | None, name: str, took_s: float) -> None:
        """Nothing."""

    def request(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Request | None:  # noqa: ARG002
        """Nothing."""
        return None

    def close(self) -> None:
        """Nothing."""
