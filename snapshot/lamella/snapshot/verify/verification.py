"""A complete verification as bounded steps: a part of the history, the snapshot, a segment, a block's values.

The steps of one snapshot are always the same, so a verification can stop between any two and continue elsewhere. At any
time one segment is in memory, and as many footers of its files as there are workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import InvalidSchema, LamellaError, ManifestError, NotFound, StoreError
from lamella.snapshot.manifest import (
    DirectoryRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    TableIndex,
    decode_segment,
    decode_snapshot,
)
from lamella.snapshot.storage import Store, TableLayout, table_root
from lamella.snapshot.verify.checks import LISTED, found
from lamella.snapshot.verify.false_skips import BlockPrune, audit
from lamella.snapshot.verify.files import FileCheck, check_file, check_values, read_rows
from lamella.snapshot.verify.indexes import IndexAudit, check_definition, check_directory
from lamella.snapshot.verify.layers import Problem, check_layer_sketches, check_segment_sketches
from lamella.snapshot.verify.reading import Deep, chosen, read_manifest
from lamella.snapshot.verify.sidecars import check_pages
from lamella.snapshot.verify.snapshot import (
    Indexes,
    ReadHistory,
    check_duplicates,
    check_group,
    check_history,
    check_segment,
    check_snapshot,
    known_schemas,
    listed_segments,
)
from lamella.snapshot.wire.maintenance import Checked, Finding, VerifyAnswer

#: Snapshots of the history per step.
_HISTORY_STEP: Final = 10
#: Memory limit of the prunes of a deep verification.
_CACHE_BYTES: Final = 64 << 20
#: After a problem with one of these there is nothing to compare the file's values with.
_NOT_THE_FILE: Final = frozenset({"footer_schema", "footer_rows", "footer_unreadable"})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``files``: open the blocks' files. ``pages``: page sidecars are expected. ``history``: the newest ``seq``, and
    how far back to check. ``workers``: files that are read concurrently."""

    files: bool = True
    pages: bool = False
    history: tuple[int, int] = (0, 0)
    deep: Deep | None = None
    repair: bool = False
    workers: int = 8


