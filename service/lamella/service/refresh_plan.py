"""A refresh as values: what a source and a table differ in, and what becomes of the files that were read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import msgspec

from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import InvalidRequest, ObjectNotFound, StoreError
from lamella.snapshot.layout import Places, normal
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.source import (
    PREFIX,
    REFUSED,
    VERSION,
    Difference,
    Evolution,
    Reader,
    SourceFile,
    SourceState,
    Taken,
    difference,
    evolution,
    source_of,
)
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import ExternalSource, RefreshTable, RefreshTableAnswer, RefusedFile, SourceMode

_LOCATION: Final = PREFIX + "location"


class RefreshPlan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is to be done. ``head`` is the table as it was compared, ``rereads``: every file is opened."""

    source: ExternalSource
    head: Snapshot
    state: SourceState
    evolution: Evolution
    difference: Difference
    strict: bool
    rereads: bool
    mode: SourceMode

    @cached_property
    def to_read(self) -> tuple[SourceFile, ...]:
        """The files to be opened."""
        found = (*self.difference.added, *self.difference.replaced)
        return (*found, *self.difference.unchanged) if self.rereads else found

    def expected(self, snapshot_id: str) -> RefreshTableAnswer:
        """What a refresh would do, as far as that can be told without opening a file."""
        again = len(self.difference.unchanged) if self.evolution.rereads else 0
        return RefreshTableAnswer(
            snapshot_id=snapshot_id,
            mode=self.mode,
            changed=False,
            added=len(self.difference.added),
            removed=len(self.difference.removed),
            replaced=len(self.difference.replaced) + again,
            unchanged=len(self.difference.unchanged) - again,
            source_version=self.state.version,
            schema_changes=sum(map(len, self.evolution.steps)),
            refused=self.state.refused,
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed. ``added``, ``gone``, ``replaced``, ``unchanged``: numbers of files."""

    blocks: tuple[Block, ...]
    removed: tuple[str, ...]
    refused: tuple[RefusedFile, ...]
    properties: dict[str, str]
    added: int
    gone: int
    replaced: int
    unchanged: int
    source_version: str | None
    schema_changes: int

    @property
    def is_nothing(self) -> bool:
        """The table is what it should be already."""
        return not (self.blocks or self.removed or self.properties or self.schema_changes)

    @property
    def storage_failed(self) -> bool:
        """A file could not be reached, which says nothing about it: nothing may be concluded."""
        return any(each.code == StoreError.code for each in self.refused)

    def answer(self, snapshot_id: str, mode: SourceMode, *, changed: bool) -> RefreshTableAnswer:
        """What the caller is told."""
        return RefreshTableAnswer(
            snapshot_id=snapshot_id,
            mode=mode,
            changed=changed,
            added=self.added,
            removed=self.gone,
            replaced=self.replaced,
            unchanged=self.unchanged,
            source_version=self.source_version,
            schema_changes=self.schema_changes,
            refused=self.refused,
        )


def plan_refresh(
    warehouse: Warehouse,
    reader: Reader,
    places: Places,
    pointer: SnapshotPointer,
    head: Snapshot,
    request: RefreshTable,
) -> RefreshPlan:
    """Ask the source of a table and compare; opens no data file.

    Raises:
        InvalidRequest: the table has no source, or one that cannot be followed, or that shows no file any more.
        LocationRefused: the source is where the table may have no files.
        InvalidSchema: the source's columns changed in a way that a table cannot follow.
        ObjectNotFound, StoreError: the source is not there, or could not be read.
    """
    source = source_of(head.properties)
    if source is None:
        raise InvalidRequest("the table has no source: its files are registered, not followed")
    if request.location is not None:
        if source.kind != "iceberg" or source.location is None:
            raise InvalidRequest("location is the metadata file of an Iceberg table that is known by one")
        source = msgspec.structs.replace(source, location=normal(request.location))
    state = reader.read(source, head.properties, places)
    if source.kind == "directory" and not state.files and head.summary.block_count and not request.allow_empty:
        raise InvalidRequest(
            f"{source.location} shows no Parquet file, and the table has {head.summary.block_count}; if that is so, "
            "say allow_empty",
            location=source.location,
        )
    steps = evolution(head, head.properties, state)
    with trusted_manifests():
        found = difference(_held(warehouse, pointer), state.files)
    return RefreshPlan(
        source=source,
        head=head,
        state=state,
        evolution=steps,
        difference=found,
        strict=source.kind != "directory" if request.strict is None else request.strict,
        rereads=request.mode == "full" or steps.rereads,
        mode=request.mode,
    )


def outcome_of(
    warehouse: Warehouse, pointer: SnapshotPointer, plan: RefreshPlan, taken: Taken, *, is_full: bool
) -> Outcome:
    """What is to be committed after the files were read.

    A file that was listed and is gone by now is simply not there, where nothing but the listing said that it was.
    """
    found = plan.difference
    is_told = plan.source.kind != "directory"
    refused = [*plan.state.refused, *(r for r in taken.refused if is_told or r.code != ObjectNotFound.code)]
    added_places = {file.location for file in found.added}
    fresh = {block.location: block for block in taken.blocks}
    same: set[str] = set()
    if is_full and not plan.evolution.rereads:
        with trusted_manifests():
            same = {block.location for block in _blocks(warehouse, pointer) if _is_same(block, fresh)}
    blocks = tuple(block for block in taken.blocks if block.location not in same)
    reread = [file.location for file in plan.to_read if file.location not in added_places]
    lost = [place for place in reread if place not in fresh]
    replaced = [place for place in reread if place in fresh and place not in same]
    unread = 0 if plan.rereads else len(found.unchanged)
    properties = dict(plan.evolution.properties)
    before = plan.head.properties
    if plan.source.location is not None and before.get(_LOCATION) != plan.source.location:
        properties[_LOCATION] = plan.source.location
    if int(before.get(REFUSED, "0")) != len(refused):
        properties[REFUSED] = str(len(refused))
    outcome = Outcome(
        blocks=blocks,
        removed=(*found.removed, *lost, *replaced),
        refused=tuple(refused),
        properties=properties,
        added=len(blocks) - len(replaced),
        gone=len(found.removed) + len(lost),
        replaced=len(replaced),
        unchanged=unread + len(same),
        source_version=plan.state.version,
        schema_changes=sum(map(len, plan.evolution.steps)),
    )
    if outcome.is_nothing or plan.state.version is None:
        return outcome
    return msgspec.structs.replace(outcome, properties={**properties, VERSION: plan.state.version})


def _is_same(held: Block, fresh: dict[str, Block]) -> bool:
    block = fresh.get(held.location)
    if block is None or block.written_with != held.written_with:
        return False
    return msgspec.structs.replace(block, schema_id=held.schema_id, sketches={}) == held


def _held(warehouse: Warehouse, pointer: SnapshotPointer) -> Iterator[Identity]:
    for ref in warehouse.segments(pointer):
        yield from warehouse.identities(ref)


def _blocks(warehouse: Warehouse, pointer: SnapshotPointer) -> Iterator[Block]:
    for ref in warehouse.segments(pointer):
        yield from warehouse.segment(ref).blocks
