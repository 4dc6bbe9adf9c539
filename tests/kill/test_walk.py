"""The comparison that kill tests rest on: it accepts what may be, also behind expired snapshots, and nothing else."""

from __future__ import annotations

import pytest

from kill.ledger import Intent, Resolved
from kill.walk import State, compare


def _state(seq: int, blocks: str) -> State:
    return State(seq, f"s{seq}", frozenset(blocks))


def _intent(added: str = "", removed: str = "") -> Intent:
    return Intent(f"{added}/{removed}", "t", "compact", "", {}, frozenset(added), frozenset(removed))


def _done(seq: int, added: str = "", removed: str = "") -> Resolved:
    return Resolved(_intent(added, removed), f"s{seq}")


#: Two appends, the compaction of one of them, and a removal of what it made.
DONE = [_done(2, "a"), _done(3, "b"), _done(4, "c", "a"), _done(5, "", "c")]
FULL = [_state(1, ""), _state(2, "a"), _state(3, "ab"), _state(4, "bc"), _state(5, "b")]


@pytest.mark.parametrize("gone", range(16))
def test_any_snapshots_but_the_current_one_may_have_expired(gone: int) -> None:
    """What is left is still what the clients were told."""
    compare([state for at, state in enumerate(FULL) if at == 4 or not gone >> at & 1], DONE, [])


@pytest.mark.parametrize("states", [FULL[:4], FULL[3:4], [FULL[0], FULL[3]]])
def test_what_is_unknown_happened_or_did_not(states: list[State]) -> None:
    """The last commit was made and nobody was told, or it was not made."""
    compare(states, DONE[:3], [_intent("", "c")])
    compare(states, DONE[:2], [_intent("c", "a"), _intent("x", "b")])


@pytest.mark.parametrize(
    ("states", "resolved", "unknown"),
    [
        pytest.param([_state(5, "")], DONE, [], id="a block is lost"),
        pytest.param([_state(5, "bc")], DONE, [], id="a removal is lost"),
        pytest.param([_state(5, "ab")], DONE, [], id="a removed block came back"),
        pytest.param([*FULL[1:4], _state(5, "ab")], DONE, [], id="a block came twice"),
        pytest.param([_state(5, "bx")], DONE, [], id="a block that nobody added"),
        pytest.param([_state(6, "b")], DONE, [], id="a commit that nobody asked for"),
        pytest.param([_state(5, "bx")], [*DONE, Resolved(_intent("x"), None, "c")], [], id="what was refused happened"),
        pytest.param([_state(6, "bx")], DONE, [_intent("xy")], id="half of the added blocks"),
        pytest.param([_state(6, "bx")], DONE, [_intent("x", "b")], id="added and not removed"),
        pytest.param([_state(1, ""), _state(2, ""), *FULL[2:]], DONE, [], id="in another snapshot than was said"),
        pytest.param([*FULL[:4], _state(5, "bc"), _state(6, "b")], DONE, [_intent("z")], id="removed in another one"),
    ],
)
def test_what_cannot_be_is_found(states: list[State], resolved: list[Resolved], unknown: list[Intent]) -> None:
    """Each of these would be an answer that did not hold."""
    with pytest.raises(AssertionError):
        compare(states, resolved, unknown)