class Verification:
    """The steps of verifying one snapshot of a table below ``root``. Caches are not trusted.

    ``read_history`` returns the catalog's records; None: history is not checked.

    Raises:
        InvalidRequest: invalid options.
        StoreError: the store failed to return the manifest of the snapshot or of a group, and it is not known to be
            missing.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        table_id: str,
        pointer: SnapshotPointer,
        options: Options | None = None,
        read_history: ReadHistory | None = None,
    ) -> None:
        self._store = store
        self._table_id = table_id
        self._pointer = pointer
        self._options = options = options if options is not None else Options()
        self._read_history = read_history
        self._prune = BlockPrune(store, pointer, _CACHE_BYTES)
        self._layout = TableLayout(table_root(root, table_id))
        self._listed: Counter[tuple[str, str]] = Counter()
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter()
        self._checked = Checked()
        self._cached: tuple[str, Segment | None] | None = None
        if options.deep is not None:
            options.deep.check()
        self._snapshot = self._opened()
        self._listed_segments = [] if self._snapshot is None else listed_segments(store, self._snapshot)
        self._refs = [listed.ref for listed in self._listed_segments]
        self._indexes = Indexes(store)
        indexes = () if self._snapshot is None else self._snapshot.skip_indexes
        self._directories: list[tuple[TableIndex, DirectoryRef | None]] = [
            (index, ref) for index in indexes for ref in (None, *index.directories)
        ]
        self._claims = IndexAudit(store, self._snapshot)
        self._deep = chosen(options.deep, [ref.summary.block_count for ref in self._refs]) if options.deep else []
        newest, wanted = options.history
        self._history_steps = -(-min(newest, wanted) // _HISTORY_STEP) if read_history is not None else 0
        self._plan: tuple[tuple[int, Callable[[int], None]], ...] = (
            (self._history_steps, self._history),
            (1, self._whole),
            (0 if self._snapshot is None else len(self._snapshot.groups), self._group),
            (len(self._refs), self._segment),
            (len(self._deep), self._values),
            (1 if self._refs else 0, self._together),
            (len(self._directories), self._index),
        )

    @property
    def steps(self) -> int:
        """Returns the number of steps."""
        return sum(count for count, _ in self._plan)

    def run(self, start: int = 0, *, until: Callable[[int], bool] | None = None) -> VerifyAnswer:
        """Run the steps from ``start`` on, at least one, until ``until`` (called after each with the number done)
        returns true, or all are done."""
        done = start
        while done < self.steps:
            self._step(done)
            done += 1
            if until is not None and until(done):
                break
        answer = VerifyAnswer(
            snapshot_id=self._pointer.snapshot_id,
            steps=self.steps,
            steps_done=done,
            findings=tuple(self._findings),
            counts=dict(self._counts),
            checked=self._checked,
        )
        self._findings, self._counts, self._checked = [], Counter(), Checked()
        return answer

    def _step(self, number: int) -> None:
        for count, work in self._plan:
            if number < count:
                work(number)
                return
            number -= count

    def _note(self, finding: Finding) -> None:
        self._counts[finding.code] += 1
        self._listed[finding.code, finding.object] += 1
        if self._listed[finding.code, finding.object] <= LISTED:
            self._findings.append(finding)

    def _note_problem(self, problem: Problem, segment: SegmentRef) -> None:
        column = None
        if problem.column_id is not None and self._snapshot is not None:
            names = (schema.by_id().get(problem.column_id) for schema in reversed(self._snapshot.history))
            column = next((leaf.name for leaf in names if leaf is not None), f"#{problem.column_id}")
        block = problem.child
        at = block if block is not None else segment.manifest.location
        self._note(
            found(problem.code, problem.message, at=at, segment_id=segment.segment_id, block=block, column=column)
        )

    def _count(self, **more: int) -> None:
        self._checked = self._checked.plus(Checked(**more))

    def _opened(self) -> Snapshot | None:
        try:
            return self._read_snapshot(self._store.read(self._pointer.manifest.location))
        except (NotFound, ManifestError):
            return None  # the step of the group reports the reason

    def _read_snapshot(self, data: bytes) -> Snapshot:
        ref = self._pointer.manifest
        snapshot = decode_snapshot(data, sha256=ref.sha256, location=ref.location)
        try:
            for schema in snapshot.history:
                schema.leaves()
        except InvalidSchema as error:
            raise ManifestError(f"a schema cannot be read: {error.message}") from error
        return snapshot

    def _history(self, step: int) -> None:
        if self._read_history is None:
            return
        newest, wanted = self._options.history
        below = newest + 1 - step * _HISTORY_STEP
        lowest = max(newest + 1 - wanted, below - _HISTORY_STEP)
        batch = self._read_history(below, _HISTORY_STEP + 1)
        records = [record for record in batch if record.seq >= lowest]
        older = batch[len(records)] if len(batch) > len(records) else None
        check_history(self._store, records, self._note, older=older)
        if step == 0 and records and records[0].pointer != self._pointer:
            at = self._pointer.manifest.location
            self._note(found("pointer_differs", "the table's pointer does not refer to its newest snapshot", at=at))
        self._count(snapshots=len(records))

    def _whole(self, _number: int) -> None:
        if self._snapshot is None:
            read_manifest(self._store, self._pointer.manifest, self._read_snapshot, self._note)
            return
        check_snapshot(
            self._store, self._table_id, self._pointer, self._snapshot, self._note, repair=self._options.repair
        )
        if not self._history_steps:
            self._count(snapshots=1)

    def _group(self, number: int) -> None:
        if self._snapshot is not None:
            ref = self._snapshot.groups[number]
            check_group(self._store, self._layout, self._snapshot, ref, self._note, repair=self._options.repair)
            self._count(groups=1)

    def _segment(self, number: int) -> None:
        snapshot, ref = self._snapshot, self._refs[number]
        if snapshot is None:
            return
        options = self._options
        segment = check_segment(self._store, snapshot, ref, self._note, repair=options.repair)
        self._count(segments=1)
        if segment is None:
            return
        self._count(blocks=len(segment.blocks))
        self._indexes.check(self._listed_segments[number], [block.location for block in segment.blocks], self._note)
        check_segment_sketches(self._store, self._layout, ref, segment, self._note)
        if not options.files:
            return
        schemas = known_schemas(snapshot)
        with ContextThreadPool(max_workers=options.workers, thread_name_prefix="verify") as pool:
            files = pool.map(lambda b: check_file(self._store, b, schemas.get(b.written_with)), segment.blocks)
            for file in files:
                for problem in file.problems:
                    self._note_problem(problem, ref)
        self._count(files=len(segment.blocks))
        has_pages = check_pages(
            self._store,
            snapshot,
            ref,
            segment,
            self._note,
            expected=options.pages,
            repair=options.repair,
            workers=options.workers,
        )
        self._count(page_sidecars=int(has_pages))

    def _values(self, number: int) -> None:
        deep, snapshot = self._options.deep, self._snapshot
        at_segment, row = self._deep[number]
        ref = self._refs[at_segment]
        segment = self._read_segment(ref)
        if deep is None or snapshot is None or segment is None or row >= len(segment.blocks):
            return
        block = segment.blocks[row]
        written = known_schemas(snapshot).get(block.written_with)
        if written is None:
            return
        file: FileCheck = check_file(self._store, block, written)
        if file.footer is None or any(problem.code in _NOT_THE_FILE for problem in file.problems):
            for problem in file.problems:
                if problem.code == "unreachable":  # it may have existed when the segment was checked
                    self._note_problem(problem, ref)
            return  # reported of the segment
        try:
            read = check_values(self._store, file.footer, block, written)
            for problem in read.problems:
                self._note_problem(problem, ref)
            self._count(blocks_read=1, values=read.values)
            if any(problem.code == "values_unreadable" for problem in read.problems):
                return
            rng = Random(f"{deep.seed} {block.location}")  # noqa: S311  # the same filters every time, no secret
            rows = read_rows(self._store, file.footer, block, written, snapshot.schema, rng)
            audited = audit(
                rows,
                snapshot.schema,
                block.location,
                lambda predicate: self._prune.answer(predicate, ref, row),
                filters=deep.filters,
                rng=rng,
            )
            claimed, compared = self._claims.check(block, filters=deep.filters, rng=rng)
        except LamellaError as error:
            code = "unreachable" if isinstance(error, StoreError | NotFound) else "values_unreadable"
            self._note_problem(Problem(code, error.message, None, block.location), ref)
            return
        for problem in (*audited.problems, *claimed):
            self._note_problem(problem, ref)
        self._count(filters=audited.filters, filters_left_out=audited.left_out, index_filters=compared)

    def _together(self, _number: int) -> None:
        if self._snapshot is None:
            return
        check_duplicates(self._store, self._refs, self._note)
        snapshot = self._snapshot
        check_layer_sketches(self._store, self._layout, snapshot.snapshot_id, snapshot.summary, self._refs, self._note)

    def _index(self, number: int) -> None:
        """Check the definition of an index, or one of its directories."""
        index, ref = self._directories[number]
        if self._snapshot is None:
            return
        if ref is None:
            check_definition(self._snapshot, index, self._pointer.manifest.location, self._note)
        else:
            parts = check_directory(self._store, index, ref, self._note, workers=self._options.workers)
            self._count(index_parts=parts)

    def _read_segment(self, ref: SegmentRef) -> Segment | None:
        """Returns a segment. The last one is cached: the blocks of a segment are checked one after another."""
        if self._cached is None or self._cached[0] != ref.segment_id:
            manifest = ref.manifest
            try:
                data = self._store.read(manifest.location)
                segment = decode_segment(data, sha256=manifest.sha256, location=manifest.location)
            except StoreError as error:  # it may have existed when the segment was checked
                self._note(found("unreachable", error.message, at=manifest.location, segment_id=ref.segment_id))
                self._cached = (ref.segment_id, None)
            except LamellaError:
                self._cached = (ref.segment_id, None)  # reported of the segment
            else:
                self._cached = (ref.segment_id, segment)
        return self._cached[1]
