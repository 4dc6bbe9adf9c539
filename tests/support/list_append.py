"""Anomalies in a history of transactions that append to lists and read them, found as Elle does it.

Each value is appended once, so a read of a list says in which order its values were appended, and who appended them.
From the reads of all transactions follow the order of each list's versions, and edges between transactions:

- ww: one appended the value before the other's.
- wr: one appended the last value that the other read.
- rw: one read a list without the value that the other appended next.
- rt: one ended before the other began.

A cycle means that no order of the transactions explains what they saw. Its edges name the anomaly, as Adya does: G0 has
ww alone; G1c also wr; G-single one rw; G2 several. The suffix ``-realtime``: only because of rt. The other anomalies
need no graph. The work is linear in the length of the history.

Elle: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", 2020.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Outcome = Literal["committed", "failed", "unknown"]
Edge = Literal["ww", "wr", "rw", "rt"]


class Append(NamedTuple):
    """A value was appended to a list."""

    key: str
    value: int


class Read(NamedTuple):
    """A list was read."""

    key: str
    values: tuple[int, ...]


class Transaction(NamedTuple):
    """What one transaction did, in its order; each append and each read is an operation.

    ``began_s``, ``ended_s``: by one clock that never goes backwards. ``failed``: certainly not committed. The end of
    one whose outcome is ``unknown`` says nothing.
    """

    number: int
    operations: tuple[Append | Read, ...]
    began_s: float
    ended_s: float
    outcome: Outcome = "committed"


class Anomaly(NamedTuple):
    """What cannot have happened, by the name of its kind, and the evidence."""

    kind: str
    text: str


def find_anomalies(history: Sequence[Transaction], *, quiet_s: float) -> list[Anomaly]:
    """Return the anomalies of a history, each kind of cycle once for each group of transactions that hang together.

    ``quiet_s``: nothing was appended any more. A list that is read after that tells which appends were lost, and
    which transactions happened in part.
    """
    lists = _Lists(history)
    found = [*lists.anomalies(), *_missing(lists, quiet_s)]
    graph = _Graph(lists)
    return [*found, *graph.anomalies()]


class _Lists:
    """The transactions that happened, and the order of the values in each list."""

    def __init__(self, history: Sequence[Transaction]) -> None:
        self._writers: dict[tuple[str, int], Transaction] = {}
        for each in history:
            for operation in each.operations:
                if isinstance(operation, Append) and self._writers.setdefault(operation, each) is not each:
                    raise ValueError(f"{operation.value} is appended twice to {operation.key}")
        committed = [each for each in history if each.outcome == "committed"]
        seen = {(key, value) for key, values in _longest(committed).items() for value in values}
        self.history = history
        self.happened = [
            each
            for each in history
            if each.outcome == "committed" or (each.outcome == "unknown" and not seen.isdisjoint(_appends(each)))
        ]
        self.orders = _longest(self.happened)

    def writer(self, key: str, value: int) -> Transaction | None:
        """Return the transaction that appended a value."""
        return self._writers.get((key, value))

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield what is wrong with single reads, and with the lists that they show."""
        last: dict[tuple[int, str], int] = {}
        for each in self.history:
            for key, value in _appends(each):
                last[each.number, key] = value
        for key, order in self.orders.items():
            if len(set(order)) != len(order):
                yield Anomaly("doubled", f"{key} has a value twice: {order}")
            for value in order:
                writer = self.writer(key, value)
                if writer is None:
                    yield Anomaly("garbage", f"{key} has {value}, which no operation appended")
                elif writer.outcome == "failed":
                    yield Anomaly("G1a", f"{key} has {value} of T{writer.number}, which failed")
        for each in self.happened:
            yield from _contradictions(each)
            for key, values in external_reads(each):
                order = self.orders[key]
                if order[: len(values)] != values:
                    yield Anomaly("incompatible-order", f"T{each.number} read {key} as {values}, others as {order}")
                writer = self.writer(key, values[-1]) if values else None
                if writer is not None and last[writer.number, key] != values[-1]:
                    text = f"T{each.number} read {key} up to {values[-1]}, in the middle of T{writer.number}"
                    yield Anomaly("G1b", text)


