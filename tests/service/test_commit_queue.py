"""The queue of commits: the order of arrival, bounds of a group, and leaders that fail."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from lamella.service.commits.queue import CommitQueue, Entry
from lamella.snapshot.errors import OutcomeUnknown, Unavailable

Group = Sequence[Entry[str, str]]
NEVER = float("inf")
WAIT_S = 30


class Leader:
    """Answers each change with itself. The first group of each table waits for ``go`` when it is told to."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, list[str]]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        self.failure: Callable[[Group], None] | None = None

    def __call__(self, table_id: str, group: Group) -> None:
        self.groups.append((table_id, [entry.change for entry in group]))
        self.begun.set()
        assert self.go.wait(WAIT_S)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            failure(group)
        for entry in group:
            entry.answer(f"answer to {entry.change}")


NewQueue = Callable[..., CommitQueue[str, str]]


@pytest.fixture
def leader() -> Leader:
    """Who answers."""
    return Leader()


@pytest.fixture
def new_queue(leader: Leader) -> Iterator[NewQueue]:
    """Makes a queue that this leader serves."""
    with ExitStack() as opened:

        def make(
            *, threads: int = 4, max_changes: int = 100, max_blocks: int = 100, batch_wait_s: float = 0
        ) -> CommitQueue[str, str]:
            queue: CommitQueue[str, str] = CommitQueue(
                leader, threads=threads, max_changes=max_changes, max_blocks=max_blocks, batch_wait_s=batch_wait_s
            )
            opened.callback(queue.close)
            opened.callback(leader.go.set)
            return queue

        yield make


def busy(leader: Leader, queue: CommitQueue[str, str], table: str = "t") -> Entry[str, str]:
    """Let a first change be at work, so that those that follow have to wait."""
    leader.go.clear()
    leader.begun.clear()
    first = queue.submit(table, "first", deadline_s=NEVER)
    assert leader.begun.wait(WAIT_S)
    return first


def send(queue: CommitQueue[str, str], *changes: str, table: str = "t", blocks: int = 1) -> list[Entry[str, str]]:
    """Several changes, one after another."""
    return [queue.submit(table, change, blocks=blocks, deadline_s=NEVER) for change in changes]


def answers(*entries: Entry[str, str]) -> list[str]:
    """What they were answered."""
    return [entry.answered.result(WAIT_S) for entry in entries]


def test_what_waits_is_taken_together_in_the_order_of_arrival(leader: Leader, new_queue: NewQueue) -> None:
    """While one group is at work the next one gathers; each caller gets its own answer."""
    queue = new_queue()
    first = busy(leader, queue)
    entries = send(queue, "a", "b", "c")
    assert queue.waiting() == 3
    leader.go.set()
    assert answers(first, *entries) == ["answer to first", "answer to a", "answer to b", "answer to c"]
    assert leader.groups == [("t", ["first"]), ("t", ["a", "b", "c"])]
    assert queue.waiting() == 0


def test_a_group_is_bounded_in_changes_and_in_blocks(leader: Leader, new_queue: NewQueue) -> None:
    """What does not fit is in the next group, still in order; a change that is too large for any group goes alone."""
    queue = new_queue(max_changes=3, max_blocks=10)
    busy(leader, queue)
    entries = [*send(queue, "a", "b", "c", "d"), *send(queue, "e", "f", blocks=6), *send(queue, "g", blocks=50)]
    leader.go.set()
    answers(*entries)
    assert [group for _, group in leader.groups[1:]] == [["a", "b", "c"], ["d", "e"], ["f"], ["g"]]


def test_a_change_that_goes_alone_keeps_its_position(leader: Leader, new_queue: NewQueue) -> None:
    """It is neither overtaken nor does it overtake."""
    queue = new_queue()
    busy(leader, queue)
    before = send(queue, "a", "b")
    alone = queue.submit("t", "alone", alone=True, deadline_s=NEVER)
    after = send(queue, "c", "d")
    leader.go.set()
    answers(*before, alone, *after)
    assert [group for _, group in leader.groups[1:]] == [["a", "b"], ["alone"], ["c", "d"]]


