"""The deletion itself: condemn, look once more, delete, acquit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lamella.service.catalog import Catalog, Condemned
from lamella.service.external_blocks import ExternalBlocks
from lamella.service.metrics import Metrics
from lamella.service.vacuum_report import Report
from lamella.snapshot.layout import Places, Store
from lamella.snapshot.vacuum import BlockSet, LiveSet, object_name

#: So many objects are deleted in one request to the store.
BATCH: Final = 1_000
_EXTERNAL: Final = "external"


class Sweep:
    """One table's deletions in one part of a clean-up; without ``execute`` they are only counted.

    ``root``: its folder. ``doomed``: it is a dropped table of which nothing is needed.
    ``newest_ms``: the newest name time among what is condemned. ``young``: something was too young to be judged.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        metrics: Metrics,
        external: ExternalBlocks,
        places: Places,
        table_id: str,
        report: Report,
        *,
        root: str,
        execute: bool,
        doomed: bool,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._metrics = metrics
        self._external = external
        self._places = places
        self._report = report
        self._root = root
        self._execute = execute
        self._doomed = doomed
        self.table_id = table_id
        self.newest_ms = 0
        self.young = False

    def condemn(self, objects: Sequence[Condemned]) -> None:
        """Note objects that are to be deleted; after this no commit takes them up."""
        if not self._execute:
            for one in objects:
                self._report.goes(one.kind, one.size_bytes)
        elif objects:
            self._catalog.condemn(self.table_id, objects, watermark_ms=self.newest_ms)

    def finish(self, live: LiveSet) -> bool:
        """Delete everything that is condemned, also by a part that did not get here; True: all of it is gone.

        What is needed is read from the catalog again first: a commit that became current before the objects were
        condemned is in there, and none that came after could take one of them up.
        """
        if not self._execute:
            return True
        if not self._doomed:
            live.add(entry.pointer for entry in self._catalog.kept(self.table_id))
        blocks: BlockSet | None = None
        clean = True
        for batch in self._batches():
            if blocks is None and any(one.kind == _EXTERNAL for one in batch):
                blocks = self._external.needed()
            doomed = {one.location: one for one in batch if not self._is_needed(one, live, blocks)}
            failed = self._store.delete_many(doomed)
            for location, reason in failed.items():
                clean = False
                self._report.is_left(location, reason)
            for location, one in doomed.items():
                if location not in failed:
                    self._report.goes(one.kind, one.size_bytes)
                    self._metrics.vacuumed(one.kind, one.size_bytes)
            done = [one.location for one in batch if one.location not in failed]
            self._catalog.acquit(self.table_id, done)
        return clean

    def _is_needed(self, one: Condemned, live: LiveSet, blocks: BlockSet | None) -> bool:
        if one.kind == _EXTERNAL:
            # Rules may have come since it was condemned.
            return blocks is None or one.location in blocks or not self._places.allows(one.location)
        name = object_name(self._root, one.location)
        return name is None or live.holds(name, one.location)  # what is outside of the folder is not ours to delete

    def _batches(self) -> Iterator[list[Condemned]]:
        after = ""
        while batch := self._catalog.condemned(self.table_id, after=after, limit=BATCH):
            yield batch
            after = batch[-1].location
