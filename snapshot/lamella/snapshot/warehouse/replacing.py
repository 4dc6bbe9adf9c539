"""Which registered files left a table, as its snapshots remember it (:mod:`lamella.snapshot.replaced`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lamella.snapshot.manifest import ReplacedFiles, Snapshot
from lamella.snapshot.replaced import ReplacedSet, to_merge
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.writing import ManifestWriter


class Replacing:
    """Looks files up, and writes the sets of the snapshot to come."""

    def __init__(self, manifests: Manifests, writer: ManifestWriter) -> None:
        self._manifests = manifests
        self._writer = writer

    def find(self, snapshot: Snapshot, files: Mapping[str, str | None], *, unknown: bool) -> set[str]:
        """Which of these files left the table; each with the hash of its footer (None: not known).

        ``unknown``: one whose footer is not known is also found where only another footer would be a new file.
        """
        found: set[str] = set()
        for each in snapshot.replaced:
            found |= self._manifests.replaced_set(each.object).has(files, unknown=unknown)
        return found

    def in_own_folder(self, table_id: str, locations: Iterable[str]) -> set[str]:
        """Those that are in the folder of the table's own blocks, which are not remembered when they leave."""
        own = self._writer.layout(table_id).blocks + "/"
        return {location for location in locations if location.startswith(own)}

    def after(self, base: Snapshot, files: Mapping[str, str | None]) -> tuple[ReplacedFiles, ...]:
        """The sets of the snapshot after ``base`` when these files leave the table, written.

        ``files``: by location; the hash of the footer for a file that is only removed, None for one whose rows may be
        in blocks that take its place.
        """
        layout = self._writer.layout(base.table_id)
        own = self.in_own_folder(base.table_id, files)
        foreign = {place: footer for place, footer in files.items() if place not in own}
        if not foreign:
            return base.replaced
        made = ReplacedSet.of(foreign)
        counts = [each.file_count for each in base.replaced]
        kept, waiting = list(base.replaced), [made]
        while chosen := to_merge([*counts, len(made)]):
            taken = [index for index in chosen if index < len(kept)]
            waiting += (self._manifests.replaced_set(kept[index].object) for index in taken)
            made = ReplacedSet.merged(waiting)
            waiting = [made]
            kept = [each for index, each in enumerate(kept) if index not in taken]
            counts = [each.file_count for each in kept]
        return (*kept, self._writer.replaced_files(layout, made))