def test_tables_take_turns(leader: Leader, new_queue: NewQueue) -> None:
    """With one thread for all, a table whose queue is never empty does not keep another one waiting."""
    queue = new_queue(threads=1, max_changes=1)
    busy(leader, queue)
    entries = [*send(queue, "a", "b"), *send(queue, "x", "y", table="u")]
    leader.go.set()
    answers(*entries)
    assert [change for _, (change,) in leader.groups[1:]] == ["x", "a", "y", "b"]


def test_a_change_that_was_given_up_is_not_begun(leader: Leader, new_queue: NewQueue) -> None:
    """Its caller has gone; the others do not notice. Once begun, it cannot be given up."""
    queue = new_queue()
    first = busy(leader, queue)
    gone, stays = send(queue, "gone", "stays")
    assert gone.answered.cancel()
    assert not first.answered.cancel()
    leader.go.set()
    answers(first, stays)
    assert leader.groups[1] == ("t", ["stays"])


@pytest.mark.parametrize("death", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_leader_that_dies_leaves_nobody_waiting(
    leader: Leader, new_queue: NewQueue, death: type[BaseException]
) -> None:
    """Those of its group that it had not answered hear of it; those behind get another leader."""
    queue = new_queue(max_changes=3)
    busy(leader, queue)
    entries = send(queue, "a", "b", "c", "d")

    def die(group: Group) -> None:
        if group[0].change == "first":
            leader.failure = die
            return
        group[0].answer("in time")
        raise death("the leader died")

    leader.failure = die
    leader.go.set()
    assert answers(entries[0], entries[3]) == ["in time", "answer to d"]
    for entry in entries[1:3]:
        error = entry.answered.exception(WAIT_S)
        # An ordinary error is passed on as it is; after anything worse nobody can say what was done.
        assert type(error) is (ValueError if death is ValueError else OutcomeUnknown)


@pytest.mark.parametrize("death", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_half_way", [False, True])
def test_a_leader_that_dies_before_it_has_its_group_leaves_nobody_waiting(
    leader: Leader,
    new_queue: NewQueue,
    monkeypatch: pytest.MonkeyPatch,
    death: type[BaseException],
    is_half_way: bool,
) -> None:
    """Who waits is refused with nothing done, also those that it had taken already; later changes are answered."""
    queue = new_queue(batch_wait_s=0.001)
    first = busy(leader, queue)
    entries = send(queue, "a", "b", "c")
    if is_half_way:
        begin = entries[1].answered.set_running_or_notify_cancel
        calls = iter([death("the leader died")])

        def dies_once() -> bool:
            for error in calls:
                raise error
            return begin()

        monkeypatch.setattr(entries[1].answered, "set_running_or_notify_cancel", dies_once)
    else:
        monkeypatch.setattr(queue, "_last_sizes", _Dying(death))
    leader.go.set()
    assert answers(first) == ["answer to first"]
    for entry in entries:
        error = entry.answered.exception(WAIT_S)
        assert isinstance(error, Unavailable)
        assert isinstance(error.__cause__, death)
    assert leader.groups == [("t", ["first"])]
    assert answers(*send(queue, "later")) == ["answer to later"]
    assert queue.waiting() == 0


class _Dying(dict[str, int]):
    """Sizes of groups whose second reading fails, once."""

    def __init__(self, death: type[BaseException]) -> None:
        super().__init__()
        self._deaths = [death("the leader died")]

    def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]
        """The size of a table's last group."""
        if self._deaths:
            raise self._deaths.pop()
        return super().get(key, default)


def test_a_batch_wait_that_fails_leaves_nobody_waiting(
    leader: Leader, new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock, or the sleep, is part of what a leader may die of."""
    queue = new_queue(batch_wait_s=WAIT_S)
    busy(leader, queue)
    pair = send(queue, "a", "b")
    leader.go.set()
    answers(*pair)

    def broken() -> float:
        raise OSError("no clock")

    monkeypatch.setattr(queue, "_wait_for_batch", lambda *_: broken())
    (hit,) = send(queue, "hit")
    assert isinstance(hit.answered.exception(WAIT_S), Unavailable)
    monkeypatch.undo()
    assert answers(*send(queue, "later", "still later")) == ["answer to later", "answer to still later"]


def test_a_leader_that_cannot_start_leaves_nobody_waiting(
    leader: Leader, new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have no thread left; the change is refused, and the next one gets its leader."""
    queue = new_queue()

    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        (refused,) = send(queue, "refused")
    with pytest.raises(Unavailable, match="could not start"):
        refused.answered.result(WAIT_S)
    assert answers(*send(queue, "later")) == ["answer to later"]
    assert leader.groups == [("t", ["later"])]


def test_a_leader_that_forgets_an_answer_leaves_nobody_waiting() -> None:
    """Nobody can say what became of the change then."""
    queue: CommitQueue[str, str] = CommitQueue(
        lambda _table, _group: None, threads=1, max_changes=1, max_blocks=1, batch_wait_s=0
    )
    (forgotten,) = send(queue, "forgotten")
    with pytest.raises(OutcomeUnknown):
        forgotten.answered.result(WAIT_S)
    queue.close()


def test_a_queue_that_is_closed_finishes_and_takes_nothing_more(leader: Leader, new_queue: NewQueue) -> None:
    """What is at work is answered, what comes later is refused with nothing done."""
    queue = new_queue()
    first = busy(leader, queue)
    leader.go.set()
    queue.close()
    assert answers(first) == ["answer to first"]
    (rejected,) = send(queue, "late")
    with pytest.raises(Unavailable, match="stopping"):
        rejected.answered.result(WAIT_S)


def test_a_commit_that_comes_alone_does_not_wait(leader: Leader, new_queue: NewQueue) -> None:
    """Only after a group with company the leader waits for more, and then takes them together."""
    queue = new_queue(batch_wait_s=WAIT_S)
    assert answers(*send(queue, "a")) == ["answer to a"]
    assert answers(*send(queue, "b")) == ["answer to b"]
    busy(leader, queue)
    entries = send(queue, "c", "d")
    leader.go.set()
    answers(*entries)
    answers(*send(queue, "e", "f"))
    assert [group for _, group in leader.groups[-2:]] == [["c", "d"], ["e", "f"]]


def test_lines_are_taken_in_turn_and_stop_until_they_are_handed_on(leader: Leader, new_queue: NewQueue) -> None:
    """Changes that came first are committed before, those that come while a line is taken after it; no thread waits."""
    queue = new_queue(threads=1)
    leader.go.clear()
    first = queue.submit("b", "first", deadline_s=NEVER)
    assert leader.begun.wait(WAIT_S)
    threading.Timer(0.05, leader.go.set).start()
    with queue.holding(["b", "a"], deadline_s=time.monotonic() + WAIT_S):
        assert first.answered.done()
        after = queue.submit("b", "after", deadline_s=NEVER)
        assert queue.submit("c", "other", deadline_s=NEVER).answered.result(WAIT_S) == "answer to other"
        assert not after.answered.done()
    assert after.answered.result(WAIT_S) == "answer to after"
    assert [group for table, group in leader.groups if table == "b"] == [["first"], ["after"]]


def test_a_turn_that_does_not_come_in_time_leaves_every_line_free(leader: Leader, new_queue: NewQueue) -> None:
    """Those that were taken before it as well."""
    queue = new_queue()
    leader.go.clear()
    queue.submit("b", "first", deadline_s=NEVER)
    assert leader.begun.wait(WAIT_S)
    with pytest.raises(Unavailable), queue.holding(["a", "b"], deadline_s=time.monotonic() + 0.05):
        pytest.fail("the turn came")
    leader.go.set()
    for table in ("a", "b"):
        assert queue.submit(table, "x", deadline_s=NEVER).answered.result(WAIT_S) == "answer to x"
    with queue.holding(["a", "b"], deadline_s=time.monotonic() + WAIT_S):
        pass


def test_many_who_take_the_same_lines_in_any_order_end(leader: Leader, new_queue: NewQueue) -> None:
    """They are taken in one order, so nobody waits for whoever waits for them; one at a time has them."""
    queue = new_queue()
    tables = ["a", "b", "c", "d"]
    inside: set[str] = set()
    guard = threading.Lock()

    def take(number: int) -> None:
        chosen = random.Random(number).sample(tables, 3)
        with queue.holding(chosen, deadline_s=time.monotonic() + WAIT_S):
            with guard:
                assert inside.isdisjoint(chosen)
                inside.update(chosen)
            queue.submit(chosen[0], str(number), deadline_s=NEVER)
            with guard:
                inside.difference_update(chosen)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, range(60)))
    queue.close()
    assert sum(len(group) for _, group in leader.groups) == 60
