"""Where remembered answers come from, and how a prune asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.nodes import Predicate
from lamella.snapshot.feedback.facts import Facts, Told
from lamella.snapshot.feedback.question import questions
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.wire import AggregateRequest, DiffRequest, PruneRequest

#: The property of a table that readers' reports are believed for.
ENABLED: Final = "lamella.feedback.enabled"
_PREFIX: Final = "lamella.feedback."


class FeedbackSource(Protocol):
    """What is remembered for tables. Thread-safe."""

    def is_near(self, head: Snapshot) -> bool:
        """Whether :meth:`facts` answers without waiting for anything."""
        ...

    def facts(self, head: Snapshot) -> Facts | None:
        """What is remembered for the table of a snapshot; None: nothing is believed there."""
        ...

    def used(self, head: Snapshot, digests: Sequence[bytes]) -> None:
        """Facts under these digests were used just now."""
        ...


def told_of(
    source: FeedbackSource | None,
    head: Snapshot,
    predicate: Predicate,
    request: PruneRequest | DiffRequest | AggregateRequest,
    keys: Callable[[int], BlockKeys],
    timer: Callable[[], float],
) -> Told | None:
    """What readers said about a filter, ready to be taken from the blocks that a prune keeps; None: nothing."""
    if source is None or not is_enabled(head.properties):
        return None
    facts = source.facts(head)
    if facts is None or not len(facts):
        return None
    asked = questions(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
    told = Told(facts, asked, keys, timer)
    if not told.used:
        return None
    source.used(head, told.used)
    return told


def is_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the table wants readers' reports to be believed."""
    return properties.get(ENABLED) == "true"


def check_feedback(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a property of feedback that is not known, or says neither true nor false."""
    for name, value in properties.items():
        if name.startswith(_PREFIX) and (name != ENABLED or value not in ("true", "false")):
            raise InvalidRequest(f"{name}={value!r}: the property is {ENABLED}, true or false", property=name)