def _appends(transaction: Transaction) -> list[Append]:
    return [each for each in transaction.operations if isinstance(each, Append)]


def _longest(transactions: Iterable[Transaction]) -> dict[str, tuple[int, ...]]:
    """Return the longest read of each list."""
    found: dict[str, tuple[int, ...]] = {}
    for each in transactions:
        for operation in each.operations:
            if isinstance(operation, Read) and len(operation.values) >= len(found.get(operation.key, ())):
                found[operation.key] = operation.values
    return found


def external_reads(transaction: Transaction) -> Iterator[Read]:
    """Yield the reads of lists that the transaction itself has not appended to before."""
    changed = set()
    for each in transaction.operations:
        if isinstance(each, Append):
            changed.add(each.key)
        elif each.key not in changed:
            yield each


def _contradictions(transaction: Transaction) -> Iterator[Anomaly]:
    """Yield reads of a transaction that contradict its own reads and appends before."""
    known: dict[str, tuple[int, ...]] = {}
    own: dict[str, tuple[int, ...]] = defaultdict(tuple)
    for each in transaction.operations:
        if isinstance(each, Append):
            own[each.key] += (each.value,)
            if each.key in known:
                known[each.key] += (each.value,)
            continue
        ends = own[each.key]
        if each.values != known.get(each.key, each.values) or each.values[len(each.values) - len(ends) :] != ends:
            yield Anomaly(
                "internal", f"T{transaction.number} read {each.key} as {each.values} after what it did itself"
            )
        known[each.key] = each.values


def _missing(lists: _Lists, quiet_s: float) -> Iterator[Anomaly]:
    """Yield appends that are not in the lists in the end, although they, or others of their transaction, happened."""
    ends: dict[str, set[int]] = defaultdict(set)
    for each in lists.happened:
        if each.began_s > quiet_s:
            for key, values in external_reads(each):
                ends[key] |= set(values)
    for each in lists.happened:
        missing = [append for append in _appends(each) if append.key in ends and append.value not in ends[append.key]]
        if missing:
            named = ", ".join(f"{value} of {key}" for key, value in missing)
            kind = "lost" if len(missing) == len(_appends(each)) else "torn"
            yield Anomaly(kind, f"T{each.number} happened ({each.outcome}), but not all of it is there: {named} is not")


