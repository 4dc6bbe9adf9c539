"""What a process holds of readers' reports: within the bound of all its memory, never older than its own changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lamella.service.catalog import FeedbackRecord, SqlCatalog, TableRecord, open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.service.history.history import history_entry
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.reader_feedback import ENABLED
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import NamespaceInfo


class Interrupted(SqlCatalog):
    """A catalog in which something happens between the reading of reports and their use."""

    between: Callable[[], object] | None = None

    def feedback(self, table_id: str) -> list[FeedbackRecord]:
        """As the catalog does."""
        found = super().feedback(table_id)
        hook, self.between = self.between, None
        if hook is not None:
            hook()
        return found


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """The parts of a service that takes feedback."""
    settings = Settings(warehouse=str(tmp_path), feedback=True, cache_bytes=200_000)
    opened = open_catalog(settings.catalog_url)
    catalog = Interrupted(opened._engine)
    made = Core(settings, store=FsspecStore(), catalog=catalog, ids=Ids(), clock=lambda: 1)
    made.feedback._timer = lambda: 0.0
    yield made
    made.close()
    opened.close()


def table(core: Core, name: str) -> Snapshot:
    """A table with feedback, without rows."""
    if not core.catalog.namespaces():
        core.catalog.create_namespace(NamespaceInfo(name="n"), now_ms=1)
    schema = Schema.assign([Column(name="a", type="int64")])
    pointer = core.warehouse.create(name, schema, now_ms=1, properties={ENABLED: "true"})
    record = TableRecord(
        table_id=name, namespace="n", name=name, location=name, version=1, pointer=pointer, created_at_ms=1
    )
    core.catalog.create_table(record, history_entry(1, pointer, core.warehouse.snapshot(pointer)))
    return core.warehouse.head(pointer)


def tell(core: Core, name: str, count: int) -> None:
    """Reports of so many blocks."""
    blocks = b"".join(number.to_bytes(16, "little") for number in range(count))
    record = FeedbackRecord(
        table_id=name,
        question="00" * 16,
        asked="{}",
        schema_id=0,
        blocks=blocks,
        block_count=count,
        size_bytes=0,
        used_at_ms=1,
    )
    core.catalog.add_feedback(record, core.feedback._bounds)


def held(core: Core, head: Snapshot) -> int:
    """How many facts there are for a table."""
    facts = core.feedback.facts(head)
    assert facts is not None
    return len(facts)


def test_facts_count_into_the_memory_of_the_process(core: Core) -> None:
    """Those of many tables take no more than all that is held may take; the latest ones are there at once."""
    heads = [table(core, f"t{number}") for number in range(6)]
    for head in heads:
        tell(core, head.table_id, 5_000)
        assert held(core, head) == 5_000
        assert core.feedback.is_near(head)
        assert core.warehouse.resident.size_bytes <= 200_000
    assert core.feedback.is_near(heads[-1])
    assert not core.feedback.is_near(heads[0])
    assert held(core, heads[0]) == 5_000


def test_what_was_read_before_a_change_is_not_held_behind_it(core: Core) -> None:
    """A clearing that comes while facts are read counts for the next prune, not seconds later."""
    head = table(core, "t")
    tell(core, "t", 10)
    record = core.catalog.table("n", "t")
    assert isinstance(core.catalog, Interrupted)
    core.catalog.between = lambda: core.feedback.clear(record)
    assert held(core, head) == 10
    assert not core.feedback.is_near(head)
    assert held(core, head) == 0
    assert core.feedback.is_near(head)
