"""Random transactions over lists and registers in tables, sent by several clients to several services.

A list is the values of one key in a table: to append, a commit adds a block of one row. Their order is that of the
snapshots in the table's history, which every read has to agree with. A register is a key with one row; to overwrite it,
a commit replaces its block, or deletes the row by a deletion vector and adds another (``upsert``). A register counts as
the list of all values that it had: each overwrite has read the previous value. An operation is an append to one
list or register, or a read of one.

Reads of several tables are of one moment. Transactions that append what they computed from reads are refused if the
reads changed, so all of them together have to be serializable, in real time.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client import Lamella
from lamella.client.http.call import Call, TableName, make_call
from lamella.client.http.transaction import transaction_call
from lamella.snapshot.errors import CommitConflict, OutcomeUnknown, Unavailable
from lamella.snapshot.wire import CommitRequest, TableRead, operations
from support.list_append import Append, Outcome, Read, Transaction

Kind = Literal["lists", "registers", "rows"]

KEYS: Final = 16
#: Tables of each kind in use at one time, and how many values a table gets before another takes over.
SLOTS: Final[Mapping[Kind, int]] = {"lists": 6, "registers": 3, "rows": 1}
VALUES: Final[Mapping[Kind, int]] = {"lists": 12 * KEYS, "registers": 12 * KEYS, "rows": 2 * KEYS}
#: How many of each kind of transaction there are.
SHARES: Final = {"read": 40, "append": 30, "update": 27, "upsert": 1}
_SENT_TWICE: Final = 0.05
#: More than one transaction appends.
_MAX_VALUES: Final = 1_000
_MARKS: Final = (0x5A5A5A5A5A5A5A51, 0x5A5A5A5A5A5A5A52)


class KeyTable(NamedTuple):
    """A table whose rows are keys with values."""

    name: str
    kind: Kind

    def key(self, number: int) -> str:
        """Return the name of a list or register in the history."""
        return f"{self.name}/{number}"


class Found(NamedTuple):
    """A table as it was read: the values of each key, and the blocks of registers by value."""

    table: KeyTable
    snapshot_id: str
    lists: Mapping[int, tuple[int, ...]]
    blocks: Mapping[int, str]


class Workload:
    """Runs transactions and notes what each did. ``lakes``: clients of services over the same tables."""

    def __init__(self, lakes: Sequence[Lamella], folder: Path, *, seed: int) -> None:
        self.history: list[Transaction] = []
        self.operations = 0
        self.outcomes: dict[Outcome, int] = defaultdict(int)
        self._lakes = lakes
        self._folder = folder
        self._seed = seed
        self._numbers = itertools.count()
        self._changes = itertools.count(1)
        self._tables: list[KeyTable] = []
        self._lock = threading.Lock()
        self._twice = ThreadPoolExecutor(4, thread_name_prefix="twice")
        #: By value of a register: the value before.
        self._before: dict[int, int | None] = {}
        #: By value: its key in its table.
        self._key_of: dict[int, int] = {}
        pq.write_table(
            pa.table({"k": [_MARKS[0]], "v": [_MARKS[1]]}),
            folder / "template.parquet",
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )
        self._template = (folder / "template.parquet").read_bytes()
        assert all(self._template.count(mark.to_bytes(8, "little")) == 1 for mark in _MARKS)
        rng = random.Random(f"{seed} tables")
        lakes[0].create_namespace("h")
        #: How many more values a table gets before another takes over.
        self._left: dict[KeyTable, int] = {}
        self._in_use: dict[Kind, list[KeyTable]] = {
            kind: [self._new_table(rng, kind) for _ in range(count)] for kind, count in SLOTS.items()
        }

    def run(self, *, workers: int, operations: int) -> None:
        """Run transactions in threads until there were so many operations."""
        with ThreadPoolExecutor(workers, thread_name_prefix="client") as pool:
            for done in [pool.submit(self._work, worker, operations) for worker in range(workers)]:
                done.result()
        self._twice.shutdown()

    def read_all(self) -> float:
        """Read all lists, now that nobody appends to any, and bring all reads into the order of the histories.

        Returns a time before the last reads.
        """
        quiet_s = time.monotonic()
        for start in range(0, len(self._tables), 20):
            began_s = time.monotonic()
            found = self._read(self._lakes[0], self._tables[start : start + 20])
            self._note(began_s, [read for each in found for read in _reads(each, range(KEYS))])
        position = self._positions()
        self.history = [each._replace(operations=tuple(_ordered(each.operations, position))) for each in self.history]
        return quiet_s

    def _positions(self) -> dict[int, int]:
        """Return the number of the snapshot that added each value of a list."""
        found: dict[int, int] = {}
        for table in self._tables:
            if table.kind == "lists":
                for change in self._lakes[0].table(table.name).changes("1"):
                    for each in change.added:
                        found.setdefault(_value_of(each.location), change.number)
        return found

    def check_rows(self, rng: random.Random, *, tables: int) -> None:
        """Compare the rows of some tables with the lists that their blocks say."""
        lake = self._lakes[0]
        for table in rng.sample(self._tables, min(tables, len(self._tables))):
            [found] = self._read(lake, [table])
            rows = lake.table(table.name).scan(snapshot_id=found.snapshot_id).to_arrow().to_pylist()
            expected = [
                (key, value)
                for key, values in found.lists.items()
                for value in (values if table.kind == "lists" else values[-1:])
            ]
            assert sorted((row["k"], row["v"]) for row in rows) == sorted(expected)

    # Transactions.

    def _work(self, worker: int, operations: int) -> None:
        rng = random.Random(f"{self._seed} {worker}")
        steps = {"read": self._step_read, "append": self._step_append, "update": self._step_update}
        while self.operations < operations:
            [name] = rng.choices(list(SHARES), list(SHARES.values()))
            try:
                if name == "upsert":
                    self._step_upsert(rng)
                else:
                    steps[name](rng)
            except Unavailable:  # while reading: there is nothing to note
                time.sleep(rng.uniform(0, 0.1))

    def _step_read(self, rng: random.Random) -> None:
        began_s = time.monotonic()
        chosen = self._some(rng, ("lists", "registers", "rows") if rng.random() < 0.1 else ("lists", "registers"), 8)
        found = self._read(rng.choice(self._lakes), chosen)
        self._note(began_s, [read for each in found for read in _reads(each, range(KEYS))])

    def _step_append(self, rng: random.Random) -> None:
        commits: dict[str, CommitRequest] = {}
        appends: list[Append] = []
        fresh = self._fresh()
        for table in self._some(rng, ("lists",), 4):
            added = [(key, self._value(fresh, key)) for key in rng.sample(range(KEYS), rng.randint(1, 8))]
            if rng.random() < 0.2:
                added.append((added[0][0], self._value(fresh, added[0][0])))
            commits[table.name] = self._adding(table, added)
            appends += [Append(table.key(key), value) for key, value in added]
        self._send(rng, time.monotonic(), [], commits, appends)

    def _step_update(self, rng: random.Random) -> None:
        """Append, and overwrite registers, because of what was read."""
        began_s = time.monotonic()
        found = self._read(rng.choice(self._lakes), self._some(rng, ("lists", "registers"), 3))
        commits: dict[str, CommitRequest] = {}
        guards: list[TableRead] = []
        reads: list[Read] = []
        appends: list[Append] = []
        fresh = self._fresh()
        for each in found:
            keys = rng.sample(range(KEYS), rng.randint(1, 4))
            if each.table.kind == "registers":
                added = [(key, self._value(fresh, key, before=each.lists[key][-1])) for key in keys]
                removed = tuple(each.blocks[each.lists[key][-1]] for key in keys)
                change = self._adding(each.table, added)
                commits[each.table.name] = msgspec.structs.replace(
                    change, removed=removed, base_snapshot_id=each.snapshot_id, operation="overwrite"
                )
                guarded = rng.sample(range(KEYS), rng.randint(0, 2))
                keys = sorted({*keys, *guarded})  # a register whose block is replaced cannot have changed
            else:
                guarded = keys
                added = []
                if rng.random() < 0.6:
                    added = [(key, self._value(fresh, key)) for key in rng.sample(range(KEYS), rng.randint(1, 4))]
                    commits[each.table.name] = self._adding(each.table, added)
            if guarded:
                named = ", ".join(map(str, guarded))
                guards.append(TableRead(table=each.table.name, snapshot_id=each.snapshot_id, filter=f"k IN ({named})"))
            reads += _reads(each, keys)
            appends += [Append(each.table.key(key), value) for key, value in added]
        if not commits:
            self._note(began_s, reads)
            return
        first = next(iter(commits))
        if guards:
            commits[first] = msgspec.structs.replace(commits[first], reads=tuple(guards))
        self._send(rng, began_s, reads, commits, appends)

    def _step_upsert(self, rng: random.Random) -> None:
        """Overwrite registers by deletion vectors, and append to a list, by the methods of the client."""
        began_s = time.monotonic()
        lake = rng.choice(self._lakes)
        [rows] = self._read(lake, self._some(rng, ("rows",), 1))
        [other] = self._some(rng, ("lists",), 1)
        keys = rng.sample(range(KEYS), rng.randint(1, 3))
        reads = _reads(rows, keys)
        fresh = self._fresh()
        values = [self._value(fresh, key, before=rows.lists[key][-1]) for key in keys]
        appended = rng.randrange(KEYS)
        value = self._value(fresh, appended)
        appends = [Append(rows.table.key(key), each) for key, each in zip(keys, values, strict=True)]
        appends.append(Append(other.key(appended), value))
        tx = lake.transaction()
        named = ", ".join(map(str, keys))
        tx.require_unchanged(rows.table.name, f"k IN ({named})", snapshot_id=rows.snapshot_id)
        tx.table(rows.table.name).upsert({"k": keys, "v": values}, on=["k"])
        tx.table(other.name).commit(added=[self._block(other, appended, value)])
        outcome = self._outcome(rng, [tx.commit], is_unknown=False)
        self._end(rng, began_s, reads, appends, outcome)

    def _send(
        self,
        rng: random.Random,
        began_s: float,
        reads: Sequence[Read],
        commits: Mapping[str, CommitRequest],
        appends: Sequence[Append],
    ) -> None:
        """Send changes, some of them to both services at once, and send some whose outcome is unknown again."""
        key = str(UUID(int=rng.getrandbits(128)))
        call: Call[Any] = transaction_call(commits)
        if len(commits) == 1:
            [(name, request)] = commits.items()
            call = make_call(operations.commits.COMMIT, TableName.parse(name), body=request)
        first, second = rng.sample(self._lakes, 2) if len(self._lakes) > 1 else (*self._lakes, *self._lakes)
        is_unknown = rng.random() < _SENT_TWICE
        if is_unknown:
            self._twice.submit(second.run, call, key)  # as a proxy does; its answer is lost
        outcome = self._outcome(rng, [partial(lake.run, call, key) for lake in (first, second)], is_unknown=is_unknown)
        self._end(rng, began_s, reads, appends, outcome)

    def _outcome(self, rng: random.Random, sends: Sequence[Callable[[], object]], *, is_unknown: bool) -> Outcome:
        """Send a request until its outcome is known, or a few times; ``is_unknown``: it was sent before."""
        for send in itertools.islice(itertools.cycle(sends), rng.choice((1, 3, 10))):
            try:
                send()
            except CommitConflict:
                return "failed"
            except OutcomeUnknown:
                is_unknown = True
            except Unavailable:
                if not is_unknown:  # otherwise this request did nothing, and the one before may have
                    return "failed"
            else:
                return "committed"
            time.sleep(rng.uniform(0, 0.5))
        return "unknown"

    def _end(
        self, rng: random.Random, began_s: float, reads: Sequence[Read], appends: Sequence[Append], outcome: Outcome
    ) -> None:
        self.outcomes[outcome] += 1
        if outcome == "failed" and reads:
            self._note(began_s, reads)  # they were of one moment all the same
            self._note(began_s, appends, outcome)
        else:
            self._note(began_s, [*reads, *appends], outcome)
        self._renew(rng)

    def _note(self, began_s: float, done: Sequence[Append | Read], outcome: Outcome = "committed") -> None:
        ended_s = time.monotonic()
        with self._lock:
            self.history.append(Transaction(next(self._numbers), tuple(done), began_s, ended_s, outcome))
            self.operations += len(done)

    # Tables.

    def _some(self, rng: random.Random, kinds: Sequence[Kind], count: int) -> list[KeyTable]:
        tables = [table for kind in kinds for table in self._in_use[kind]]
        return rng.sample(tables, rng.randint(1, min(count, len(tables))))

    def _fresh(self) -> Iterator[int]:
        """Return values for one transaction; those of others are all smaller or all larger."""
        return itertools.count(next(self._changes) * _MAX_VALUES)

    def _value(self, fresh: Iterator[int], key: int, *, before: int | None = None) -> int:
        value = next(fresh)
        self._key_of[value], self._before[value] = key, before
        return value

    def _block(self, table: KeyTable, key: int, value: int) -> dict[str, Any]:
        """Write a file of one row; returns the block."""
        location = self._folder / table.name / f"{value}.parquet"
        data = self._template
        for mark, number in zip(_MARKS, (key, value), strict=True):
            data = data.replace(mark.to_bytes(8, "little"), number.to_bytes(8, "little"))
        location.write_bytes(data)
        self._left[table] -= 1
        bound = {"Int64": key}
        stats = {"1": {"min": bound, "max": bound, "null_count": 0}}
        return {"location": f"file://{location}", "row_count": 1, "file_size": 0, "col_stats": stats}

    def _adding(self, table: KeyTable, added: Sequence[tuple[int, int]]) -> CommitRequest:
        blocks = [self._block(table, key, value) for key, value in added]
        return CommitRequest(added=tuple(msgspec.Raw(msgspec.json.encode(block)) for block in blocks))

    def _read(self, lake: Lamella, tables: Sequence[KeyTable]) -> list[Found]:
        """Read tables as they were at one moment."""
        at = lake.current_snapshots(*(each.name for each in tables))
        return [self._contents(lake, each, at[each.name]) for each in tables]

    def _contents(self, lake: Lamella, table: KeyTable, snapshot_id: str) -> Found:
        blocks: dict[int, str] = {}
        if table.kind == "rows":
            rows = lake.table(table.name).scan(snapshot_id=snapshot_id, lease=False).to_arrow()
            values = rows["v"].to_pylist()
            assert [self._key_of[value] for value in values] == rows["k"].to_pylist()
        else:
            found = [each.location for each in lake.table(table.name).prune(snapshot_id=snapshot_id).blocks]
            values = [_value_of(each) for each in found]
            blocks = dict(zip(values, found, strict=True))
        lists: dict[int, tuple[int, ...]] = dict.fromkeys(range(KEYS), ())
        for value in values:
            key = self._key_of[value]
            lists[key] += (value,) if table.kind == "lists" else self._values_before(value)
        return Found(table, snapshot_id, lists, blocks)

    def _values_before(self, value: int) -> tuple[int, ...]:
        """Return the values of a register up to one."""
        chain = [value]
        while (before := self._before[chain[-1]]) is not None:
            chain.append(before)
        return tuple(reversed(chain))

    def _renew(self, rng: random.Random) -> None:
        """Replace tables that have their values."""
        with self._lock:
            full = [table for tables in self._in_use.values() for table in tables if self._left[table] <= 0]
            self._left.update((table, VALUES[table.kind]) for table in full)  # until the other one is there
        for table in full:
            other = self._new_table(rng, table.kind)
            tables = self._in_use[table.kind]
            tables[tables.index(table)] = other

    def _new_table(self, rng: random.Random, kind: Kind) -> KeyTable:
        table = KeyTable(f"h.{kind}{next(self._numbers)}", kind)
        self._left[table] = VALUES[kind] + (0 if kind == "lists" else KEYS)
        (self._folder / table.name).mkdir()
        columns = {"k": "int64", "v": "int64"}
        self._insist(rng, lambda lake, key: lake.create_table(table.name, schema=columns, idempotency_key=key))
        if kind != "lists":
            began_s, fresh = time.monotonic(), self._fresh()
            added = [(key, self._value(fresh, key)) for key in range(KEYS)]
            body = self._adding(table, added)
            call = make_call(operations.commits.COMMIT, TableName.parse(table.name), body=body)
            self._insist(rng, lambda lake, key: lake.run(call, key))
            self._note(began_s, [Append(table.key(key), value) for key, value in added])
        with self._lock:
            self._tables.append(table)
        return table

    def _insist(self, rng: random.Random, send: Callable[[Lamella, str], object]) -> None:
        """Send a request with one key until it is known to be done."""
        key = str(UUID(int=rng.getrandbits(128)))
        while True:
            try:
                send(rng.choice(self._lakes), key)
            except Unavailable:
                time.sleep(rng.uniform(0, 0.2))
            else:
                return


def _reads(found: Found, keys: Sequence[int] | range) -> list[Read]:
    return [Read(found.table.key(key), found.lists[key]) for key in keys]


_LISTS: Final = "h.lists"
_NOWHERE: Final = 1 << 62


def _value_of(location: str) -> int:
    return int(location.rpartition("/")[2].removesuffix(".parquet"))


def _ordered(done: Sequence[Append | Read], position: Mapping[int, int]) -> Iterator[Append | Read]:
    """Yield operations, with the values of lists in the order of their snapshots; one that is in none comes last.

    Commits that share a snapshot happened in the same moment, so any order of them is right that is the same for all
    lists.
    """
    for each in done:
        if isinstance(each, Read) and each.key.startswith(_LISTS):
            values = sorted(each.values, key=lambda value: (position.get(value, _NOWHERE), value))
            yield Read(each.key, tuple(values))
        else:
            yield each
