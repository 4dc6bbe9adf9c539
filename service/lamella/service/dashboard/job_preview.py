"""Previews of jobs: which blocks, rows, objects and files a job would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
import numpy as np

from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.clustering.clustering import Clustering
from lamella.service.dashboard import words
from lamella.service.dashboard.indexes import size_of
from lamella.service.dashboard.preview import (
    CHEAP_BYTES,
    FEW_BLOCKS,
    Column,
    Fact,
    Listing,
    Preview,
    fact,
    unstored_key,
)
from lamella.service.external.external import External
from lamella.service.features import Advisor
from lamella.service.history.history import History, trusted_manifests
from lamella.service.indexes.indexes import Indexes
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.samples.samples import Samples
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.expression import read_filter
from lamella.snapshot.job_kinds import JobKind
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.prune.outcome import ALL, NONE
from lamella.snapshot.vacuum import duration_ms
from lamella.snapshot.verify.reading import Deep, how_many
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    MAX_SAMPLE_BLOCKS,
    IndexChange,
    PlanAnswer,
    PlanRequest,
    PruneRequest,
    RefreshTable,
    RefreshTableAnswer,
    RegroupAnswer,
    RegroupRequest,
    RewriteJob,
    VacuumAnswer,
    VacuumRequest,
)

_LISTED: Final = 20
_REFRESH: Final = msgspec.json.Decoder(RefreshTableAnswer)
_HISTORY: Final = 100


class _Matches(msgspec.Struct, frozen=True):
    """The blocks of a snapshot by verdict of a filter: their number, rows and bytes."""

    total: int
    rows_total: int
    whole: tuple[int, int, int]
    part: tuple[int, int, int]


class _Counted(msgspec.Struct, frozen=True):
    """How many rows match; None: not counted. ``measure``: on the button that counts them."""

    rows: int | None = None
    notes: tuple[str, ...] = ()
    measure: str = ""


class JobEffects:
    """Computes previews; changes nothing."""

    def __init__(
        self,
        *,
        advice: Advisor | None,
        history: History,
        warehouse: Warehouse,
        external: External,
        indexes: Indexes,
        vacuum: Vacuum,
        samples: Samples,
        clock: Callable[[], int],
    ) -> None:
        self._samples = samples
        self._advice = advice
        self._history = history
        self._warehouse = warehouse
        self._external = external
        self._indexes = indexes
        self._vacuum = vacuum
        self._clock = clock

    def delete(self, table: TableRecord, values: Mapping[str, Any], *, measures: bool = False) -> Preview:
        """Preview a delete: blocks removed by metadata alone, and blocks that are read; and how many rows, if that
        reads little, or if ``measures``."""
        zone = values.get("time_zone", "UTC")
        found = self._matches(table, values["where"], zone)
        rows = found.whole[1] + found.part[1]
        if not found.whole[0] + found.part[0]:
            return Preview(says="No block can contain a row of this filter, so nothing would be deleted.", tone="warn")
        notes = []
        if rows == found.rows_total:
            notes.append("That may be every row of the table.")
        counted = self._counted(table, values["where"], zone, found, measures=measures)
        if counted.rows is not None:
            says = f"{_rows(counted.rows)} deleted, as the table is now."
        elif not found.part[0]:
            says = f"All {words.plural(found.whole[1], 'row')} of {words.plural(found.whole[0], 'block')} are deleted."
        else:
            says = (
                f"At most {words.plural(rows, 'row')} are deleted, from "
                f"{words.plural(found.whole[0] + found.part[0], 'block')}."
            )
        return Preview(
            says=f"{says} Older snapshots keep them until a clean-up.",
            tone="warn",
            facts=(
                _of_blocks("Blocks removed by metadata alone, without reading", found.whole),
                _of_blocks("Blocks read, and rewritten if rows match", found.part),
                fact("Unchanged blocks", found.total - found.whole[0] - found.part[0]),
                fact("Rows at most", f"{words.count(rows)} of {words.count(found.rows_total)}"),
            ),
            notes=(*notes, *counted.notes),
            measure=counted.measure,
        )

    def update(self, table: TableRecord, values: Mapping[str, Any], *, measures: bool = False) -> Preview:
        """Preview an update: blocks that are rewritten, and rows as :meth:`delete`. Raises InvalidRequest for an
        unknown column."""
        with trusted_manifests():
            leaves = self._warehouse.head(table.pointer).schema.leaves()
        columns = {leaf.name.partition(".")[0].lower() for leaf in leaves}
        unknown = [name for name in values["set"] if name.partition(".")[0].lower() not in columns]
        if unknown:
            raise InvalidRequest(f"there is no column {unknown[0]!r}", path="$.arguments.set")
        found = self._matches(table, values.get("where"), "UTC")
        counted = self._counted(table, values.get("where"), "UTC", found, measures=measures)
        count, rows, size_bytes = (a + b for a, b in zip(found.whole, found.part, strict=True))
        if not count:
            return Preview(says="No block can contain a row of this filter, so nothing would change.", tone="warn")
        if counted.rows is None:
            says = f"At most {words.plural(rows, 'row')} change, and {words.plural(count, 'block')} are rewritten."
        else:
            says = f"{_rows(counted.rows)} changed, as the table is now; at most {_blocks(count)} are rewritten."
        return Preview(
            says=says,
            tone="warn",
            facts=(
                fact("Columns that are set", ", ".join(values["set"])),
                _of_blocks("Blocks in which every row changes", found.whole),
                _of_blocks("Blocks in which some rows may change", found.part),
                fact("Bytes to read", words.size(size_bytes)),
                fact("Rows at most", f"{words.count(rows)} of {words.count(found.rows_total)}"),
            ),
            notes=("Spark computes the values, so the worker needs it.", *counted.notes),
            measure=counted.measure,
        )

    def _counted(
        self, table: TableRecord, where: str | None, time_zone: str, found: _Matches, *, measures: bool
    ) -> _Counted:
        """Count the rows that match, if that reads few and small blocks, or if ``measures`` says to."""
        blocks, _, size_bytes = found.part
        if where is None or not blocks or not self._samples.is_on:
            return _Counted()
        is_cheap = blocks <= FEW_BLOCKS and size_bytes <= CHEAP_BYTES
        if not (is_cheap or measures):
            if blocks > MAX_SAMPLE_BLOCKS or size_bytes > self._samples.max_bytes:
                return _Counted()
            return _Counted(measure=f"Count the rows: reads {_blocks(blocks)}, at most {words.size(size_bytes)}")
        try:
            answer = self._samples.count(
                table, read_filter(where, time_zone=time_zone), time_zone=time_zone, max_blocks=blocks
            )
        except LamellaError as error:  # the preview is right without it
            return _Counted(notes=(f"The rows cannot be counted: {error.message}.",))
        if answer.rows is None:
            return _Counted(notes=("Counting the rows would read too much, or took too long.",))
        read = f"{_blocks(answer.blocks_read)} that may match in part were read ({words.size(answer.bytes_read)})"
        return _Counted(rows=answer.rows, notes=(f"Counted: {read}.",))

    def index_refresh(self, table: TableRecord, values: Mapping[str, Any]) -> Preview:
        """Blocks that the index does not know; raises IndexNotFound."""
        info = self._indexes.show(table, values["index"])
        coverage = info.coverage
        if info.dropped_ms is not None or info.not_usable is not None or coverage is None:
            reason = info.not_usable or "it was dropped; restore it first"
            return Preview(says=f"The index is not in use: {reason}.", tone="warn")
        mode = values.get("mode", "incremental")
        blocks = coverage.not_indexed if mode == "incremental" else coverage.blocks
        known = f"{words.count(coverage.indexed)} of {words.plural(coverage.blocks, 'block')}"
        facts = [
            fact("Index", f"{info.kind} over {info.expression}"),
            fact("It knows", known),
            fact("Not covered", words.plural(coverage.not_indexed, "block")),
        ]
        if coverage.stale:
            facts.append(fact("Of these, replaced since", coverage.stale))
        per_block = info.bytes_per_block
        if self._advice is not None and not info.parts and blocks:
            change = IndexChange(
                kind=info.kind, expression=info.expression, options=info.options, time_zone=info.time_zone
            )
            size = size_of(self._advice, table, change)
            per_block = (size.bytes_per_block or 0.0) if size is not None else 0.0
        if blocks and per_block:
            facts.append(fact("Size of the new parts", f"about {words.size(per_block * blocks)}"))
        if not blocks:
            return Preview(
                says="The index covers every block; there is nothing to do.", tone="warn", facts=tuple(facts)
            )
        how = {"full": "read and indexed again", "quick": "indexed, if possible without reading rows"}.get(
            mode, "indexed"
        )
        return Preview(says=f"{words.plural(blocks, 'block')} would be {how}.", tone="good", facts=tuple(facts))

    def vacuum(self, table: TableRecord, values: Mapping[str, Any]) -> Preview:
        """Preview a vacuum: snapshots that would expire, and objects that would be deleted."""
        older_than = values.get("older_than")
        try:
            if older_than is not None:
                duration_ms(older_than)
        except InvalidRequest as error:
            raise InvalidRequest(error.message, path="$.arguments.older_than") from error
        request = VacuumRequest(
            older_than=older_than,
            include_external_blocks=values.get("include_external_blocks", False),
        )
        return _cleaned(self._vacuum.vacuum(table, request), self._clock())

    def vacuum_dropped(self, values: Mapping[str, Any]) -> Preview:
        """Preview the purge of dropped tables."""
        request = VacuumRequest(include_external_blocks=values.get("include_external_blocks", False))
        return _cleaned(self._vacuum.purge_dropped(request), self._clock())

    def verify(self, table: TableRecord, values: Mapping[str, Any]) -> Preview:
        """What would be looked at; raises SnapshotNotFound, InvalidRequest."""
        pointer = self._history.pointer(table, snapshot_id=values.get("snapshot"))
        with trusted_manifests():
            head = self._warehouse.snapshot(pointer)
        blocks = head.summary.block_count
        opens = not values.get("no_files", False)
        deep = Deep(sample=values.get("sample"), blocks=values.get("blocks"), filters=values.get("filters", 0))
        deep.check()
        if not values.get("deep") and (deep.sample is not None or deep.blocks is not None):
            raise InvalidRequest("these limit the reading of values: choose deep too", path="$.arguments.deep")
        if values.get("deep") and not opens:
            raise InvalidRequest("reading values means reading the blocks' files", path="$.arguments.no_files")
        read = how_many(deep, blocks) if values.get("deep") else 0
        facts = [
            fact("Snapshots, at most", values.get("history", _HISTORY)),
            fact("Segments", head.segment_count),
            fact("Blocks", blocks),
            fact("Files whose footers are read", blocks if opens else "none"),
            fact("Blocks whose values are read", read if read else "none"),
        ]
        repairs = bool(values.get("repair"))
        says = f"{words.plural(blocks, 'block')} of {words.plural(head.segment_count, 'segment')} would be checked."
        if repairs:
            return Preview(says=f"{says} Damaged sidecars are rewritten; nothing else is changed.", facts=tuple(facts))
        return Preview(says=f"{says} Nothing is changed.", tone="good", facts=tuple(facts))

    def refresh(self, table: TableRecord, values: Mapping[str, Any]) -> Preview:
        """Preview a refresh: files of the source that differ from the table's.

        Raises InvalidRequest without a source.
        """
        request = RefreshTable(
            mode="dry_run", location=values.get("location"), allow_empty=values.get("allow_empty", False)
        )
        stored_response = self._external.refresh(table, request, unstored_key(self._clock()))
        answer = _REFRESH.decode(cast("Any", stored_response).body)
        changed = answer.added + answer.removed + answer.replaced
        facts = (
            fact("New files", answer.added),
            fact("Removed files", answer.removed),
            fact("Changed files", answer.replaced),
            fact("Unchanged files", answer.unchanged),
            fact("Changes of columns", answer.schema_changes),
        )
        if values.get("full") and not changed:
            return Preview(says=f"All {words.plural(answer.unchanged, 'file')} would be opened again.", facts=facts)
        if not changed and not answer.schema_changes:
            return Preview(says="The table matches its source; there is nothing to do.", tone="warn", facts=facts)
        return Preview(
            says=f"{words.plural(answer.added + answer.replaced, 'file')} would be opened, "
            f"{words.plural(answer.removed, 'block')} would be removed.",
            tone="good",
            facts=facts,
        )

    def _matches(self, table: TableRecord, where: str | None, time_zone: str) -> _Matches:
        """Count the blocks by verdict. Raises InvalidFilter, UnknownColumn, FilterTypeMismatch."""
        with trusted_manifests():
            found = self._warehouse.find(
                table.pointer, PruneRequest(filter=where, time_zone=time_zone, reader_features=FEATURES)
            )
            blocks = self._warehouse.layer_maps.of(table.pointer)
            codes = self._warehouse.layer_maps.verdicts(found, blocks)

        def counted(chosen: Any) -> tuple[int, int, int]:
            return (
                int(np.count_nonzero(chosen)),
                int(blocks.row_count[chosen].sum()),
                int(blocks.file_size[chosen].sum()),
            )

        return _Matches(
            total=len(blocks),
            rows_total=int(blocks.row_count.sum()),
            whole=counted(codes == ALL),
            part=counted((codes != ALL) & (codes != NONE)),
        )


def _rows(count: int) -> str:
    return "No row is" if not count else "1 row is" if count == 1 else f"{words.count(count)} rows are"


def _of_blocks(name: str, counts: tuple[int, int, int]) -> Fact:
    blocks, rows, size_bytes = counts
    return fact(name, f"{words.count(blocks)} with {words.plural(rows, 'row')}, {words.size(size_bytes)}")


def _cleaned(answer: VacuumAnswer, now_ms: int) -> Preview:
    total = answer.deleted
    going = [decision for decision in answer.snapshots if decision.expires]
    so_far = answer.next_page_token is not None
    facts = [
        fact("Snapshots to expire", f"{words.count(len(going))} of {words.count(len(answer.snapshots))}"),
        fact("Objects to delete", f"{words.count(total.objects)}, {words.size(total.size_bytes)}"),
        *(
            fact(f"Of these {kind.replace('_', ' ')}", f"{words.count(each.objects)}, {words.size(each.size_bytes)}")
            for kind, each in answer.garbage.items()
        ),
        fact("Objects in use", answer.live.objects),
        fact("Too young to be judged", answer.young.objects),
        fact("Not Lamella's; not deleted", answer.unknown.objects),
    ]
    if answer.tables:
        facts.append(fact("Dropped tables to purge", len(answer.tables)))
    notes = [f"{left.location} stays: {left.reason}." for left in answer.left[:_LISTED]]
    if so_far:
        notes.insert(0, "Only the first objects were checked; a job checks all of them.")
    if not going and not total.objects and not answer.tables:
        says = "Nothing found to delete so far." if so_far else "There is nothing to clean up."
        return Preview(says=says, tone="warn", facts=tuple(facts), notes=tuple(notes))
    rows = tuple(
        (decision.snapshot_id, words.ago(decision.timestamp_ms, now_ms), decision.reason)
        for decision in going[:_LISTED]
    )
    more = f"; the first {_LISTED} of {len(going):,}" if len(going) > _LISTED else ""
    columns = tuple(Column(name=name) for name in ("Snapshot", "Made", "Why"))
    return Preview(
        says=f"{words.plural(len(going), 'snapshot')} would expire, and {words.plural(total.objects, 'object')} "
        f"({words.size(total.size_bytes)}) would be deleted. Neither can be undone.",
        tone="warn",
        facts=tuple(facts),
        listing=Listing(caption=f"Snapshots to expire{more}", columns=columns, rows=rows) if rows else None,
        notes=tuple(notes),
    )


_BOUNDS: Final = (
    "max_bytes",
    "max_blocks",
    "target_rows",
    "target_bytes",
    "target_depth",
    "min_gain",
    "min_deleted_share",
)
_REGROUP: Final = msgspec.json.Decoder(RegroupAnswer)
_COLUMNS: Final = tuple(
    Column(name=name, is_number=True)
    for name in ("Task", "Blocks", "Rows", "Size", "Become", "Look-up reads less", "Bytes less")
)


class Previews:
    """Makes previews by kind; kinds of other packages have none."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        clustering: Clustering,
        warehouse: Warehouse,
        clock: Callable[[], int],
        touches: JobEffects,
    ) -> None:
        self._catalog = catalog
        self._clustering = clustering
        self._warehouse = warehouse
        self._clock = clock
        touches = touches
        #: Previews that may read more if they are asked to.
        self._measured = {"delete": touches.delete, "update": touches.update}
        self._made: dict[str, Callable[[TableRecord, Mapping[str, Any]], Preview]] = {
            "compact": lambda table, values: self._rewriting(table, "compact", values),
            "recluster": lambda table, values: self._rewriting(table, "recluster", values),
            "purge": lambda table, values: self._rewriting(table, "purge", values),
            "regroup": self._regrouping,
            "index_refresh": touches.index_refresh,
            "vacuum": touches.vacuum,
            "verify": touches.verify,
            "refresh": touches.refresh,
        }
        self._vacuum_dropped = touches.vacuum_dropped

    def of(self, kind: JobKind, table: str | None, values: Mapping[str, Any], *, measures: bool = False) -> Preview:
        """Return what a job with these arguments would do now. ``measures``: read blocks for it, also many.

        Raises:
            NamespaceNotFound, TableNotFound: the table.
            LamellaError: the job would fail at once: an invalid filter, no cluster key.
        """
        if kind.name == "vacuum_dropped":
            return self._vacuum_dropped(values)
        record = None
        if table is not None:
            namespace, _, name = table.rpartition(".")
            record = current_table(self._catalog, namespace, name)
        if record is not None and kind.name in self._measured:
            return self._measured[kind.name](record, values, measures=measures)
        make = self._made.get(kind.name)
        if make is None or record is None:
            return Preview(says=f"{kind.text} The service cannot predict the details.")
        return make(record, values)

    def _rewriting(self, table: TableRecord, job: RewriteJob, values: Mapping[str, Any]) -> Preview:
        bounds = {name: values[name] for name in _BOUNDS if name in values}
        request = msgspec.structs.replace(
            PlanRequest(job=job, filter=values.get("where"), reader_features=FEATURES), **bounds
        )
        with trusted_manifests():
            plan = self._warehouse.planning.plan(table.pointer, request)
        blocks = sum(len(task.blocks) for task in plan.tasks)
        if not blocks:
            return Preview(
                says=f"There is nothing to do: {plan.reason}.", tone="warn", facts=self._as_it_is(table, plan)
            )
        size_bytes = sum(task.file_size_bytes for task in plan.tasks)
        pieces = sum(task.pieces for task in plan.tasks)
        share = words.percent(size_bytes / plan.file_size_bytes_total if plan.file_size_bytes_total else None)
        facts = [
            fact("Tasks", len(plan.tasks)),
            fact("Blocks to rewrite", f"{words.count(blocks)} of {words.count(plan.blocks_total)}"),
            fact("Bytes to rewrite", f"{words.size(size_bytes)}, {share} of the table"),
            fact("Into", f"about {_blocks(pieces)}"),
        ]
        if job == "recluster":
            saved = sum(task.blocks_saved for task in plan.tasks)
            saved_bytes = sum(task.bytes_saved for task in plan.tasks)
            text = f"{_less(saved, f'{abs(saved):.1f} blocks')}, {_less(saved_bytes, words.size(abs(saved_bytes)))}"
            facts.append(fact("A look-up of a thousandth of the rows reads", text))
        left = []
        if plan.remaining_blocks:
            left.append(_blocks(plan.remaining_blocks))
        if plan.remaining_bytes:
            left.append(words.size(plan.remaining_bytes))
        facts.append(fact("Left for later runs", f"about {', '.join(left)}" if left else "nothing"))
        does = {
            "compact": "are merged into",
            "recluster": "are sorted into",
            "purge": "are written without their deleted rows into",
        }[job]
        return Preview(
            says=f"{_blocks(blocks)} ({words.size(size_bytes)}) {does} about {_blocks(pieces)}.",
            tone="good",
            facts=(*facts, *self._as_it_is(table, plan)),
            listing=_tasks(plan, job),
            notes=(words.sentence(f"{plan.reason}."),) if plan.reason else (),
        )

    def _as_it_is(self, table: TableRecord, plan: PlanAnswer) -> tuple[Fact, ...]:
        """Return the current clustering of the table's blocks."""
        if not plan.cluster_key or not plan.blocks_total:
            return ()
        figures = self._clustering.figures(table, (), "linear", snapshot_id=plan.snapshot_id, recorded=0)
        depth = figures.depth
        about = "" if depth.is_exact else ", of a sample"
        return (
            fact("Cluster key", f"{', '.join(plan.cluster_key)} ({plan.cluster_kind})"),
            fact("Depth now", f"{depth.average_depth:.1f} on average, {depth.max_depth} at most{about}"),
            fact("Small blocks now", f"{words.count(figures.small_blocks)} of {words.count(figures.blocks)}"),
        )

    def _regrouping(self, table: TableRecord, values: Mapping[str, Any]) -> Preview:
        by = tuple(filter(None, (part.strip() for part in str(values.get("by", "")).split(","))))
        request = RegroupRequest(
            key=by,
            kind=values.get("kind", "linear"),
            max_segments=values.get("max_segments"),
            target_depth=values.get("target_depth"),
            min_gain=values.get("min_gain"),
            dry_run=True,
        )
        stored_response = self._clustering.regroup(table, request, unstored_key(self._clock()))
        answer = _REGROUP.decode(cast("Any", stored_response).body)
        if not answer.groups:
            return Preview(says=f"There is nothing to do: {answer.reason}.", tone="warn")
        return Preview(
            says=f"{words.plural(answer.replaced, 'segment')} become {words.count(answer.made)}. No data is written.",
            tone="good",
            facts=(
                fact("Segments replaced", answer.replaced),
                fact("Segments made", answer.made),
                fact("Blocks that move", answer.blocks),
                fact(
                    "A look-up of a thousandth of the rows is sent to",
                    f"{answer.predicted_before:.1f} segments now, {answer.predicted_after:.1f} then, as predicted",
                ),
                fact("Left for later parts", words.plural(answer.remaining, "segment")),
            ),
            notes=(words.sentence(f"{answer.reason}."),) if answer.reason else (),
        )


def _less(saved: float, text: str) -> str:
    return f"{text} {'less' if saved >= 0 else 'more'}"


def _blocks(count: int) -> str:
    return words.plural(count, "block")


def _tasks(plan: PlanAnswer, job: str) -> Listing:
    columns = _COLUMNS if job == "recluster" else _COLUMNS[:-2]
    rows = [
        (
            words.count(number),
            words.count(len(task.blocks)),
            words.count(task.row_count),
            words.size(task.file_size_bytes),
            words.count(task.pieces),
            f"{task.blocks_saved:.2f}",
            f"{'-' if task.bytes_saved < 0 else ''}{words.size(abs(task.bytes_saved))}",
        )[: len(columns)]
        for number, task in enumerate(plan.tasks[:_LISTED], 1)
    ]
    more = f"; the first {_LISTED} of {len(plan.tasks):,}" if len(plan.tasks) > _LISTED else ""
    return Listing(caption=f"Tasks, those with the largest effect first{more}", columns=columns, rows=tuple(rows))