class _Graph:
    """The edges between transactions that happened, which are numbered as they come; and moments, after them."""

    def __init__(self, lists: _Lists) -> None:
        self._transactions = lists.happened
        numbers = {each.number: number for number, each in enumerate(self._transactions)}
        nodes = range(2 * len(self._transactions))
        self.edges: dict[Edge, list[list[int]]] = {kind: [[] for _ in nodes] for kind in ("ww", "wr", "rw", "rt")}
        next_value: dict[tuple[str, int | None], int] = {}

        def add(kind: Edge, before: Transaction | None, after: Transaction | None) -> None:
            if before is not None and after is not None and before.number != after.number:
                one, other = numbers.get(before.number), numbers.get(after.number)
                if one is not None and other is not None:  # what failed was seen, and is reported for that
                    self.edges[kind][one].append(other)

        for key, order in lists.orders.items():
            values = tuple(dict.fromkeys(order))
            if values:
                next_value[key, None] = values[0]
            for before, after in pairwise(values):
                next_value[key, before] = after
                add("ww", lists.writer(key, before), lists.writer(key, after))
        for each in self._transactions:
            for key, values in external_reads(each):
                last = values[-1] if values else None
                if last is not None:
                    add("wr", lists.writer(key, last), each)
                following = next_value.get((key, last))
                if following is not None:
                    add("rw", each, lists.writer(key, following))
        self._add_time()

    def _add_time(self) -> None:
        """Add a moment for each end, the moments one after the other, and each transaction behind the last before it.

        So there is a way from each transaction to all that began after its end, with few edges.
        """
        count, rt = len(self._transactions), self.edges["rt"]
        known = [number for number in range(count) if self._transactions[number].outcome == "committed"]
        ended = sorted(known, key=lambda number: self._transactions[number].ended_s)
        times = [self._transactions[number].ended_s for number in ended]
        for moment, number in enumerate(ended):
            rt[number].append(count + moment)
            if moment:
                rt[count + moment - 1].append(count + moment)
        for number, each in enumerate(self._transactions):
            before = bisect_left(times, each.began_s)
            if before:
                rt[count + before - 1].append(number)

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield the cycles."""
        every = _joined(self.edges, ("ww", "wr", "rw", "rt"))
        for nodes in components(every, range(len(every))):
            found = self._cycles(nodes, (), "")
            yield from found or self._cycles(nodes, ("rt",), "-realtime")

    def _cycles(self, nodes: Sequence[int], time: tuple[Edge, ...], suffix: str) -> list[Anomaly]:
        """Return a cycle of each kind among nodes."""
        kinds: list[tuple[str, Edge, tuple[Edge, ...]]] = [
            ("G0", "ww", ("ww", *time)),
            ("G1c", "wr", ("ww", "wr", *time)),
            ("G-single", "rw", ("ww", "wr", *time)),
        ]
        found = [self._cycle(name + suffix, nodes, first, then) for name, first, then in kinds]
        if not any(found):
            found = [self._cycle("G2" + suffix, nodes, "rw", ("ww", "wr", "rw", *time))]
        return [each for each in found if each is not None]

    def _cycle(self, name: str, nodes: Sequence[int], first: Edge, then: tuple[Edge, ...]) -> Anomaly | None:
        """Return a cycle of one edge of a kind and others of some kinds."""
        kinds = tuple(dict.fromkeys((first, *then)))
        graph, rest = _joined(self.edges, kinds, nodes), _joined(self.edges, then, nodes)
        for part in components(graph, nodes):
            inside = set(part)
            for node in part:
                for other in self.edges[first][node]:
                    path = _path(rest, other, node, inside) if other in inside else None
                    if path is not None:
                        return Anomaly(name, self._text([node, *path], first, kinds))
        return None

    def _text(self, cycle: Sequence[int], first: Edge, kinds: tuple[Edge, ...]) -> str:
        words = []
        for step, (one, other) in enumerate(pairwise(cycle)):
            if one < len(self._transactions):
                words.append(f"T{self._transactions[one].number}")
            usable = (first,) if step == 0 else kinds
            kind = next(kind for kind in usable if other in self.edges[kind][one])
            if kind != "rt" or one < len(self._transactions):  # one arrow for a row of moments
                words.append(f"-{kind}->")
        named = {self._transactions[each] for each in cycle if each < len(self._transactions)}
        return f"{' '.join([*words, words[0]])}; {sorted(named)}"


def _joined(
    edges: Mapping[Edge, Sequence[Sequence[int]]], kinds: Collection[Edge], nodes: Iterable[int] | None = None
) -> Mapping[int, Sequence[int]]:
    """Return the edges of some kinds together, by the node that they begin at."""
    every = range(len(edges["ww"])) if nodes is None else nodes
    return {node: [other for kind in kinds for other in edges[kind][node]] for node in every}


def components(graph: Mapping[int, Sequence[int]], nodes: Iterable[int]) -> list[list[int]]:
    """Return the groups of several nodes in which each reaches each other, as Tarjan finds them, without recursion.

    Edges to other nodes than ``nodes`` do not count.
    """
    found: list[list[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    allowed = graph if isinstance(nodes, range) else set(nodes)
    for root in nodes:
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in allowed:
                    continue
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph[other])))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1:
                        found.append(part)
    return found


def _path(graph: Mapping[int, Sequence[int]], start: int, end: int, inside: Collection[int]) -> list[int] | None:
    """Return the shortest way from one node to another; None: there is none."""
    previous: dict[int, int] = {start: start}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            path = [node]
            while path[-1] != start:
                path.append(previous[path[-1]])
            return path[::-1]
        for other in graph[node]:
            if other in inside and other not in previous:
                previous[other] = node
                waiting.append(other)
    return None
